"""Recovery of open check points from the log, at a start and when a slave is promoted.

The timer's queue has a record of each pop and of each acknowledgement, in order. Reading it from the last ``place``
on gives the check points that are open, and the offsets that groups pop next, which ``consumerOffset.json`` has only as
of its last write. A store of Apache's broker differs in two ways. What its timer has delivered (``config/timercheck``)
is in the revive topic, and what its revive service has dealt with lies before the consumer offset there. Open check
points that are found in the revive topic are stored again, as if they had been popped here.

A kill can fall between the last copies of returned messages and the record that acknowledges their originals. So
copies that the log has after the last record are compared with the messages of open check points: the record would
have followed in the same turn of the event loop.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rocketbroker.broker.message_copy import real_place
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.consumer_order_info_manager import ConsumerOrderInfoManager
from rocketbroker.broker.pop.pop_check_points import FORGOTTEN, OrderRecord, PopCheckPoints
from rocketbroker.broker.pop.pop_queues import OpenCheckPoint, PopQueue
from rocketbroker.broker.topic.topic_config_manager import TIMER_TOPIC
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.pop_check_point import AckMsg, BatchAckMsg, PopCheckPoint
from rocketbroker.codec.message.pop_info import REVIVE_GROUP, pop_retry_topics
from rocketbroker.codec.message.raw_records import ExpectedRecord
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.offset import OrderInfo
from rocketbroker.codec.storefile.checkpoint_layout import TimerCheckpoint, decode_timer_checkpoint
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import CodecError, StoreError
from rocketbroker.store.flush.flush_service import CommitLogFlusher
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_fetcher import EntryReader

log = logging.getLogger(__name__)

# Records read before the loop serves others.
_BATCH: Final = 256
# A clock may have been set back by so much while a copy was stored.
_CLOCK_STEP_MS: Final = 1_000
# Copies that one turn of the revive service stores for a check point: a pop has no more messages.
_MOST_COPIES: Final = 32
_TAGS: Final = b"TAGS"
_OUT_MS: Final = b"TIMER_OUT_MS"
_ACKS: Final[dict[str, type[AckMsg]]] = {kind.tag: kind for kind in (AckMsg, BatchAckMsg)}

#: Topic, group, queue, start offset, time of the pop.
Key = tuple[str, str, int, int, int]


class _Position(NamedTuple):
    """Offset to pop next.

    Attributes:
        offset: the offset.
        replaces: true if it was set, so that the offset in the file does not count.
        taken: offset of the last reset that a pop took over, -1 if none did.
        is_pending: true if there was another reset since then.
    """

    offset: int
    replaces: bool = False
    taken: int = FORGOTTEN
    is_pending: bool = False

    def has_ended(self, reset: int) -> bool:
        """Return true if a reset to this offset, which the file has, is over: a pop took it over.

        After another one was stored it may be either: the file is written after the record, before the answer.
        """
        return self.taken == reset != self.offset if self.is_pending else self.taken != FORGOTTEN


_NOWHERE: Final = _Position(FORGOTTEN)


class OpenRecords:
    """Joins records in the order in which they were stored, as ``PopCheckPoints`` did before.

    Attributes:
        open: the open check points, in the order of their last records.
        positions: the offsets to pop next, by topic, group and queue.
        batches: the batches of ordered pops, by the same.
    """

    def __init__(self, check_points: PopCheckPoints) -> None:
        self._check_points = check_points
        self.open: dict[Key, OpenCheckPoint] = {}
        self.positions: dict[tuple[str, str, int], _Position] = {}
        self.batches: dict[tuple[str, str, int], OrderInfo | None] = {}

    def check_point(self, record: PopCheckPoint, place: int, revive_queue_id: int) -> None:
        """Apply a check point.

        Raises:
            CodecError: It has another number of messages than it says.
        """
        where = record.topic, record.cid, record.queue_id
        named = record.num if not record.queue_offset_diff else len(record.queue_offset_diff)
        if record.num < 0 or named != record.num:
            raise CodecError(f"PopCheckPoint: n is {record.num}, and d names {named} messages")
        if not record.num:
            taken = self.positions.get(where, _NOWHERE).taken
            self.positions[where] = _Position(record.start_offset, replaces=True, taken=taken, is_pending=True)
            self.batches[where] = None
            return
        offsets = [record.offset_by_index(index) for index in range(record.num)]
        key = (*where, record.start_offset, record.pop_time)
        if record.origin_start_offset is not None and record.origin_pop_time is not None:
            self.acknowledge((*where, record.origin_start_offset, record.origin_pop_time), offsets)
        elif record.re_put_times is None:
            known = self.positions.get(where, _NOWHERE)
            self.positions[where] = known._replace(offset=max(known.offset, offsets[-1] + 1))
        self.open.pop(key, None)
        found = self._check_points.restored(record, offsets, place, revive_queue_id)
        if found.left:
            self.open[key] = found

    def order(self, record: OrderRecord) -> None:
        """Apply the batch of an ordered pop."""
        where = record.topic, record.cid, record.queue_id
        known = self.positions.get(where, _NOWHERE)
        if record.info is None:
            known = _Position(FORGOTTEN, taken=record.offset)
        self.positions[where] = known._replace(offset=record.offset, replaces=True)
        self.batches[where] = record.info

    def acknowledge(self, key: Key, offsets: list[int]) -> None:
        """Apply an acknowledgement; one without an open check point says nothing."""
        found = self.open.get(key)
        if found is not None:
            found.left &= ~found.bits_of(offsets)
            if not found.left:
                del self.open[key]


class PopRecovery:
    """Finds the open check points.

    Args:
        check_points: gets them.
        queues: the queues of the store, recovered.
        reader: reads records.
        offsets: the consumer offsets, loaded.
        orders: the batches of ordered pops, loaded.
        flusher: syncs what is stored again.
        timercheck: path of the progress of Apache's timer, which need not exist.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that a recovery reads or sets
        self,
        check_points: PopCheckPoints,
        queues: ConsumeQueueStore,
        reader: EntryReader,
        offsets: ConsumerOffsetManager,
        orders: ConsumerOrderInfoManager,
        flusher: CommitLogFlusher,
        clock: Clock,
        timercheck: Path,
    ) -> None:
        self._check_points = check_points
        self._queues = queues
        self._reader = reader
        self._offsets = offsets
        self._orders = orders
        self._flusher = flusher
        self._clock = clock
        self._timercheck = timercheck
        # CommitLog offset of the last record that was read.
        self._last_record = 0

    async def start(self) -> None:
        """Find the open check points, and the offsets to pop next.

        Raises:
            StoreError: The disk cannot be read, or what Apache's broker left cannot be stored again.
        """
        check_points, records = self._check_points, OpenRecords(self._check_points)
        acks = await self._read_revive_topic(records)
        place = max(self._offsets.query(REVIVE_GROUP, TIMER_TOPIC, 0), 0)
        await self._read_timer_queue(records, place)
        for key, offsets in acks:
            records.acknowledge(key, offsets)
        self._set_positions(records)
        for where, info in records.batches.items():
            try:
                self._orders.restore(*where, info)
            except CodecError as error:
                log.error("POP: %s; the batch may be delivered once more", error)  # noqa: TRY400
        await self._agree_on_orders()
        for where in (*records.positions, *self._orders.places()):
            # So that an offset that is set later is stored.
            check_points.queues.get(*where)
        check_points.begin(place)
        # In the order of their records.
        for number, each in enumerate(records.open.values()):
            if each.place < 0:
                check_points.store(each)
            else:
                check_points.add(each)
            if not number % _BATCH:
                await asyncio.sleep(0)  # let others run
        await self._finish_returns()
        await self._pass_revive_topic()
        if check_points.count:
            log.info("POP: %d check points are open", check_points.count)

    async def stop(self) -> None:
        """Forget the check points: the next start finds them again."""
        await self._check_points.clear()

    async def _read_revive_topic(self, records: OpenRecords) -> list[tuple[Key, list[int]]]:
        """Apply the check points that Apache's broker has still to deal with; return the acknowledgements."""
        acks: list[tuple[Key, list[int]]] = []
        for queue in self._revive_queues():
            # Apache's broker commits the offset of the last record that it has dealt with.
            begin = self._offsets.query(REVIVE_GROUP, queue.topic, queue.queue_id) + 1
            async for message in self._messages(queue, begin):
                _apply(message, -1, queue.queue_id, records, lambda *ack: acks.append(ack))
        return acks

    async def _read_timer_queue(self, records: OpenRecords, place: int) -> None:
        """Apply the records of the timer's queue, except check points that Apache's timer has delivered."""
        queue = self._queues.find(TIMER_TOPIC, 0)
        if queue is None:
            return
        delivered = self._delivered_by_rocketmq()
        async for message in self._messages(queue, place):
            real = real_place(message.properties_bytes)
            if real is None or real[0] != self._check_points.revive_topic:
                continue
            self._last_record = message.commit_log_offset
            out_ms = int(get_property(message.properties_bytes, _OUT_MS) or 0)
            if out_ms < delivered.last_read_time_ms and message.queue_offset < delivered.last_timer_queue_offset:
                continue
            _apply(message, message.queue_offset, real[1], records, records.acknowledge)

    def _delivered_by_rocketmq(self) -> TimerCheckpoint:
        try:
            return decode_timer_checkpoint(self._timercheck.read_bytes())
        except FileNotFoundError:
            return TimerCheckpoint()
        except (OSError, CodecError) as error:
            text = "%s is unreadable, so popped messages may return once more: %s"
            log.error(text, self._timercheck, error)  # noqa: TRY400
            return TimerCheckpoint()

    async def _messages(self, queue: ConsumeQueueInterface, begin: int) -> AsyncIterator[MessageExt]:
        """Yield the sound messages of a queue from an offset on."""
        at = max(begin, queue.min_offset)
        while at < queue.max_offset:
            entries = self._reader.entries(queue, at, _BATCH)
            if not entries:
                break
            for message in await self._sound(queue, entries):
                yield message
            at = entries[-1][0] + 1
            await asyncio.sleep(0)  # let others run

    async def _sound(self, queue: ConsumeQueueInterface, entries: Sequence[ExpectedRecord]) -> list[MessageExt]:
        records = await self._reader.records(queue, entries)
        if len(records) < len(entries):
            text = "POP: %d records of %s are damaged or missing, so some messages may return once more, or never"
            log.error(text, len(entries) - len(records), queue.topic)
        return [decode_record(record) for record in records]

    def _revive_queues(self) -> list[ConsumeQueueInterface]:
        return [queue for queue in self._queues if queue.topic == self._check_points.revive_topic]

    def _set_positions(self, records: OpenRecords) -> None:
        """Commit the offsets to pop next that the file does not have."""
        for (topic, group, queue_id), position in records.positions.items():
            committed = self._offsets.query(group, topic, queue_id)
            is_reset = self._offsets.is_reset(group, topic, queue_id)
            if is_reset and not position.has_ended(committed):
                continue
            end = self._queues.max_offset_in_queue(topic, queue_id)
            offset = min(position.offset if position.replaces else max(position.offset, committed), end)
            if is_reset or offset not in {committed, FORGOTTEN}:
                self._offsets.restore(group, topic, queue_id, offset)

    async def _agree_on_orders(self) -> None:
        """Let batches, offsets and queues agree after a power loss, which leaves files that are ahead of the log.

        What the file of the batches has as acknowledged was acknowledged, so the group continues behind it. Messages
        that the log lost are forgotten, on disk too: the next start could not tell them from those that come now.

        Raises:
            StoreError: The file cannot be written.
        """
        self._orders.cut(self._queues.max_offset_in_queue)
        for topic, group, queue_id in self._orders.places():
            offset = self._offsets.query(group, topic, queue_id)
            left = self._orders.first_left(topic, group, queue_id, offset)
            if left != offset and not self._offsets.is_reset(group, topic, queue_id):
                self._offsets.restore(group, topic, queue_id, left)
        settled = self._orders.flush()
        if settled is not None:
            await asyncio.wait([settled])
            if reason := settled.result():
                raise StoreError(f"{self._orders.path} cannot be written, whose batches had to be corrected: {reason}")

    async def _finish_returns(self) -> None:
        """Close what has returned, though its record is missing: copies that the log has after the last record.

        All are of one check point: its record would have followed them in the same turn of the event loop. It was due
        when the last of them was stored, so that check points due later need not be read, however many there are.
        """
        by_topic: dict[str, list[MessageExt]] = {}
        by_queue: dict[PopQueue, list[MessageExt]] = {}
        for queue in self._check_points.queues:
            names = self._retry_topics(queue) if queue.open else []
            for name in names:
                if name not in by_topic:
                    by_topic[name] = await self._last_copies(name)
            by_queue[queue] = [copy for name in names for copy in by_topic[name]]
        end_ms = max((copy.store_timestamp for copies in by_topic.values() for copy in copies), default=0)
        for number, each in enumerate(self._check_points.in_due_order(), 1):
            if each.revive_time > end_ms + _CLOCK_STEP_MS:
                return
            if by_queue.get(each.queue) and await self._close_returned(each, by_queue[each.queue]):
                return
            if not number % _BATCH:
                await asyncio.sleep(0)  # let others run

    @staticmethod
    def _retry_topics(queue: PopQueue) -> list[str]:
        if queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return [queue.topic]
        return pop_retry_topics(queue.topic, queue.group)

    async def _last_copies(self, topic: str) -> list[MessageExt]:
        """Return the messages of a retry topic that the log has after the last record.

        They are of one check point, which has 32 messages at most, so that they are among the last 32 of each queue. A
        topic may have thousands of queues, of which one got copies, or two: the entries alone say which.
        """
        found: list[MessageExt] = []
        for number, queue in enumerate(list(self._queues.queues_of(topic).values()), 1):
            at = max(queue.max_offset - _MOST_COPIES, queue.min_offset)
            while entries := self._reader.entries(queue, at, _MOST_COPIES) if at < queue.max_offset else []:
                found += await self._sound(queue, [entry for entry in entries if entry[1] > self._last_record])
                at = entries[-1][0] + 1
            if not number % _BATCH:
                await asyncio.sleep(0)  # let others run
        return found

    async def _close_returned(self, check_point: OpenCheckPoint, copies: list[MessageExt]) -> bool:
        """Acknowledge the originals of copies; return false if they are not all of this check point."""
        popped = check_point.queue
        queue = self._queues.find(popped.topic, popped.queue_id)
        if queue is None:
            return False
        left = [_identity(copy) for copy in copies]
        returned = []
        entries = self._reader.entries_at(queue, check_point.unacknowledged)
        for record in await self._reader.records(queue, entries):
            original = decode_record(record)
            identity = _identity(original, not check_point.suspended)
            if original.queue_offset in check_point.unacknowledged and identity in left:
                left.remove(identity)
                returned.append(original.queue_offset)
        if left:
            return False
        self._check_points.acknowledge(popped, check_point.start_offset, check_point.pop_time, returned)
        return True

    async def _pass_revive_topic(self) -> None:
        """Leave nothing in the revive topic to deal with, once it is on disk elsewhere."""
        passed = [
            (queue.queue_id, queue.max_offset - 1)
            for queue in self._revive_queues()
            if self._offsets.query(REVIVE_GROUP, queue.topic, queue.queue_id) < queue.max_offset - 1
        ]
        if not passed:
            return
        flushed = await self._flusher.sync()
        if not flushed.ok:
            raise StoreError(flushed.reason)
        for queue_id, last in passed:
            self._offsets.replace(REVIVE_GROUP, self._check_points.revive_topic, queue_id, last)


def _apply(
    message: MessageExt,
    place: int,
    revive_queue_id: int,
    records: OpenRecords,
    on_ack: Callable[[Key, list[int]], object],
) -> None:
    """Decode a record and apply it; log one that is broken."""
    tags = (get_property(message.properties_bytes, _TAGS) or b"").decode(errors="replace")
    try:
        if tags == PopCheckPoint.tag:
            records.check_point(PopCheckPoint.decode(message.body), place, revive_queue_id)
        elif tags == OrderRecord.tag:
            records.order(OrderRecord.decode(message.body))
        elif tags in _ACKS:
            ack = _ACKS[tags].decode(message.body)
            on_ack((ack.topic, ack.consumer_group, ack.queue_id, ack.start_offset, ack.pop_time), ack.offsets)
    except CodecError as error:
        log.error("POP: record %d of %s is skipped: %s", message.queue_offset, message.topic, error)  # noqa: TRY400


def _identity(message: MessageExt, deliveries: int = 0) -> tuple[object, ...]:
    """Return what a copy of a message shares with it, when it was delivered ``deliveries`` times more."""
    return (
        message.uniq_key,
        message.born_timestamp,
        message.born_host,
        bytes(message.body),
        message.reconsume_times + deliveries,
    )
