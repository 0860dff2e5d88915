"""Open transactions that an acting master sends to another master (TransactionalMessageServiceImpl.check).

The other master asks the producers and ends the transactions. This broker writes no op messages: its progress in the
half queue, which returns to its master, says which half messages are gone. RocketMQ skips one that no master takes;
here it waits, and all after it. So does one that this slave lacks or has damaged: its master may have it.
"""

import logging
from collections.abc import Awaitable, Callable

from rocketbroker.broker.message.real_place import real_place
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.transaction.transactional_message_service import TransactionalMessageService
from rocketbroker.broker.transaction.transactional_message_util import CID_SYS_RMQ_TRANS, QUEUE_ID, escaped_half
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.topic_validator import RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_queries import MessageQueries

log = logging.getLogger(__name__)


class HalfMessageEscape:
    """Sends open half messages every ``transactionCheckInterval``.

    Args:
        transactions: the open transactions.
        recover: finds them.
        queues: hold the half messages.
        queries: reads them.
        offsets: keep the progress.
        put: sends a message to another master.
        config: the interval.
        store_host: this broker's address as records hold it.
        may_send: returns false while another broker may deal with the same messages.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that a send depends on
        self,
        transactions: TransactionalMessageService,
        recover: Callable[[], Awaitable[None]],
        queues: ConsumeQueueStore,
        queries: MessageQueries,
        offsets: ConsumerOffsetManager,
        put: Callable[[MessageExtBrokerInner], Awaitable[PutMessageResult]],
        config: BrokerConfig,
        store_host: bytes,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        self._may_send = may_send
        self._transactions = transactions
        self._recover = recover
        self._queues = queues
        self._queries = queries
        self._offsets = offsets
        self._put = put
        self._config = config
        self._store_host = store_host
        # Offset of the half message last reported to wait for the master.
        self._reported = -1
        self._tasks = TaskOwner("HalfMessageEscape")

    async def start(self) -> None:
        """Find the open transactions, and start sending them."""
        await self._recover()
        self._tasks.every(self._config.transaction_check_interval / 1000, self.send_open, "send")

    async def stop(self) -> None:
        """Stop sending."""
        await self._tasks.stop()

    async def send_open(self) -> None:
        """Send all open half messages in order, up to the first that cannot be read or that no master takes."""
        queue = self._queues.find(RMQ_SYS_TRANS_HALF_TOPIC, QUEUE_ID)
        if queue is None:
            return
        if (progress := self._progress) < queue.min_offset:
            self._report(progress, f"this slave has only those from {queue.min_offset} on")
            return
        halves = self._transactions.half_offsets
        try:
            while (offset := halves.first_open(halves.position)) < queue.max_offset:
                if not await self._send(queue, offset):
                    return
                halves.end(offset)
        finally:
            self._keep_progress(halves.position)

    async def _send(self, queue: ConsumeQueueInterface, offset: int) -> bool:
        """Send a half message; return false to retry later. One that names no real topic is skipped."""
        half = await self._read(queue, offset)
        if not self._may_send():
            return False
        if half is None:
            self._report(offset, "it is lost or damaged here")
            return False
        place = real_place(half.properties_bytes)
        if place is None:
            log.error("half message %d is skipped: it names no real topic", offset)
            return True
        result = await self._put(escaped_half(half, place, self._store_host))
        if result.status is PutMessageStatus.PUT_OK:
            return True
        log.error("half message %d of topic %s waits for the master: %s", offset, place[0], result.reason)
        return False

    async def _read(self, queue: ConsumeQueueInterface, offset: int) -> MessageExt | None:
        entry = queue.entry(offset)
        record = await self._queries.read_message(entry.physical_offset) if entry else None
        half = decode_record(record) if record else None
        is_sound = half is not None and (half.topic, half.queue_offset) == (RMQ_SYS_TRANS_HALF_TOPIC, offset)
        return half if is_sound else None

    def _report(self, offset: int, why: str) -> None:
        if offset != self._reported:
            self._reported = offset
            log.error("half messages from %d on wait for the master: %s", offset, why)

    @property
    def _progress(self) -> int:
        return max(self._offsets.query(CID_SYS_RMQ_TRANS, RMQ_SYS_TRANS_HALF_TOPIC, QUEUE_ID), 0)

    def _keep_progress(self, position: int) -> None:
        if position > self._progress:
            self._offsets.commit(CID_SYS_RMQ_TRANS, RMQ_SYS_TRANS_HALF_TOPIC, QUEUE_ID, position)
