"""Check of the index files against the messages of the CommitLog.

The entries that lead into one file of the log are matched with its messages. What was matched in all of them is put
together for each index file: only then are its wrong entries certain, and its chains can be followed around them.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketbroker.audit.findings import Findings
from rocketbroker.audit.log_audit import CheckedLog
from rocketbroker.audit.store_files import INDEX, Spans, StoreFacts, StoreFolder, in_runs, opened, runs_of
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.index_file_layout import (
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    MAX_TIME_DIFF,
    IndexHeader,
    entry_position,
    slot_position,
)
from rocketbroker.codec.storefile.index_image import IndexImage
from rocketbroker.codec.storefile.window_messages import WindowMessages, keys_of
from rocketbroker.common.errors import CodecError, StoreError

# Bits of the key hash in a pair, which has 31.
_HASH_BITS: Final = 32
_AT_ONCE: Final = 1 << 20

# A message's number in its window and a key hash, packed into one number each.
Pairs = NDArray[np.int64]


class IndexFile(NamedTuple):
    """An index file when the check began: a broker may add entries meanwhile, which are not checked."""

    path: str
    size: int
    slot_count: int
    header: IndexHeader
    entry_count: int
    used: int


class IndexEvidence(NamedTuple):
    """Entries of an index file that lead into one file of the log, by number.

    ``good`` are runs of those that lead to a message with their key, ``known`` those that lead to another message.
    """

    good: NDArray[np.int64]
    known: Positions


class MissingKeys(NamedTuple):
    """Keys without an entry: physical offset and store time of the message, and hash of the key."""

    offsets: Positions
    store_times: Positions
    hashes: Positions


class CheckedIndexFile(NamedTuple):
    """First and last physical offset that entries lead to; offsets and key hashes of the wrong entries."""

    range: tuple[int, int]
    bad_offsets: Positions
    bad_hashes: Positions


def index_files(folder: StoreFolder, facts: StoreFacts, findings: Findings) -> list[IndexFile]:
    """Return the index files with entries by name, and therefore by time; an index without any counts as disabled."""
    options, found, unclear = facts.options, list[IndexImage](), list[tuple[str, int, str]]()
    for name, size in folder.files(INDEX).items():
        path = f"{INDEX}/{name}"
        if not (name.isascii() and name.isdigit()):
            continue  # a damaged file that a broker set aside
        try:
            if options.index_file_size in {0, size}:
                found.append(_image(folder, path, options.slot_count))
            else:
                slots, wanted = options.slot_count, options.index_file_size
                entries = (wanted - entry_position(0, slots)) // INDEX_SIZE
                reason = f"{size} bytes instead of {wanted}, by maxHashSlotNum {slots} and maxIndexNum {entries}"
                unclear.append((path, size, reason))
        except CodecError as error:
            unclear.append((path, size, str(error)))
        except StoreError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                findings.add(AuditRule.FILE_UNREADABLE, path, 0, str(error))
    known = {image.size: image.slot_count for image in found}
    for path, size, reason in unclear:
        if size in known:
            found.append(_image(folder, path, known[size]))
        elif size and any((_read(folder, path) or b"")[:INDEX_HEADER_SIZE]):
            findings.add(AuditRule.INDEX_HEADER, path, 0, reason, mended=facts.state.unclean)
    used = [image for image in found if image.used > 1]
    files = [
        IndexFile(each.path, each.size, each.slot_count, each.header, each.entry_count, each.used)
        for each in sorted(used, key=lambda image: image.path)
    ]
    _check_order(files, facts, findings)
    return files


def _check_order(files: Sequence[IndexFile], facts: StoreFacts, findings: Findings) -> None:
    """Add a finding for each file whose messages begin before the end of those of the file before it.

    The entries of such a file may all be right: it repeats those of another one. A broker that opens the store sets it
    aside nevertheless, as it indexes messages in the order of the log.
    """
    end = 0
    for file in files:
        begin = file.header.begin_phy_offset
        if begin < end:
            text = f"beginPhyOffset is {begin}, before {end}, where the file before it ends"
            mended = not facts.state.is_index_known(file.header.end_timestamp)
            findings.add(AuditRule.INDEX_HEADER, file.path, 0, text, mended=mended)
        else:
            end = file.header.end_phy_offset


def _image(folder: StoreFolder, path: str, slot_count: int) -> IndexImage:
    return IndexImage(path, lambda each: opened(folder, each), slot_count)


def _read(folder: StoreFolder, path: str) -> bytes:
    with opened(folder, path) as file:
        return file.read_at(0, INDEX_HEADER_SIZE)


class IndexEntries(NamedTuple):
    """Columns of some entries by number."""

    numbers: Positions
    hashes: NDArray[np.int32]
    offsets: Positions
    time_diffs: NDArray[np.int32]
    previous: NDArray[np.int32]

    @classmethod
    def read(cls, folder: StoreFolder, file: IndexFile, start: int, stop: int) -> "IndexEntries":
        """Read entries ``start`` to before ``stop``."""
        entries = _image(folder, file.path, file.slot_count).entries(start, stop)
        numbers = np.arange(start, start + len(entries))
        hashes, offsets = entries["key_hash"].astype(np.int32), entries["phy_offset"].astype(np.int64)
        diffs, previous = entries["time_diff"].astype(np.int32), entries["previous"].astype(np.int32)
        return cls(numbers, hashes, offsets, diffs, previous)

    def where(self, chosen: NDArray[np.bool_] | Positions) -> "IndexEntries":
        """Return the chosen entries."""
        return IndexEntries(
            self.numbers[chosen],
            self.hashes[chosen],
            self.offsets[chosen],
            self.time_diffs[chosen],
            self.previous[chosen],
        )


def index_spans(folder: StoreFolder, facts: StoreFacts, file: IndexFile) -> Spans:
    """Return which entries of a file lead into which file of the log."""
    spans = Spans()
    for start in range(1, file.used, _AT_ONCE):
        spans.add(facts, start, IndexEntries.read(folder, file, start, min(start + _AT_ONCE, file.used)).offsets)
    return spans


class IndexAudit:
    """Check of the entries that lead into one file of the log.

    Args:
        folder: the store.
        facts: facts about it.
        files: the index files, each with its spans.
        number: number of the log's file.
    """

    def __init__(
        self, folder: StoreFolder, facts: StoreFacts, files: Sequence[tuple[IndexFile, Spans]], number: int
    ) -> None:
        self._deleted = facts.deleted
        self._enabled = bool(files)
        self._entries = {
            file: _sorted(IndexEntries.read(folder, file, *spans[number]), facts, number)
            for file, spans in files
            if number in spans
        }
        self._good: dict[IndexFile, list[Positions]] = {file: [] for file in self._entries}
        self._known: dict[IndexFile, list[Positions]] = {file: [] for file in self._entries}
        self._missing: list[MissingKeys] = []

    def take(self, window: WindowMessages) -> None:
        """Compare a window's messages with their entries.

        Releases before 5.5.0 index no tags. Half messages and rollbacks of transactions need not be there either.
        """
        if not self._enabled or not len(window):
            return
        keys = keys_of(window)
        allowed = _pairs(keys.numbers, keys.hashes)
        required = np.sort(allowed[~keys.of_tags & (window.indexed & ~window.are_batches)[keys.numbers]])
        allowed = np.sort(allowed)
        found = [self._match(file, entries, window, allowed) for file, entries in self._entries.items()]
        missing = required[~_among(required, np.sort(np.concatenate(found)) if found else np.empty(0, np.int64))]
        if len(missing):
            missing = missing[~window.are_before(self._deleted)[missing >> _HASH_BITS]]
            numbers = missing >> _HASH_BITS
            hashes = missing & (1 << _HASH_BITS) - 1
            self._missing.append(MissingKeys(window.offsets[numbers], window.store_timestamps[numbers], hashes))

    def _match(self, file: IndexFile, entries: IndexEntries, window: WindowMessages, allowed: Pairs) -> Pairs:
        """Match the entries of a window's messages, and return their pairs of message and key hash."""
        low, high = np.searchsorted(entries.offsets, [window.offsets[0], window.offsets[-1] + 1])
        members = entries.where(np.arange(low, high))
        numbers = np.searchsorted(window.offsets, members.offsets)
        exact = window.offsets[numbers] == members.offsets
        found = _pairs(numbers, members.hashes)
        diffs = (window.store_timestamps[numbers] - file.header.begin_timestamp) // 1000
        good = exact & _among(found, allowed) & (np.clip(diffs, 0, MAX_TIME_DIFF) == members.time_diffs)
        self._good[file].append(members.numbers[good])
        self._known[file].append(members.numbers[exact & ~good])
        of_messages: Pairs = found[exact]
        return of_messages

    def evidence(self) -> dict[str, IndexEvidence]:
        """Return the evidence about each index file by its path."""
        return {
            file.path: IndexEvidence(runs_of(np.sort(_joined(self._good[file]))), _joined(self._known[file]))
            for file in self._entries
        }

    def missing(self) -> MissingKeys:
        """Return the keys without an entry."""
        return MissingKeys(*map(_joined, zip(*self._missing, strict=True))) if self._missing else MissingKeys(*_NONE)


_NONE: Final = (np.empty(0, np.int64),) * 3


def _joined(parts: Sequence[Positions]) -> Positions:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _sorted(entries: IndexEntries, facts: StoreFacts, number: int) -> IndexEntries:
    """Return the entries that lead into a file of the log, by offset."""
    inside = np.flatnonzero(entries.offsets >= facts.log_begin)
    entries = entries.where(inside[facts.segments_of(entries.offsets[inside]) == number])
    return entries.where(np.argsort(entries.offsets, kind="stable"))


def _pairs(numbers: Positions, hashes: NDArray[np.int32]) -> Pairs:
    return numbers << _HASH_BITS | (hashes.astype(np.int64) & 0xFFFFFFFF)


def _among(values: Pairs, known: Pairs) -> NDArray[np.bool_]:
    """Return a mask of the ``values`` that are in ``known``, which is sorted."""
    if not len(known):
        return np.zeros(len(values), np.bool_)
    at = np.searchsorted(known, values)
    found: NDArray[np.bool_] = known[np.minimum(at, len(known) - 1)] == values
    return found


class IndexFileAudit:
    """Judgement of one index file by the evidence of all files of the log.

    Args:
        folder: the store.
        facts: facts about it.
        file: the file.
        evidence: the evidence about it.
        log: the checked log.
        findings: receives the findings.
    """

    def __init__(
        self,
        folder: StoreFolder,
        facts: StoreFacts,
        file: IndexFile,
        evidence: Sequence[IndexEvidence],
        log: CheckedLog,
        findings: Findings,
    ) -> None:
        self._folder = folder
        self._file = file
        self._unclean = facts.state.unclean
        self._mended = not facts.state.is_index_known(file.header.end_timestamp)
        self._log = log
        self._findings = findings
        self._entries = entries = IndexEntries.read(folder, file, 1, file.used)
        # Entries that lead before the begin of the log belong to expired messages, and damage has its own finding.
        self._good = (entries.offsets >= 0) & (entries.offsets < log.begin)
        self._good |= log.is_damaged(entries.offsets)
        runs = [each.good for each in evidence]
        self._good |= in_runs(np.concatenate([np.empty((0, 2), np.int64), *runs]), 1, len(entries.numbers))
        self._known = _joined([each.known for each in evidence]) - 1

    def judge(self) -> CheckedIndexFile:
        """Add the findings."""
        entries, bad = self._entries, np.flatnonzero(~self._good)
        is_known = np.isin(bad, self._known)
        for at, known in zip(bad.tolist(), is_known.tolist(), strict=True):
            offset = int(entries.offsets[at])
            if known:
                text = f"the record at {offset} has no key with hash {entries.hashes[at]}, or another store time"
                self._add(AuditRule.INDEX_ENTRY_MISMATCH, at + 1, text, mended=self._mended)
            else:
                beyond = self._unclean and offset >= self._log.end
                text = f"no record begins at {offset}"
                self._add(AuditRule.INDEX_ENTRY_UNREADABLE, at + 1, text, mended=self._mended or beyond)
        self._check_header()
        self._check_chains()
        good = entries.offsets[self._good]
        last = int(entries.offsets.max()) if len(entries.offsets) else -1
        spanned = (int(good.min()), int(good.max())) if len(good) else (last, last)
        return CheckedIndexFile(spanned, entries.offsets[bad], entries.hashes[bad].astype(np.int64))

    def _add(self, rule: AuditRule, entry: int, text: str, *, mended: bool) -> None:
        position = entry_position(entry, self._file.slot_count)
        offset = int(self._entries.offsets[entry - 1])
        self._findings.add(
            rule, self._file.path, position, f"entry {entry}: {text}", mended=mended, physical_offset=offset
        )

    def _check_header(self) -> None:
        header, wrong = self._file.header, []
        offsets, good = self._entries.offsets, self._good
        if header.index_count > self._file.entry_count:
            wrong.append(f"indexCount is {header.index_count}, but the file has room for {self._file.entry_count}")
        if len(offsets) and good[0] and header.begin_phy_offset != offsets[0]:
            wrong.append(f"beginPhyOffset is {header.begin_phy_offset}, but the first entry has {offsets[0]}")
        if len(offsets) and good[-1] and header.end_phy_offset != offsets[-1]:
            wrong.append(f"endPhyOffset is {header.end_phy_offset}, but the last entry has {offsets[-1]}")
        if header.begin_timestamp > header.end_timestamp:
            wrong.append(f"beginTimestamp {header.begin_timestamp} is after endTimestamp {header.end_timestamp}")
        for text in wrong:
            self._findings.add(AuditRule.INDEX_HEADER, self._file.path, 0, text, mended=self._mended)

    def _check_chains(self) -> None:
        """Check that slots and entries name the newest entry before them, wrong entries excepted."""
        count = len(self._good)
        good = np.flatnonzero(self._good)
        slots = (self._entries.hashes[good] % self._file.slot_count).astype(np.int64)
        order = np.argsort(slots, kind="stable")
        numbers, slots = good[order] + 1, slots[order]
        first = np.concatenate(([True], slots[1:] != slots[:-1])) if len(slots) else np.empty(0, np.bool_)
        expected = np.where(first, 0, np.concatenate(([0], numbers[:-1]))) if len(slots) else numbers
        is_bad = np.concatenate(([False], ~self._good))
        actual = self._entries.previous[numbers - 1]
        wrong = (actual != expected) & ~((actual > 0) & (actual <= count) & is_bad[np.clip(actual, 0, count)])
        for at in np.flatnonzero(wrong).tolist():
            text = f"it names {actual[at]} as the entry before it in its slot instead of {expected[at]}"
            self._add(AuditRule.INDEX_CHAIN, int(numbers[at]), text, mended=self._mended)
        self._check_slots(slots, numbers, is_bad)

    def _check_slots(self, slots: Positions, numbers: Positions, is_bad: NDArray[np.bool_]) -> None:
        file = self._file
        heads = np.zeros(file.slot_count, np.int64)
        heads[slots] = numbers  # numpy keeps the last of several values for a slot, the newest entry
        actual = _image(self._folder, file.path, file.slot_count).slots().astype(np.int64)
        count = len(is_bad) - 1
        inside = (actual > 0) & (actual <= count)
        wrong = (actual != heads) & ~(inside & is_bad[np.clip(actual, 0, count)])
        for slot in np.flatnonzero(wrong).tolist():
            # A kill between slots and header leaves slots ahead of it: the next entries put there repair that.
            mended = self._mended or (self._unclean and actual[slot] > count)
            text = f"slot {slot} names entry {actual[slot]} instead of its newest, {heads[slot]}"
            position = slot_position(slot, file.slot_count)
            self._findings.add(AuditRule.INDEX_CHAIN, file.path, position, text, mended=mended)


def judge_missing_keys(
    missing: MissingKeys, files: Mapping[str, CheckedIndexFile], facts: StoreFacts, log: CheckedLog, findings: Findings
) -> None:
    """Add a finding for each key without an entry.

    Left out are keys that a finding names already, because an entry of their message or with their hash leads to a
    wrong place, and keys before the first file: nothing is indexed there.
    """
    if not files or not len(missing.offsets):
        return
    ranges = sorted(file.range for file in files.values())
    bad_offsets = np.concatenate([file.bad_offsets for file in files.values()])
    bad_hashes = np.concatenate([file.bad_hashes for file in files.values()])
    said = np.isin(missing.offsets, bad_offsets) | np.isin(missing.hashes, bad_hashes)
    left = ~said & (missing.offsets > ranges[0][0]) & (missing.offsets >= log.begin)
    for offset, stored in zip(missing.offsets[left].tolist(), missing.store_times[left].tolist(), strict=True):
        inside = any(begin <= offset <= last for begin, last in ranges)
        # RocketMQ with messageIndexSafe=false removes the last file after a crash, and does not rebuild it.
        between = not inside and offset < ranges[-1][1]
        mended = between or not facts.state.is_index_known(stored)
        why = " (between two index files, as messageIndexSafe=false leaves it after a crash)" if between else ""
        text = f"a key of the message at {offset} of the CommitLog{why}"
        path = max(files)
        findings.add(AuditRule.INDEX_MISSING_KEY, path, 0, text, mended=mended, physical_offset=offset)
