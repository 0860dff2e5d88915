"""Check of the index files against the messages of the CommitLog."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketbroker.audit.findings import Findings
from rocketbroker.audit.log_audit import LogLookup
from rocketbroker.audit.queue_audit import open_local
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.index_file_layout import (
    INDEX_HEADER_SIZE,
    MAX_TIME_DIFF,
    entry_position,
    file_size,
    slot_position,
)
from rocketbroker.codec.storefile.index_image import IndexImage
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.codec.storefile.window_messages import WindowMessages, keys_of
from rocketbroker.common.errors import CodecError, StoreError

# Bits of the key hash in a pair, which has 31.
HASH_BITS = 32

Pairs = NDArray[np.int64]


def pairs(numbers: NDArray[np.int64], hashes: NDArray[np.int64] | NDArray[np.int32]) -> Pairs:
    """Pack a message's number in its window and a key hash into one number each."""
    return numbers << HASH_BITS | (hashes.astype(np.int64) & 0xFFFFFFFF)


def among(values: Pairs, known: Pairs) -> NDArray[np.bool_]:
    """Return a mask of the ``values`` that are in ``known``, which is sorted."""
    if not len(known):
        return np.zeros(len(values), np.bool_)
    at = np.searchsorted(known, values)
    found: NDArray[np.bool_] = known[np.minimum(at, len(known) - 1)] == values
    return found


class WindowKeys(NamedTuple):
    """Sorted pairs of message and key hash: ``required`` by unique id and keys, ``allowed`` also by tags.

    Releases before 5.5.0 index no tags. Half messages and rollbacks of transactions need not be there either.
    """

    required: Pairs
    allowed: Pairs


def window_keys(window: WindowMessages) -> WindowKeys:
    """Return the pairs of a window's messages."""
    keys = keys_of(window)
    allowed = pairs(keys.numbers, keys.hashes)
    required = allowed[~keys.of_tags & (window.indexed & ~window.are_batches)[keys.numbers]]
    return WindowKeys(np.sort(required), np.sort(allowed))


# Greater than any physical offset that a file could name.
_MOST = 1 << 64


class IndexFileAudit:
    """One index file, and its entries that lead to a message with their key.

    ``last`` is the physical offset of the last message with entries in it.
    """

    def __init__(self, image: IndexImage, log: LogLookup, state: StoreState, findings: Findings) -> None:
        self.image = image
        self._log = log
        self.mended = not state.is_index_known(image.header.end_timestamp)
        self._unclean = state.unclean
        self._findings = findings
        entries = image.entries(1, image.used)
        self._hashes = entries["key_hash"].astype(np.int32)
        self._offsets = entries["phy_offset"].astype(np.int64)
        self._time_diffs = entries["time_diff"].astype(np.int32)
        self._previous = entries["previous"].astype(np.int32)
        self._order: Positions | None = None
        self._sorted = self._offsets
        if (self._offsets[1:] < self._offsets[:-1]).any():
            self._order = np.argsort(self._offsets, kind="stable")
            self._sorted = self._offsets[self._order]
        # Entries that lead before the begin of the log belong to expired messages.
        self._good = (self._offsets >= 0) & (self._offsets < log.begin)
        self._known_offset = self._good.copy()
        self.last = int(self._sorted[-1]) if len(self._sorted) else -1

    def take(self, offsets: Positions, timestamps: Positions, allowed: Pairs) -> Pairs:
        """Match the entries of a window's messages, and return their pairs of message and key hash."""
        low, high = np.searchsorted(self._sorted, [offsets[0], offsets[-1] + 1])
        members = np.arange(low, high) if self._order is None else self._order[low:high]
        if not len(members):
            return np.empty(0, np.int64)
        numbers = np.searchsorted(offsets, self._offsets[members])
        exact = offsets[numbers] == self._offsets[members]
        found = pairs(numbers, self._hashes[members])
        begin = self.image.header.begin_timestamp
        diffs = np.clip((timestamps[numbers] - begin) // 1000, 0, MAX_TIME_DIFF)
        self._known_offset[members[exact]] = True
        self._good[members] = exact & among(found, allowed) & (diffs == self._time_diffs[members])
        of_messages: Pairs = found[exact]
        return of_messages

    @property
    def range(self) -> tuple[int, int]:
        """Physical offsets of the first and the last message that entries lead to."""
        good = self._offsets[self._good]
        return (int(good.min()), int(good.max())) if len(good) else (self.last, self.last)

    def finish(self) -> tuple[Positions, Positions]:
        """Add findings; return physical offsets and key hashes of the entries that lead to a wrong place."""
        log = self._log
        self._good |= log.is_damaged(self._offsets)
        bad = np.flatnonzero(~self._good)
        for at in bad.tolist():
            offset = self._offsets[at]
            if self._known_offset[at]:
                text = f"the record at {offset} has no key with hash {self._hashes[at]}, or another store time"
                self._add(AuditRule.INDEX_ENTRY_MISMATCH, at + 1, text, mended=self.mended)
            else:
                beyond = self._unclean and offset >= log.end
                text = f"no record begins at {offset}"
                self._add(AuditRule.INDEX_ENTRY_UNREADABLE, at + 1, text, mended=self.mended or beyond)
        self._check_header()
        self._check_chains()
        return self._offsets[bad], self._hashes[bad].astype(np.int64)

    def _add(self, rule: AuditRule, entry: int, text: str, *, mended: bool) -> None:
        position = entry_position(entry, self.image.slot_count)
        self._findings.add(rule, self.image.path, position, f"entry {entry}: {text}", mended=mended)

    def _check_header(self) -> None:
        header, image, wrong = self.image.header, self.image, []
        if header.index_count > image.entry_count:
            wrong.append(f"indexCount is {header.index_count}, but the file has room for {image.entry_count}")
        if len(self._offsets) and self._good[0] and header.begin_phy_offset != self._offsets[0]:
            wrong.append(f"beginPhyOffset is {header.begin_phy_offset}, but the first entry has {self._offsets[0]}")
        if len(self._offsets) and self._good[-1] and header.end_phy_offset != self._offsets[-1]:
            wrong.append(f"endPhyOffset is {header.end_phy_offset}, but the last entry has {self._offsets[-1]}")
        if header.begin_timestamp > header.end_timestamp:
            wrong.append(f"beginTimestamp {header.begin_timestamp} is after endTimestamp {header.end_timestamp}")
        for text in wrong:
            self._findings.add(AuditRule.INDEX_HEADER, image.path, 0, text, mended=self.mended)

    def _check_chains(self) -> None:
        """Check that slots and entries name the newest entry before them, wrong entries excepted."""
        count = len(self._hashes)
        good = np.flatnonzero(self._good)
        slots = (self._hashes[good] % self.image.slot_count).astype(np.int64)
        order = np.argsort(slots, kind="stable")
        numbers, slots = good[order] + 1, slots[order]
        first = np.concatenate(([True], slots[1:] != slots[:-1])) if len(slots) else np.empty(0, np.bool_)
        expected = np.where(first, 0, np.concatenate(([0], numbers[:-1]))) if len(slots) else numbers
        is_bad = np.concatenate(([False], ~self._good))
        actual = self._previous[numbers - 1]
        wrong = (actual != expected) & ~((actual > 0) & (actual <= count) & is_bad[np.clip(actual, 0, count)])
        for at in np.flatnonzero(wrong).tolist():
            text = f"it names {actual[at]} as the entry before it in its slot instead of {expected[at]}"
            self._add(AuditRule.INDEX_CHAIN, int(numbers[at]), text, mended=self.mended)
        self._check_slots(slots, numbers, is_bad)

    def _check_slots(self, slots: Positions, numbers: Positions, is_bad: NDArray[np.bool_]) -> None:
        heads = np.zeros(self.image.slot_count, np.int64)
        heads[slots] = numbers  # numpy keeps the last of several values for a slot, the newest entry
        actual = self.image.slots().astype(np.int64)
        count = len(is_bad) - 1
        inside = (actual > 0) & (actual <= count)
        wrong = (actual != heads) & ~(inside & is_bad[np.clip(actual, 0, count)])
        for slot in np.flatnonzero(wrong).tolist():
            # A kill between slots and header leaves slots ahead of it: the next entries put there repair that.
            mended = self.mended or (self._unclean and actual[slot] > count)
            text = f"slot {slot} names entry {actual[slot]} instead of its newest, {heads[slot]}"
            position = slot_position(slot, self.image.slot_count)
            self._findings.add(AuditRule.INDEX_CHAIN, self.image.path, position, text, mended=mended)


def index_paths(directory: Path) -> list[Path]:
    """Return the index files by name, and therefore by time."""
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.name.isdigit() and path.is_file())


def _image(path: Path, sizes: tuple[int, int] | None) -> IndexImage:
    if sizes is None:
        return IndexImage(str(path), open_local)
    found, wanted = path.stat().st_size, file_size(*sizes)
    if found != wanted:
        raise CodecError(f"{found} bytes instead of {wanted}, by maxHashSlotNum {sizes[0]} and maxIndexNum {sizes[1]}")
    return IndexImage(str(path), open_local, sizes[0])


class IndexAudit:
    """Check of a store's index; an index without files counts as disabled.

    Args:
        directory: ``index``.
        sizes: maxHashSlotNum and maxIndexNum, ``None`` to read them from the files.
        log: result of the walk so far.
        state: state in which the last broker left the store.
        findings: receives the findings.
        deleted_before: by topic, the physical offset before which its messages were deleted.
    """

    def __init__(
        self,
        directory: Path,
        sizes: tuple[int, int] | None,
        log: LogLookup,
        state: StoreState,
        findings: Findings,
        deleted_before: Mapping[str, int],
    ) -> None:
        self._findings = findings
        self._deleted_before = deleted_before
        self._state = state
        self._log = log
        self._images = self._load(index_paths(directory), sizes)
        self._coming = list(self._images)
        self._open: list[IndexFileAudit] = []
        self._ranges: list[tuple[int, int]] = []
        # Physical offsets and key hashes of entries that lead to a wrong place.
        self._astray: list[tuple[Positions, Positions]] = []
        # Keys without an entry: physical offset, store time and key hash of each.
        self._missing: list[tuple[Positions, Positions, Positions]] = []

    def _load(self, paths: list[Path], sizes: tuple[int, int] | None) -> list[IndexImage]:
        found, unclear = [], []
        for path in paths:
            try:
                found.append(_image(path, sizes))
            except CodecError as error:
                unclear.append((path, str(error)))
            except StoreError as error:
                self._findings.add(AuditRule.FILE_UNREADABLE, path, 0, str(error))
        known = {image.size: image.slot_count for image in found}
        for path, reason in unclear:
            size = path.stat().st_size
            if size in known:
                found.append(IndexImage(str(path), open_local, known[size]))
            elif size and any(path.read_bytes()[:INDEX_HEADER_SIZE]):
                self._findings.add(AuditRule.INDEX_HEADER, path, 0, reason, mended=self._state.unclean)
        return sorted((image for image in found if image.used > 1), key=lambda image: image.path)

    def take(self, window: WindowMessages) -> None:
        """Compare a window's messages with the entries of the index."""
        if not self._images or not len(window):
            return
        keys = window_keys(window)
        self._close_before(int(window.offsets[0]))
        self._open_up_to(int(window.offsets[-1]))
        found = [file.take(window.offsets, window.store_timestamps, keys.allowed) for file in self._open]
        known = np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)
        missing = keys.required[~among(keys.required, known)]
        if len(missing):
            missing = missing[~window.are_before(self._deleted_before)[missing >> HASH_BITS]]
            numbers = missing >> HASH_BITS
            self._missing.append(
                (window.offsets[numbers], window.store_timestamps[numbers], missing & (1 << HASH_BITS) - 1)
            )

    def _open_up_to(self, offset: int) -> None:
        while self._coming:
            image = self._coming[0]
            begin = min(image.header.begin_phy_offset, int(image.entries(1, 2)["phy_offset"][0]))
            if begin > offset:
                return
            del self._coming[0]
            self._open.append(IndexFileAudit(image, self._log, self._state, self._findings))

    def _close_before(self, offset: int) -> None:
        """Close files whose messages were all seen: a full one takes a gigabyte of memory."""
        for file in [file for file in self._open if file.last < offset]:
            self._open.remove(file)
            self._astray.append(file.finish())
            self._ranges.append(file.range)

    def finish(self) -> None:
        """Add the findings that are certain only after all messages were seen."""
        self._open_up_to(_MOST)
        self._close_before(_MOST)
        if not self._ranges:
            return
        self._ranges.sort()
        bad_offsets = np.concatenate([offsets for offsets, _ in self._astray])
        bad_hashes = np.concatenate([hashes for _, hashes in self._astray])
        for offsets, timestamps, hashes in self._missing:
            # Reported already: an entry of this message or with this key leads to a wrong place. Nothing is indexed
            # before the first file.
            said = np.isin(offsets, bad_offsets) | np.isin(hashes, bad_hashes) | (offsets <= self._ranges[0][0])
            for offset, timestamp in zip(offsets[~said].tolist(), timestamps[~said].tolist(), strict=True):
                self._add_missing(offset, timestamp)

    def _add_missing(self, offset: int, timestamp: int) -> None:
        inside = any(begin <= offset <= last for begin, last in self._ranges)
        # RocketMQ with messageIndexSafe=false removes the last file after a crash, and does not rebuild it.
        between = not inside and offset < self._ranges[-1][1]
        mended = between or not self._state.is_index_known(timestamp)
        why = " (between two index files, as messageIndexSafe=false leaves it after a crash)" if between else ""
        text = f"a key of the message at {offset} of the CommitLog{why}"
        self._findings.add(AuditRule.INDEX_MISSING_KEY, self._images[-1].path, 0, text, mended=mended)
