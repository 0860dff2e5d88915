"""Dispatches what the CommitLog holds and the queues or the index lack (DefaultMessageStore.ReputMessageService).

In normal running the append path dispatches what it wrote; the log is read again only after a restart.
"""

from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_sys_flag import (
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    transaction_value,
)
from rocketbroker.store.commit_log import CommitLog
from rocketbroker.store.commit_log_dispatcher import CommitLogDispatcher, DispatchRequest
from rocketbroker.store.commit_log_walker import FileWalk
from rocketbroker.store.consume_queue_store import ConsumeQueueStore

_BATCH = 1024
_NOT_QUEUED = {TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE}


class ReputMessageService:
    """Reads the log from an offset to its end and dispatches what is missing.

    Args:
        commit_log: the log.
        queues: the queues, which know what they have.
        dispatcher: enters messages.
    """

    def __init__(self, commit_log: CommitLog, queues: ConsumeQueueStore, dispatcher: CommitLogDispatcher) -> None:
        self._commit_log = commit_log
        self._queues = queues
        self._dispatcher = dispatcher

    def catch_up(self, offset: int, indexed_to: int) -> int:
        """Dispatch from ``offset`` on; messages up to the one at ``indexed_to`` are indexed already. Gives how many it read."""
        count = 0
        for file in list(self._commit_log.queue.files):
            if file.file_from_offset + file.wrote <= offset:
                continue
            batch: list[MessageExt] = []
            for message in FileWalk(file, max(0, offset - file.file_from_offset), check_crc=False):
                if message.commit_log_offset >= self._commit_log.max_offset:
                    break
                batch.append(message)
                count += 1
                if len(batch) == _BATCH:
                    self._dispatch(batch, indexed_to)
                    batch = []
            self._dispatch(batch, indexed_to)
        self._dispatcher.flush_index()
        return count

    def _dispatch(self, batch: list[MessageExt], indexed_to: int) -> None:
        requests = [self._request(message) for message in batch if transaction_value(message.sys_flag) not in _NOT_QUEUED]
        for request in requests:
            # One at a time: what is new to a queue depends on the message before.
            if request.queue_offset >= request.queue.max_offset:
                self._dispatcher.enter_queues([request])
                request.queue.next_offset = request.queue_offset + 1
        self._dispatcher.enter_index([request for request in requests if request.physical_offset > indexed_to])

    def _request(self, message: MessageExt) -> DispatchRequest:
        return DispatchRequest(
            self._queues.find_or_create(message.topic, message.queue_id),
            message.queue_offset,
            message.commit_log_offset,
            message.store_size,
            message.properties_bytes,
            message.store_timestamp,
        )
