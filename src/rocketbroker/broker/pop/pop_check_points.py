"""Open check points in memory and in the log (PopBufferMergeService, PopCheckPoint, AckMsg, BatchAckMsg).

A pop stores one check point for each queue that it read, and an acknowledgement stores what it acknowledged, both
before the answer. They are RocketMQ's records, timer messages for the revive topic: a check point is due a second
before its messages return, its acknowledgements with them. RocketMQ's timer copies all of them to the revive topic,
where its revive service joins them. Here memory has the join already: the timer leaves them out, ``PopReviveService``
takes what is due from memory, and nothing is stored twice.

So the timer's queue is the source of truth for a start, a slave that is promoted, and Apache's broker. Three rules make
a start find exactly the messages that were not acknowledged:

- Records are in the order in which they were made, and a record names all that it changes. A check point that replaces
  the delivery of a message (a changed invisible time) also names that delivery, so no kill can leave both or neither.
- Returned messages are acknowledged like others, after their copies are stored.
- ``place`` is the queue offset before which no record matters. It is written once all that it passed is on disk.

Ordered pops have no check points in RocketMQ: ``consumerOrderInfo.json`` has one batch for each queue, and its last
changes are lost by a kill. Here each change stores the whole batch as a record too, with a tag that RocketMQ ignores,
and ``place`` passes such a record once the file has it.

A check point that stays open for hours would hold ``place`` back, and each start would read hours of records. So one
that lies too far back is stored again, with what is acknowledged in it.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.consumer_order_info_manager import ConsumerOrderInfoManager
from rocketbroker.broker.persist.config_manager import Settled
from rocketbroker.broker.persist.durable_progress import DurableProgress
from rocketbroker.broker.pop.pop_queues import OpenCheckPoint, PopQueue, PopQueues, compact
from rocketbroker.broker.timer.timer_message_store import TimerBypass
from rocketbroker.broker.topic.topic_config_manager import REVIVE_TOPIC_QUEUE_NUM, TIMER_TOPIC
from rocketbroker.codec.message.message_const import host_flags
from rocketbroker.codec.message.pop_check_point import AckMsg, BatchAckMsg, PopCheckPoint, ReviveRecord
from rocketbroker.codec.message.pop_info import REVIVE_GROUP
from rocketbroker.codec.remoting.bodies.offset import OrderInfo
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import StoreError
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from rocketbroker.store.flush.flush_service import CommitLogFlusher
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

log = logging.getLogger(__name__)

# A check point is due this long before its messages return, so that RocketMQ meets it before its acknowledgements
# (PopAckConstants.ackTimeInterval).
_AHEAD_MS: Final = 1000
# Check points are due at multiples of this.
TICK_MS: Final = 100
_PUT_OK: Final = PutMessageStatus.PUT_OK
# Records that a start may have to read: this number, or so many for each open check point. The second bound keeps check
# points from being stored again and again: at most a quarter of the records read are open.
_MOST_READ: Final = 100_000
_READ_FOR_EACH: Final = 4
# Check points stored again before the loop serves others.
_MOST_AGAIN: Final = 64
# Entries that are freed before the loop serves others.
_MOST_FREED: Final = 4_096
# Stale entries that are kept, or dropped by one call.
_MOST_STALE: Final = 1_024

#: Tag of the records of ordered pops.
ORDER_TAG: Final = "order"
#: Start offset of a record that only says that the group has no offset in a queue any more.
FORGOTTEN: Final = -1


class OrderRecord(ReviveRecord):
    """The batch of a queue that a group pops in order, and the group's offset; without ``info`` there is no batch."""

    tag: ClassVar[str] = ORDER_TAG

    topic: str
    cid: str
    queue_id: int
    offset: int
    info: OrderInfo | None = None

    @property
    def unique_id(self) -> str:
        """``UNIQ_KEY`` of the message."""
        return f"{self.topic}@{self.queue_id}@{self.offset}@{self.cid}@{self.tag}"


class Acknowledged(NamedTuple):
    """Result of an acknowledgement: what to wait for, and the number of messages that it acknowledged."""

    result: PutMessageResult
    number: int


class PopCheckPoints:
    """The open check points of a broker. All methods are for the event loop.

    Args:
        queues: the queues that groups pop.
        consume_queues: the queues of the store.
        flusher: the ends of the log.
        offsets: keep ``place``, as the offset of ``REVIVE_GROUP`` in the timer's queue.
        orders: the batches of ordered pops.
        bypass: keeps the timer from the records.
        precision_ms: returns the precision of the timer.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that a record depends on
        self,
        queues: PopQueues,
        appender: MessageAppender,
        consume_queues: ConsumeQueueStore,
        flusher: CommitLogFlusher,
        offsets: ConsumerOffsetManager,
        orders: ConsumerOrderInfoManager,
        clock: Clock,
        *,
        bypass: TimerBypass,
        precision_ms: Callable[[], int],
        broker_name: str,
        store_host: bytes,
    ) -> None:
        self.queues = queues
        self.revive_topic = bypass.topic
        self._bypass = bypass
        self.broker_name = broker_name
        self.revive_queue_nums = REVIVE_TOPIC_QUEUE_NUM
        self._appender = appender
        self._consume_queues = consume_queues
        self._flusher = flusher
        self._offsets = offsets
        self._orders = orders
        self._clock = clock
        self._precision_ms = precision_ms
        self._store_host = store_host
        self._sys_flag = host_flags(store_host, store_host)
        self._real_topic = b"REAL_TOPIC\x01" + self.revive_topic.encode() + b"\x02REAL_QID\x01"
        self.count = 0
        # By tick and place.
        self._due: dict[int, dict[int, OpenCheckPoint]] = {}
        self._ticks: list[int] = []
        # In the order of their places; entries of closed ones and of those stored again are stale.
        self._by_place: deque[tuple[int, OpenCheckPoint]] = deque()
        self._place = DurableProgress[int](flusher, 0)
        self._last_place = 0
        # The write of the batches of ordered pops that is under way.
        self._orders_settled: Settled | None = None
        self._sets_end = 0
        offsets.on_set, offsets.sync_sets = self._set, self._sync_sets

    # -- pops, acknowledgements and changes

    def open(
        self,
        queue: PopQueue,
        start_offset: int,
        pop_time: int,
        invisible_time: int,
        offsets: Sequence[int],
        revive_queue_id: int,
    ) -> PutMessageResult:
        """Store the check point of a pop; it is open if the result is PUT_OK.

        Args:
            queue: the queue that was popped.
            start_offset: queue offset at which the pop began to read.
            pop_time: time of the pop in ms; no open check point of the queue has both.
            invisible_time: ms until the messages return.
            offsets: queue offsets of the messages, ascending.
            revive_queue_id: queue of the revive topic that the record names.
        """
        check_point = OpenCheckPoint(
            queue, start_offset, pop_time, invisible_time, compact(offsets), (1 << len(offsets)) - 1, revive_queue_id
        )
        result = self._put_check_point(check_point)
        if result.status is _PUT_OK:
            self.add(check_point)
        return result

    def acknowledge(self, queue: PopQueue, start_offset: int, pop_time: int, offsets: Iterable[int]) -> Acknowledged:
        """Acknowledge messages of a check point; those that are not open any more are left out.

        The result is not PUT_OK if the record could not be stored; nothing is acknowledged then.
        """
        check_point = queue.open.get((start_offset, pop_time))
        bits = 0
        if check_point is not None:
            bits = check_point.bits_of(offsets) & check_point.left
        if check_point is None or not bits:
            # Acknowledged before, perhaps by a record that is not on disk yet.
            return Acknowledged(PutMessageResult(_PUT_OK, self._flusher.max_offset), 0)
        return self._acknowledge(check_point, bits)

    def _acknowledge(self, check_point: OpenCheckPoint, bits: int) -> Acknowledged:
        result = self._put_ack(check_point, bits)
        if result.status is not _PUT_OK:
            return Acknowledged(result, 0)
        return Acknowledged(result, self.drop(check_point, bits))

    def returned(self, check_point: OpenCheckPoint) -> PutMessageResult:
        """Close a check point whose messages have returned: their copies are stored, or nobody wants them."""
        return self._acknowledge(check_point, check_point.left).result

    def take_reset(self, queue: PopQueue) -> PutMessageResult:
        """End the reset of a queue, because a pop takes over its offset; store that.

        Until the offsets are written the file has the reset. A start would repeat it, and deliver what was acknowledged
        since then, if the record did not say that it is over.
        """
        self._orders.clear_block(*queue.where)
        result = self.put_order(queue)
        if result.status is _PUT_OK:
            self._offsets.take_reset(queue.group, queue.topic, queue.queue_id)
        return result

    def put_order(self, queue: PopQueue) -> PutMessageResult:
        """Store the batch of a queue that is popped in order, after a change of it."""
        offset = self._offsets.query(queue.group, queue.topic, queue.queue_id)
        record = OrderRecord(queue.topic, queue.group, queue.queue_id, offset, self._orders.info(*queue.where))
        return self._put(record, self._clock.time_ms(), 0)

    def change(
        self,
        queue: PopQueue,
        start_offset: int,
        pop_time: int,
        offset: int,
        invisible_time: int,
        *,
        suspended: bool = False,
    ) -> tuple[PutMessageResult, int]:
        """Let one message of a check point return ``invisible_time`` ms from now; return the new time of its pop.

        A message that is not open stays as it is: it was acknowledged, or has returned.
        """
        now = self._clock.time_ms()
        origin = queue.open.get((start_offset, pop_time))
        bit = 0 if origin is None else origin.bits_of([offset]) & origin.left
        if origin is None or not bit:
            return PutMessageResult(_PUT_OK, self._flusher.max_offset), now
        while (offset, now) in queue.open:
            now += 1
        changed = OpenCheckPoint(
            queue, offset, now, invisible_time, range(offset, offset + 1), 1, origin.revive_queue_id, -1, suspended
        )
        result = self._put_check_point(changed, origin)
        if result.status is not _PUT_OK:
            return result, now
        self.add(changed)
        # For Apache's broker: it does not read the origin in the check point. A kill before this makes no difference
        # to this one.
        acknowledged = self._put_ack(origin, bit)
        self.drop(origin, bit)
        return (acknowledged if acknowledged.status is _PUT_OK else result), now

    # -- open check points in memory

    def restored(
        self, record: PopCheckPoint, offsets: Sequence[int], place: int, revive_queue_id: int
    ) -> OpenCheckPoint:
        """Return the check point of a record; ``add`` or ``store`` it."""
        queue = self.queues.get(record.topic, record.cid, record.queue_id)
        left = (1 << len(offsets)) - 1 & ~record.bit_map
        named = record.start_offset, record.pop_time, record.invisible_time
        return OpenCheckPoint(queue, *named, compact(offsets), left, revive_queue_id, place, record.suspend)

    def store(self, check_point: OpenCheckPoint) -> None:
        """Store a check point again that the timer's queue does not have, and add it.

        Raises:
            StoreError: It cannot be stored.
        """
        result = self._put_check_point(check_point, again=True)
        if result.status is not _PUT_OK:
            raise StoreError(f"a check point cannot be stored again: [{result.status.name}] {result.reason}")
        self.add(check_point)

    async def clear(self) -> None:
        """Forget all check points, for a broker that is no master any more; let others run while they are freed."""
        tables: list[dict[Any, OpenCheckPoint]] = [queue.forget() for queue in self.queues]
        tables += self._due.values()
        by_place = self._by_place
        self._due, self._ticks, self._by_place = {}, [], deque()
        self.count = 0
        self._bypass.clear()
        for number, _ in enumerate(_taken(tables, by_place), 1):
            if not number % _MOST_FREED:
                await asyncio.sleep(0)

    def in_due_order(self) -> Iterator[OpenCheckPoint]:
        """Yield the open check points by the tick in which they are due; they may be closed meanwhile."""
        for tick in sorted(self._due):
            yield from list(self._due.get(tick, {}).values())

    def add(self, check_point: OpenCheckPoint) -> None:
        """Add a stored check point."""
        queue = check_point.queue
        queue.open[check_point.start_offset, check_point.pop_time] = check_point
        queue.in_flight += check_point.left.bit_count()
        self.count += 1
        self._by_place.append((check_point.place, check_point))
        self._schedule(check_point, -(-check_point.revive_time // TICK_MS))

    def drop(self, check_point: OpenCheckPoint, bits: int) -> int:
        """Note that messages are acknowledged; return their number."""
        queue, count = check_point.queue, bits.bit_count()
        check_point.left &= ~bits
        queue.in_flight -= count
        if not check_point.left:
            del queue.open[check_point.start_offset, check_point.pop_time]
            self.count -= 1
            self._unschedule(check_point)
        return count

    def due(self, now_ms: int, most: int) -> list[OpenCheckPoint]:
        """Return open check points of the first tick that is due by now; they stay due until closed or postponed."""
        first = self.next_due_ms
        return [] if first is None or first > now_ms else list(islice(self._due[first // TICK_MS].values(), most))

    def postpone(self, check_point: OpenCheckPoint, until_ms: int) -> None:
        """Let a check point be due later, because its messages cannot return now."""
        self._unschedule(check_point)
        self._schedule(check_point, -(-until_ms // TICK_MS))

    @property
    def next_due_ms(self) -> int | None:
        """Time in ms at which the next check point is due, ``None`` without one."""
        while self._ticks and self._ticks[0] not in self._due:
            heapq.heappop(self._ticks)
        return self._ticks[0] * TICK_MS if self._ticks else None

    def _schedule(self, check_point: OpenCheckPoint, tick: int) -> None:
        check_point.tick = tick
        due = self._due.get(tick)
        if due is None:
            due = self._due[tick] = {}
            heapq.heappush(self._ticks, tick)
            if len(self._ticks) > 2 * len(self._due) + _MOST_STALE:
                self._ticks = list(self._due)
                heapq.heapify(self._ticks)
        due[check_point.place] = check_point

    def _unschedule(self, check_point: OpenCheckPoint) -> None:
        due = self._due[check_point.tick]
        del due[check_point.place]
        if not due:
            del self._due[check_point.tick]

    def due_by_revive_queue(self, now_ms: int) -> dict[int, int]:
        """Return the number of messages that are due and have not returned, by the queue of the revive topic."""
        due = dict.fromkeys(range(self.revive_queue_nums), 0)
        first = self.next_due_ms
        if first is not None and first <= now_ms:
            for tick in [tick for tick in self._due if tick * TICK_MS <= now_ms]:
                for each in self._due[tick].values():
                    due[each.revive_queue_id] = due.get(each.revive_queue_id, 0) + each.left.bit_count()
        return due

    @property
    def log_end(self) -> int:
        """CommitLog offset after the last record."""
        return self._flusher.max_offset

    def first_pending_offset(self) -> int | None:
        """Return the CommitLog offset of the first record that a start needs, ``None`` without one."""
        queue, place = self._consume_queues.find(TIMER_TOPIC, 0), self.place
        entry = queue.entry(place) if queue is not None and self.count else None
        return entry.physical_offset if entry else None

    # -- place: the queue offset before which no record matters

    @property
    def place(self) -> int:
        """Queue offset in the timer's queue of the first record that a start needs, or one before it.

        When the oldest of very many check points closes, those behind it are looked at by several calls.
        """
        by_place, stale = self._by_place, 0
        while by_place and self._is_stale(by_place[0]) and stale < _MOST_STALE:
            by_place.popleft()
            stale += 1
        return by_place[0][0] if by_place else self._end

    @staticmethod
    def _is_stale(entry: tuple[int, OpenCheckPoint]) -> bool:
        place, check_point = entry
        return not check_point.left or check_point.place != place

    @property
    def _end(self) -> int:
        queue = self._consume_queues.find(TIMER_TOPIC, 0)
        return 0 if queue is None else queue.next_offset

    def begin(self, place: int) -> None:
        """Continue from the place of an earlier process."""
        self._place.replace(place)
        self._last_place = place

    def advance(self) -> None:
        """Note the place, and commit it once all that it has passed is on disk."""
        place = self.place
        if place != self._last_place and self._orders_settled is None:
            settled = self._orders.flush()
            if settled is None:
                self._passed(place)
            else:
                # Records of ordered pops before the place matter until the file has them.
                self._orders_settled = settled
                settled.add_done_callback(partial(self._orders_written, place))
        if self._place.advance():
            self._offsets.replace(REVIVE_GROUP, TIMER_TOPIC, 0, self._place.value)

    def stop(self) -> None:
        """Schedule the last write of the batches of ordered pops: Apache's broker finds them in the file alone."""
        self._orders.flush()

    def _orders_written(self, place: int, settled: Settled) -> None:
        self._orders_settled = None
        if not settled.cancelled() and not settled.result():
            self._passed(place)

    def _passed(self, place: int) -> None:
        self._last_place = place
        self._place.made(place)

    def store_again(self) -> bool:
        """Store check points again that lie too far back, some of them; return false if there are no more.

        One that cannot be stored is tried again at the next call.
        """
        for _ in range(_MOST_AGAIN):
            first = self.place
            if self._end - first <= max(_MOST_READ, _READ_FOR_EACH * self.count):
                return False
            if self._is_stale(self._by_place[0]):
                return True
            check_point = self._by_place[0][1]
            self._unschedule(check_point)
            if self._put_check_point(check_point, again=True).status is _PUT_OK:
                self._by_place.append((check_point.place, check_point))
            self._schedule(check_point, check_point.tick)
            if check_point.place == first:
                return False
        return True

    # -- records

    def _put_check_point(
        self, check_point: OpenCheckPoint, origin: OpenCheckPoint | None = None, *, again: bool = False
    ) -> PutMessageResult:
        """Store a check point and set its place.

        Args:
            check_point: the check point.
            origin: the check point whose delivery it replaces.
            again: true if the log has it already; then it says nothing about the offset to pop next.
        """
        queue, offsets, start = check_point.queue, check_point.offsets, check_point.start_offset
        follow = isinstance(offsets, range) and offsets.start == start
        record = PopCheckPoint(
            start_offset=start,
            pop_time=check_point.pop_time,
            invisible_time=check_point.invisible_time,
            num=len(offsets),
            queue_id=queue.queue_id,
            topic=queue.topic,
            cid=queue.group,
            bit_map=_signed(~check_point.left & (1 << len(offsets)) - 1),
            queue_offset_diff=None if follow else [offset - start for offset in offsets],
            broker_name=self.broker_name,
            re_put_times="0" if again else None,
            suspend=check_point.suspended,
        )
        if origin is not None:
            record.origin_start_offset, record.origin_pop_time = origin.start_offset, origin.pop_time
        result = self._put(record, check_point.revive_time - _AHEAD_MS, check_point.revive_queue_id)
        if result.status is _PUT_OK:
            check_point.place = result.queue_offset
            queue.check_points_stored += 1
        return result

    def _put_ack(self, check_point: OpenCheckPoint, bits: int) -> PutMessageResult:
        queue = check_point.queue
        if bits == (1 << len(check_point.offsets)) - 1:
            offsets = list(check_point.offsets)
        else:
            offsets = [offset for index, offset in enumerate(check_point.offsets) if bits >> index & 1]
        named = (
            check_point.start_offset,
            queue.group,
            queue.topic,
            queue.queue_id,
            check_point.pop_time,
            self.broker_name,
        )
        record = AckMsg(offsets[0], *named) if len(offsets) == 1 else BatchAckMsg(-1, *named, offsets)
        result = self._put(record, check_point.revive_time, check_point.revive_queue_id)
        queue.acks_stored += result.status is _PUT_OK
        return result

    def _set(self, key: str, queue_id: int, offset: int) -> None:
        """Store that an offset was set, so that no start continues after the messages popped before that.

        The last batch of an ordered queue is forgotten: its acknowledgements do not count for later deliveries.
        """
        topic, _, group = key.partition("@")
        queue = self.queues.find(topic, group, queue_id)
        if queue is None:
            return
        self._orders.clear_block(topic, group, queue_id)
        result = self._put_check_point(OpenCheckPoint(queue, offset, self._clock.time_ms(), 0, range(0), 0, 0))
        if result.status is not _PUT_OK:
            text = "group %s may continue in topic %s, queue %d, where it was before its offset was set: %s"
            log.error(text, group, topic, queue_id, result.reason)
        self._sets_end = self.log_end

    async def _sync_sets(self) -> None:
        """Wait until the records of set offsets are on disk.

        Raises:
            StoreError: The disk refuses.
        """
        flushed = await self._flusher.wait_flushed(self._sets_end)
        if not flushed.ok:
            raise StoreError(flushed.reason)

    def _put(
        self, record: PopCheckPoint | AckMsg | OrderRecord, deliver_ms: int, revive_queue_id: int
    ) -> PutMessageResult:
        """Store a record in the timer's queue, also one that is due already."""
        precision_ms = self._precision_ms()
        tag, unique_id = record.tag.encode(), record.unique_id.encode()
        properties = b"TAGS\x01%b\x02TIMER_DELIVER_MS\x01%d\x02UNIQ_KEY\x01%b\x02TIMER_OUT_MS\x01%d\x02%b%d\x02" % (
            tag,
            deliver_ms,
            unique_id,
            (deliver_ms - 1) // precision_ms * precision_ms,
            self._real_topic,
            revive_queue_id,
        )
        result = self._appender.put_copy(
            MessageExtBrokerInner(
                TIMER_TOPIC,
                0,
                record.encode(),
                properties,
                sys_flag=self._sys_flag,
                born_timestamp=self._clock.time_ms(),
                born_host=self._store_host,
                found=(tag, unique_id, None, True),
            )
        )
        if result.status is _PUT_OK:
            self._bypass.stored(result.queue_offset)
        return result


def _taken(tables: list[dict[Any, OpenCheckPoint]], by_place: deque[tuple[int, OpenCheckPoint]]) -> Iterator[object]:
    """Take all entries from the tables, one at a time; the last table that has a check point frees it."""
    while tables:
        table = tables.pop()
        while table:
            yield table.popitem()
        yield table
    while by_place:
        yield by_place.popleft()


def _signed(bits: int) -> int:
    """Return 32 bits as a Java int."""
    return bits - (1 << 32) if bits >= 1 << 31 else bits
