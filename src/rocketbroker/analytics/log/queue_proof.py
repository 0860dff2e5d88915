"""Proof that the ConsumeQueues of a store have entries for its whole log, up to an offset.

They do after a clean stop, and, except for the last moments, while a broker runs. After a crash, or in a copy of a
store in use, some queues may lag behind others: entries of a slow topic may be missing where those of a busy one are
complete. Then the proof must show that some queue points to each record.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketbroker.analytics.files.commit_log_files import LogFile
from rocketbroker.analytics.files.queue_files import owning_topics, queue_files, queue_numbers
from rocketbroker.analytics.files.store_files import StoreFolder, open_folder
from rocketbroker.analytics.log.queue_entries import CheckedQueue, QueueEntries, QueueNotWholeError, checked_entries
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.message.message_decoder import BLANK_MAGIC_CODE
from rocketbroker.codec.storefile.queue_files import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, ENTRIES
from rocketbroker.common.errors import StoreError
from rocketbroker.common.local_file import lock_holders

#: The proof covers the log in stretches of this many bytes.
STRETCH: Final = 16 << 20
_LOCK: Final = "lock"
# Content that a broker writes into the lock file once its queues are recovered.
_LOCKED: Final = b"lock"
# Limits of the proof, since it reads all queues; in a remote store each queue takes some requests, one after another.
_MOST_LOCAL: Final = 65_536
_MOST_REMOTE: Final = 256
# Entries of a BatchConsumeQueue that are read at a time.
_BATCH_BLOCK: Final = 32 << 10
_FAR: Final = (1 << 63) - 1

logger = logging.getLogger(__name__)


def has_all_queues(folder: StoreFolder) -> bool:
    """Return true if queues have all dispatched messages: the store is closed cleanly, or open on this machine.

    A store that is still recovering from a crash does not count as open.
    """
    if folder.read_if_there("abort", 0, 1) is None:
        return True
    if not folder.root.is_local:
        return False
    holders = lock_holders(Path(folder.root.uri, _LOCK))
    # The lock file of a broker in this process is not opened: closing it would release the broker's lock.
    return bool(holders) and os.getpid() not in holders and folder.read_if_there(_LOCK) == _LOCKED


def all_queues(folder: StoreFolder) -> list[tuple[str, str, int]]:
    """Return kind (a folder), topic and number of each queue that owns its messages."""
    return [
        (kind, topic, number)
        for kind in ENTRIES
        for topic in owning_topics(folder, kind)
        for number in queue_numbers(folder, kind, topic)
    ]


def entries_of(folder: StoreFolder, queues: Iterable[tuple[str, str, int]]) -> Iterator[QueueEntries]:
    """Yield the entries of all ``queues`` in blocks, each queue up to its first damaged entry.

    If a file of a queue is removed meanwhile, its later entries are left out, so that they prove nothing.
    """
    for kind, topic, number in queues:
        try:
            if kind == CONSUME_QUEUE:
                yield from CheckedQueue(folder, topic, number).blocks()
            else:
                yield from _batch_entries(folder, topic, number)
        except StoreError as error:
            if not isinstance(error, QueueNotWholeError) and not isinstance(error.__cause__, FileNotFoundError):
                raise
            logger.info("%s: %s", folder.root.shown, error)


def _batch_entries(folder: StoreFolder, topic: str, number: int) -> Iterator[QueueEntries]:
    files = queue_files(folder, BATCH_CONSUME_QUEUE, topic, number)
    for _, entries in files.pieces(at_once=_BATCH_BLOCK):
        offsets, sizes = (entries[field].astype(np.int64) for field in ("commit_log_offset", "size"))
        yield checked_entries(f"{topic}/{number}", 0, offsets[sizes != 0], sizes[sizes != 0])


def shown_or_none(folder: StoreFolder, files: Sequence[LogFile], low: int) -> int | None:
    """Return the offset up to which the queues of a store have each record from the file with ``low`` on.

    ``None`` if there are too many queues to read. A missing queue folder proves nothing: it may not have reached the
    disk.
    """
    queues, most = all_queues(folder), _MOST_LOCAL if folder.root.is_local else _MOST_REMOTE
    if len(queues) > most:
        logger.info("%s: %d queues are too many to check; the limit is %d", folder.root.shown, len(queues), most)
        return None
    return shown_to(files, entries_of(folder, queues), low)


def shown_to(files: Sequence[LogFile], queued: Iterable[QueueEntries], low: int) -> int:
    """Return the offset up to which each record, from the file with ``low`` on, is one of ``queued``."""
    files = [file for file in files if file.base + file.size > low]
    if not files:
        return low
    chains = _Chains(files)
    for entries in queued:
        chains.add(entries)
    return chains.end()


def is_closed(file: LogFile, position: int) -> bool:
    """Return true if nothing or only a blank record follows in a file after a record's end at ``position``."""
    if position == file.size:
        return True
    head = open_folder(file.root).read(file.name, position, 8)
    return head == (file.size - position).to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big")


class _Chains:
    """Entries by stretches of the log, reduced to the start and end of each stretch and a hash that proves a chain.

    Entries form a chain if each begins where another ends, except for the first and the last one. Then the sum of
    hashes of all starts, minus that of all ends, equals the hash of the first start minus that of the last end.
    Independent hashes of 64 bits keep this from happening by chance, in whatever order entries are added.
    """

    def __init__(self, files: Sequence[LogFile]) -> None:
        self._files = files
        self._begins = np.concatenate([np.arange(file.base, file.base + file.data_end, STRETCH) for file in files])
        self._high = files[-1].base + files[-1].data_end
        self._sums = np.zeros(len(self._begins), np.uint64)
        self._firsts = np.full(len(self._begins), _FAR, np.int64)
        self._ends = np.zeros(len(self._begins), np.int64)

    def add(self, entries: QueueEntries) -> None:
        """Add entries, which are in order."""
        entries = entries.between(self._begins[0], self._high)
        if not len(entries):
            return
        numbers, at, counts = entries.stretches(self._begins)
        ends = entries.offsets + entries.sizes
        self._sums[numbers] += np.add.reduceat(_scattered(entries.offsets) - _scattered(ends), at)
        self._firsts[numbers] = np.minimum(self._firsts[numbers], entries.offsets[at])
        self._ends[numbers] = np.maximum(self._ends[numbers], ends[at + counts - 1])

    def end(self) -> int:
        """Return the end of the chain that begins with the first file."""
        whole = self._sums == _scattered(self._firsts) - _scattered(self._ends)
        end = self._files[0].base
        for file in self._files:
            if file.base != end:
                return end
            low, high = np.searchsorted(self._begins, (file.base, file.base + file.data_end))
            for number in (low + np.flatnonzero(self._ends[low:high])).tolist():
                if self._firsts[number] != end or not whole[number]:
                    return end
                end = int(self._ends[number])
            if file is self._files[-1] or not is_closed(file, end - file.base):
                return end
            end = file.base + file.size
        return end


def _scattered(offsets: Positions) -> NDArray[np.uint64]:
    """Return a hash of each offset, by splitmix64."""
    mixed = offsets.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
