"""Recovery of an opened store: find the end of the log, and make queues and index agree with it.

The counterpart of DefaultMessageStore.recover and CommitLog.recoverNormally / recoverAbnormally.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing

from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import sync_names
from rocketbroker.store.dispatch.reput_message_service import ReputMessageService
from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.recovery.loaded_store import LoadedStore, RecoveryReport
from rocketbroker.store.recovery.log_recovery import (
    UnknownPart,
    end_after_clean_stop,
    take_unknown_part,
    unknown_part,
)
from rocketbroker.store.recovery.queue_recovery import (
    QueueCuts,
    QueueEnds,
    QueueTails,
    find_lost_begins,
    find_lost_queues,
    reach_ends,
    write_queue_ends,
)

log = logging.getLogger(__name__)

# Seconds between reports of progress.
_TELL_S = 3.0


# What can have happened before a start:
#
# - A clean stop synced everything, noted the ends of all parts, and removed the file ``abort`` last. A difference now
#   is damage by the disk, or the work of Apache's broker, which may have used the store since.
# - A kill came between any two stores into the mapped files. The page cache has all of them, so that only the last
#   record or entry may be torn; but what was not synced is not on disk yet.
# - A power loss took any pages written since the last sync, and left others: entries without their message, records
#   with a hole, zeros among entries. Only files are in order: the name and size of each are synced before the next.
# - The disk changed or lost some of what it had. That may have hit any byte.
# - An earlier start was stopped half way through this function.
#
# What must hold afterwards: each message that was acknowledged as on disk, and that the disk still has, is in its queue
# and under its keys. Queues and index lead to sound records only. No offset of the log or of a queue is used twice,
# since consumers have stored them.
#
# The log has a known part and an unknown one, which begins at ``unknown.log_from``. The known part was synced: all of
# it after a clean stop, else what was stored 3 s before the times of the checkpoint. Damage there is the disk's. It is
# reported and skipped, and costs the messages it hit: a cut would lose the acknowledged ones behind it. In the unknown
# part the first damage ends the log. If a power loss made it, no sync had covered it, and a sync covers all before it:
# nothing behind it was acknowledged as on disk. Damage by the disk looks the same there, so the part is kept short: the
# checkpoint follows each round of syncs.
#
# Queues and index are cut where the unknown part begins, even where they look sound: holes among their entries cannot
# be told from entries that were never there. What is cut, and what was lost, is dispatched again from the log.
#
# A stop amid this function loses nothing:
#
# - Nothing is changed before ``before_change`` has put ``abort`` on disk. The next start then trusts the checkpoint
#   alone, which this function does not move, and so finds the same unknown part.
# - Where queues or index are cut in the known part, the checkpoint would call them complete. So the note
#   (``RebuildNote``) says first from which offset on they may not be. It goes once all that was rebuilt is on disk.
# - The log is truncated last but one, at an end that each later start finds again. Only then are queues moved to ends
#   that are noted but that the log has lost.
def recover(
    loaded: LoadedStore,
    checkpoint: StoreCheckpoint,
    reput: ReputMessageService,
    before_change: Callable[[], None],
    say: Callable[[str], None] = log.info,
) -> RecoveryReport:
    """Make the loaded files agree, and return a report.

    Args:
        reput: dispatches messages that queues and index lack.
        before_change: called before anything is changed.
        say: takes a line on the progress every few seconds.

    Raises:
        StoreFullError: The disk has no room for missing entries.
    """
    report, queues, log_queue = loaded.report, loaded.queues, loaded.commit_log.queue
    began, tell = time.monotonic(), _progress(say, log_queue.max_file_end)
    tails = QueueTails(loaded.commit_log)
    # Begin and end of each queue at the clean stop; None if others may have changed them since.
    ended: Mapping[tuple[str, int], tuple[int, int]] | None = None
    without_begin: list[ConsumeQueueInterface] = []
    if report.clean_stop:
        end = report.end_of_log = end_after_clean_stop(loaded, tails)
        unknown, ended = UnknownPart(end, end, queues.max_physical_offset), {}
        if (ends := _ends_that_hold(loaded)) is not None:
            ended = ends.queues
            if ends.begin_of_log < (begin := log_queue.min_offset):
                # These files would otherwise look expired.
                text = f"is missing; the CommitLog began there and now begins at {begin}"
                report.damaged_files.append(f"{log_queue.path_of(ends.begin_of_log)}: {text}")
            read = loaded.commit_log.bytes_at
            lost, without_begin = find_lost_queues(ends, queues, read, report.queues_rebuilt)
            loaded.lacking.update(lost)
    else:
        unknown = unknown_part(loaded, checkpoint)
        report.checked_from = unknown.log_from
        begin, findings = log_queue.min_offset, report.queues_rebuilt
        without_begin = find_lost_begins(loaded.ends, queues, begin, reput.leaves_out, findings)
    index_lacks, queues_lack = _lacking_from(loaded, unknown)
    cuts = QueueCuts(queues, queues_lack, without_begin, tails, report.queues_rebuilt, ended)
    damaged = [queue.message_end(queue.max_offset - 1) for queue in loaded.lacking]
    start = min([unknown.led_to, cuts.lacks_from, index_lacks, *damaged])

    # From here on the store is changed.
    rebuilds = start < unknown.log_from or loaded.note.stands
    if rebuilds:
        loaded.note.write(start)
    before_change()
    while log_queue.max_file_end < unknown.log_from:
        # A lost last file: its offsets are used, and must not be used again.
        file = log_queue.create_next(unknown.log_from - 1 - (unknown.log_from - 1) % log_queue.file_size)
        file.wrote = file.flushed = file.file_size
    if loaded.index_service is not None:
        report.index_entries_cut = loaded.index_service.cut(index_lacks)
    cuts.cut()
    queues.correct_min_offsets(log_queue.min_offset)
    reput.catch_up(max(start, log_queue.min_offset), unknown.log_from, tell)
    if not report.clean_stop:
        report.end_of_log = take_unknown_part(loaded, unknown, reput, tell)
    reput.finish()
    report.dispatched = reput.dispatched
    log_queue.truncate(report.end_of_log)
    if (ends := _ends_that_hold(loaded)) is not None:
        # After a kill as well: it may have hit a start that found queues lost, and no file says which ones.
        moved = reach_ends(ends, queues, reput.leaves_out)
        report.queues_rebuilt += [] if report.clean_stop else moved
    cuts.reach_known_ends()
    if not report.clean_stop:
        # A killed broker left these messages in the page cache, and a sync that it saw fail is not reported again.
        log_queue.unsynced_from(report.checked_from)
        index = [] if loaded.index_service is None else [loaded.index_service.directory]
        for folder in [log_queue.directory, *queues.directories, *index]:
            sync_names(folder, log_queue.file_system)
    if rebuilds:
        _sync_rebuilt(loaded)
    report.duration_s = time.monotonic() - began
    return report


def _progress(say: Callable[[str], None], end: int) -> Callable[[int], None]:
    """Return a function that takes the offset reached, and reports it every few seconds."""
    told = time.monotonic()

    def tell(offset: int) -> None:
        nonlocal told
        if (now := time.monotonic()) - told >= _TELL_S:
            told = now
            say(f"recovery: read the CommitLog up to {offset} of at most {end}")

    return tell


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


def _lacking_from(loaded: LoadedStore, unknown: UnknownPart) -> tuple[int, int]:
    """Return the CommitLog offsets from which index and queues are rebuilt.

    Entries before the beginning of the log are kept: the offsets of a queue continue after its last entry even when no
    message of it is left.
    """
    log_begin, index = loaded.commit_log.min_offset, loaded.index_service
    found, index_from, queues_from = loaded.note.found_from, unknown.index_from, unknown.log_from
    if found is not None:
        index_from, queues_from = (max(min(each, found), log_begin) for each in (index_from, queues_from))
    if index is None:
        return unknown.log_from, queues_from
    if loaded.index_lacks is not None:
        index_from = min(index_from, loaded.index_lacks)
    if not index.has_before(index_from):
        # It lacks the keys of all messages, unless it was known to have no file then either: it may have been off.
        ends = _ends_that_hold(loaded)
        without_keys_to = ends.end_of_log if ends is not None and ends.index_files == [] else 0
        index_from = max(min(without_keys_to, index_from), log_begin)
    return index_from, queues_from


def _sync_rebuilt(loaded: LoadedStore) -> None:
    """Sync the rebuilt known part, and record that all of it is on disk (blocks).

    Raises:
        StoreError: The log could not be synced.
    """
    log_queue, index = loaded.commit_log.queue, loaded.index_service
    for file in log_queue.files:
        try:
            if file.to_flush:
                file.flush()
        except OSError as error:
            text = f"{file.path} cannot be synced: {error.strerror}; its content may not be on disk"
            raise StoreError(text) from error
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
        log_range = log_queue.min_offset, loaded.report.end_of_log
        names = None if index is None else index.file_names
        write_queue_ends(loaded.ends_path, log_range, loaded.queues, names, log_queue.file_system)
        loaded.note.remove()
    except OSError:
        log.exception("recovery: the rebuilt part could not be synced; a start after a crash rebuilds it again")
