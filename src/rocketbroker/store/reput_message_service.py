"""Dispatches what the CommitLog holds and the queues or the index lack (DefaultMessageStore.ReputMessageService).

In normal running the append path dispatches what it wrote; the log is read again only after a restart.
"""

from itertools import islice

from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import find_properties
from rocketbroker.codec.message.message_sys_flag import (
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    transaction_value,
)
from rocketbroker.store.commit_log import CommitLog
from rocketbroker.store.commit_log_dispatcher import CommitLogDispatcher
from rocketbroker.store.commit_log_walker import FileWalk
from rocketbroker.store.consume_queue import ConsumeQueue
from rocketbroker.store.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.delay_level_table import tags_code_of
from rocketbroker.store.dispatch_request import DispatchRequest

_BATCH = 1024
_NOT_QUEUED = {TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE}


class ReputMessageService:
    """Reads the log from an offset to its end and dispatches what is missing.

    Args:
        commit_log: the log.
        queues: the queues, which know what they have.
        dispatcher: enters messages.
        delay_levels: ms by level; a message of SCHEDULE_TOPIC_XXXX is queued by its delivery time.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        dispatcher: CommitLogDispatcher,
        delay_levels: dict[int, int],
    ) -> None:
        self._delay_levels = delay_levels
        # CommitLog offset of the last message that each queue had before the re-dispatch.
        self._known_ends: dict[ConsumeQueue, int] = {}
        self._commit_log = commit_log
        self._queues = queues
        self._dispatcher = dispatcher

    def catch_up(self, offset: int) -> int:
        """Dispatch from a CommitLog offset on what queues and index do not have; gives how many messages it read."""
        count = 0
        self._known_ends.clear()
        for file in list(self._commit_log.queue.files):
            if file.file_from_offset + file.wrote <= offset:
                continue
            walk = FileWalk(file, max(0, offset - file.file_from_offset), check_crc=False)
            records = (record for record in walk if record.commit_log_offset < self._commit_log.max_offset)
            while batch := list(islice(records, _BATCH)):
                self._dispatch(batch)
                count += len(batch)
        self._dispatcher.flush_index()
        return count

    def _dispatch(self, batch: list[MessageExt]) -> None:
        requests = [
            request
            for message in batch
            if transaction_value(message.sys_flag) not in _NOT_QUEUED
            and not self._is_of_a_deleted_topic(request := self._request(message))
        ]
        self._dispatcher.dispatch(requests)
        for queue, *_ in requests:
            queue.next_offset = queue.max_offset

    def _is_of_a_deleted_topic(self, request: DispatchRequest) -> bool:
        """Whether a message lies before what its queue has and is none of it (ConsumeQueue.putMessagePositionInfo).

        Its topic was deleted and made again since: it must not come back behind the new messages.
        """
        queue, queue_offset, physical_offset, *_ = request
        known_end = self._known_ends.get(queue)
        if known_end is None:
            last = queue.entry(queue.max_offset - 1)
            known_end = self._known_ends[queue] = last[0] if last else -1
        return queue_offset >= queue.max_offset and physical_offset <= known_end

    def _request(self, message: MessageExt) -> DispatchRequest:
        queue = self._queues.find_or_create(message.topic, message.queue_id)
        raw = message.properties_bytes
        found = find_properties(raw)
        return (
            queue,
            message.queue_offset,
            message.commit_log_offset,
            message.store_size,
            tags_code_of(queue, self._delay_levels, raw, found[0], message.store_timestamp),
            message.store_timestamp,
            found,
        )
