"""One hash index of message keys (org.apache.rocketmq.store.index.IndexFile).

Keys are entered in batches, as numpy columns: a few array operations fill slots, chains and entries, for any number of
keys.
"""

import os
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketbroker.codec.storefile.dtypes import INDEX_ENTRY, INDEX_SLOT
from rocketbroker.codec.storefile.index_file_layout import (
    HASH_SLOT_SIZE,
    HEADER,
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    MAX_TIME_DIFF,
    IndexHeader,
    decode_header,
    entry_position,
    file_size,
)
from rocketbroker.codec.storefile.index_image import follow_chain, newest_entry
from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import LOCAL, SECTOR, FileSystem
from rocketbroker.store.logfile.mapped_file import MappedFile

_ALLOCATE_STEP = 4 * 1024 * 1024
# Store times in a file go back by at most this much, and to at most this much before its first one.
MOST_BACK_MS = 1000
# Among the first entries, one in so many of a file, times may go back further: a clock that is set back often would
# otherwise fill the disk with files of a few entries.
_UNORDERED = 100

Column = npt.NDArray[np.int64]


class IndexFile:
    """An index file.

    Raises:
        StoreFullError: The disk has no room for its slots.
        StoreError: It exists with another size.
    """

    def __init__(self, path: Path, slot_count: int, entry_count: int, file_system: FileSystem = LOCAL) -> None:
        size = file_size(slot_count, entry_count)
        self.file = MappedFile(path, size, min(_ALLOCATE_STEP, size), file_system)
        self._slot_count = slot_count
        self._entry_count = entry_count
        # Entries from this number on have times in order.
        self._ordered_from = entry_count // _UNORDERED
        self._entries_position = INDEX_HEADER_SIZE + slot_count * HASH_SLOT_SIZE
        # Read instead of using the mapping: touching a hole of a tmpfs allocates a page, and raises SIGBUS without
        # room.
        self.header = decode_header(os.pread(self.file.fd, INDEX_HEADER_SIZE, 0))
        # True if keys may have been entered that were not synced.
        self.changed = True
        # Set to end queries, whose chains may be long.
        self.given_up = False
        try:
            self.file.ensure_allocated(min(entry_position(self.header.index_count, slot_count), size))
        except StoreError:
            # A file without entries goes: the next attempt creates one under another name.
            if self.header.index_count > 1:
                self.file.close()
            else:
                self.file.delete()
            raise
        self._slots = np.frombuffer(self.file.buffer, INDEX_SLOT, slot_count, INDEX_HEADER_SIZE)
        self._entries = np.frombuffer(self.file.buffer, INDEX_ENTRY, entry_count, self._entries_position)

    @property
    def room(self) -> int:
        """Number of keys that can still be entered."""
        return self._entry_count - self.header.index_count

    def fitting(self, timestamps: Column) -> int:
        """Return the number of keys, of messages with these store times, that can be entered before a file must begin.

        The range of the header and the order of a chain hold only while store times do not go back.
        """
        header, times = self.header, timestamps[: self.room]
        newest = np.maximum(np.maximum.accumulate(times), header.end_timestamp)
        newest[: max(self._ordered_from - header.index_count, 0)] = 0
        # An entry cannot say how long before the first one its message was stored.
        earliest = header.begin_timestamp if header.index_count > 1 else times[:1]
        is_back = times < np.maximum(newest, earliest) - MOST_BACK_MS
        return int(is_back.argmax()) if is_back.any() else len(times)

    def put_keys(self, key_hashes: npt.NDArray[np.int32], physical_offsets: Column, timestamps: Column) -> None:
        """Enter keys of messages, oldest first; all of them must be ``fitting``.

        Args:
            key_hashes: int32, not negative, shape (n,).
            physical_offsets: CommitLog offsets of their messages, shape (n,).
            timestamps: store times of their messages in ms, shape (n,).

        Raises:
            StoreFullError: The disk has no room for the entries.
        """
        header = self.header
        count = len(key_hashes)
        first = header.index_count
        position, end = (entry_position(number, self._slot_count) for number in (first, first + count))
        self.file.ensure_allocated(end)
        begin = header.begin_timestamp if first > 1 else int(timestamps[0])
        numbers = np.arange(first, first + count, dtype=np.int32)
        slots = key_hashes % self._slot_count
        previous = self._previous(slots, numbers)
        entries = np.empty(count, INDEX_ENTRY)
        entries["key_hash"] = key_hashes
        entries["phy_offset"] = physical_offsets
        entries["time_diff"] = np.clip((timestamps - begin) // 1000, 0, MAX_TIME_DIFF)
        entries["previous"] = previous
        self.file.write(position, end, entries.tobytes())
        self.changed = True
        self.header = header._replace(
            begin_timestamp=begin,
            end_timestamp=max(int(timestamps.max()), header.end_timestamp),
            begin_phy_offset=header.begin_phy_offset if first > 1 else int(physical_offsets[0]),
            end_phy_offset=int(physical_offsets[-1]),
            hash_slot_count=header.hash_slot_count + int(np.count_nonzero(previous == 0)),
            index_count=first + count,
        )
        # After entries and header, because a query on another thread follows the slots. numpy keeps the last of several
        # values for a slot, which is the newest entry.
        self._write_head(slots, numbers)

    def _write_head(self, slots: npt.NDArray[np.int32] | slice, numbers: npt.NDArray[np.int32] | int) -> None:
        """Write numbers of entries into their slots, and the header after them."""
        with self.file.writing(0, self._entries_position) as head:
            np.frombuffer(head, INDEX_SLOT, self._slot_count, INDEX_HEADER_SIZE)[slots] = numbers
            HEADER.pack_into(head, 0, *self.header)

    def _previous(self, slots: npt.NDArray[np.int32], numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the predecessor of each entry in the chain of its slot; 0 for the first."""
        previous = self._slots[slots].astype(np.int32)
        # A stop between slots and header leaves slots that name entries yet to be written.
        previous[previous >= numbers[0]] = 0
        order = np.argsort(slots, kind="stable")
        sorted_slots = slots[order]
        repeated = sorted_slots[1:] == sorted_slots[:-1]
        if repeated.any():
            # Keys of this batch that share a slot follow each other, not the earlier value of the slot.
            followers = order[1:][repeated]
            previous[followers] = numbers[order[:-1][repeated]]
        return previous

    def covers(self, begin_ms: int, end_ms: int) -> bool:
        """Return true if messages of this time range may be indexed here."""
        header = self.header
        earliest = header.begin_timestamp - MOST_BACK_MS
        return header.index_count > 1 and begin_ms <= header.end_timestamp and end_ms >= earliest

    def chain(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Follow the chain of a key hash, newest first (blocks).

        Yields an offset for each message with that key hash and store time, each once, and ``None`` for others.

        It may run on any thread while keys are entered. It reads the file, because a chain may be long and cold: a page
        fault on the mapping would delay all threads.
        """
        last = None
        newest = newest_entry(self._read, self._slot_count, key_hash)
        for entry in follow_chain(self._read, self._slot_count, newest, self.header.index_count):
            # Entries hold whole seconds, so all messages of a second count.
            stored = self.header.begin_timestamp + entry.time_diff * 1000
            if stored <= begin_ms - 1000 - MOST_BACK_MS and entry.number >= self._ordered_from:
                break
            # A message that is older than the file's first one has the time of that one.
            earliest = stored if entry.time_diff else stored - MOST_BACK_MS
            in_range = stored > begin_ms - 1000 and earliest <= end_ms
            if entry.key_hash == key_hash and in_range and entry.phy_offset != last:
                last = entry.phy_offset
                yield last
            else:
                yield None
            if self.given_up:
                break

    def _read(self, position: int, size: int) -> bytes:
        return os.pread(self.file.fd, size, position)

    def cut(self, physical_offset: int) -> int:
        """Remove the keys of messages from a CommitLog offset on; return their number. The keys before it are sound.

        The slots are rebuilt from the remaining entries: any of the others may be lost, or half written.
        """
        header = self.header
        kept = bisect_left(range(header.index_count), True, 1, key=lambda number: self._is_cut(number, physical_offset))
        entries = self._entries[1:kept]
        slots = np.zeros(self._slot_count, INDEX_SLOT)
        slots[entries["key_hash"] % self._slot_count] = np.arange(1, kept)
        if kept == 1:
            self.header = IndexHeader()
        else:
            last = entries[-1]
            # Entries hold whole seconds.
            end = header.begin_timestamp + int(entries["time_diff"].max()) * 1000 + 999
            self.header = header._replace(
                end_timestamp=min(end, header.end_timestamp),
                end_phy_offset=int(last["phy_offset"]),
                hash_slot_count=int(np.count_nonzero(slots)),
                index_count=kept,
            )
        self._write_head(slice(None), slots)
        self.changed = True
        return header.index_count - kept

    def _is_cut(self, number: int, physical_offset: int) -> bool:
        entry = self._entries[number]
        offset = entry["phy_offset"]
        # A power loss may leave zeros where entries were written, after those that are sound.
        if offset >= physical_offset or (offset == 0 and entry["key_hash"] == 0):
            return True
        position = entry_position(number, self._slot_count)
        if number == 1 or position // SECTOR == (position + INDEX_SIZE - 1) // SECTOR:
            return False
        # It may span two sectors, one of which may be lost: in a file offsets never decrease. (An offset whose lower
        # half is lost may pass as 4 GiB, or a multiple, and does no harm: no message there has its key.)
        return bool(offset < self._entries[number - 1]["phy_offset"]) or self._is_cut(number - 1, physical_offset)

    def sync(self) -> None:
        """Sync the file if keys were entered since the last sync (blocks).

        Raises:
            OSError: The disk failed.
        """
        if self.changed:
            self.changed = False
            try:
                self.file.sync()
            except OSError:
                self.changed = True
                raise

    def close(self) -> None:
        """Release the mapping and close the file."""
        self.given_up = True
        del self._slots, self._entries
        self.file.close()

    def delete(self) -> None:
        """Close and remove the file."""
        self.given_up = True
        del self._slots, self._entries
        self.file.delete()


assert INDEX_ENTRY.itemsize == INDEX_SIZE
