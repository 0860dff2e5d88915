"""Slot files: timer messages that are due later, in one file per ten minutes of slots.

They are built from the timer's queue and can be rebuilt from it. Everything here may wait for the disk and runs on the
timer's thread.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from pathlib import Path

from rocketbroker.codec.storefile.mapped_file_name import offset_to_file_name
from rocketbroker.codec.storefile.timer_slot_layout import TIMER_SLOT_ENTRY, SlotEntries, encode_entries
from rocketbroker.codec.storefile.timer_slots import Delivered, is_delivered
from rocketbroker.common.file_system import LOCAL, FileSystem

#: Time span of a file in ms. Messages due within ten minutes are held in memory, at 8 bytes a message.
SLOT_FILE_MS = 600_000

_NAME_DIGITS = 20
_FIELDS = 3


def file_of(slot_ms: int) -> int:
    """Return the first slot of the file that holds a slot."""
    return slot_ms - slot_ms % SLOT_FILE_MS


class SlotFiles:
    """Slot files of one folder.

    Args:
        directory: ``timerslots``, created with the first file.
        file_system: the disk.
    """

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
