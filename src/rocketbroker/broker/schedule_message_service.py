"""Delivers delayed messages when they are due (org.apache.rocketmq.broker.schedule.ScheduleMessageService).

SCHEDULE_TOPIC_XXXX has one queue for each delay level, whose entries bear the delivery time in place of a tags code and
are due in their order. ``config/delayOffset.json`` says how far each level is delivered and on disk; after a crash it
may be behind, and what was delivered since is delivered once more.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.config_manager import AnyConfigManager, ConfigManager, decode_file, encode_file
from rocketbroker.broker.message_copy import copy_message
from rocketbroker.codec.message.message_const import PROPERTY_REAL_QUEUE_ID, PROPERTY_REAL_TOPIC
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.offset import DelayOffsetSerializeWrapper
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import CorruptRecordError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.store.consume_queue import ConsumeQueue
from rocketbroker.store.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus

log = logging.getLogger(__name__)

DELAY_FOR_A_WHILE_S = 0.1
# Deliveries of one level before the loop serves others.
BATCH = 32

_PERMANENT_FAILURES = {PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED}


class ScheduleStore(Protocol):
    """What is needed of the message store."""

    def topic_queues(self, topic: str) -> Mapping[int, ConsumeQueue]:
        """The queues of a topic by their ids."""

    def look_message_by_offset(self, physical_offset: int) -> bytes | None:
        """A whole record; ``None`` when it is not there."""

    def put_message(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store a message."""

    def dispatch(self) -> None:
        """Make what was stored readable, and wake the pulls that wait for it."""

    @property
    def max_physical_offset(self) -> int:
        """CommitLog offset after the last message."""

    @property
    def flushed_offset(self) -> int:
        """CommitLog offset before which all is on disk."""

    async def sync(self) -> bool:
        """Bring all that is stored to disk now."""


class ScheduleMessageService(ConfigManager[DelayOffsetSerializeWrapper]):
    """Progress by delay level, and the task that makes it.

    Args:
        path: ``config/delayOffset.json``.
        store: where the delayed messages lie and where the due ones go.
        store_host: the broker's address as records hold it.
        delay_levels: ms by level, the first level being 1.
        clock: says what is due.
        stats: counts what is put.
        on_persist: see ``ConfigManager``.
    """

    def __init__(
        self,
        path: Path,
        store: ScheduleStore,
        *,
        store_host: bytes,
        delay_levels: dict[int, int],
        clock: Clock,
        stats: BrokerStatsManager,
        on_persist: Callable[[AnyConfigManager], None] | None = None,
    ) -> None:
        super().__init__(path, on_persist)
        self._store = store
        self._store_host = store_host
        self._delay_levels = delay_levels
        self._clock = clock
        self._stats = stats
        self._changed = False
        self._tasks = TaskOwner("ScheduleMessageService")
        self.offset_table: dict[int, int] = {}
        self.data_version = DataVersion(timestamp=clock.time_ms())
        # What is written: progress whose copies are on disk. Were it ahead of them, a power loss would take messages
        # that were on disk long before they were due. Then what waits to get there: end of the log, and the progress.
        self._durable: dict[int, int] = {}
        self._delivered: deque[tuple[int, dict[int, int]]] = deque()

    @property
    def max_delay_level(self) -> int:
        """The highest level there is."""
        return max(self._delay_levels, default=0)

    async def start(self) -> None:
        """Start delivering; the file and the store are loaded by then."""
        self.correct_delay_offset()
        self._tasks.every(DELAY_FOR_A_WHILE_S, self._deliver_all_due, "deliver")

    async def stop(self) -> None:
        """Stop delivering and have the progress written, all of it if the disk takes the last copies."""
        await self._tasks.stop()
        if self._delivered:
            await self._store.sync()
        self.flush()

    def flush(self) -> None:
        """Have the progress written when there was any."""
        self._take_durable()
        if self._changed:
            self._changed = False
            self.persist()

    def _take_durable(self) -> None:
        flushed = self._store.flushed_offset
        while self._delivered and self._delivered[0][0] <= flushed:
            _, self._durable = self._delivered.popleft()
            self._changed = True

    def correct_delay_offset(self) -> None:
        """Move levels that stand outside their queue to its nearer end (correctDelayOffset)."""
        queues = self._store.topic_queues(RMQ_SYS_SCHEDULE_TOPIC)
        for level, offset in self.offset_table.items():
            queue = queues.get(level - 1)
            if queue is not None and not queue.min_offset <= offset <= queue.max_offset:
                corrected = min(max(offset, queue.min_offset), queue.max_offset)
                log.error("delay level %s is corrected from %s to %s, an end of its queue", level, offset, corrected)
                self.offset_table[level] = self._durable[level] = corrected
                self._changed = True

    def deliver_due(self) -> bool:
        """Deliver what is due, at most ``BATCH`` messages of each level; returns whether there is more."""
        queues = self._store.topic_queues(RMQ_SYS_SCHEDULE_TOPIC)
        before = sum(self.offset_table.values())
        more = False
        try:
            for level, delay_ms in self._delay_levels.items():
                queue = queues.get(level - 1)
                if queue is not None and queue.max_offset > self.offset_table.get(level, 0):
                    more |= self._deliver_level(level, delay_ms, queue)
        finally:
            if sum(self.offset_table.values()) != before:
                self._store.dispatch()
                self._take_durable()
                self._delivered.append((self._store.max_physical_offset, dict(self.offset_table)))
        return more

    def runtime_info(self) -> dict[str, str]:
        """``scheduleMessageOffset_<level>`` -> "delivered up to, end of the queue" (buildRunningStats)."""
        queues = self._store.topic_queues(RMQ_SYS_SCHEDULE_TOPIC)
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{queues[level - 1].max_offset if level - 1 in queues else 0}"
            for level, offset in self.offset_table.items()
        }

    def encode(self) -> bytes:
        """``delayOffset.json`` as RocketMQ writes it, with the progress whose copies are on disk."""
        return encode_file(DelayOffsetSerializeWrapper(dict(sorted(self._durable.items())), self.data_version))

    def parse(self, data: bytes) -> DelayOffsetSerializeWrapper:
        """What a ``delayOffset.json`` holds."""
        return decode_file(data, DelayOffsetSerializeWrapper, "offsetTable")

    def count(self, file: DelayOffsetSerializeWrapper) -> int:
        """How many entries there are."""
        return len(file.offset_table)

    def take(self, file: DelayOffsetSerializeWrapper) -> None:
        """Replace the progress by that of a ``delayOffset.json``."""
        self.offset_table, self._durable = file.offset_table, dict(file.offset_table)
        self.data_version = file.data_version or self.data_version

    async def _deliver_all_due(self) -> None:
        while self.deliver_due():  # noqa: ASYNC110 - it waits for nothing, it only lets others have their turn
            await asyncio.sleep(0)

    def _deliver_level(self, level: int, delay_ms: int, queue: ConsumeQueue) -> bool:
        """Deliver the due messages of a level; returns whether the batch was full, so that there may be more."""
        now = self._clock.time_ms()
        offset = max(self.offset_table.get(level, 0), queue.min_offset)
        delivered = 0
        for queue_offset, (physical_offset, _, deliver_timestamp) in enumerate(queue.entries(offset, BATCH), offset):
            # A time further ahead than the delay comes from a clock that was set back, or from other settings: due now.
            if now < deliver_timestamp <= now + delay_ms or not self._deliver(queue, queue_offset, physical_offset):
                break
            delivered += 1
            self.offset_table[level] = offset + delivered
        return delivered == BATCH

    def _deliver(self, queue: ConsumeQueue, queue_offset: int, physical_offset: int) -> bool:
        """Put the message where it was to go; false when that is to be tried again."""
        message = self._due_message(queue, queue_offset, physical_offset)
        if message is None:
            return True
        result = self._store.put_message(message)
        if result.status is PutMessageStatus.PUT_OK:
            self._stats.topic_put(message.topic).add(1, result.size)
            return True
        log.error("delayed message at %s for %s: %s %s", physical_offset, message.topic, result.status, result.reason)
        return result.status in _PERMANENT_FAILURES

    def _due_message(
        self, queue: ConsumeQueue, queue_offset: int, physical_offset: int
    ) -> MessageExtBrokerInner | None:
        """The message as it was before ``delay_rewrite``; ``None`` (logged) when it cannot be delivered ever."""
        record = self._store.look_message_by_offset(physical_offset)
        if record is None:
            log.error("delayed message at %s is not in the commit log any more", physical_offset)
            return None
        try:
            found = decode_record(record)
        except CorruptRecordError as error:
            log.error("delayed message at %s: %s", physical_offset, error)  # noqa: TRY400
            return None
        place = (found.topic, found.queue_id, found.queue_offset)
        if place != (queue.topic, queue.queue_id, queue_offset):
            log.error(
                "delayed message %s of queue %s is not at %s, where %s is: its entry is damaged",
                queue_offset,
                queue.queue_id,
                physical_offset,
                place,
            )
            return None
        return message_time_up(found, self._store_host)


def message_time_up(found: MessageExt, store_host: bytes) -> MessageExtBrokerInner | None:
    """The copy of a delayed message that is delivered; all properties stay, as in RocketMQ.

    ``None`` (logged) when REAL_TOPIC and REAL_QID do not say where it is to go.
    """
    topic = found.get_property(PROPERTY_REAL_TOPIC)
    queue_id = found.get_property(PROPERTY_REAL_QUEUE_ID) or ""
    if not topic or not (queue_id.isascii() and queue_id.isdigit()) or topic == RMQ_SYS_TRANS_HALF_TOPIC:
        log.error("delayed message %s for %r queue %r is discarded", found.offset_msg_id, topic, queue_id)
        return None
    return copy_message(
        found,
        topic,
        int(queue_id),
        store_host,
        properties=found.properties_bytes,
        reconsume_times=found.reconsume_times,
    )
