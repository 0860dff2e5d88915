"""Reads messages that may come from the disk, and gives out those that are sound.

What this process stored a short while ago is in the page cache as it was written, and is sent without a look. What
lies far back, or was stored before the start or before a sync that failed, may come from a disk, which may have changed
it: each message is held against its queue's entry and its own checksum.

The loop reads what is in the page cache. The rest is read on a thread, since the loop must not wait for the disk; how
far a message lies from the end of the log says little about that.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import accumulate, chain, compress, repeat
from itertools import count as count_from
from operator import add, itemgetter, sub
from typing import Final, NamedTuple

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.message.expected_record import ExpectedRecord
from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.record_properties import record_properties
from rocketbroker.codec.message.tags_code import tags_code_bytes
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.log_read import LogRead, file_of
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.cached_windows import CachedWindows
from rocketbroker.store.read.damage_log import DamageLog
from rocketbroker.store.read.get_message import GetMessageResult, GetMessageStatus, UncheckedMessages, Wanted

# Stands for an entry that names no record: passed over as one whose message was removed.
_NO_RECORD: Final = (-1, 0, 0)
# Checking more would hold up the loop for more than a millisecond.
MOST_ON_LOOP: Final = 1024 * 1024
# Messages further apart are looked for in the page cache one by one, nearer ones with what lies between them.
_MOST_SPANNED: Final = 4 * 1024 * 1024
_offset_of: Final = itemgetter(1)
# Tags codes of a queue that are remembered as those of records.
_MOST_TAGS_CODES: Final = 1024


class _Part(NamedTuple):
    """Records, and where they begin in ``data``."""

    data: memoryview
    starts: list[int]
    expected: list[ExpectedRecord]


class CheckedReader:
    """Looks at the queue's entries first, then at the records they name.

    Args:
        commit_log: where the messages lie.
        damage_log: told of what is left out.
        executor: reads what is not in the page cache.
    """

    def __init__(self, commit_log: CommitLog, damage_log: DamageLog, executor: Executor) -> None:
        self._commit_log = commit_log
        self._damage_log = damage_log
        self._executor = executor
        self._cached = CachedWindows()

    # -- entries

    def entries(
        self, queue: ConsumeQueueInterface, queue_offset: int, first: int, limit: int
    ) -> Iterable[tuple[int, int, int]]:
        """As ``ConsumeQueueInterface.entries``; in place of an entry that can name no record stands one of offset -1.

        Args:
            queue: the queue.
            queue_offset: of the first entry.
            first: so many are taken in any case, if there are.
            limit: entries at the most.
        """
        entries = list(queue.entries(queue_offset, min(first, limit)))
        done = len(entries) if self._are_plausible(queue, entries) else 0
        return chain(entries[:done], self._one_by_one(queue, queue_offset + done, limit - done))

    def _are_plausible(self, queue: ConsumeQueueInterface, entries: list[tuple[int, int, int]]) -> bool:
        """Whether all are for certain: a quick look, which is what most pulls need."""
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
            self.report_entry(queue, number, f"it names {size} bytes at {offset}, where no record of the queue can be")
            yield _NO_RECORD

    @staticmethod
    def possible_matches(queue: ConsumeQueueInterface, matches: Callable[[int], bool]) -> Callable[[int], bool]:
        """Whether an entry with a tags code has to be looked at: it is wanted, or may be damaged.

        A code that no record of the queue was seen to have may be any other one, so that the record has to tell.
        """
        known = queue.tags_codes
        if queue.schedule:
            return matches
        return lambda code: matches(code) or (code not in known and len(known) < _MOST_TAGS_CODES)

    def count_sound(
        self, queue: ConsumeQueueInterface, queue_offset: int, entries: Sequence[tuple[int, int, int]], most_bytes: int
    ) -> int:
        """How many entries of a pull name sound records, ``most_bytes`` at most; 0 when they need a closer look.

        What most pulls need: the records are in the page cache and in one file, and all are sound.
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
        if start < 0 or end > file.wrote or end - start > _MOST_SPANNED or not self._cached.holds(file, start, end):
            return 0
        expected = list(zip(count_from(queue_offset), offsets[:count], sizes, codes, strict=False))
        return 0 if queue.record_check.unsound(file.buffer, starts, expected) else count

    # -- records

    def is_cached(self, offset: int, size: int) -> bool:
        """Whether a range of the log is in the page cache."""
        file = self._commit_log.queue.find(offset)
        if file is None:
            return False
        start = offset - file.file_from_offset
        return self._cached.holds(file, start, start + size)

    def read_cached(self, result: GetMessageResult, messages: UncheckedMessages) -> Sequence[ReadableBuffer] | None:
        """The messages that are sound, or ``None`` when the disk would have to be waited for: see ``read_on_thread``.

        ``result`` is changed into what is given.

        Raises:
            StoreError: the log is closed.
        """
        if result.total_size > MOST_ON_LOOP:
            return None
        parts = self._cached_parts(messages.expected)
        if parts is None:
            return None
        pieces = self._sound_of(result, messages, parts)
        return self._commit_log.slices(result.ranges) if pieces is None else pieces

    def _cached_parts(self, expected: list[ExpectedRecord]) -> list[_Part] | None:
        """The records as they lie in the mapped files, ``None`` when the disk would have to be waited for."""
        parts: list[_Part] = []
        for file, records in self._by_file(expected):
            _, offsets, sizes, _ = zip(*records, strict=True)
            starts = list(map(sub, offsets, repeat(file.file_from_offset)))
            if not self._are_cached(file, starts, list(map(add, starts, sizes))):
                return None
            parts.append(_Part(file.buffer, starts, records))
        return parts

    def _by_file(self, expected: list[ExpectedRecord]) -> Iterable[tuple[MappedFile, list[ExpectedRecord]]]:
        log = self._commit_log
        offsets = list(map(_offset_of, expected))
        first, last = file_of(log, min(offsets)), file_of(log, max(offsets))
        if first is last:
            return [(first, expected)] if first else []
        minimum, size = log.min_offset, log.queue.file_size
        numbers = sorted({(offset - minimum) // size for offset in offsets})
        files = [(number, file_of(log, minimum + number * size)) for number in numbers]
        return [(file, [r for r in expected if (r[1] - minimum) // size == number]) for number, file in files if file]

    def _are_cached(self, file: MappedFile, starts: list[int], ends: list[int]) -> bool:
        start, end = min(starts), max(ends)
        if end - start <= _MOST_SPANNED:
            return self._cached.holds(file, start, end)
        return all(map(self._cached.holds, repeat(file), starts, ends))

    async def read_on_thread(self, result: GetMessageResult, messages: UncheckedMessages) -> Sequence[ReadableBuffer]:
        """As ``read_cached``, and waits for the disk where it has to, on a thread.

        Raises:
            StoreError: the disk cannot be read, or the log is closed.
        """
        read = LogRead(self._commit_log, result.ranges)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._read, result, messages, read)

    def _read(self, result: GetMessageResult, messages: UncheckedMessages, read: LogRead) -> Sequence[ReadableBuffer]:
        data = memoryview(read.read())
        starts = list(accumulate((size for _, _, size, _ in messages.expected[:-1]), initial=0))
        pieces = self._sound_of(result, messages, [_Part(data, starts, messages.expected)])
        return [data] if pieces is None else pieces

    def _sound_of(
        self, result: GetMessageResult, messages: UncheckedMessages, parts: list[_Part]
    ) -> list[memoryview] | None:
        """The sound records, ``None`` when that is all; the others are reported."""
        check = messages.queue.record_check
        is_wanted = None
        if messages.matches is not None and not messages.queue.schedule:
            is_wanted = partial(self._has_wanted_tags, messages.queue, messages.matches)
        found = [check.unsound(part.data, part.starts, part.expected, is_wanted) for part in parts]
        if messages.wanted is not None:
            return self._wanted_of(result, messages, parts, found, messages.wanted)
        if not any(found) and sum(len(part.expected) for part in parts) == result.message_count:
            return None
        pieces: list[memoryview] = []
        for part, unsound in zip(parts, found, strict=True):
            for number in unsound:
                self._report_record(messages.queue, part, number)
            left_out = set(unsound)
            for number, (start, record) in enumerate(zip(part.starts, part.expected, strict=True)):
                if number not in left_out:
                    pieces.append(part.data[start : start + record[2]])
        _set_given(result, pieces)
        return pieces

    def _wanted_of(
        self,
        result: GetMessageResult,
        messages: UncheckedMessages,
        parts: list[_Part],
        unsound: list[list[int]],
        wanted: Wanted,
    ) -> list[memoryview]:
        """The sound records that a filter wants, up to its limits; ``result`` then goes on behind the last of them."""
        queue = messages.queue
        topic_length = len(queue.topic_block)
        pieces: list[memoryview] = []
        total = 0
        for part, left_out in zip(parts, unsound, strict=True):
            for number in left_out:
                self._report_record(queue, part, number)
            sound = sorted(set(range(len(part.expected))).difference(left_out))
            places = [(part.starts[number], part.expected[number][2]) for number in sound]
            starts, sizes = map(list, zip(*places, strict=True)) if places else ([], [])
            properties = record_properties(part.data, starts, sizes, topic_length)
            matched = wanted.message_filter.is_matched_by_commit_log(properties)
            for number, (start, size) in compress(zip(sound, places, strict=True), matched):
                if pieces and (len(pieces) >= wanted.max_msgs or total + size > wanted.max_bytes):
                    result.next_begin_offset = part.expected[number][0]
                    _set_given(result, pieces)
                    return pieces
                pieces.append(part.data[start : start + size])
                total += size
        _set_given(result, pieces)
        return pieces

    def _has_wanted_tags(
        self, queue: ConsumeQueueInterface, matches: Callable[[int], bool], record: ExpectedRecord, properties: bytes
    ) -> bool:
        code = tags_code_bytes(get_property(properties, b"TAGS"))
        if code != record[3]:
            self.report_entry(queue, record[0], f"its tags code is {record[3]}, that of its message is {code}")
        if len(queue.tags_codes) < _MOST_TAGS_CODES:
            queue.tags_codes.add(code)
        return matches(code)

    # -- what is told

    def report_entry(self, queue: ConsumeQueueInterface, queue_offset: int, what: str) -> None:
        """Tell that an entry is damaged."""
        self._damage_log.report(*queue.place_of(queue_offset), f"{_name(queue, queue_offset)}: {what}")

    def _report_record(self, queue: ConsumeQueueInterface, part: _Part, number: int) -> None:
        record = part.expected[number]
        queue_offset, offset, _, _ = record
        what = queue.record_check.describe(part.data, part.starts[number], record)
        file = self._commit_log.queue.find(offset)
        # No damage: its tags are not wanted, or its file was removed meanwhile.
        if not what or file is None:
            return
        path, position = queue.place_of(queue_offset)
        self._damage_log.report(
            str(file.path),
            offset - file.file_from_offset,
            f"{_name(queue, queue_offset)} is not there: {what} (its entry is in {path} at {position})",
        )


def _set_given(result: GetMessageResult, pieces: Sequence[memoryview]) -> None:
    result.message_count = len(pieces)
    result.total_size = sum(map(len, pieces))
    if not pieces:
        result.status = GetMessageStatus.NO_MATCHED_MESSAGE


def _name(queue: ConsumeQueueInterface, queue_offset: int) -> str:
    return f"message {queue_offset} of queue {queue.queue_id} of {queue.topic}"
