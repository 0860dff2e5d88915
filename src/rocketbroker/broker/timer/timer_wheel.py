"""Slots of the timer wheel and their files (org.apache.rocketmq.store.timer.TimerWheel)."""

from __future__ import annotations

import asyncio
import heapq
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from rocketbroker.broker.timer.timer_rewrite import DeleteKey
from rocketbroker.codec.storefile.store_file import offset_to_file_name
from rocketbroker.codec.storefile.timer_slots import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    TIMER_SLOT_ENTRY,
    Delivered,
    SlotEntries,
    encode_entries,
    is_delivered,
)
from rocketbroker.common.file_system import LOCAL, FileSystem

# Slot files: timer messages that are due later, in one file per ten minutes of slots.
#
# They are built from the timer's queue and can be rebuilt from it. Everything here may wait for the disk and runs on
# the timer's thread.

#: Time span of a file in ms. Messages due within ten minutes are held in memory, at 8 bytes a message.
SLOT_FILE_MS = 600_000

_NAME_DIGITS = 20
_FIELDS = 3


def file_of(slot_ms: int) -> int:
    """Return the first slot of the file that holds a slot."""
    return slot_ms - slot_ms % SLOT_FILE_MS


class SlotFiles:
    """Slot files of one folder."""

    def __init__(self, directory: Path, file_system: FileSystem = LOCAL) -> None:
        self._directory = directory
        self._file_system = file_system
        # Valid entries by first slot.
        self._entries: dict[int, SlotEntries] = {}

    @property
    def starts(self) -> set[int]:
        """First slots of the files."""
        return set(self._entries)

    def first_queue_offset(self, begin: int) -> int | None:
        """Return the lowest queue offset in the files from first slot ``begin`` on."""
        return min((each.first for start, each in self._entries.items() if start >= begin), default=None)

    def counts(self) -> dict[int, int]:
        """Return the number of sound entries of each file, by its first slot."""
        return {start: each.number for start, each in sorted(self._entries.items())}

    def load(self, counts: dict[int, int]) -> list[str]:
        """Load the files of an earlier process; return one text for each fault.

        Entries after the valid ones were written by a process that was killed, and are written again.

        Raises:
            OSError: The disk failed.
        """
        self._entries = {}
        wrong = []
        if counts:
            from rocketbroker.codec.storefile.timer_slot_columns import count_sound
        for start, count in counts.items():
            path = self._path(start)
            data = path.read_bytes()[: count * TIMER_SLOT_ENTRY.size] if path.is_file() else b""
            sound = self._entries[start] = count_sound(data, start, start + SLOT_FILE_MS)
            if sound.number < count:
                wrong.append(f"{path} has {sound.number} sound entries instead of {count}")
        for path in self._files():
            if int(path.name) not in counts:
                self._file_system.unlink(path)
        return wrong

    def wipe(self) -> None:
        """Remove all files.

        Raises:
            OSError: The disk failed.
        """
        self._entries = {}
        for path in self._files():
            self._file_system.unlink(path)

    def append_all(self, waiting: dict[int, array[int]], delivered: Delivered) -> None:
        """Append undelivered entries to their files and sync them; remove each written file from ``waiting``.

        Args:
            waiting: by first slot of the file, three numbers per entry: slot time, queue offset and magic.
            delivered: messages that are not written.

        Raises:
            OSError: The disk failed; entries still in ``waiting`` count as not written.
        """
        if waiting:
            from rocketbroker.codec.storefile.timer_slot_columns import undelivered
        while waiting:
            start = next(iter(waiting))
            left = undelivered(waiting[start], delivered)
            if left:
                self._append(start, left)
            del waiting[start]

    def _append(self, start: int, fields: array[int]) -> None:
        before = self._entries.get(start) or SlotEntries(0, fields[1], -1)
        folders = self._file_system.make_folders(self._directory)
        fd = self._file_system.open(self._path(start))
        try:
            self._file_system.write(fd, before.number * TIMER_SLOT_ENTRY.size, encode_entries(fields))
            self._file_system.sync(fd)
        finally:
            self._file_system.close(fd)
        if start not in self._entries:
            for folder in (self._directory, *folders):
                self._file_system.sync_folder(folder)
        # Replaced, never changed in place: the event loop reads it.
        after = SlotEntries(before.number + len(fields) // _FIELDS, before.first, fields[len(fields) - 2])
        self._entries = {**self._entries, start: after}

    def read(self, start: int) -> bytes:
        """Return the entries of a file that count; none is fine.

        Raises:
            OSError: The disk failed.
        """
        if start not in self._entries:
            return b""
        return self._path(start).read_bytes()[: self._entries[start].number * TIMER_SLOT_ENTRY.size]

    def retire(self, delivered: Delivered) -> set[int]:
        """Forget the files whose messages are all delivered; return their first slots."""
        done = {
            start
            for start, each in self._entries.items()
            if is_delivered(delivered, start + SLOT_FILE_MS - 1, each.last)
        }
        self._entries = {start: entry for start, entry in self._entries.items() if start not in done}
        return done

    def remove(self, starts: Iterable[int]) -> None:
        """Remove the files of retired slots, except those that were recreated.

        Raises:
            OSError: The disk failed.
        """
        for start in starts:
            if start not in self._entries:
                self._file_system.unlink(self._path(start))

    def _path(self, start: int) -> Path:
        return self._directory / offset_to_file_name(start)

    def _files(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return [path for path in self._directory.iterdir() if path.name.isdigit() and len(path.name) == _NAME_DIGITS]


# Waiting messages by slot: the slots of the next minutes in memory, later ones in slot files (TimerWheel).
#
# Entries that no file has yet are also kept here, whatever their slot, until they are written.

Entries = dict[int, "array[int]"]


def _offsets() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Slot:
    """Messages of one slot.

    Attributes:
        messages: queue offsets of the messages to deliver, ascending.
        done: number of delivered messages.
        deletes: queue offsets of the messages that cancel others.
        deletes_read: number of those read so far.
        deleted: keys of the cancelled messages.
    """

    messages: array[int] = field(default_factory=_offsets)
    done: int = 0
    deletes: array[int] = field(default_factory=_offsets)
    deletes_read: int = 0
    deleted: set[DeleteKey] = field(default_factory=set)

    def deliver_to(self, queue_offset: int) -> None:
        """Note that all messages with a lower queue offset are delivered."""
        self.done = bisect_left(self.messages, queue_offset, self.done)


class TimerWheel:
    """Undelivered messages by slot."""

    def __init__(self, files: SlotFiles, thread: Executor) -> None:
        self._files = files
        self._thread = thread
        self._slots: dict[int, Slot] = {}
        self._order: list[int] = []
        # Files that begin before this have their slots in memory; ``_later`` has the other files with entries.
        self._loaded_to = 0
        self._later = files.starts
        # By file, three numbers per entry: slot time, queue offset and magic; missing from the file, or being written.
        self._unwritten: Entries = {}
        self._being_written: Entries = {}
        self.unwritten_count = 0

    def add(self, slot_ms: int, queue_offset: int, *, is_delete: bool) -> None:
        """Add an entry; its queue offset is higher than all before."""
        start = file_of(slot_ms)
        if start < self._loaded_to:
            self._put(slot_ms, queue_offset, is_delete=is_delete)
        else:
            self._later.add(start)
        magic = MAGIC_DELETE if is_delete else MAGIC_DEFAULT
        self._unwritten.setdefault(start, array("q")).extend((slot_ms, queue_offset, magic))
        self.unwritten_count += 1

    def _put(self, slot_ms: int, queue_offset: int, *, is_delete: bool) -> None:
        slot = self._slots.get(slot_ms)
        if slot is None:
            slot = self._slots[slot_ms] = Slot()
            heapq.heappush(self._order, slot_ms)
        (slot.deletes if is_delete else slot.messages).append(queue_offset)

    @property
    def first_slot_ms(self) -> int | None:
        """Earliest slot in memory."""
        return self._order[0] if self._order else None

    @property
    def next_file(self) -> int | None:
        """First slot of the earliest file that is not in memory."""
        return min(self._later, default=None)

    def slot(self, slot_ms: int) -> Slot:
        """Return a slot in memory."""
        return self._slots[slot_ms]

    def remove_first(self) -> None:
        """Forget the earliest slot."""
        del self._slots[heapq.heappop(self._order)]

    async def load_next(self, delivered: Delivered) -> None:
        """Load the earliest file that is not in memory; nothing is added or written meanwhile.

        Raises:
            OSError: The disk failed.
        """
        start = min(self._later)
        loop = asyncio.get_running_loop()
        unwritten = self._unwritten.get(start, _offsets())
        slots = await loop.run_in_executor(self._thread, self._read, start, unwritten, delivered)
        self._later.discard(start)
        self._loaded_to = max(self._loaded_to, start + SLOT_FILE_MS)
        for slot_ms, slot in slots.items():
            self._slots[slot_ms] = slot
            heapq.heappush(self._order, slot_ms)

    def _read(self, start: int, unwritten: array[int], delivered: Delivered) -> dict[int, Slot]:
        """Return the undelivered messages of a file, by slot, with the entries that it lacks."""
        from rocketbroker.codec.storefile.timer_slot_columns import parted_by_slot

        parted = parted_by_slot(self._files.read(start), unwritten, delivered)
        return {slot_ms: Slot(messages, deletes=deletes) for slot_ms, (messages, deletes) in parted.items()}

    def begin_write(self) -> Entries:
        """Return the entries that no file has yet; call ``end_write`` before the next ``begin_write``."""
        self._being_written, self._unwritten = self._unwritten, {}
        self.unwritten_count = 0
        return self._being_written

    def end_write(self) -> None:
        """Keep the entries from ``begin_write`` that were not written."""
        left, self._being_written = self._being_written, {}
        for start, fields in left.items():
            fields.extend(self._unwritten.get(start, _offsets()))
            self._unwritten[start] = fields
        self.unwritten_count = sum(len(fields) // 3 for fields in self._unwritten.values())

    @property
    def first_queue_offset(self) -> int | None:
        """Lowest queue offset of all waiting messages; ``None`` without one."""
        firsts = [slot.messages[slot.done] for slot in self._slots.values() if slot.done < len(slot.messages)]
        for entries in (self._unwritten, self._being_written):
            firsts += [fields[1] for start, fields in list(entries.items()) if start >= self._loaded_to]
        if (first := self._files.first_queue_offset(self._loaded_to)) is not None:
            firsts.append(first)
        return min(firsts, default=None)

    def due(self, until_ms: int) -> int:
        """Return the number of undelivered messages in memory whose slot is not later; files are loaded before that."""
        if not self._order or self._order[0] > until_ms:
            return 0
        return sum(len(slot.messages) - slot.done for ms, slot in self._slots.items() if ms <= until_ms)

    def due_within(self, now_ms: int, bounds_s: Sequence[int]) -> list[int]:
        """Return the number of waiting messages up to each bound from now; those of a later file by its begin."""
        found = [0] * (len(bounds_s) + 1)
        for ms, slot in self._slots.items():
            found[bisect_left(bounds_s, (ms - now_ms) / 1000)] += len(slot.messages) - slot.done
        for start, number in self._later_counts():
            found[bisect_left(bounds_s, (start - now_ms) / 1000)] += number
        return found[:-1]

    def count(self) -> int:
        """Return the number of waiting messages."""
        in_memory = sum(len(slot.messages) - slot.done for slot in self._slots.values())
        return in_memory + sum(number for _, number in self._later_counts())

    def _later_counts(self) -> Iterator[tuple[int, int]]:
        """Yield the first slot of each file that is not in memory, and a number of its messages."""
        for entries in (self._unwritten, self._being_written):
            for start, fields in list(entries.items()):
                if start >= self._loaded_to:
                    yield start, len(fields) // 3
        for start, number in self._files.counts().items():
            if start >= self._loaded_to:
                yield start, number
