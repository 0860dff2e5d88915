"""End of the log after a clean stop, when all of it is on disk (CommitLog.recoverNormally).

A queue entry moves the end only if it leads to its message. So does the end noted at the clean stop. Without such a
note, an entry whose message the log has lost also does, up to the end of the file of the last sound record.
"""

from collections.abc import Mapping

from rocketbroker.codec.message.expected_record import QueuedRecord
from rocketbroker.codec.message.message_decoder import peek
from rocketbroker.codec.message.message_encoder import BODY_POSITION
from rocketbroker.store.commitlog.commit_log_walker import LogWalk, is_begun, store_timestamp_at
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.recovery.loaded_store import LoadedStore
from rocketbroker.store.recovery.queue_tails import QueueTails


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
