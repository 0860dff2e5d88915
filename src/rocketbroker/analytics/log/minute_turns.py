"""Starts of minutes in a CommitLog, found by reading few of its messages.

Store times rise with the offset, so it is enough to find the first message of each minute. Queues have the offsets of
messages. One message in each 128 KiB of the log is read, then the range around the turn of a minute is bisected, and
all messages of the last 32 KiB around it are read: these must be contiguous, and times must not go back.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketbroker.analytics.files.commit_log_files import LogFile, log_window
from rocketbroker.analytics.files.store_files import open_folder, opened
from rocketbroker.analytics.log.queue_entries import CheckedQueue, QueueNotWholeError
from rocketbroker.codec.message.columns import Positions, gather
from rocketbroker.codec.message.message_decoder import (
    BLANK_LENGTH,
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V1,
    MESSAGE_MAGIC_CODE_V2,
    RECORD_HEADS,
)
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.record_search import Found, inspect
from rocketbroker.codec.storefile.store_file import StoreFile
from rocketbroker.common.errors import CodecError

MINUTE_MS: Final = 60_000
_SAMPLED: Final = 128 << 10
# Around the turn of a minute, all messages between two that are this close to each other are read.
_NEAR: Final = 32 << 10
# One of this many entries of a queue is sampled; fewer where that would be too many in total.
_STEP: Final = 32
_MOST_KNOWN: Final = 4 << 20
# Stretches up to this length are read as a whole, several at once up to a total.
_SHORT: Final = 256 << 10
_TOGETHER: Final = 8 << 20
# At most this many messages after the last known one are read; more means that queues lag far behind.
_MOST_BEHIND: Final = 4096
# Bytes of the longest record head.
_HEAD_SIZE: Final = RECORD_HEADS[3].size


class MinuteTurns(NamedTuple):
    """Minutes with messages before the offset ``end``, in ms since 1970, and the offset of each one's first message."""

    minutes: Positions
    begins: Positions
    end: int


def minute_turns(files: Sequence[LogFile], queues: Sequence[CheckedQueue]) -> MinuteTurns:
    """Return the minutes of the log, up to its end when its files were measured.

    Raises:
        CodecError: no message begins at the offset in its queue, or times go back.
        QueueNotWholeError: there are no entries.
    """
    known = _known(files, queues)
    first_of_each = np.flatnonzero(np.diff(known // _SAMPLED, prepend=-1))
    sampled = known[np.append(first_of_each[:-1], sorted({first_of_each[-1], len(known) - 1}))]
    sampled, times = _halved(files, known, sampled)
    turns = np.flatnonzero(np.diff(times // MINUTE_MS))
    tail, end = _tail(files, int(known[-1]))
    stretches = list(zip(sampled[turns].tolist(), sampled[turns + 1].tolist(), strict=True))
    found = [*(_walked(file, stretches) for file in files), (tail, _stored_times(files, tail))]
    offsets = np.concatenate((sampled, *(each[0] for each in found)))
    times = np.concatenate((times, *(each[1] for each in found)))
    order = np.argsort(offsets, kind="stable")
    offsets, minutes = offsets[order], _risen(times[order]) // MINUTE_MS
    new = np.flatnonzero(np.concatenate(([True], minutes[1:] != minutes[:-1])))
    return MinuteTurns(minutes[new] * MINUTE_MS, offsets[new], end)


def _known(files: Sequence[LogFile], queues: Sequence[CheckedQueue]) -> Positions:
    """Return ascending offsets of messages: the first of each file, and some of each queue."""
    step = max(_STEP, sum(queue.capacity for queue in queues) // _MOST_KNOWN)
    # A different phase for each queue: queues that are filled in turn have the same number of entries.
    found = [queue.every(step, number * 7 % step) for number, queue in enumerate(queues)]
    if not any(map(len, found)):
        raise QueueNotWholeError("no queue points into the log")
    # Faster than numpy's "unique", which hashes.
    known: Positions = np.sort(np.concatenate((*found, [file.base for file in files])))
    known = known[slice(*np.searchsorted(known, (files[0].base, files[-1].base + files[-1].data_end)))]
    different: Positions = known[np.diff(known, prepend=-1) != 0]
    return different


def _halved(files: Sequence[LogFile], known: Positions, offsets: Positions) -> tuple[Positions, Positions]:
    """Return ``offsets`` and their store times, with offsets of ``known`` added until turns of minutes are close."""
    times = _stored_times(files, offsets)
    while True:
        turns = np.flatnonzero((np.diff(times // MINUTE_MS) != 0) & (np.diff(offsets) > _NEAR))
        begins, ends = np.searchsorted(known, offsets[turns], "right"), np.searchsorted(known, offsets[turns + 1])
        parted = begins < ends
        if not parted.any():
            return offsets, _risen(times)
        places, middles = turns[parted] + 1, known[(begins + ends)[parted] // 2]
        times = np.insert(times, places, _stored_times(files, middles))
        offsets = np.insert(offsets, places, middles)


def _risen(times: Positions) -> Positions:
    if (times[1:] < times[:-1]).any():
        raise CodecError("store times go back")
    return times


def _stored_times(files: Sequence[LogFile], offsets: Positions) -> Positions:
    """Return the store times in ms of the messages that begin at ``offsets``, which ascend, shape (n,).

    Raises:
        CodecError: no message begins at one of the offsets.
    """
    found = []
    for file in files:
        low, high = np.searchsorted(offsets, (file.base, file.base + file.size))
        if high > low:
            with opened(open_folder(file.root), file.name, "commit-log file") as source:
                heads = source.read_each((offsets[low:high] - file.base).tolist(), _HEAD_SIZE)
            starts = np.arange(0, len(heads), _HEAD_SIZE)
            found.append(_times_at(np.frombuffer(heads, np.uint8), starts, offsets[low:high]))
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _times_at(data: NDArray[np.uint8], starts: Positions, offsets: Positions) -> Positions:
    """Return the store times in ms of the messages at ``starts`` in ``data``, which have the physical ``offsets``."""
    records = Records(0, data, starts)
    magic = records.field("magic")
    sound = (magic == MESSAGE_MAGIC_CODE_V1) | (magic == MESSAGE_MAGIC_CODE_V2)
    sound &= records.physical_offset == offsets
    if not sound.all():
        raise CodecError(f"no message begins at {offsets[int(np.flatnonzero(~sound)[0])]}")
    times: Positions = records.field("store_timestamp")
    return times


def _tail(files: Sequence[LogFile], offset: int) -> tuple[Positions, int]:
    """Return the offsets of the complete messages after the one at ``offset``, and where they end.

    A broker may have dispatched them after the queues were read.
    """
    file, found = next(file for file in reversed(files) if file.base <= offset), list[int]()
    with log_window(file) as window:
        while len(found) < _MOST_BEHIND and (here := inspect(window, offset - file.base))[0] is Found.RECORD:
            found.append(offset)
            offset += here[1]
    return np.array(found[1:], np.int64), offset


def _walked(file: LogFile, stretches: Sequence[tuple[int, int]]) -> tuple[Positions, Positions]:
    """Return offsets and store times of all messages of ``file`` in stretches that each begin with a message."""
    mine = [(low, high) for low, high in stretches if file.base <= low < file.base + file.size]
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    if mine:
        memory = np.empty(_TOGETHER, np.uint8)
        with opened(open_folder(file.root), file.name, "commit-log file") as source:
            for low, high in mine:
                if high - low > _SHORT:
                    offsets = _one_by_one(source, file, low, high)
                    found.append((offsets, _stored_times([file], offsets)))
            for group in _groups([each for each in mine if each[1] - each[0] <= _SHORT]):
                lows, highs = np.array(group, np.int64).T
                found.append(_at_once(source, file, lows, np.minimum(highs, file.base + file.size), memory))
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def _groups(stretches: Sequence[tuple[int, int]]) -> Iterator[Sequence[tuple[int, int]]]:
    """Yield groups of stretches that fit into ``_TOGETHER`` bytes, with a record head after each."""
    ends = np.cumsum([high - low + _HEAD_SIZE for low, high in stretches]) // (_TOGETHER - _SHORT - _HEAD_SIZE)
    for begin, end in pairwise([0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(stretches)]):
        if begin < end:
            yield stretches[begin:end]


def _one_by_one(source: StoreFile, file: LogFile, low: int, high: int) -> Positions:
    """Return the offsets of the messages from ``low`` to before ``high``: too few to read all bytes in between."""
    found, offset, end = list[int](), low, min(high, file.base + file.size)
    while offset < end:
        head = source.read_at(offset - file.base, BLANK_LENGTH)
        if int.from_bytes(head[4:], "big") == BLANK_MAGIC_CODE:
            return np.array(found, np.int64)
        found.append(offset)
        offset += max(int.from_bytes(head[:4], "big"), 1)
    if offset > end:
        raise CodecError(f"no message begins at {found[-1]} or after it")
    return np.array(found, np.int64)


def _at_once(
    source: StoreFile, file: LogFile, lows: Positions, highs: Positions, memory: NDArray[np.uint8]
) -> tuple[Positions, Positions]:
    """Return offsets and times of the messages from each of ``lows`` to before each of ``highs``, all in step."""
    lengths = highs - lows + _HEAD_SIZE
    at = np.cumsum(lengths) - lengths
    for place, length, low in zip(at.tolist(), lengths.tolist(), (lows - file.base).tolist(), strict=True):
        source.read_into(low, memory.data[place : place + length])
    ends, shifts, starts, offsets = at + highs - lows, lows - at, list[Positions](), list[Positions]()
    while len(at):
        starts.append(at)
        offsets.append(at + shifts)
        after = at + np.maximum(gather(memory, ">u4", at), BLANK_LENGTH)
        going = after < ends
        if not going.all():
            if (after > ends).any():
                raise CodecError(f"no message begins at {int(offsets[-1][np.argmax(after > ends)])} or after it")
            ends, shifts, after = ends[going], shifts[going], after[going]
        at = after
    at = np.concatenate(starts)
    # The blank record that closes a file also leads to its end.
    is_message = gather(memory, ">u4", at + 4) != BLANK_MAGIC_CODE
    found = np.concatenate(offsets)[is_message]
    return found, _times_at(memory, at[is_message], found)
