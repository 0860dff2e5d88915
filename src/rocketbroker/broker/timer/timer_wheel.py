"""Waiting messages by slot: the slots of the next minutes in memory, later ones in slot files (TimerWheel).

Entries that no file has yet are also kept here, whatever their slot, until they are written.
"""

from __future__ import annotations

import asyncio
import heapq
from array import array
from bisect import bisect_left
from concurrent.futures import Executor
from dataclasses import dataclass, field

from rocketbroker.broker.timer.slot_files import SLOT_FILE_MS, SlotFiles, file_of
from rocketbroker.broker.timer.timer_requests import DeleteKey
from rocketbroker.codec.storefile.timer_slot_layout import MAGIC_DEFAULT, MAGIC_DELETE
from rocketbroker.codec.storefile.timer_slots import Delivered

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
    """Undelivered messages by slot.

    Args:
        files: the slot files, for slots that are due later.
        thread: the thread that reads and writes them.
    """

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

    def count(self) -> int:
        """Return the number of waiting messages."""
        in_memory = sum(len(slot.messages) - slot.done for slot in self._slots.values())
        later = sum(
            len(fields) // 3
            for entries in (self._unwritten, self._being_written)
            for start, fields in list(entries.items())
            if start >= self._loaded_to
        )
        return in_memory + later + sum(n for start, n in self._files.counts().items() if start >= self._loaded_to)
