"""End of the log at a start (CommitLog.recoverNormally, recoverAbnormally).

After a clean stop all of the log is on disk. A queue entry moves the end only if it leads to its message. So does the
end noted at the clean stop. Without such a note, an entry whose message the log has lost also does, up to the end of
the file of the last sound record.

After an unclean stop, messages stored 3 s before the times of the checkpoint are known to be on disk. Damage in the
known part is skipped; after it the first damage ends the log.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rocketbroker.codec.message.message_decoder import BODY_POSITION, peek
from rocketbroker.codec.message.raw_records import QueuedRecord
from rocketbroker.store.commitlog.commit_log_walker import LogWalk, is_begun, store_timestamp_at
from rocketbroker.store.dispatch.reput_message_service import ReputMessageService
from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.recovery.loaded_store import LoadedStore
from rocketbroker.store.recovery.queue_recovery import QueueTails, most_end

# End of the log after a clean stop, when all of it is on disk (CommitLog.recoverNormally).
#
# A queue entry moves the end only if it leads to its message. So does the end noted at the clean stop. Without such a
# note, an entry whose message the log has lost also does, up to the end of the file of the last sound record.


def end_after_clean_stop(loaded: LoadedStore, tails: QueueTails) -> int:
    """Return the end of the log, all of which is on disk: the end of the last queued message, or later.

    Messages in the queues are not walked; half messages, which no queue has, may follow them.
    """
    queue, report = loaded.commit_log.queue, loaded.report
    ends = {each: tails.sound_end(each, each.max_offset) for each in loaded.queues}
    start, least = _last_queued(loaded, ends)
    report.checked_from = start
    walk = LogWalk(queue, start, check_crc=True)
    last_stored = 0
    while True:
        for stretch in walk:
            last_stored = store_timestamp_at(queue, stretch.last_offset) or 0
        begin = walk.offset
        if begin >= least and not walk.damage:
            break
        found = walk.next_sound()
        if found is not None and found >= least and (store_timestamp_at(queue, found) or last_stored) < last_stored:
            # RocketMQ leaves older records after the end of a log that it has truncated.
            found = None
        if found is None:
            break
        report.add_range(queue, begin, found, walk.why)
        walk.offset = found
    if begin >= least and walk.damage:
        report.set_cut_off(queue, begin, walk.damage)
    end = max(begin, least, 0 if begin <= loaded.known_to else _claimed_end(loaded, ends, begin))
    report.add_range(queue, begin, end, walk.why)
    return end


def _last_queued(loaded: LoadedStore, ends: Mapping[ConsumeQueueInterface, int]) -> tuple[int, int]:
    """Return the record from which the search for the end starts, and the lowest possible end.

    Without messages in the queues the search starts at the last file.

    Args:
        loaded: the store.
        ends: queue offsets after the last entries that lead to their messages.
    """
    log_queue, known_to = loaded.commit_log.queue, loaded.known_to
    entries = [entry for queue, end in ends.items() if (entry := queue.message_entry(end - 1))]
    last = max(entries, default=None)
    if last is not None and log_queue.find(last.physical_offset) is not None:
        return last.physical_offset, max(last.end, known_to)
    if not log_queue.files:
        # Only the queue entries tell where the log ended.
        offset, size, _ = last or (0, 0, 0)
        base = offset - offset % log_queue.file_size
        return base, known_to or min(offset + size, base + log_queue.file_size)
    written = [file.file_from_offset for file in log_queue.files if is_begun(file)]
    return written[-1] if written else log_queue.min_offset, known_to


def _claimed_end(loaded: LoadedStore, ends: Mapping[ConsumeQueueInterface, int], begin: int) -> int:
    """Return the end of the last message that a queue names but the log lacks, in the file of the last record.

    An entry whose message is elsewhere in the log is damaged, and does not count.
    """
    log_queue = loaded.commit_log.queue
    size = log_queue.file_size
    limit = -(-begin // size) * size
    found = 0
    for queue, end in ends.items():
        record = queue.expected_record(queue.max_offset - 1)
        if end == queue.max_offset or record is None or record.size < queue.record_check.least_size:
            continue
        claimed = record.physical_offset + record.size
        in_the_file = limit - size <= record.physical_offset and begin < claimed <= limit
        if in_the_file and not _has_record(loaded, queue, end, record, begin):
            found = max(found, claimed)
    return found


def _has_record(
    loaded: LoadedStore, queue: ConsumeQueueInterface, end: int, record: QueuedRecord, log_end: int
) -> bool:
    """Return true if the message of a queue offset is between the last sound entry and the end of the log."""
    is_head, queue_offset = queue.record_check.is_head, record.queue_offset
    start = max(queue.message_end(end - 1), loaded.commit_log.min_offset)
    for stretch in LogWalk(loaded.commit_log.queue, start, check_crc=False, end=log_end):
        for number, offset in enumerate(stretch.offsets):
            head = bytes(stretch[number][:BODY_POSITION])
            if is_head(head, (queue_offset, offset, peek(head)[0], 0)):
                return True
    return False


# The part of a store that may not be on disk after an unclean stop (CommitLog.recoverAbnormally).
#
# Messages stored 3 s before the times of the checkpoint are known to be on disk. Damage in the known part is skipped;
# after it the first damage ends the log.

log = logging.getLogger(__name__)

# A clock that is set back by less may not show in the checkpoint: the log is synced every 10 s by default.
_UNNOTICED_MS = 10_000


class UnknownPart(NamedTuple):
    """CommitLog offsets at which the unknown part of the index and that of log and queues begin.

    ``led_to`` is the end of the last message that a queue names.
    """

    index_from: int
    log_from: int
    led_to: int


def unknown_part(loaded: LoadedStore, checkpoint: StoreCheckpoint) -> UnknownPart:
    """Return the part that is not known to be on disk, by the times of the checkpoint."""
    known = checkpoint.min_timestamp(with_index=False)
    least = index_least = loaded.known_to
    with_index = known
    if loaded.index_service is not None:
        with_index = checkpoint.min_timestamp(with_index=True)
        index_least = least if loaded.ends is not None and loaded.ends.index_files is not None else 0
    queue = loaded.commit_log.queue
    start = index_least if index_least < queue.max_file_end else 0
    start = _last_known_begin(queue, max(start, queue.min_offset), with_index, max(checkpoint.layout[:3]))
    walk = LogWalk(queue, start, check_crc=False)
    index_unknown = walk.offset = _known_part(walk, with_index, index_least, loaded)
    led_to = loaded.queues.max_physical_offset
    if (with_index, index_least) == (known, least):
        return UnknownPart(index_unknown, index_unknown, led_to)
    return UnknownPart(index_unknown, _known_part(walk, known, least, loaded), led_to)


def _known_part(walk: LogWalk, known_ms: int, least: int, loaded: LoadedStore) -> int:
    """Return the first record from ``least`` on that was stored after the time up to which everything is on disk.

    Without one, return the end of the log. Damage before it is skipped.
    """
    queue = loaded.commit_log.queue
    while True:
        for stretch in walk:
            first = stretch.first_after(known_ms, least)
            if first is not None:
                return first
        begin, found = walk.offset, walk.next_sound()
        stored = None if found is None else store_timestamp_at(queue, found)
        if found is not None and stored is not None and (found <= least or stored <= known_ms):
            walk.offset = found
        elif begin < least:
            walk.offset = least
        else:
            return begin
        loaded.report.add_range(queue, begin, walk.offset, walk.why)


def _last_known_begin(queue: MappedFileQueue, least: int, known_ms: int, latest_ms: int) -> int:
    """Return ``least``, or a later begin of a file with nothing before it that was stored after ``known_ms``.

    A message after a clock that was set back may begin a file that no checkpoint knows yet. Such a file follows the
    message of ``latest_ms``, the latest time of the checkpoint. So a file qualifies only if that message is in it or
    after it. The search for it ends after the last file and the whole one before it: a checkpoint later than those may
    be later than all records.
    """
    has_latest, lacking = False, 0
    for file in reversed(queue.files):
        begin = file.file_from_offset
        if begin <= least:
            break
        if not has_latest:
            found = _has_since(queue, file, latest_ms)
            has_latest, lacking = bool(found), lacking + (found is False)
        if lacking > 1 and not has_latest:
            text = "recovery: the checkpoint is later (%s ms) than the last records; the CommitLog is read from %s on"
            log.warning(text, latest_ms, least)
            break
        stored = store_timestamp_at(queue, begin) if has_latest else None
        if stored is not None and stored <= known_ms - _UNNOTICED_MS:
            return begin
    return least


def _has_since(queue: MappedFileQueue, file: MappedFile, time_ms: int) -> bool | None:
    """Return true if a sound record of a file was stored at or after a time, ``None`` if it has no sound record."""
    walk = LogWalk(queue, file.file_from_offset, check_crc=False, end=file.file_from_offset + file.size)
    found: int | None = walk.offset
    has_any = None
    while found is not None:
        walk.offset = found
        for stretch in walk:
            has_any = False
            if stretch.first_after(time_ms - 1, 0) is not None:
                return True
        found = walk.next_sound()
    return has_any


def take_unknown_part(
    loaded: LoadedStore, unknown: UnknownPart, reput: ReputMessageService, tell: Callable[[int], None]
) -> int:
    """Check and dispatch the unknown part; return the offset of its first damage, or of its end.

    Lost files are skipped: no crash removes a whole file from the middle.
    """
    queue, report = loaded.commit_log.queue, loaded.report
    walk, last = LogWalk(queue, unknown.log_from, check_crc=True), -1
    while True:
        for stretch in walk:
            reput.dispatch(stretch)
            tell(stretch.end_offset)
            last = stretch.last_offset
        found = walk.next_sound() if walk.offset < loaded.mended_to else None
        if found is None:
            break
        reput.pass_over(walk.offset, found, walk.why)
        walk.offset = found
    if walk.damage or walk.next_sound() is not None:
        report.set_cut_off(queue, walk.offset, walk.damage or "nothing is written there, though records follow")
    elif walk.offset < unknown.led_to <= most_end(queue):
        report.set_cut_off(queue, walk.offset, f"nothing is written there, though queues lead up to {unknown.led_to}")
    report.last_stored_ms = store_timestamp_at(queue, last) or 0
    return walk.offset
