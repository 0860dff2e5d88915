"""Reads of messages that may come from the disk; damaged ones are left out.

New messages are in the page cache as this process wrote them, and are sent unchecked. Older ones, stored before the
start or a failed sync or far back in the log, may come from a disk that has changed them. Each of these is checked
against its queue entry and its own checksum.

The event loop reads only the page cache, because it must not wait for the disk; a thread reads the rest. The distance
of a message from the end of the log does not determine where it is.
"""

import asyncio
import logging
import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import accumulate, chain, compress, repeat
from itertools import count as count_from
from math import inf
from operator import add, itemgetter, sub
from time import perf_counter
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.raw_records import ExpectedRecord, record_properties
from rocketbroker.codec.message.tags_code import tags_code_bytes
from rocketbroker.common.errors import StoreError
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.get_message import PropertyFilter, UncheckedMessages

log = logging.getLogger(__name__)

# Most cached damaged messages, each of which is logged once; further ones are only counted.
_MOST_LOGGED = 1000


class DamageLog:
    """Log and count of messages left out of reads; usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: set[tuple[str, int]] = set()
        # Damaged messages found since the start; those that are not cached count at each read.
        self.count = 0

    def report(self, path: str, position: int, what: str) -> None:
        """Log that a message is left out, unless it was logged before."""
        with self._lock:
            if (path, position) in self._logged:
                return
            self.count += 1
            last = len(self._logged) == _MOST_LOGGED - 1
            if len(self._logged) == _MOST_LOGGED:
                return
            self._logged.add((path, position))
        log.error("%s is damaged at %d: %s. Stop the broker and run `mqstore check` on its store", path, position, what)
        if last:
            log.error("damaged messages: %d are logged; further ones are counted but not logged", _MOST_LOGGED)


# Bytes per question to the kernel, and seconds for which its answer is used: asking costs as much as reading a few
# small messages. Unless memory is short, data recently in the page cache is still there.
_WINDOW: Final = 1024 * 1024
_BELIEVED_S: Final = 1.0
# Most cached windows: 4 GiB of the log.
_MOST_WINDOWS: Final = 4096


class CacheableFile(Protocol):
    """A ``MappedFile`` of the log; positions are within it."""

    file_from_offset: int
    wrote: int

    def is_cached(self, start: int, end: int) -> bool:
        """Return true if a range is in the page cache."""


class CachedWindows:
    """Asks the kernel, and keeps each answer for a second."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        # Time until which a window counts as in the page cache, by the window's CommitLog offset.
        self._cached_until: dict[int, float] = {}

    def forget(self) -> None:
        """Ask the kernel about each window again."""
        self._cached_until.clear()

    def holds(self, file: CacheableFile, start: int, end: int) -> bool:
        """Return true if positions ``start`` to ``end`` of a file of the log are in the page cache."""
        now = self._monotonic()
        begin = file.file_from_offset
        cached_until = self._cached_until
        for window in range(start - start % _WINDOW, end, _WINDOW):
            if cached_until.get(begin + window, 0.0) > now:
                continue
            if not file.is_cached(window, min(window + _WINDOW, file.wrote)):
                return file.is_cached(start, end)
            if len(cached_until) >= _MOST_WINDOWS:
                cached_until.clear()
            cached_until[begin + window] = now + _BELIEVED_S
        return True


class LogRead:
    """A pending read; its files stay open until it is done.

    Create it on the event loop, which alone adds and removes files.

    Raises:
        StoreError: The log is closed.
    """

    __slots__ = ("_data", "_parts")

    def __init__(self, commit_log: CommitLog, ranges: Sequence[tuple[int, int]]) -> None:
        self._data = bytearray(sum(size for _, size in ranges))
        self._parts = list(_parts(commit_log, ranges, memoryview(self._data)))

    def read(self) -> bytearray:
        """Return the ranges back to back (blocks), with zeros for bytes that were removed or are missing at a file's
        end.

        Raises:
            StoreError: The disk cannot be read.
        """
        for file, position, into in self._parts:
            try:
                os.preadv(file.fd, [into], position)
            except OSError as error:
                raise StoreError(f"cannot read {file.path} at {position}: {error.strerror}") from error
        return self._data


def file_of(commit_log: CommitLog, offset: int) -> MappedFile | None:
    """Return the file with an offset; ``None`` when it was removed.

    Raises:
        StoreError: The log is closed.
    """
    file = commit_log.queue.find(offset)
    if file is None and offset >= commit_log.min_offset:
        raise StoreError(f"the CommitLog is closed, or has no file with offset {offset}")
    return file


def _parts(
    commit_log: CommitLog, ranges: Sequence[tuple[int, int]], into: memoryview
) -> Iterator[tuple[MappedFile, int, memoryview]]:
    at = 0
    for range_offset, range_size in ranges:
        offset, end = range_offset, range_offset + range_size
        # Of two entries that seem to be neighbours, one may be damaged, so that they lead to different files.
        while offset < end:
            file = file_of(commit_log, offset)
            if file is None:
                at += end - offset
                break
            size = min(end, file.file_from_offset + file.file_size) - offset
            yield file, offset - file.file_from_offset, into[at : at + size]
            at += size
            offset += size


# Replaces an entry that cannot name a record; skipped like one whose message was removed.
_NO_RECORD: Final = (-1, 0, 0)
# Checking more would block the event loop for over a millisecond.
MOST_ON_LOOP: Final = 1024 * 1024
#: Seconds that a quick filter on properties may take in a turn of the event loop. A thread would take longer: each call
#: of numpy releases the interpreter, and then waits for it.
FILTER_TURN_S: Final = 0.001
# Messages further apart are looked up in the page cache one by one, nearer ones together with the gaps between them.
_MOST_SPANNED: Final = 4 * 1024 * 1024
_offset_of: Final = itemgetter(1)
# Most cached tags codes of a queue.
_MOST_TAGS_CODES: Final = 1024

T = TypeVar("T")


class SoundMessages(NamedTuple):
    """Messages that passed the checks; ``stopped_at`` is the queue offset of the first that exceeded a limit."""

    buffers: Sequence[ReadableBuffer]
    message_count: int
    total_size: int
    stopped_at: int | None = None


class ColdRead(Generic[T]):
    """A read on a thread that starts when it is awaited; it may be dropped before."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._read = read

    def __await__(self) -> Generator[Any, None, T]:
        """Read, and wait for it."""
        return self._read().__await__()


class _Part(NamedTuple):
    """Records, and their positions in ``data``."""

    data: memoryview
    starts: list[int]
    expected: Sequence[ExpectedRecord]


class CheckedReader:
    """Checks queue entries, then the records that they name.

    Args:
        executor: threads for reads beyond the page cache.
    """

    def __init__(self, commit_log: CommitLog, damage_log: DamageLog, executor: Executor) -> None:
        self._commit_log = commit_log
        self._damage_log = damage_log
        self._executor = executor
        self.cached = CachedWindows()

    # -- entries

    def entries(
        self, queue: ConsumeQueueInterface, queue_offset: int, first: int, limit: int
    ) -> Iterable[tuple[int, int, int]]:
        """Read entries like ``ConsumeQueue.entries``, with offset -1 for one that cannot name a record.

        Args:
            first: number of entries that are needed in any case.
        """
        entries = list(queue.entries(queue_offset, min(first, limit)))
        done = len(entries) if self._are_plausible(queue, entries) else 0
        return chain(entries[:done], self._one_by_one(queue, queue_offset + done, limit - done))

    def _are_plausible(self, queue: ConsumeQueueInterface, entries: list[tuple[int, int, int]]) -> bool:
        """Return true if all entries are certainly plausible; this quick check suffices for most pulls."""
        if not entries:
            return True
        log = self._commit_log
        offsets: tuple[int, ...]
        sizes: tuple[int, ...]
        offsets, sizes, _ = zip(*entries, strict=True)
        start, end, size = min(offsets), max(offsets) + max(sizes), log.queue.file_size
        one_file = (start - log.min_offset) // size == (end - 1 - log.min_offset) // size
        sized = min(sizes) >= queue.record_check.least_size and max(sizes) <= log.longest_record
        return one_file and sized and start >= log.min_offset and end <= log.max_offset

    def _one_by_one(
        self, queue: ConsumeQueueInterface, queue_offset: int, limit: int
    ) -> Iterator[tuple[int, int, int]]:
        log = self._commit_log
        minimum, end, file_size = log.min_offset, log.max_offset, log.queue.file_size
        least = queue.record_check.least_size
        found = False
        for number, entry in enumerate(queue.entries(queue_offset, limit), queue_offset):
            offset, size, _ = entry
            if offset >= minimum:
                inside = offset + size <= end and (offset - minimum) % file_size + size <= file_size
                if inside and least <= size and log.may_be_record(offset, size):
                    found = True
                    yield entry
                    continue
            elif offset >= 0 and size >= least and not found:
                yield entry  # its file was removed
                continue
            self.report_entry(queue, number, f"it names {size} bytes at {offset}, where the queue cannot have a record")
            yield _NO_RECORD

    @staticmethod
    def possible_matches(queue: ConsumeQueueInterface, matches: Callable[[int], bool]) -> Callable[[int], bool]:
        """Return a filter for entries whose record must be read: their code matches, or may be damaged.

        A code not seen in any record of the queue may be a damaged one; only the record can tell.
        """
        known = queue.tags_codes
        if queue.schedule:
            return matches
        return lambda code: matches(code) or (code not in known and len(known) < _MOST_TAGS_CODES)

    def count_sound(
        self, queue: ConsumeQueueInterface, queue_offset: int, entries: Sequence[tuple[int, int, int]], most_bytes: int
    ) -> int:
        """Count the first entries within ``most_bytes`` if their records are sound, cached and in one file, else 0.

        This suffices for most pulls; the others take the slower path.
        """
        log = self._commit_log
        file = log.queue.find(entries[0][0]) if entries else None
        if file is None:
            return 0
        offsets, sizes, codes = zip(*entries, strict=True)
        most_bytes = min(most_bytes, MOST_ON_LOOP)
        count = len(entries) if sum(sizes) <= most_bytes else bisect_right(list(accumulate(sizes)), most_bytes)
        starts = list(map(sub, offsets[:count], repeat(file.file_from_offset)))
        if not starts or min(sizes) < queue.record_check.least_size:
            return 0
        start, end = min(starts), max(map(add, starts, sizes))
        if start < 0 or end > file.wrote or end - start > _MOST_SPANNED or not self.cached.holds(file, start, end):
            return 0
        expected = list(zip(count_from(queue_offset), offsets[:count], sizes, codes, strict=False))
        return 0 if queue.record_check.unsound(file.buffer, starts, expected) else count

    # -- records

    def is_cached(self, offset: int, size: int) -> bool:
        """Return true if a range of the log is in the page cache."""
        file = self._commit_log.queue.find(offset)
        if file is None:
            return False
        start = offset - file.file_from_offset
        return self.cached.holds(file, start, start + size)

    def read(self, messages: UncheckedMessages) -> SoundMessages | ColdRead[SoundMessages]:
        """Read messages, at once if they are in the page cache and not too many, else when the result is awaited.

        Raises:
            StoreError: The disk cannot be read, or the log is closed; also when awaited.
        """
        is_quick = messages.chosen_by is None or messages.chosen_by.message_filter.is_quick
        if is_quick and messages.size <= MOST_ON_LOOP:
            parts = self._cached_parts(messages.expected)
            if parts is not None:
                all_of_them = partial(self._commit_log.slices, messages.ranges)
                return self._sound_of(messages, parts, all_of_them, FILTER_TURN_S)
        return ColdRead(partial(self._read_on_thread, messages))

    def _cached_parts(self, expected: Sequence[ExpectedRecord]) -> list[_Part] | None:
        """Find the records in the mapped files; ``None`` if reading them would wait for the disk."""
        parts: list[_Part] = []
        for file, records in self._by_file(expected):
            _, offsets, sizes, _ = zip(*records, strict=True)
            starts = list(map(sub, offsets, repeat(file.file_from_offset)))
            ends = list(map(add, starts, sizes))
            start, end, holds = min(starts), max(ends), self.cached.holds
            is_near = end - start <= _MOST_SPANNED
            if not (holds(file, start, end) if is_near else all(map(holds, repeat(file), starts, ends))):
                return None
            parts.append(_Part(file.buffer, starts, records))
        return parts

    def _by_file(self, expected: Sequence[ExpectedRecord]) -> Iterable[tuple[MappedFile, Sequence[ExpectedRecord]]]:
        log = self._commit_log
        offsets = list(map(_offset_of, expected))
        first, last = file_of(log, min(offsets)), file_of(log, max(offsets))
        if first is last:
            return [(first, expected)] if first else []
        minimum, size = log.min_offset, log.queue.file_size
        numbers = sorted({(offset - minimum) // size for offset in offsets})
        files = [(number, file_of(log, minimum + number * size)) for number in numbers]
        return [(file, [r for r in expected if (r[1] - minimum) // size == number]) for number, file in files if file]

    async def _read_on_thread(self, messages: UncheckedMessages) -> SoundMessages:
        read = LogRead(self._commit_log, messages.ranges)
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._read, messages, read)

    def _read(self, messages: UncheckedMessages, read: LogRead) -> SoundMessages:
        data = memoryview(read.read())
        starts = list(accumulate((size for _, _, size, _ in messages.expected[:-1]), initial=0))
        return self._sound_of(messages, [_Part(data, starts, messages.expected)], lambda: [data])

    def _sound_of(
        self,
        messages: UncheckedMessages,
        parts: list[_Part],
        all_of_them: Callable[[], Sequence[ReadableBuffer]],
        seconds: float = inf,
    ) -> SoundMessages:
        """Select the sound records and report the others.

        Args:
            all_of_them: returns them all, in few buffers.
            seconds: time for a filter on properties.
        """
        queue = messages.queue
        is_wanted = None
        if messages.matches is not None and not queue.schedule:
            is_wanted = partial(self._has_wanted_tags, queue, messages.matches)
        unsound = [queue.record_check.unsound(part.data, part.starts, part.expected, is_wanted) for part in parts]
        for part, left_out in zip(parts, unsound, strict=True):
            for number in left_out:
                self._report_record(queue, part, number)
        if messages.chosen_by is not None:
            end = perf_counter() + seconds
            return _chosen_of(queue, parts, unsound, messages.chosen_by, lambda: perf_counter() >= end)
        if not any(unsound) and sum(len(part.expected) for part in parts) == len(messages.expected):
            return SoundMessages(all_of_them(), len(messages.expected), messages.size)
        buffers = [
            part.data[start : start + record[2]]
            for part, left_out in zip(parts, map(set, unsound), strict=True)
            for number, (start, record) in enumerate(zip(part.starts, part.expected, strict=True))
            if number not in left_out
        ]
        return SoundMessages(buffers, len(buffers), sum(map(len, buffers)))

    def _has_wanted_tags(
        self, queue: ConsumeQueueInterface, matches: Callable[[int], bool], record: ExpectedRecord, properties: bytes
    ) -> bool:
        code = tags_code_bytes(get_property(properties, b"TAGS"))
        if code != record[3]:
            self.report_entry(queue, record[0], f"its tags code is {record[3]}, but its message has {code}")
        if len(queue.tags_codes) < _MOST_TAGS_CODES:
            queue.tags_codes.add(code)
        return matches(code)

    # -- reports

    def report_entry(self, queue: ConsumeQueueInterface, queue_offset: int, what: str) -> None:
        """Report a damaged entry."""
        self._damage_log.report(*queue.place_of(queue_offset), f"{_name(queue, queue_offset)}: {what}")

    def _report_record(self, queue: ConsumeQueueInterface, part: _Part, number: int) -> None:
        record = part.expected[number]
        queue_offset, offset, _, _ = record
        what = queue.record_check.describe(part.data, part.starts[number], record)
        file = self._commit_log.queue.find(offset)
        # No damage: its tags are not wanted, or its file has been removed.
        if not what or file is None:
            return
        path, position = queue.place_of(queue_offset)
        self._damage_log.report(
            str(file.path),
            offset - file.file_from_offset,
            f"{_name(queue, queue_offset)} is missing: {what} (its entry is in {path} at {position})",
        )


def _chosen_of(
    queue: ConsumeQueueInterface,
    parts: list[_Part],
    unsound: list[list[int]],
    chosen_by: PropertyFilter,
    is_over: Callable[[], bool],
) -> SoundMessages:
    """Select the sound records that a filter on properties wants, up to its limits and until it is over."""
    buffers: list[memoryview] = []
    total = 0
    for part, left_out in zip(parts, unsound, strict=True):
        sound = sorted(set(range(len(part.expected))).difference(left_out))
        places = [(part.starts[number], part.expected[number][2]) for number in sound]
        starts, sizes = map(list, zip(*places, strict=True)) if places else ([], [])
        properties = record_properties(part.data, starts, sizes, len(queue.topic_block))
        matched = chosen_by.message_filter.is_matched_by_commit_log(properties, is_over)
        for number, (start, size) in compress(zip(sound, places, strict=True), matched):
            if buffers and (len(buffers) >= chosen_by.max_msgs or total + size > chosen_by.max_bytes):
                return SoundMessages(buffers, len(buffers), total, part.expected[number][0])
            buffers.append(part.data[start : start + size])
            total += size
        if len(matched) < len(sound):
            return SoundMessages(buffers, len(buffers), total, part.expected[sound[len(matched)]][0])
    return SoundMessages(buffers, len(buffers), total)


def _name(queue: ConsumeQueueInterface, queue_offset: int) -> str:
    return f"message {queue_offset} of queue {queue.queue_id} of {queue.topic}"
