"""Columns of many records of a CommitLog stretch: positions of their variable parts, fixed fields by one gather.

This is separate from the decoder because importing numpy takes longer than a broker may take to start.
"""

from functools import cached_property
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.byte_columns import Positions, gather
from rocketbroker.codec.message.message_encoder import (
    BODY_POSITION,
    BORN_HOST_POSITION,
    MESSAGE_MAGIC_CODE_V1,
    MESSAGE_MAGIC_CODE_V2,
    STORE_HOST_POSITION,
)
from rocketbroker.codec.message.message_sys_flag import (
    BORNHOST_V6_FLAG,
    HOST_V4_LENGTH,
    HOST_V6_LENGTH,
    STOREHOSTADDRESS_V6_FLAG,
)
from rocketbroker.codec.storefile.body_check import SECTOR
from rocketbroker.codec.storefile.dtypes import RECORD_HEAD

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
