"""Open half messages: found at the start, and sent on by an acting master."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from rocketbroker.broker.message_copy import real_place
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.transaction.transactional_message_service import (
    HalfOffsets,
    TransactionalMessageService,
    read_half,
)
from rocketbroker.broker.transaction.transactional_message_util import (
    CID_SYS_RMQ_TRANS,
    QUEUE_ID,
    TransactionKey,
    ended_offsets,
    escaped_half,
    is_copy,
    transaction_key,
)
from rocketbroker.codec.message.message_const import (
    PROPERTY_REAL_TOPIC,
    TRANSACTION_COMMIT_TYPE,
    transaction_value,
)
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.topic_validator import RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_queries import MessageQueries

log = logging.getLogger(__name__)

# Messages of one unique id to search for those of the transaction.
_MOST_OF_ONE_ID: Final = 64
# The index has whole seconds, and clocks are set back by a little.
_SLACK_MS: Final = 60_000
_FOREVER_MS: Final = 2**62


async def messages_of_transaction(queries: MessageQueries, half: MessageExt, topic: str) -> list[MessageExt]:
    """Return a topic's messages of the transaction of a half message, newest first; none much older than it.

    The list is empty without an index (``messageIndexEnable=false``), or if the half message has no unique id.
    """
    key = transaction_key(half)
    if key is None or half.uniq_key is None:
        return []
    begin = half.store_timestamp - _SLACK_MS
    found = await queries.query_message(topic, half.uniq_key, _MOST_OF_ONE_ID, begin, _FOREVER_MS)
    return [each for each in map(decode_record, found.records) if transaction_key(each) == key]


# Recovery of the open transactions from half messages and op messages.
#
# After a kill, op messages lack two things: half messages put back since the consumer offsets were written, and
# transactions committed since the last op message. So they do in the log of a slave that is promoted, however it was
# stopped. RocketMQ checks all of them again, so that their messages may be delivered twice. Here the copies reveal the
# first, and the index the second: it finds a committed message by its unique id, at each start, since a clean stop does
# not tell who wrote the log. Without the index (``messageIndexEnable=false``), committed transactions are checked
# again.


class HalfQueueRecovery:
    """Reads the half and op queues from the consumer offsets of CID_RMQ_SYS_TRANS on.

    Args:
        commit_log: the log, recovered.
        queues: the queues, recovered.
        consumer_offsets: loaded; offsets beyond the end of a queue are set back already.
        transactions: receives the open half messages.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        queries: MessageQueries,
        consumer_offsets: ConsumerOffsetManager,
        transactions: TransactionalMessageService,
    ) -> None:
        self._commit_log = commit_log
        self._queues = queues
        self._queries = queries
        self._consumer_offsets = consumer_offsets
        self._transactions = transactions

    async def run(self) -> None:
        """Find the open transactions before any message is sent or ended."""
        reading = asyncio.get_running_loop().run_in_executor(None, self._read)
        try:
            half_offsets, open_halves = await asyncio.shield(reading)
        except BaseException:
            # The thread reads the files until it is done, even if its caller was cancelled.
            await asyncio.wait([reading])
            raise
        self._transactions.begin(half_offsets)
        ended = 0
        for half in open_halves:
            if await self._is_committed(half):
                self._transactions.end(half, half.queue_offset)
                ended += 1
            elif self._transactions.meters is not None and (topic := half.get_property(PROPERTY_REAL_TOPIC)):
                self._transactions.meters.half_messages[topic] += 1
        if open_halves:
            log.info(
                "%s transactions are open; %s others were committed shortly before the last broker ended",
                len(open_halves) - ended,
                ended,
            )

    def _read(self) -> tuple[HalfOffsets, list[MessageExt]]:
        """Read op messages and copies; return the offsets and the open half messages (blocks)."""
        half_queue, position = self._begin_of(RMQ_SYS_TRANS_HALF_TOPIC)
        op_queue, op_position = self._begin_of(RMQ_SYS_TRANS_OP_HALF_TOPIC)
        found = HalfOffsets(position, op_position)
        for op in self._messages(op_queue, op_position):
            try:
                offsets = ended_offsets(op)
            except ValueError as error:
                log.error("op message %s is skipped: %s", op.queue_offset, error)  # noqa: TRY400
                continue
            found.ended.update(offset for offset in offsets if offset >= position)
            found.op_written(op.queue_offset, offsets)
        open_halves = self._open_halves(half_queue, found)
        found.advance()
        return found, open_halves

    def _open_halves(self, queue: ConsumeQueueInterface | None, found: HalfOffsets) -> list[MessageExt]:
        last: dict[TransactionKey, int] = {}
        halves: dict[int, MessageExt] = {}
        for half in self._messages(queue, found.position, read_body=False):
            offset, key = half.queue_offset, transaction_key(half)
            if offset not in found.ended:
                halves[offset] = half
            if key is None:
                continue
            if key in last and is_copy(half):
                # Whatever became of the copy, the message before it is no longer open.
                found.ended.add(last[key])
                halves.pop(last[key], None)
            last[key] = offset
        copies = ((transaction_key(half), half.queue_offset) for half in halves.values() if is_copy(half))
        found.copies = {key: offset for key, offset in copies if key is not None}
        return list(halves.values())

    async def _is_committed(self, half: MessageExt) -> bool:
        place = real_place(half.properties_bytes)
        if place is None:
            return False
        found = await messages_of_transaction(self._queries, half, place[0])
        return any(transaction_value(message.sys_flag) == TRANSACTION_COMMIT_TYPE for message in found)

    def _begin_of(self, topic: str) -> tuple[ConsumeQueueInterface | None, int]:
        """Return the queue and the offset to continue from."""
        queue = self._queues.find(topic, QUEUE_ID)
        if queue is None:
            return None, 0
        committed = self._consumer_offsets.query(CID_SYS_RMQ_TRANS, topic, QUEUE_ID)
        if committed > queue.max_offset:
            log.error(
                "transactions: the progress in %s is set back from %s to its end, %s",
                topic,
                committed,
                queue.max_offset,
            )
        return queue, min(max(committed, queue.min_offset), queue.max_offset)

    def _messages(
        self, queue: ConsumeQueueInterface | None, position: int, *, read_body: bool = True
    ) -> Iterator[MessageExt]:
        """Yield the messages of a queue from a position on; lost ones are left out and logged."""
        if queue is None:
            return
        for offset in range(position, queue.max_offset):
            entry = queue.entry(offset)
            record = self._commit_log.record(entry.physical_offset, entry.size) if entry else None
            message = decode_record(record, read_body=read_body) if record else None
            if message is None or (message.topic, message.queue_offset) != (queue.topic, offset):
                log.error("message %s of %s is lost: it is not at %s, or damaged", offset, queue.topic, entry)
            else:
                yield message


# Open transactions that an acting master sends to another master (TransactionalMessageServiceImpl.check).
#
# The other master asks the producers and ends the transactions. This broker writes no op messages: its progress in the
# half queue, which returns to its master, says which half messages are gone. RocketMQ skips one that no master takes;
# here it waits, and all after it. So does one that this slave lacks or has damaged: its master may have it.


class HalfMessageEscape:
    """Sends open half messages every ``transactionCheckInterval``.

    Args:
        offsets: keep the progress.
        put: sends a message to another master.
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
        half = await read_half(self._queries, queue, offset)
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
