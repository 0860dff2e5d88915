"""Recovery of an opened store: find the end of the log, and make queues and index agree with it.

The counterpart of DefaultMessageStore.recover and CommitLog.recoverNormally / recoverAbnormally.

1. After a clean stop all of the log is known to be on disk; otherwise what was stored 3 s before the times of the
   checkpoint is. Damage in the known part is reported and skipped: it costs the messages it hit and no others.
2. In the unknown part the first damage ends the log. Log, queues and index are truncated at the end. Queues and index
   are truncated where the unknown part begins, since a power loss may have left holes in them.
3. Messages that the queues or the index lack are dispatched again.

Before queues or index are changed where they are known to be on disk, ``RebuildNote`` records from which offset. After
a crash meanwhile, the next start does not take an incomplete part for a whole one.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing

from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import sync_names
from rocketbroker.store.dispatch.reput_message_service import ReputMessageService
from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.recovery.loaded_store import LoadedStore, RecoveryReport
from rocketbroker.store.recovery.log_recovery import UnknownPart, end_after_clean_stop, take_unknown_part, unknown_part
from rocketbroker.store.recovery.queue_recovery import (
    QueueCuts,
    QueueEnds,
    QueueTails,
    find_lost_begins,
    find_lost_queues,
    lost_first_files,
    reach_ends,
    write_queue_ends,
)

log = logging.getLogger(__name__)

# Seconds between reports of progress.
_TELL_S = 3.0


def recover(
    loaded: LoadedStore,
    checkpoint: StoreCheckpoint,
    reput: ReputMessageService,
    before_change: Callable[[], None],
    say: Callable[[str], None] = log.info,
) -> RecoveryReport:
    """Make the loaded files agree, and return a report.

    Args:
        loaded: the store.
        checkpoint: the times up to which it is known to be on disk.
        reput: dispatches messages that queues and index lack.
        before_change: called before anything is changed.
        say: takes a line on the progress every few seconds.

    Raises:
        StoreFullError: The disk has no room for missing entries.
    """
    report, queues, log_queue = loaded.report, loaded.queues, loaded.commit_log.queue
    progress = _Progress(say, log_queue.max_file_end)
    tails = QueueTails(loaded.commit_log)
    if report.clean_stop:
        end = report.end_of_log = end_after_clean_stop(loaded, tails)
        unknown = UnknownPart(end, end, queues.max_physical_offset)
        without_begin = _find_lost_queues(loaded)
    else:
        unknown = unknown_part(loaded, checkpoint)
        report.checked_from = unknown.log_from
        begin, findings = log_queue.min_offset, report.queues_rebuilt
        without_begin = find_lost_begins(loaded.ends, queues, begin, reput.leaves_out, findings)
    index_lacks, queues_lack = _lacking_from(loaded, unknown)
    ended = _queues_at_stop(loaded) if report.clean_stop else None
    cuts = QueueCuts(queues, queues_lack, without_begin, tails, report.queues_rebuilt, ended)
    start = min(unknown.led_to, cuts.lacks_from, index_lacks, *map(_end_of, loaded.lacking))
    rebuilds = start < unknown.log_from or loaded.note.stands
    if rebuilds:
        loaded.note.write(start)
    before_change()
    _reach(log_queue, unknown.log_from)
    if loaded.index_service is not None:
        report.index_entries_cut = loaded.index_service.cut(index_lacks)
    # Entries that may not have been on disk may have holes between them: they are rebuilt from the log.
    cuts.cut()
    queues.correct_min_offsets(log_queue.min_offset)
    reput.catch_up(max(start, log_queue.min_offset), unknown.log_from, progress.tell)
    if not report.clean_stop:
        report.end_of_log = take_unknown_part(loaded, unknown, reput, progress.tell)
    reput.finish()
    report.dispatched = reput.dispatched
    log_queue.truncate(report.end_of_log)
    _reach_ends(loaded, reput)
    cuts.reach_known_ends()
    if not report.clean_stop:
        # A killed broker left these messages in the page cache, and they may not be on disk.
        log_queue.unsynced_from(report.checked_from)
        for folder in loaded.folders:
            sync_names(folder, log_queue.file_system)
    if rebuilds:
        _sync_rebuilt(loaded)
    report.duration_s = progress.seconds
    return report


class _Progress:
    """Reports the progress of recovery every few seconds."""

    def __init__(self, say: Callable[[str], None], end: int) -> None:
        self._say = say
        self._end = end
        self._began = self._told = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since recovery began."""
        return time.monotonic() - self._began

    def tell(self, offset: int) -> None:
        """Report that the log is read and dispatched up to an offset."""
        now = time.monotonic()
        if now - self._told >= _TELL_S:
            self._told = now
            self._say(f"recovery: read the CommitLog up to {offset} of at most {self._end}")


def _end_of(queue: ConsumeQueueInterface) -> int:
    """Return the CommitLog offset after the last message of a queue."""
    return queue.message_end(queue.max_offset - 1)


def _reach(queue: MappedFileQueue, end: int) -> None:
    """Recreate files that are missing before the end of the log, so that no offset is used twice."""
    while queue.max_file_end < end:
        file = queue.create_next(end - 1 - (end - 1) % queue.file_size)
        file.wrote = file.flushed = file.file_size


# -- queues and index


def _ends_that_hold(loaded: LoadedStore) -> QueueEnds | None:
    """Return the last known ends of all parts, if they must still hold.

    After a clean stop they must, unless RocketMQ's broker has written since. After an unclean stop topics may have been
    deleted since, which is known while the log has what came before.
    """
    ends, report = loaded.ends, loaded.report
    if ends is None:
        return None
    if report.clean_stop:
        return ends if ends.end_of_log == report.end_of_log else None
    return ends if loaded.commit_log.min_offset < ends.end_of_log <= report.end_of_log else None


def _queues_at_stop(loaded: LoadedStore) -> Mapping[tuple[str, int], tuple[int, int]]:
    """Return the begin and end of each queue at the last clean stop, as far as known."""
    ends = _ends_that_hold(loaded)
    return {} if ends is None else ends.queues


def _find_lost_queues(loaded: LoadedStore) -> list[ConsumeQueueInterface]:
    """Add queues that have less than at the clean stop to the lacking ones; return those that lack their beginning.

    Lost first files of the log are reported too: they would otherwise look expired.
    """
    ends = _ends_that_hold(loaded)
    if ends is None:
        return []
    loaded.report.damaged_files += lost_first_files(ends, loaded.commit_log.queue)
    read, findings = loaded.commit_log.bytes_at, loaded.report.queues_rebuilt
    lost, without_begin = find_lost_queues(ends, loaded.queues, read, findings)
    loaded.lacking.update(lost)
    return without_begin


def _reach_ends(loaded: LoadedStore, reput: ReputMessageService) -> None:
    """Make no queue end before its last known end, even if the log lost the messages.

    Also after a kill: it may have hit a start that found queues lost, and which ones is no longer known.
    """
    ends = _ends_that_hold(loaded)
    if ends is not None:
        findings = reach_ends(ends, loaded.queues, reput.leaves_out)
        if not loaded.report.clean_stop:
            loaded.report.queues_rebuilt.extend(findings)


def _lacking_from(loaded: LoadedStore, unknown: UnknownPart) -> tuple[int, int]:
    """Return the CommitLog offsets from which index and queues are rebuilt.

    Entries before the beginning of the log are kept: the offsets of a queue continue after its last entry even when no
    message of it is left.
    """
    log_begin = loaded.commit_log.queue.min_offset
    found, index_from, queues_from = loaded.note.found_from, unknown.index_from, unknown.log_from
    if found is not None:
        index_from, queues_from = (max(min(each, found), log_begin) for each in (index_from, queues_from))
    if loaded.index_service is None:
        return unknown.log_from, queues_from
    if loaded.index_lacks is not None:
        index_from = min(index_from, loaded.index_lacks)
    if not loaded.index_service.has_before(index_from):
        index_from = max(min(_without_keys_to(loaded), index_from), log_begin)
    return index_from, queues_from


def _without_keys_to(loaded: LoadedStore) -> int:
    """Return the CommitLog offset before which there were no keys, so that an empty index lacks none."""
    ends = _ends_that_hold(loaded)
    return ends.end_of_log if ends is not None and ends.index_files == [] else 0


def _flush_log(file: MappedFile) -> None:
    try:
        file.flush()
    except OSError as error:
        raise StoreError(f"{file.path} cannot be synced: {error.strerror}; its content may not be on disk") from error


def _sync_rebuilt(loaded: LoadedStore) -> None:
    """Sync the rebuilt known part, and record that all of it is on disk (blocks).

    Raises:
        StoreError: The log could not be synced.
    """
    log_queue, index = loaded.commit_log.queue, loaded.index_service
    for file in log_queue.files:
        if file.to_flush:
            _flush_log(file)
    try:
        with closing(loaded.queues.changed_files()) as files:
            for _, file in files:
                file.flush()
        if index is not None:
            index.sync()
            if index.waiting:
                log.error(
                    "index: the keys of %s messages could not be written; the next start indexes them", index.waiting
                )
                return
        write_queue_ends(
            loaded.ends_path,
            (log_queue.min_offset, loaded.report.end_of_log),
            loaded.queues,
            None if index is None else index.file_names,
            log_queue.file_system,
        )
        loaded.note.remove()
    except OSError:
        log.exception("recovery: the rebuilt part could not be synced; a start after a crash rebuilds it again")
