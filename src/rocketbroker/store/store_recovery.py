"""What happens when a store is opened: the end of the log is found, queues and index are made to agree with it.

Answers to DefaultMessageStore.recover and CommitLog.recoverNormally / recoverAbnormally.

1. After a clean stop the last three files are checked, else all from the last one that was begun before the checkpoint.
2. What follows the last valid record is cut off, in the log and in the queues; after an unclean stop the queues are cut
   off where the check began, since a power loss may have left holes in them.
3. Messages that the queues or the index lack are dispatched again.
"""

import logging
from dataclasses import dataclass, field

from rocketbroker.store.commit_log import CommitLog
from rocketbroker.store.commit_log_walker import FileWalk, first_store_timestamp
from rocketbroker.store.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.index_service import IndexService
from rocketbroker.store.reput_message_service import ReputMessageService
from rocketbroker.store.store_checkpoint import StoreCheckpoint

log = logging.getLogger(__name__)

_FILES_AFTER_CLEAN_STOP = 3


@dataclass
class RecoveryReport:
    """What recovery found and did."""

    clean_stop: bool
    checked_from: int = 0
    end_of_log: int = 0
    damage: list[str] = field(default_factory=list)
    dispatched: int = 0

    def __str__(self) -> str:
        how = "a clean stop" if self.clean_stop else "an unclean stop"
        text = (
            f"store opened after {how}: CommitLog checked from offset {self.checked_from}, "
            f"it ends at {self.end_of_log}, {self.dispatched} messages dispatched again"
        )
        return text + "".join(f"; {damage}" for damage in self.damage)


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
    first = _first_file_to_check(commit_log, checkpoint, clean_stop=clean_stop, with_index=index_service is not None)
    _find_end(commit_log, first, report)
    index_from = _index_from(commit_log, index_service, checkpoint, clean_stop=clean_stop)
    # What was not on disk for certain may have holes: those entries are made anew from the log.
    queues.truncate_from(report.end_of_log if clean_stop else min(report.checked_from, report.end_of_log))
    queues.correct_min_offsets(commit_log.min_offset)
    start = queues.max_physical_offset if clean_stop else min(report.checked_from, queues.max_physical_offset)
    start = max(min(start, index_from), commit_log.min_offset)
    report.dispatched = reput.catch_up(start)
    return report


def _first_file_to_check(
    commit_log: CommitLog, checkpoint: StoreCheckpoint, *, clean_stop: bool, with_index: bool
) -> int:
    """Number of the first file to check."""
    files = commit_log.queue.files
    if clean_stop:
        return max(0, len(files) - _FILES_AFTER_CLEAN_STOP)
    known = checkpoint.min_timestamp(with_index=with_index)
    for number in range(len(files) - 1, 0, -1):
        timestamp = first_store_timestamp(files[number])
        if timestamp is not None and timestamp <= known:
            return number
    return 0


def _find_end(commit_log: CommitLog, first: int, report: RecoveryReport) -> None:
    files = commit_log.queue.files
    report.checked_from = files[first].file_from_offset if files else 0
    report.end_of_log = commit_log.max_offset
    for file in files[first:]:
        walk = FileWalk(file, check_crc=True)
        for _ in walk:
            pass
        if not walk.complete:
            report.end_of_log = file.file_from_offset + walk.position
            if walk.damage:
                report.damage.append(f"{file.path}: cut off at {walk.position}: {walk.damage}")
            break
    commit_log.queue.truncate(report.end_of_log)


def _index_from(
    commit_log: CommitLog, index_service: IndexService | None, checkpoint: StoreCheckpoint, *, clean_stop: bool
) -> int:
    """From where on the index may lack messages."""
    if index_service is None:
        return commit_log.max_offset
    on_disk = None if clean_stop else checkpoint.layout.index_msg_timestamp
    removed = index_service.delete_after(on_disk, commit_log.max_offset)
    if not index_service.files:
        return commit_log.min_offset
    return commit_log.max_offset if removed is None else removed
