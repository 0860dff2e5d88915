"""Many records of a CommitLog stretch at a time: their columns, and the search for them along chains.

Apart from the decoder because importing numpy takes longer than a broker may take to start.
"""

from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.message.columns import Positions, gather, rows_at
from rocketbroker.codec.message.message_const import (
    BORNHOST_V6_FLAG,
    HOST_V4_LENGTH,
    HOST_V6_LENGTH,
    STOREHOSTADDRESS_V6_FLAG,
)
from rocketbroker.codec.message.message_decoder import (
    BODY_POSITION,
    BORN_HOST_POSITION,
    MESSAGE_MAGIC_CODE_V1,
    MESSAGE_MAGIC_CODE_V2,
    RECORD_HEADS,
    STORE_HOST_POSITION,
)
from rocketbroker.codec.storefile.dtypes import RECORD_HEAD
from rocketbroker.codec.storefile.record_search import MAGIC_PREFIX, MIN_RECORD_SIZE, SECTOR, Found, inspect
from rocketbroker.codec.storefile.store_file import LogWindow, StoreFile

# Columns of many records of a CommitLog stretch: positions of their variable parts, fixed fields by one gather.
#
# This is separate from the decoder because importing numpy takes longer than a broker may take to start.

_CRC_BITS: Final = 0x7FFFFFFF
_V6_EXTRA: Final = HOST_V6_LENGTH - HOST_V4_LENGTH
_V6_FLAGS: Final = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG


class _V6Hosts(NamedTuple):
    """Numbers of the records with an IPv6 host, and the extra bytes of their born host and of both hosts."""

    rows: Positions
    born: Positions
    both: Positions


class Records:
    """Records at ``starts``, ascending positions in ``data``, whose first byte has the physical offset ``base``.

    Lengths and positions are int64 arrays with one element per record; positions count from the beginning of ``data``.
    Each array is made on demand, from heads that are copied together. The constructor trusts only the start positions:
    see :meth:`sound`.
    """

    def __init__(self, base: int, data: NDArray[np.uint8], starts: Positions) -> None:
        self.base = base
        self.data = data
        self.starts = starts
        self._fields: dict[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sys_flag(self) -> NDArray[np.int32]:
        """Bits of MessageSysFlag."""
        return self.field("sys_flag")

    @cached_property
    def total_size(self) -> Positions:
        """Bytes of the whole records."""
        return self.field("total_size").astype(np.int64)

    @property
    def physical_offset(self) -> Positions:
        """Physical offsets that the records name."""
        return self.field("physical_offset")

    @cached_property
    def body_at(self) -> Positions:
        """Positions of the bodies."""
        return self._inside(self._behind_hosts(BODY_POSITION))

    @cached_property
    def body_length(self) -> Positions:
        """Bytes of the bodies."""
        return self.field("body_length").astype(np.int64)

    @property
    def topic_at(self) -> Positions:
        """Positions of the topics."""
        return self._topic[0]

    @property
    def topic_length(self) -> Positions:
        """Bytes of the topics."""
        return self._topic[1]

    @property
    def properties_at(self) -> Positions:
        """Positions of the properties."""
        return self._properties[0]

    @property
    def properties_length(self) -> Positions:
        """Bytes of the properties."""
        return self._properties[1]

    @property
    def store_host_at(self) -> Positions:
        """Positions of the store hosts."""
        at = self.starts + STORE_HOST_POSITION
        at[self._v6.rows] += self._v6.born
        return at

    def field(self, name: str) -> NDArray[Any]:
        """Return the values of the field ``name`` of ``dtypes.RECORD_HEAD``, in the machine's byte order.

        The values are cached; do not write to them.
        """
        values = self._fields.get(name)
        if values is None:
            values = self._fields[name] = self._field(name)
        return values

    def _field(self, name: str) -> NDArray[Any]:
        kind, at = RECORD_HEAD[name], _offset_of(name)
        values = self._heads[name].astype(kind.newbyteorder("="))
        if at > BORN_HOST_POSITION and len((v6 := self._v6).rows):
            positions = self.starts[v6.rows] + (v6.both if at > STORE_HOST_POSITION else v6.born) + at
            values[v6.rows] = gather(self.data, kind, self._inside(positions, kind.itemsize))
        return values

    def sound(self) -> bool:
        """Return true if a record begins at every start: a magic code, its own offset, and lengths that add up."""
        return bool(self.sound_each().all())

    def sound_each(self, offsets: Positions | None = None) -> NDArray[np.bool_]:
        """Return a mask of the starts at which a record begins, shape (n,).

        ``offsets`` are the expected physical offsets if ``data`` is not one stretch of the log.
        """
        found: NDArray[np.bool_] = (self._magic == MESSAGE_MAGIC_CODE_V1) | (self._magic == MESSAGE_MAGIC_CODE_V2)
        found &= self.physical_offset == (self.starts + self.base if offsets is None else offsets)
        found &= self.properties_at + self.properties_length == self.starts + self.total_size
        for lengths in (self.body_length, self.topic_length, self.properties_length):
            if len(lengths) and lengths.min() < 0:
                found &= lengths >= 0
        last = len(self.data) - RECORD_HEAD.itemsize
        return found & (self.starts <= last) if len(found) and self.starts[-1] > last else found

    def wrong_bodies(self) -> Positions:
        """Return the numbers of the records whose body does not match the CRC-32 in the record."""
        view = self.data.data
        # map is quicker than a loop: this runs for each message that a recovery reads.
        bodies = map(view.__getitem__, map(slice, self.body_at.tolist(), (self.body_at + self.body_length).tolist()))
        found = np.fromiter(map(crc32, bodies), np.uint32, len(self))
        return np.flatnonzero((found & _CRC_BITS) != self.field("body_crc"))

    def suspects(self, position: int, end: int) -> list[int]:
        """Return the numbers of the records that may have a damaged body, or lack a sector after it.

        Such a sector begins with a zero, or is one of several.

        Args:
            position: position in the file of the first byte of ``data``.
            end: end of the last record in ``data``.
        """
        tails, ends = self.body_at + self.body_length, np.append(self.starts[1:], end)
        sectors = tails + SECTOR - (position + tails) % SECTOR
        inside = np.flatnonzero(sectors < ends)
        torn = (self.data[sectors[inside]] == 0) | (sectors[inside] + SECTOR < ends[inside])
        return sorted({*self.wrong_bodies().tolist(), *inside[torn].tolist()})

    @cached_property
    def _heads(self) -> NDArray[Any]:
        """Return the heads in the form with two IPv4 hosts, shape (n,) of RECORD_HEAD."""
        size = RECORD_HEAD.itemsize
        if len(self.data) < size:
            return np.zeros(len(self.starts), RECORD_HEAD)
        return gather(self.data, f"V{size}", self._inside(self.starts, size)).view(RECORD_HEAD)

    @cached_property
    def _v6(self) -> _V6Hosts:
        flags = self._heads.view(np.uint8)[_SYS_FLAG_LOW_AT :: RECORD_HEAD.itemsize] & _V6_FLAGS
        rows = np.flatnonzero(flags != 0)
        flags = flags[rows]
        born = np.where(flags & BORNHOST_V6_FLAG, _V6_EXTRA, 0)
        return _V6Hosts(rows, born, born + np.where(flags & STOREHOSTADDRESS_V6_FLAG, _V6_EXTRA, 0))

    @property
    def _magic(self) -> NDArray[np.uint32]:
        return self.field("magic")

    def _behind_hosts(self, position: int) -> Positions:
        """Return positions after both hosts in the data; ``position`` is the one for IPv4 hosts."""
        at = self.starts + position
        if len(self._v6.rows):
            at[self._v6.rows] += self._v6.both
        return at

    @cached_property
    def _topic(self) -> tuple[Positions, Positions]:
        length_at = self._inside(self.body_at + self.body_length, 2)
        at, lengths = length_at + 1, self.data.take(length_at).astype(np.int64)
        v2 = np.flatnonzero(self._magic == MESSAGE_MAGIC_CODE_V2)
        if len(v2):
            at[v2] += 1
            lengths[v2] = gather(self.data, ">i2", length_at[v2])
        return at, lengths

    @cached_property
    def _properties(self) -> tuple[Positions, Positions]:
        at = self._inside(self.topic_at + self.topic_length, 2)
        # Single bytes are gathered faster than numbers that are not aligned.
        high, low = self.data.take(at).view(np.int8), self.data.take(at + 1)
        return at + 2, (high.astype(np.int64) << 8) | low

    def _inside(self, positions: Positions, length: int = 0) -> Positions:
        """Return ``positions`` moved so that ``length`` bytes follow: broken lengths may point anywhere."""
        last = len(self.data) - length
        # As unsigned numbers, negative ones are larger than any.
        if not len(positions) or positions.view(np.uint64).max() <= last:
            return positions
        return np.clip(positions, 0, last)


def _offset_of(name: str) -> int:
    fields = RECORD_HEAD.fields
    assert fields is not None
    return fields[name][1]


# Both flags of IPv6 hosts are in the last byte of sysFlag.
_SYS_FLAG_LOW_AT: Final = _offset_of("sys_flag") + 3

# Search for the records of a CommitLog stretch, many at a time.
#
# A record is searched every ``_STEP`` bytes. From all of these anchors numpy follows totalSize, one step at a time,
# until each chain meets the next anchor. The result ends where a chain misses, or the lengths of a record do not add
# up: the caller continues there record by record, and finds the damage.

_STEP: Final = 8 << 10
# Bytes searched for a record; if none begins in them, the chain before continues to the next anchor.
_SEARCHED: Final = 2 << 10
_NEAR: Final = 1 << 10  # bytes searched first, in all stretches at once
# Records that all chains advance before finished chains are removed.
_STRIDE: Final = 16
_FEWEST: Final = 3
_MAGIC_AT: Final = 4
_POSITION_AT: Final = 28
_NONE: Final[Positions] = np.empty(0, np.int64)


def chain_records(window: LogWindow, high: int) -> tuple[Records, int] | None:
    """Return the records from the window's start to a file position below ``high``, and that position.

    A sound record begins there, or something irregular lies between it and the next anchor. The result is ``None`` if
    there are too few records for chains, or the first is irregular.
    """
    data, base = window.array(), window.file.base + window.start
    anchors = _anchors(window, data, base, min(high, window.end - RECORD_HEADS[3].size) - window.start)
    if len(anchors) < _FEWEST:
        return None
    starts, regular = _follow(data, anchors)
    records = Records(base, data, starts if regular == len(anchors) - 1 else starts[starts < anchors[regular]])
    sound = records.sound_each()
    if not sound.all():
        regular = int(np.searchsorted(anchors, records.starts[np.argmin(sound)], side="right")) - 1
        records = Records(base, data, starts[starts < anchors[regular]])
    return (records, int(anchors[regular]) + window.start) if regular else None


def _anchors(window: LogWindow, data: NDArray[np.uint8], base: int, high: int) -> Positions:
    """Return positions in ``data`` that look like records, one every ``_STEP`` bytes or so.

    The first is at 0; the result is empty if no record begins there.
    """
    if high <= 0 or inspect(window, window.start)[0] is not Found.RECORD:
        return _NONE
    lows = np.arange(_STEP, min(high, len(data) - _SEARCHED - RECORD_HEADS[3].size), _STEP)
    if not len(lows):
        return _NONE
    # The first byte of a magic code is not ASCII and rare in other data: mostly the first one found is a magic code.
    found = lows + (rows_at(data, lows + _MAGIC_AT, _NEAR) == MAGIC_PREFIX[0]).argmax(axis=1)
    left = np.flatnonzero(~_look_alike(data, base, found))
    found[left] = _search(data, base, lows[left])
    return np.concatenate(([0], found[(found >= 0) & (found < high)]))


def _search(data: NDArray[np.uint8], base: int, lows: Positions) -> Positions:
    """Return the first position from each of ``lows`` on that looks like a record, -1 without one."""
    hits = np.flatnonzero(rows_at(data, lows + _MAGIC_AT, _SEARCHED) == MAGIC_PREFIX[0])
    rows = hits // _SEARCHED
    places = lows[rows] + hits % _SEARCHED
    alike = _look_alike(data, base, places)
    found = np.full(len(lows), -1)
    found[rows[alike][::-1]] = places[alike][::-1]  # of several, the last one stored counts
    return found


def _look_alike(data: NDArray[np.uint8], base: int, places: Positions) -> NDArray[np.bool_]:
    """Return a mask of the places with the magic code of a message and their own offset."""
    alike = gather(data, ">u4", places + _MAGIC_AT) >> 8 == int.from_bytes(MAGIC_PREFIX, "big")
    found: NDArray[np.bool_] = alike & (gather(data, ">i8", places + _POSITION_AT) == places + base)
    return found


def _follow(data: NDArray[np.uint8], anchors: Positions) -> tuple[Positions, int]:
    """Return the positions on the chains between anchors, and the number of the first chain that misses."""
    sizes = np.ndarray((len(data) - 3,), ">u4", buffer=data, strides=(1,))
    cursors, ends, numbers = anchors[:-1], anchors[1:], np.arange(len(anchors) - 1)
    found, regular = [], len(numbers)
    while len(cursors):
        block = np.empty((_STRIDE + 1, len(cursors)), np.int64)
        block[0] = cursors
        for row, after in pairwise(block):
            np.add(row, sizes[row], out=after)
            np.minimum(after, len(sizes) - 1, out=after)
        # Chain by chain: the positions then ascend but for a few changes of stride, which makes the sort quick.
        found.append(block[:-1].T[(block[:-1] < ends).T])
        cursors = block[-1]
        through, stuck = cursors >= ends, cursors - block[0] < _STRIDE * MIN_RECORD_SIZE
        missed = np.where(through, ~(block == ends).any(axis=0), stuck)
        if missed.any():
            regular = min(regular, int(numbers[missed][0]))
        going = ~(through | stuck)
        cursors, ends, numbers = cursors[going], ends[going], numbers[going]
    return np.sort(np.concatenate(found), kind="stable"), regular


# Bytes after the last record, so that the head of a broken one is inside the data.
_MARGIN: Final = RECORD_HEADS[3].size


class ScatteredRecords:
    """Reader of records at ascending positions of one file.

    Args:
        source: the open file.
        base: physical offset of its first byte.
        near: most bytes between records that are read together.
        at_once: bytes to read for a group, or one record if that is longer.
    """

    def __init__(self, source: StoreFile, base: int, near: int, at_once: int) -> None:
        self._source = source
        self._base = base
        self._near = near
        self._at_once = at_once

    def groups(self, positions: Positions, sizes: Positions) -> list[Positions]:
        """Return the numbers of the records, in groups of about ``at_once`` bytes."""
        between = np.diff(positions, append=positions[-1:]) - sizes
        read = sizes + np.where((between > 0) & (between <= self._near), between, 0)
        turns = np.flatnonzero(np.diff((np.cumsum(read) - 1) // self._at_once)) + 1
        return np.split(np.arange(len(positions)), turns) if len(positions) else []

    def claimed(self, positions: Positions, sizes: Positions) -> NDArray[np.bool_]:
        """Return a mask of the records that are short, or whose stored size is long: only these may be given memory."""
        found = np.ones(len(positions), np.bool_)
        for number in np.flatnonzero(sizes > self._at_once).tolist():
            head = self._source.read_at(int(positions[number]), 4)
            found[number] = int.from_bytes(head, "big") == sizes[number]
        return found

    def read(
        self, positions: Positions, sizes: Positions, memory: NDArray[np.uint8] | None = None
    ) -> tuple[Records, NDArray[np.bool_]]:
        """Return the records of a group, and a mask of those that are sound and have their size.

        Args:
            positions: positions of the records in the file.
        """
        ends = np.maximum.accumulate(positions + sizes)
        cuts = np.flatnonzero(positions[1:] - ends[:-1] > self._near) + 1
        firsts, lasts = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(positions)])) - 1
        begins, lengths = positions[firsts], ends[lasts] - positions[firsts]
        length = int(lengths.sum())
        data = np.empty(length + _MARGIN, np.uint8) if memory is None or len(memory) < length + _MARGIN else memory
        data, placed = data[: length + _MARGIN], np.cumsum(lengths) - lengths
        for begin, at, count in zip(begins.tolist(), placed.tolist(), lengths.tolist(), strict=True):
            done = self._source.read_into(begin, data.data[at : at + count])
            data[at + done : at + count] = 0  # the file has become shorter
        data[length:] = 0
        run = np.searchsorted(begins, positions, side="right") - 1
        records = Records(0, data, positions - begins[run] + placed[run])
        return records, records.sound_each(positions + self._base) & (records.total_size == sizes)
