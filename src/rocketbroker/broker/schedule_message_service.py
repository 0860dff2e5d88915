"""Delay levels: redirect to the schedule topic and delivery when due (org.apache.rocketmq.broker.schedule)."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocketbroker.broker.message_copy import with_real_place
from rocketbroker.broker.message_meters import DELAY as DELAYED
from rocketbroker.broker.persist.config_manager import ConfigManager, OnPersist, encode_file
from rocketbroker.broker.persist.durable_progress import DurableProgress
from rocketbroker.broker.waiting_messages import CopyDelivery, is_settled
from rocketbroker.codec.message.message_const import (
    PROPERTY_DELAY_TIME_LEVEL,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    transaction_value,
)
from rocketbroker.codec.message.message_properties import get_property, replace_property
from rocketbroker.codec.message.raw_records import ExpectedRecord
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC, SCHEDULE_CONSUMER_GROUP
from rocketbroker.codec.remoting.bodies.offset import DelayOffsetSerializeWrapper
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.common.lifecycle import TICK_S, TaskOwner
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from rocketbroker.store.flush.flush_service import CommitLogFlusher
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

log = logging.getLogger(__name__)

DELAY = PROPERTY_DELAY_TIME_LEVEL.encode()

_MAX_DIGITS = 10


def delay_rewrite(message: MessageExtBrokerInner, max_delay_level: int) -> None:
    """Redirect a message with ``DELAY`` to queue level - 1 of SCHEDULE_TOPIC_XXXX; leave others alone.

    Its properties REAL_TOPIC and REAL_QID keep the real place. A level above ``max_delay_level`` counts as that one; 0
    and less mean no delay. Prepared and rolled-back messages of transactions are never delayed.

    Raises:
        BrokerResponseError: MESSAGE_ILLEGAL; the level is not a whole number.
    """
    value = get_property(message.properties, DELAY)
    if value is None or transaction_value(message.sys_flag) not in {TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE}:
        return
    digits = value.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > _MAX_DIGITS:
        raise BrokerResponseError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the property DELAY is {value[:64]!r}; set it to a delay level (1, 2, ...)",
        )
    level = int(value)
    if level <= 0:
        return
    properties = message.properties
    if level > max_delay_level:
        level = max_delay_level
        properties = replace_property(properties, DELAY, str(level).encode())
    message.properties = with_real_place(properties, message.topic, message.queue_id)
    message.topic = RMQ_SYS_SCHEDULE_TOPIC
    message.queue_id = level - 1


# Delivery of delayed messages (org.apache.rocketmq.broker.schedule.ScheduleMessageService).
#
# SCHEDULE_TOPIC_XXXX has one queue for each delay level. Its entries hold the delivery time in place of a tags code and
# are due in order. ``config/delayOffset.json`` has the offset of each level up to which copies are delivered and on
# disk. After a crash it may be behind, and messages delivered since are delivered once more.
#
# At a slave that sends to another master, a level that comes to a missing or damaged message waits for the master.

# Longest pause, short enough to notice a clock that jumps, and shortest, which bounds the cost of waking up for each
# message.
DELAY_FOR_A_WHILE_S = 0.1
LEAST_PAUSE_S = 0.005
# Deliveries of one level before the loop serves others.
BATCH = 64

# A smaller step back is a clock correction, and delays messages by no more than that.
_SET_BACK_MS = 1000
_NEVER_MS = 2**62
# Shortest further delay of a message that its queue has no room for.
_LEAST_POSTPONED_MS = 60_000


class ScheduleMessageService(ConfigManager[DelayOffsetSerializeWrapper]):
    """Progress by delay level, and the task that delivers.

    Args:
        delivery: stores the messages that are due, or sends them.
        flusher: says which copies are on disk.
        delay_levels: ms by level, the first level being 1.
    """

    file_name, contents = "delayOffset.json", DelayOffsetSerializeWrapper

    def __init__(
        self,
        path: Path,
        delivery: CopyDelivery,
        queues: ConsumeQueueStore,
        flusher: CommitLogFlusher,
        *,
        delay_levels: dict[int, int],
        clock: Clock,
        on_persist: OnPersist | None = None,
    ) -> None:
        super().__init__(path, on_persist)
        self._delivery = delivery
        self._queues = queues
        self._flusher = flusher
        self._delay_levels = delay_levels
        self._clock = clock
        self._changed = False
        self._tasks = TaskOwner("ScheduleMessageService")
        self.offset_table: dict[int, int] = {}
        self.data_version = DataVersion(timestamp=clock.time_ms())
        self._durable = DurableProgress[dict[int, int]](flusher, {})
        # By level: time when the clock was found set back, and the queue offset before which all were stored by then.
        # The first look counts as one: before it the clock may have been set back, and levels had longer delays.
        self._set_back: dict[int, tuple[int, int]] = {}
        self._last_look_ms = _NEVER_MS
        # Offsets by level at which it waits for the master.
        self._waiting_at: dict[int, int] = {}

    @property
    def max_delay_level(self) -> int:
        """Highest delay level."""
        return max(self._delay_levels, default=0)

    async def start(self) -> None:
        """Start delivering; the file and the store must be loaded."""
        self._waiting_at.clear()
        if not self._delivery.escapes:
            self.correct_delay_offset()
        self._tasks.whenever(self.deliver_due, DELAY_FOR_A_WHILE_S, "deliver")

    async def stop(self) -> None:
        """Stop delivering and schedule a write of the progress, all of it if the last copies can be synced."""
        await self._tasks.stop()
        if self._durable.is_behind:
            await self._flusher.sync()
        self.flush()

    def flush(self) -> None:
        """Schedule a write of the progress if it has changed."""
        self._changed |= self._durable.advance()
        if self._changed:
            self._changed = False
            self.persist()

    def follow(self, file: DelayOffsetSerializeWrapper) -> None:
        """Take over the progress of a slave's master, and schedule a write if it differs.

        A level does not go back, nor is it lost: a master without its file would have all be delivered again. Only a
        level beyond its queue goes back.
        """
        queues = self._queues.queues_of(RMQ_SYS_SCHEDULE_TOPIC)
        kept = {
            level: offset
            for level, offset in self.offset_table.items()
            if offset > file.offset_table.get(level, -1)
            and (queue := queues.get(level - 1)) is not None
            and offset <= queue.max_offset
        }
        table = file.offset_table | kept
        if table != self.offset_table:
            self.take(DelayOffsetSerializeWrapper(table, file.data_version))
            self.persist()

    def correct_delay_offset(self) -> None:
        """Move levels that are outside their queue to its nearer end (correctDelayOffset)."""
        queues = self._queues.queues_of(RMQ_SYS_SCHEDULE_TOPIC)
        for level, offset in self.offset_table.items():
            queue = queues.get(level - 1)
            begin, end = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
            corrected = min(max(offset, begin), end)
            if corrected != offset:
                log.error(
                    "delay level %s: offset %s is outside its queue, and corrected to %s", level, offset, corrected
                )
                self.offset_table[level] = self._durable.value[level] = corrected
                self._changed = True

    async def deliver_due(self) -> float:
        """Deliver some due messages of each level; return the seconds until the next look.

        Raises:
            StoreError: The disk cannot be read.
        """
        pause_s = TICK_S
        queues = self._queues.queues_of(RMQ_SYS_SCHEDULE_TOPIC)
        self._look_at_clock(queues)
        for queue_id, queue in sorted(queues.items()):
            level = queue_id + 1
            offset = self.offset_table.get(level, 0)
            if queue.max_offset > offset and self._waiting_at.get(level) != offset:
                pause_s = min(pause_s, await self._deliver_level(level, queue))
        return pause_s

    def first_pending_offset(self) -> int | None:
        """Return the CommitLog offset of the oldest waiting message, ``None`` without one."""
        first = []
        for queue_id, queue in self._queues.queues_of(RMQ_SYS_SCHEDULE_TOPIC).items():
            offset = max(self.offset_table.get(queue_id + 1, 0), queue.min_offset)
            if (entry := queue.entry(offset)) is not None:
                first.append(entry.physical_offset)
        return min(first, default=None)

    def runtime_info(self) -> dict[str, str]:
        """Return ``scheduleMessageOffset_<level>`` -> "delivered up to, end of the queue" (buildRunningStats)."""
        queues = self._queues.queues_of(RMQ_SYS_SCHEDULE_TOPIC)
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{queues[level - 1].max_offset if level - 1 in queues else 0}"
            for level, offset in self.offset_table.items()
        }

    def encode(self) -> bytes:
        """Return ``delayOffset.json`` as RocketMQ writes it, with the progress whose copies are on disk."""
        return encode_file(DelayOffsetSerializeWrapper(dict(sorted(self._durable.value.items())), self.data_version))

    def count(self, file: DelayOffsetSerializeWrapper) -> int:
        """Return the number of entries."""
        return len(file.offset_table)

    def take(self, file: DelayOffsetSerializeWrapper) -> None:
        """Replace the progress by that of a ``delayOffset.json``."""
        self.offset_table = file.offset_table
        self._durable.replace(dict(file.offset_table))
        self.data_version = file.data_version or self.data_version

    async def _deliver_level(self, level: int, queue: ConsumeQueueInterface) -> float:
        """Deliver a batch of a level; return the seconds until the next batch."""
        delivery, progress = self._delivery, self.offset_table.get(level, 0)
        offset = max(progress, queue.min_offset)
        if delivery.escapes and progress < offset:
            self._wait_for_master(level, progress)
            return DELAY_FOR_A_WHILE_S
        entries = delivery.entry_reader.entries(queue, offset, BATCH)
        count, pause_s = self._count_due(entries, level)
        if not count:
            return pause_s
        found, missing = await delivery.read(queue, entries[:count], f"delay level {level}: %d messages")
        if missing is not None:
            self._wait_for_master(level, missing)
        if not delivery.may_deliver():
            return DELAY_FOR_A_WHILE_S
        delivered_to, put = offset, delivery.put
        try:
            for delivered_to, _, message in found:
                place = delivery.waiting.place(message.properties)
                if place is None:
                    text = "delay level %s: message %s is discarded: it names no real topic and queue"
                    log.error(text, level, delivered_to)
                    continue
                message.topic, message.queue_id = place
                result = put(message)
                if not isinstance(result, PutMessageResult):
                    result = await result
                if result.status is PutMessageStatus.PUT_OK:
                    delivery.count(message.topic, result)
                    if delivery.meters is not None and result.size:
                        delivery.meters.traffic(message.topic, DELAYED).add(1, result.size)
                        delivery.meters.read(RMQ_SYS_SCHEDULE_TOPIC, SCHEDULE_CONSUMER_GROUP, result.size)
                    continue
                text = "delay level %s: message %s could not be stored in topic %s: %s %s"
                log.error(text, level, delivered_to, message.topic, result.status, result.reason)
                if not is_settled(result) and not self._postpone(message, result, level):
                    return DELAY_FOR_A_WHILE_S
            delivered_to = offset + count if missing is None else missing
        finally:
            if delivered_to != offset:
                self.offset_table[level] = delivered_to
                self._changed |= self._durable.advance()
                self._durable.made(dict(self.offset_table))
                delivery.dispatch()
        await asyncio.sleep(0)  # let others run
        return pause_s

    def _wait_for_master(self, level: int, offset: int) -> None:
        if self._waiting_at.get(level) != offset:
            self._waiting_at[level] = offset
            log.error(
                "delay level %s waits for the master: this slave lacks message %s or has it damaged", level, offset
            )

    def _look_at_clock(self, queues: Mapping[int, ConsumeQueueInterface]) -> None:
        """Note if the clock was set back: stored messages may then have later times than new ones.

        How long they have waited is unknown. They wait at most their whole delay from now on, so that none is early,
        and none holds back later ones for longer. (Apache RocketMQ delivers them at once.)
        """
        now = self._clock.time_ms()
        if now <= self._last_look_ms - _SET_BACK_MS:
            self._set_back = {queue_id + 1: (now, queue.max_offset) for queue_id, queue in queues.items()}
        self._last_look_ms = now

    def _count_due(self, entries: Sequence[ExpectedRecord], level: int) -> tuple[int, float]:
        """Return how many are due, and the seconds until the next one is."""
        now = self._clock.time_ms()
        noticed, stored_before = self._set_back.get(level, (0, 0))
        # The delay of a level that is no longer in the settings is known only from its messages.
        latest = noticed + self._delay_levels.get(level, _NEVER_MS)
        for number, (queue_offset, _, _, deliver_timestamp) in enumerate(entries):
            due_at = deliver_timestamp
            if queue_offset < stored_before:
                due_at = min(due_at, latest)
            if due_at > now:
                return number, min(max((due_at - now) / 1000, LEAST_PAUSE_S), TICK_S)
        return len(entries), 0.0 if entries else TICK_S

    def _postpone(self, message: MessageExtBrokerInner, result: PutMessageResult, level: int) -> bool:
        """Delay a message again whose queue alone has no room; return false if it has to be retried in its place."""
        if not self._delivery.may_postpone(result):
            return False
        later = (number for number, ms in self._delay_levels.items() if number > level and ms >= _LEAST_POSTPONED_MS)
        level = min(later, default=self.max_delay_level)
        message.topic, message.queue_id = RMQ_SYS_SCHEDULE_TOPIC, level - 1
        message.properties, message.found = replace_property(message.properties, DELAY, b"%d" % level), None
        return level > 0 and self._delivery.store_again(message)
