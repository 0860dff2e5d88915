"""What happens when a store is opened: the end of the log is found, queues and index are made to agree with it.

Answers to DefaultMessageStore.recover and CommitLog.recoverNormally / recoverAbnormally.

1. All of the log is known to be on disk after a clean stop; else what was stored 3 s before the times of the checkpoint
   is. Damage in the known part is reported and passed over: it costs the messages it hit and no other.
2. In the unknown part the first damage ends the log. What follows the end is cut off, in the log, the queues and the
   index; queues and index are cut off where the unknown part begins, since a power loss may have left holes in them.
3. Messages that the queues or the index lack are dispatched again.
"""

import logging
from dataclasses import dataclass, field

from rocketbroker.store.commit_log import CommitLog
from rocketbroker.store.commit_log_walker import CorruptRange, LogWalk, is_begun, store_timestamp_at
from rocketbroker.store.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.index_service import IndexService
from rocketbroker.store.mapped_file_queue import MappedFileQueue
from rocketbroker.store.reput_message_service import ReputMessageService
from rocketbroker.store.store_checkpoint import StoreCheckpoint

log = logging.getLogger(__name__)

# How far behind the files that are there a queue may say that the log ended, in files.
_MOST_FILES_LOST = 1


@dataclass
class RecoveryReport:
    """What recovery found and did.

    ``checked_from`` is the CommitLog offset from which on all was checked, ``end_of_log`` the one at which the next
    message will lie, ``cut_off`` says what was cut off there, if anything.
    """

    clean_stop: bool
    checked_from: int = 0
    end_of_log: int = 0
    cut_off: str = ""
    corrupt_ranges: list[CorruptRange] = field(default_factory=list)
    dispatched: int = 0
    index_entries_cut: int = 0

    @property
    def damage(self) -> list[str]:
        """All that was not as it should be, a text each."""
        return [*([self.cut_off] if self.cut_off else []), *map(str, self.corrupt_ranges)]

    def __str__(self) -> str:
        how = "a clean stop" if self.clean_stop else "an unclean stop"
        text = (
            f"store opened after {how}: CommitLog checked from offset {self.checked_from}, "
            f"it ends at {self.end_of_log}, {self.dispatched} messages dispatched again"
        )
        return text + "".join(f"; {damage}" for damage in self.damage)

    def add_range(self, queue: MappedFileQueue, begin: int, end: int, why: str) -> None:
        """Take note that the log holds no sound record between two offsets; what is known already is left out."""
        while begin < end:
            file = queue.find(begin)
            base = file.file_from_offset if file else begin - begin % queue.file_size
            stop = min(end, base + queue.file_size)
            found = CorruptRange(queue.path_of(base), begin - base, stop - begin, why)
            if not any(_covers(known, found) for known in self.corrupt_ranges):
                self.corrupt_ranges.append(found)
            begin = stop


def recover(
    commit_log: CommitLog,
    queues: ConsumeQueueStore,
    index_service: IndexService | None,
    checkpoint: StoreCheckpoint,
    reput: ReputMessageService,
    *,
    clean_stop: bool,
) -> RecoveryReport:
    """Bring loaded files into agreement; gives what was found.

    Raises:
        StoreFullError: the disk has no room for entries that are missing.
    """
    report = RecoveryReport(clean_stop)
    log_queue = commit_log.queue
    if clean_stop:
        report.end_of_log = _end_after_clean_stop(log_queue, queues, report)
        index_unknown = unknown = report.end_of_log
    else:
        index_unknown, unknown = _unknown_parts(log_queue, checkpoint, index_service, report)
        report.checked_from = unknown
        report.end_of_log = _end_of_unknown_part(log_queue, unknown, report)
    _reach(log_queue, report.end_of_log)
    log_queue.truncate(report.end_of_log)
    _forget_flushed(log_queue, unknown)
    index_from = _cut_index(commit_log, index_service, index_unknown, report)
    # What was not on disk for certain may have holes: those entries are made anew from the log.
    queues.truncate_from(unknown)
    queues.correct_min_offsets(commit_log.min_offset)
    start = max(min(queues.max_physical_offset, unknown, index_from), commit_log.min_offset)
    report.dispatched = reput.catch_up(start, lambda *found: report.add_range(log_queue, *found))
    return report


# -- the end of the log


def _end_after_clean_stop(queue: MappedFileQueue, queues: ConsumeQueueStore, report: RecoveryReport) -> int:
    """Where the log ends, all of which is on disk: at the end of the last queued message or behind it.

    What the queues know is not walked through; half messages, which no queue has, may follow it.
    """
    start, least = _last_queued(queue, queues)
    report.checked_from = start
    walk = LogWalk(queue, start, check_crc=True)
    last_stored = 0
    while True:
        for stretch in walk:
            last_stored = store_timestamp_at(queue, stretch.offsets[-1]) or 0
        begin = walk.offset
        if begin >= least and not walk.damage:
            return begin
        found = walk.next_sound()
        if found is not None and found >= least and (store_timestamp_at(queue, found) or last_stored) < last_stored:
            # Java leaves older records behind the end of a log that it has cut.
            found = None
        if found is None:
            break
        report.add_range(queue, begin, found, walk.why)
        walk.offset = found
    report.add_range(queue, begin, least, walk.why)
    if begin >= least:
        report.cut_off = _told_cut(queue, begin, walk.damage)
    return max(begin, least)


def _last_queued(queue: MappedFileQueue, queues: ConsumeQueueStore) -> tuple[int, int]:
    """Offset of the record from which on the end of the log is looked for, and the least that the end may be.

    Without messages in the queues it is looked for from the begin of the last file.
    """
    last = queues.last_message
    if last is not None and queue.find(last[0]) is not None:
        sound = store_timestamp_at(queue, last[0]) is not None
        return last[0], last[0] if sound else sum(last)
    if not queue.files:
        return (last[0] - last[0] % queue.file_size, sum(last)) if last is not None else (0, 0)
    written = [file.file_from_offset for file in queue.files if is_begun(file)]
    start = written[-1] if written else queue.min_offset
    # A wrong entry must not make the log as long as it says.
    most = queue.max_file_end + _MOST_FILES_LOST * queue.file_size
    return start, sum(last) if last is not None and sum(last) <= most else 0


def _unknown_parts(
    queue: MappedFileQueue, checkpoint: StoreCheckpoint, index_service: IndexService | None, report: RecoveryReport
) -> tuple[int, int]:
    """Offsets from which on it is not known what of the index is on disk, and what of the log and the queues is."""
    known = checkpoint.min_timestamp(with_index=False)
    with_index = known if index_service is None else checkpoint.min_timestamp(with_index=True)
    walk = LogWalk(queue, _last_file_known(queue, with_index), check_crc=False)
    index_unknown = walk.offset = _known_part(queue, walk, with_index, report)
    return index_unknown, _known_part(queue, walk, known, report) if with_index < known else index_unknown


def _known_part(queue: MappedFileQueue, walk: LogWalk, known_ms: int, report: RecoveryReport) -> int:
    """Offset of the first record that was stored after the time up to which all is on disk, or the end before one."""
    while True:
        for stretch in walk:
            first = stretch.first_after(known_ms, 0)
            if first is not None:
                return first
        found = walk.next_sound()
        stored = None if found is None else store_timestamp_at(queue, found)
        if found is None or stored is None or stored > known_ms:
            return walk.offset
        report.add_range(queue, walk.offset, found, walk.why)
        walk.offset = found


def _last_file_known(queue: MappedFileQueue, known_ms: int) -> int:
    """Offset of the last file that was begun before a time."""
    for file in reversed(queue.files[1:]):
        stored = store_timestamp_at(queue, file.file_from_offset)
        if stored is not None and stored <= known_ms:
            return file.file_from_offset
    return queue.min_offset


def _end_of_unknown_part(queue: MappedFileQueue, offset: int, report: RecoveryReport) -> int:
    """Where the first damage is from an offset on, or nothing is written."""
    walk = LogWalk(queue, offset, check_crc=True)
    for _ in walk:
        pass
    if walk.damage:
        report.cut_off = _told_cut(queue, walk.offset, walk.damage)
    return walk.offset


def _told_cut(queue: MappedFileQueue, offset: int, why: str) -> str:
    file = queue.find(offset)
    assert file is not None, offset
    return f"{file.path}: cut off at {offset - file.file_from_offset}: {why}"


def _reach(queue: MappedFileQueue, end: int) -> None:
    """Make the files anew that are missing before the end of the log: no offset is used a second time."""
    while queue.max_file_end < end:
        file = queue.create_next(end - 1 - (end - 1) % queue.file_size)
        file.wrote = file.flushed = file.file_size


def _forget_flushed(queue: MappedFileQueue, unknown: int) -> None:
    """Have the flush thread sync what is not known to be on disk."""
    for file in queue.files:
        file.flushed = min(file.flushed, max(unknown - file.file_from_offset, 0))


def _covers(known: CorruptRange, found: CorruptRange) -> bool:
    begin, end = known.position, known.position + known.length
    return known.path == found.path and begin <= found.position and found.position + found.length <= end


# -- the index


def _cut_index(commit_log: CommitLog, index_service: IndexService | None, unknown: int, report: RecoveryReport) -> int:
    """Cut the index off where it is not known to be on disk; gives from where on it may lack messages."""
    if index_service is None:
        return commit_log.max_offset
    report.index_entries_cut = index_service.cut(unknown)
    return unknown if index_service.files else commit_log.min_offset
