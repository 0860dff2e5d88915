"""Open transactions, their half messages and their end (o.a.r.broker.transaction.queue).

RocketMQ reads the op messages again for each check. Here they are read only at the start: only this process writes
them, so that memory always knows whether a transaction is open.
"""

import logging
from collections import deque
from collections.abc import Sequence

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.message_meters import MessageMeters
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.persist.durable_progress import DurableProgress
from rocketbroker.broker.transaction.transactional_message_util import (
    CID_SYS_RMQ_TRANS,
    QUEUE_ID,
    TransactionKey,
    checked_copy,
    op_message,
    transaction_key,
)
from rocketbroker.codec.message.message_const import PROPERTY_REAL_TOPIC
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.topic_validator import RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from rocketbroker.store.flush.flush_service import CommitLogFlusher
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.message_queries import MessageQueries

log = logging.getLogger(__name__)


async def read_half(queries: MessageQueries, queue: ConsumeQueueInterface, offset: int) -> MessageExt | None:
    """Return the half message at a queue offset; ``None`` if it is lost or damaged."""
    entry = queue.entry(offset)
    record = await queries.read_message(entry.physical_offset) if entry else None
    half = decode_record(record) if record else None
    is_sound = half is not None and (half.topic, half.queue_offset) == (RMQ_SYS_TRANS_HALF_TOPIC, offset)
    return half if is_sound else None


class HalfOffsets:
    """Open half messages from ``position`` on (removeMap and opMsgMap). All methods are for the event loop.

    Attributes:
        position: queue offset before which no half message is open: all were ended, put back, or discarded.
        ended: later half messages that are not open either.
        copies: the last copy of each open transaction whose half message was put back.
    """

    def __init__(self, position: int = 0, op_position: int = 0) -> None:
        self.position = position
        self.ended: set[int] = set()
        self.copies: dict[TransactionKey, int] = {}
        # Op messages still needed: their queue offset, and the last half message that each of them ends.
        self._op_messages: deque[tuple[int, int]] = deque()
        self._op_end = op_position

    def is_open(self, offset: int) -> bool:
        """Return true if the half message is open."""
        return offset >= self.position and offset not in self.ended

    def first_open(self, offset: int) -> int:
        """Return the first open offset from ``offset`` on, which may be beyond the last half message."""
        offset = max(offset, self.position)
        while offset in self.ended:
            offset += 1
        return offset

    def end(self, offset: int, key: TransactionKey | None = None) -> None:
        """Note that a half message is no longer open; with ``key``, neither is its transaction."""
        if offset >= self.position:
            self.ended.add(offset)
        if key is not None:
            self.copies.pop(key, None)
        self.advance()

    def put_back(self, offset: int, copy_offset: int, key: TransactionKey | None) -> None:
        """Note that a half message was replaced by a copy, which represents the transaction from now on."""
        self.end(offset)
        if key is not None:
            self.copies[key] = copy_offset

    def skip_to(self, offset: int) -> None:
        """Note that no half message before ``offset`` is open."""
        if offset > self.position:
            self.ended = {each for each in self.ended if each >= offset}
            self.position = offset
            self.advance()

    def advance(self) -> None:
        """Move the position past half messages that are not open."""
        position, ended = self.position, self.ended
        while position in ended:
            ended.discard(position)
            position += 1
        self.position = position

    def op_written(self, op_offset: int, offsets: Sequence[int]) -> None:
        """Note the half messages that the last op message of the queue ends."""
        self._op_end = op_offset + 1
        self._op_messages.append((op_offset, max(offsets, default=-1)))

    @property
    def op_position(self) -> int:
        """Queue offset before which op messages concern only half messages before ``position``."""
        messages = self._op_messages
        while messages and messages[0][1] < self.position:
            messages.popleft()
        return messages[0][0] if messages else self._op_end


# A half message is open until it is committed, rolled back, discarded, or put back at the end of its queue, where its
# copy is open instead. Op messages record which half messages are no longer open. Their offsets are collected
# (TransactionalOpBatchService) and written every ``transactionOpBatchInterval`` or ``transactionOpMsgMaxSize`` bytes.
# The consumer offsets of CID_RMQ_SYS_TRANS record how far both queues are processed. Neither is written before
# everything that it depends on is on disk: a power loss may take any page that is not, and would take transactions
# whose half message was on disk long before.


class TransactionalMessageService:
    """The open transactions of the broker. All methods are for the event loop.

    Args:
        flusher: knows what is on disk.
        consumer_offsets: keeps the progress in the half and op queues.
        config: when op messages are written, and their size.
    """

    def __init__(
        self,
        appender: MessageAppender,
        flusher: CommitLogFlusher,
        consumer_offsets: ConsumerOffsetManager,
        config: BrokerConfig,
        store_host: bytes,
        clock: Clock,
        stats: BrokerStatsManager,
    ) -> None:
        self._appender = appender
        self._flusher = flusher
        self._consumer_offsets = consumer_offsets
        self._config = config
        self._store_host = store_host
        self._clock = clock
        self._stats = stats
        self.half_offsets = HalfOffsets()
        # Ended half messages without an op message, each with the end of the log at that time; then their length in an
        # op message, and the time since which the first one waits.
        self._batch: deque[tuple[int, int]] = deque()
        self._batch_bytes = 0
        self._batch_since = 0.0
        self._op_refused = ""
        # Last positions in both queues that were handed to ``_progress``.
        self._noted = (0, 0)
        self._progress = DurableProgress(flusher, self._noted)

    def begin(self, half_offsets: HalfOffsets) -> None:
        """Continue from the open transactions that the queues show."""
        for offset, _ in self._batch:
            # Ended by this process, but no op message tells of it yet.
            half_offsets.end(offset)
        self.half_offsets = half_offsets
        topics = RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC
        half, op = (max(self._consumer_offsets.query(CID_SYS_RMQ_TRANS, topic, QUEUE_ID), 0) for topic in topics)
        self._noted = half, op
        self._progress.replace(self._noted)

    def follow_progress(self) -> None:
        """Count no half message as open that another broker has dealt with, by the committed offset."""
        self.half_offsets.skip_to(self._consumer_offsets.query(CID_SYS_RMQ_TRANS, RMQ_SYS_TRANS_HALF_TOPIC, QUEUE_ID))

    def open_offset(self, half: MessageExt) -> int | None:
        """Return the offset of the half message or copy that is open for the transaction; ``None`` after its end."""
        copy_offset = self.open_copy(half)
        if copy_offset is not None:
            return copy_offset
        return half.queue_offset if self.half_offsets.is_open(half.queue_offset) else None

    def open_copy(self, half: MessageExt) -> int | None:
        """Return the queue offset of the transaction's open copy; ``None`` if it has none."""
        key = transaction_key(half)
        return None if key is None else self.half_offsets.copies.get(key)

    def end(self, half: MessageExt, open_offset: int) -> None:
        """Note that a transaction was committed or rolled back (deletePrepareMessage).

        Args:
            half: its half message, or a copy of it.
            open_offset: result of ``open_offset`` for it.
        """
        self.half_offsets.end(open_offset, transaction_key(half))
        self.add_op(open_offset)

    @property
    def meters(self) -> MessageMeters | None:
        """Counts for metrics, ``None`` while nobody asks for them."""
        return self._stats.meters

    def count_end(self, half: MessageExt, *, committed: bool | None) -> None:
        """Count a half message that is open no more; ``None`` if it was discarded."""
        meters, topic = self._stats.meters, half.get_property(PROPERTY_REAL_TOPIC)
        if meters is None or topic is None:
            return
        if committed is None:
            meters.closed(topic)
        else:
            meters.ended(topic, (self._clock.time_ms() - half.born_timestamp) / 1000, committed=committed)

    def add_op(self, offset: int) -> None:
        """Record that a half message has ended; the op message is written with others."""
        if not self._batch:
            self._batch_since = self._clock.monotonic()
        self._batch.append((offset, self._flusher.max_offset))
        self._batch_bytes += len(str(offset)) + 1
        if self._batch_bytes >= self._config.transaction_op_msg_max_size:
            self._write_op()

    def resume(self, message: MessageExt, open_offset: int | None) -> PutMessageResult:
        """Check a discarded or open half message again, up to as many times as a new one.

        Args:
            message: from TRANS_CHECK_MAX_TIME_TOPIC or the half topic.
            open_offset: result of ``open_offset`` for it; ``None`` for a discarded one.
        """
        result = self.put(checked_copy(message, 0, self._store_host))
        if result.status is PutMessageStatus.PUT_OK:
            if open_offset is not None:
                self.add_op(open_offset)
            self.half_offsets.put_back(
                -1 if open_offset is None else open_offset, result.queue_offset, transaction_key(message)
            )
        return result

    def put(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store and count a message of the broker's own; it is readable after the store's next ``dispatch``."""
        result = self._appender.put_copy(message)
        if result.status is PutMessageStatus.PUT_OK:
            self._stats.topic_put(message.topic).add(1, result.size)
        return result

    def tick(self) -> None:
        """Write op messages that are due; commit the progress that is on disk."""
        waited_ms = (self._clock.monotonic() - self._batch_since) * 1000
        if self._batch and waited_ms >= self._config.transaction_op_batch_interval:
            self.write_ops()
        self.keep_progress()

    def write_ops(self) -> None:
        """Write all op messages that may be written; the rest waits for the disk, or for the store to accept it."""
        written = False
        while self._write_op():
            written = True
        if written:
            self._appender.dispatch()

    async def close(self) -> None:
        """Write the collected op messages, and commit the progress, all of it if the log can be synced."""
        if self._batch:
            await self._flusher.sync()
            self.write_ops()
        self.keep_progress()
        if self._progress.is_behind and (await self._flusher.sync()).ok:
            self.keep_progress()

    def keep_progress(self) -> None:
        """Commit the positions in both queues that are safe to continue from after a power loss."""
        if self._progress.advance():
            half, op = self._progress.value
            self._commit(RMQ_SYS_TRANS_HALF_TOPIC, half)
            self._commit(RMQ_SYS_TRANS_OP_HALF_TOPIC, op)
        positions = self.half_offsets.position, self.half_offsets.op_position
        if positions != self._noted:
            self._noted = positions
            self._progress.made(positions)

    def _commit(self, topic: str, position: int) -> None:
        if self._consumer_offsets.query(CID_SYS_RMQ_TRANS, topic, QUEUE_ID) != position:
            self._consumer_offsets.commit(CID_SYS_RMQ_TRANS, topic, QUEUE_ID, position)

    def _write_op(self) -> bool:
        """Write one op message of the collected offsets; return false without offsets, or if the store rejects it."""
        offsets, length = self._next_op()
        if not offsets:
            return False
        result = self.put(op_message(offsets, self._clock.time_ms(), self._store_host))
        if result.status is not PutMessageStatus.PUT_OK:
            # Once for each cause: it is retried ten times a second.
            if result.status.name != self._op_refused:
                self._op_refused = result.status.name
                text = "op messages of %s ended transactions could not be stored: %s %s; retrying"
                log.error(text, len(self._batch), result.status, result.reason)
            return False
        self._op_refused = ""
        self.half_offsets.op_written(result.queue_offset, offsets)
        for _ in offsets:
            self._batch.popleft()
        self._batch_bytes -= length
        self._batch_since = self._clock.monotonic()
        return True

    def _next_op(self) -> tuple[list[int], int]:
        """Return the offsets of the next op message, and its length."""
        limit, flushed = self._config.transaction_op_msg_max_size, self._flusher.flushed_offset
        offsets: list[int] = []
        length = 0
        for offset, end in self._batch:
            if length >= limit or end > flushed:
                break
            offsets.append(offset)
            length += len(str(offset)) + 1
        return offsets, length
