"""Check of the last queue entries against the log.

A damaged entry leads to no message, or beyond the end of the log. A queue that ends with such entries is truncated
before them, and they are rebuilt from the log.
"""

from rocketbroker.codec.message.expected_record import QueuedRecord
from rocketbroker.codec.message.message_encoder import BODY_POSITION
from rocketbroker.codec.message.topic_validator import LMQ_PREFIX
from rocketbroker.codec.storefile.consume_queue_layout import is_filler
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface


class QueueTails:
    """Finds the last entries that lead to their messages (blocks).

    Args:
        commit_log: the log.
    """

    def __init__(self, commit_log: CommitLog) -> None:
        self._commit_log = commit_log

    def sound_end(self, queue: ConsumeQueueInterface, end: int) -> int:
        """Return the queue offset after the last entry before ``end`` that leads to its message.

        It searches backwards in growing steps: rebuilding some sound entries with the others does no harm.
        """
        if not self._can_be_checked(queue):
            return end
        at, step = end - 1, 1
        while at >= queue.min_offset:
            record = queue.expected_record(at)
            if record is not None and _says_nothing(record):
                at = min(at - 1, queue.position_of(record.physical_offset))
                continue
            if record is not None and self._leads(queue, record):
                return end if step == 1 else queue.end_of_record(at)
            at, step = at - step, 2 * step
        return end if step == 1 else queue.min_offset

    def leads(self, queue: ConsumeQueueInterface, queue_offset: int) -> bool:
        """Return true if an entry leads to its message, is missing, or is not meant to lead to one."""
        record = queue.expected_record(queue_offset)
        sound = record is None or _says_nothing(record) or self._leads(queue, record)
        return sound or not self._can_be_checked(queue)

    def may_be_lost(self, queue: ConsumeQueueInterface, queue_offset: int, physical_offset: int) -> bool:
        """Return true if an entry names a message after a CommitLog offset, perhaps lost with the log's tail."""
        record = queue.expected_record(queue_offset)
        if record is None:
            return False
        offset, end = record.physical_offset, record.physical_offset + record.size
        in_the_log = physical_offset <= offset <= end <= self._commit_log.queue.max_file_end
        return in_the_log and record.size >= queue.record_check.least_size

    def _can_be_checked(self, queue: ConsumeQueueInterface) -> bool:
        """Return true if there is a log and the queue is no light one, whose entries lead to other topics."""
        return bool(self._commit_log.queue.files) and not queue.topic.startswith(LMQ_PREFIX)

    def _leads(self, queue: ConsumeQueueInterface, record: QueuedRecord) -> bool:
        offset = record.physical_offset
        if 0 <= offset < self._commit_log.min_offset:
            # Its file has expired. Entries before it must have lower offsets.
            before = queue.entry(record.queue_offset - 1)
            return before is None or before.physical_offset <= offset
        head = self._commit_log.bytes_at(offset, BODY_POSITION)
        return head is not None and queue.record_check.is_head(head, record)


def _says_nothing(record: QueuedRecord) -> bool:
    """Return true if an entry only says that its queue offset was used."""
    return record.size == MIN_RECORD_SIZE or is_filler(record.physical_offset, record.size)
