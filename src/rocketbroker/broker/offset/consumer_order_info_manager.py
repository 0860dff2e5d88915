"""Batches delivered by ordered POP, in ``config/consumerOrderInfo.json`` (ConsumerOrderInfoManager of RocketMQ).

A queue that is popped in order delivers one batch at a time. It blocks while a message of the batch is neither
acknowledged nor visible again; the next pop then starts at the first message without an acknowledgement. A pop with
the ``attemptId`` of the batch is not blocked: it is a repetition by a client that lost the answer.

Changes can be replayed after a crash, onto a state that has some of them. That is safe, because the pop time names a
batch, and each batch of a queue has a later one than the batch before:

- ``update`` with the pop time of the batch, or an earlier one, changes nothing. Replayed as a new batch, it would
  count a delivery twice, or bring back a batch whose messages another one has delivered since.
- ``commit_and_next`` and ``update_next_visible_time`` of an earlier batch change nothing; for this batch they set a bit
  that is set already, or a time that a later change of the same message sets again.
- ``clear_block`` and removals forget the batch, and the changes after them build the next one from nothing, as before.

So no time but that of the pop is kept, and ``next_pop_time`` must be asked for it: the wall clock can go back.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from rocketbroker.broker.persist.config_manager import ConfigManager, OnPersist, Settled, encode_file
from rocketbroker.codec.remoting.bodies.offset import ConsumerOrderInfoSerializeWrapper, OrderInfo
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import CodecError

log = logging.getLogger(__name__)

#: Most messages that one pop delivers; the file has a bit for each in 64.
MAX_BATCH: Final = 32
# Batches of queues that nobody has popped for a day are forgotten, as in RocketMQ.
_CLEAN_SPAN_FROM_LAST_MS = 24 * 3600 * 1000


class OrderCounts(NamedTuple):
    """Contents of ``orderCountInfo`` for one queue of an answer.

    Attributes:
        consumed: number of earlier deliveries by queue offset, of messages that had any.
        minimum: smallest number in the batch, 0 if a message is new; for clients that read one number a queue.
    """

    consumed: dict[int, int]
    minimum: int


class AckRefusal(Enum):
    """Reason why an acknowledgement commits no offset."""

    ILLEGAL = auto()
    """The batch has no such message; RocketMQ's -1, answered by MESSAGE_ILLEGAL."""
    STALE = auto()
    """The batch is another one, or forgotten: the message is or will be delivered again; RocketMQ's -2."""


class _Batch:
    """The last batch of a queue; see ``OrderInfo``."""

    __slots__ = ("acked", "attempt_id", "consumed", "invisible_time", "offsets", "pop_time", "visible")

    def __init__(self, attempt_id: str | None, pop_time: int, invisible_time: int, offsets: Sequence[int]) -> None:
        self.attempt_id = attempt_id
        self.pop_time = pop_time
        # 0 if a file of an early broker lacks it; the next pop then tells its own.
        self.invisible_time = invisible_time
        self.offsets = tuple(offsets)
        self.visible: dict[int, int] = {}
        self.consumed: dict[int, int] = {}
        self.acked = 0

    @classmethod
    def of(cls, info: OrderInfo) -> "_Batch":
        """Return the batch of a file."""
        batch = cls(info.attempt_id, info.pop_time, info.invisible_time or 0, _queue_offsets(info.offset_list))
        known = set(batch.offsets)
        batch.visible = {o: at for o, at in (info.offset_next_visible_time or {}).items() if o in known}
        batch.consumed = {o: count for o, count in (info.offset_consumed_count or {}).items() if o in known}
        batch.acked = info.commit_offset_bit & ((1 << len(batch.offsets)) - 1)
        return batch

    def keep(self, before: "_Batch") -> None:
        """Keep what was acknowledged in the batch that this one replaces, though RocketMQ delivers it again.

        A pop that takes fewer messages than the batch before leaves some. They stay in the batch if there is an
        acknowledgement among them to remember, and are visible, so that they block nothing.
        """
        acknowledged = before.acknowledged()
        left = [offset for offset in before.offsets if offset > self.offsets[-1]]
        if acknowledged & set(left):
            self.offsets = (*self.offsets, *left)[:MAX_BATCH]
            self.visible = {offset: self.pop_time for offset in left if offset in self.offsets}
            self.consumed |= {offset: before.consumed[offset] for offset in self.visible if offset in before.consumed}
        self.acked = sum(1 << index for index, offset in enumerate(self.offsets) if offset in acknowledged)

    def cut(self, left: Sequence[int]) -> None:
        """Leave only the first messages."""
        self.offsets = tuple(left)
        self.visible = {offset: at for offset, at in self.visible.items() if offset in left}
        self.consumed = {offset: count for offset, count in self.consumed.items() if offset in left}
        self.acked &= (1 << len(left)) - 1

    def acknowledged(self) -> set[int]:
        """Return the offsets of acknowledged messages."""
        return {offset for index, offset in enumerate(self.offsets) if self.acked >> index & 1}

    def info(self) -> OrderInfo:
        """Return a copy for the file."""
        first, *others = self.offsets
        return OrderInfo(
            pop_time=self.pop_time,
            invisible_time=self.invisible_time or None,
            offset_list=[first, *(offset - first for offset in others)],
            offset_next_visible_time=dict(self.visible) or None,
            offset_consumed_count=dict(self.consumed) or None,
            last_consume_timestamp=self.pop_time,
            commit_offset_bit=self.acked,
            attempt_id=self.attempt_id,
        )

    def counts(self, offsets: Sequence[int]) -> OrderCounts:
        """Return how often messages of the batch were delivered before."""
        numbers = {offset: self.consumed.get(offset, 0) for offset in offsets}
        return OrderCounts({offset: number for offset, number in numbers.items() if number}, min(numbers.values()))

    def next_offset(self) -> int:
        """Return the offset of the first message without an acknowledgement, or the one after the last message."""
        for index, offset in enumerate(self.offsets):
            if not self.acked >> index & 1:
                return offset
        return self.offsets[-1] + 1

    def visible_at(self) -> int:
        """Return the time in ms at which no message is invisible any more; 0 if all are acknowledged."""
        return max(self._visible_times(), default=0)

    def in_flight(self, now_ms: int) -> int:
        """Return the number of messages that are neither acknowledged nor visible."""
        return sum(now_ms < each for each in self._visible_times())

    def _visible_times(self) -> Iterator[int]:
        """Yield the time in ms at which each message is visible that is not acknowledged."""
        end = self.pop_time + self.invisible_time
        for index, offset in enumerate(self.offsets):
            if not self.acked >> index & 1:
                yield self.visible.get(offset, end)


class ConsumerOrderInfoManager(ConfigManager[ConsumerOrderInfoSerializeWrapper]):
    """The last batch of each queue that a group pops in order. All methods are for the event loop.

    Changes mark the table as changed; ``flush`` schedules a write of a changed table.

    Args:
        read_queue_nums: returns the number of queues of a topic, ``None`` if there is no such topic.
        has_group: returns true if the group exists.
    """

    file_name, contents = "consumerOrderInfo.json", ConsumerOrderInfoSerializeWrapper

    def __init__(
        self,
        path: Path,
        clock: Clock,
        read_queue_nums: Callable[[str], int | None],
        has_group: Callable[[str], bool],
        on_persist: OnPersist | None = None,
    ) -> None:
        super().__init__(path, on_persist)
        self._clock = clock
        self._read_queue_nums = read_queue_nums
        self._has_group = has_group
        # topic@group -> queue id -> batch; no entry is empty.
        self._table: dict[str, dict[int, _Batch]] = {}
        self._changed = False

    def check_block(self, attempt_id: str | None, topic: str, group: str, queue_id: int, invisible_time: int) -> bool:
        """Return true if a pop must skip the queue.

        Args:
            attempt_id: attempt of the pop.
            topic: the topic.
            group: the consumer group.
            queue_id: the queue.
            invisible_time: that of the pop, in ms; for a batch from a file that lacks it.
        """
        batch = self._batch(topic, group, queue_id)
        if batch is None or (attempt_id is not None and attempt_id == batch.attempt_id):
            return False
        if batch.invisible_time <= 0 < invisible_time:
            batch.invisible_time = invisible_time
            self._changed = True
        return self._clock.time_ms() < batch.visible_at()

    def next_pop_time(self, topic: str, group: str, queue_id: int) -> int:
        """Return the time for a pop of the queue, in ms: now, or later than its last batch if the clock went back."""
        batch = self._batch(topic, group, queue_id)
        now_ms = self._clock.time_ms()
        return now_ms if batch is None else max(now_ms, batch.pop_time + 1)

    def update(
        self,
        attempt_id: str | None,
        topic: str,
        group: str,
        queue_id: int,
        pop_time: int,
        invisible_time: int,
        offsets: Sequence[int],
    ) -> OrderCounts:
        """Replace the batch of a queue by the messages that a pop delivers; return how often they were delivered.

        Args:
            attempt_id: attempt of the pop; a repetition of the attempt counts as the same delivery.
            topic: the topic.
            group: the consumer group.
            queue_id: the queue.
            pop_time: from ``next_pop_time``, in ms. If it is not later than that of the batch, nothing is changed: the
                update is replayed.
            invisible_time: ms for which the messages are invisible.
            offsets: the queue offsets of the messages, in ascending order.
        """
        if not 0 < len(offsets) <= MAX_BATCH:
            raise ValueError(f"an ordered pop delivers 1 to {MAX_BATCH} messages of a queue, not {len(offsets)}")
        queues = self._table.setdefault(f"{topic}@{group}", {})
        before = queues.get(queue_id)
        if before is not None and pop_time <= before.pop_time:
            return before.counts(offsets)
        batch = queues[queue_id] = _Batch(attempt_id, pop_time, invisible_time, offsets)
        if before is not None:
            added = 0 if attempt_id is not None and attempt_id == before.attempt_id else 1
            counts = {offset: before.consumed.get(offset, 0) + added for offset in offsets if offset in before.offsets}
            batch.consumed = {offset: count for offset, count in counts.items() if count}
            batch.keep(before)
        self._changed = True
        return batch.counts(offsets)

    def acknowledged(self, topic: str, group: str, queue_id: int) -> set[int]:
        """Return the queue offsets of the batch's acknowledged messages.

        A pop after a gap reads them once more. They stay in the batch, and must not be delivered.
        """
        batch = self._batch(topic, group, queue_id)
        return set() if batch is None else batch.acknowledged()

    def places(self) -> list[tuple[str, str, int]]:
        """Return topic, group and queue of each batch."""
        return [(*_names(key), queue_id) for key, queues in self._table.items() for queue_id in queues]

    def info(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        """Return a copy of a queue's batch as the file has it, ``None`` without one."""
        batch = self._batch(topic, group, queue_id)
        return None if batch is None else batch.info()

    def restore(self, topic: str, group: str, queue_id: int, info: OrderInfo | None) -> None:
        """Set the batch of a queue to that of ``info``.

        Raises:
            CodecError: It cannot come from a pop.
        """
        self.clear_block(topic, group, queue_id)
        if info is None:
            return
        if fault := _fault_of(info.offset_list):
            raise CodecError(f"{topic}@{group}, queue {queue_id}: {fault}")
        self._table.setdefault(f"{topic}@{group}", {})[queue_id] = _Batch.of(info)
        self._changed = True

    def cut(self, end_of: Callable[[str, int], int]) -> None:
        """Forget messages that their queue has lost; others get their offsets, and must not count as acknowledged.

        The file may be ahead of the log: a power loss takes what was not synced there.

        Args:
            end_of: returns the queue offset after the last message of a topic's queue.
        """
        for key, queues in list(self._table.items()):
            for queue_id, batch in list(queues.items()):
                left = [offset for offset in batch.offsets if offset < end_of(key.partition("@")[0], queue_id)]
                if not left:
                    self._forget(key, queue_id)
                elif len(left) < len(batch.offsets):
                    batch.cut(left)
                    self._changed = True

    def first_left(self, topic: str, group: str, queue_id: int, offset: int) -> int:
        """Return the first offset from ``offset`` on that is not acknowledged in the batch of the queue.

        A group that has lost its offset, -1, begins at the batch.
        """
        batch = self._batch(topic, group, queue_id)
        if batch is None:
            return offset
        offset, acknowledged = batch.offsets[0] if offset < 0 else offset, batch.acknowledged()
        while offset in acknowledged:
            offset += 1
        return offset

    def commit_and_next(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int) -> int | AckRefusal:
        """Acknowledge a message; return the offset to commit for the group.

        An acknowledgement is stale if there is no batch. RocketMQ commits it then, which skips messages before it that
        were never acknowledged, and undoes a reset.

        Args:
            topic: the topic.
            group: the consumer group.
            queue_id: the queue.
            offset: queue offset of the message.
            pop_time: that of the pop that delivered it.
        """
        batch = self._batch_of(topic, group, queue_id, offset, pop_time)
        if batch is None:
            return AckRefusal.STALE
        if offset not in batch.offsets:
            return AckRefusal.ILLEGAL
        bit = 1 << batch.offsets.index(offset)
        self._changed |= not batch.acked & bit
        batch.acked |= bit
        return batch.next_offset()

    def update_next_visible_time(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, next_visible_ms: int
    ) -> None:
        """Change the time at which a message becomes visible; do nothing if its batch is another one, or forgotten.

        Args: see ``commit_and_next``.
        """
        batch = self._batch_of(topic, group, queue_id, offset, pop_time)
        if batch is not None and offset in batch.offsets and batch.visible.get(offset) != next_visible_ms:
            batch.visible[offset] = next_visible_ms
            self._changed = True

    def next_visible_ms(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the time in ms at which a blocked queue can be popped again; ``None`` if it is not blocked.

        RocketMQ takes the first message that is still invisible, at whose time a later one may block the queue.
        """
        batch = self._batch(topic, group, queue_id)
        if batch is None:
            return None
        visible_at = batch.visible_at()
        return visible_at if self._clock.time_ms() < visible_at else None

    def in_flight(self, topic: str, group: str, queue_id: int) -> int:
        """Return the number of messages of the batch that are neither acknowledged nor visible again."""
        batch = self._batch(topic, group, queue_id)
        return 0 if batch is None else batch.in_flight(self._clock.time_ms())

    def clear_block(self, topic: str, group: str, queue_id: int) -> None:
        """Forget the batch of a queue, because the group's offset was reset."""
        key = f"{topic}@{group}"
        if queue_id in self._table.get(key, {}):
            self._forget(key, queue_id)

    def remove_topic(self, topic: str) -> None:
        """Forget the batches of a topic."""
        self._clean(lambda key, _queue_id, _batch: key.partition("@")[0] == topic)

    def remove_group(self, group: str) -> None:
        """Forget the batches of a group."""
        self._clean(lambda key, _queue_id, _batch: key.partition("@")[2] == group)

    def flush(self) -> Settled | None:
        """Schedule a write of the table if it has changed since the last one; return its future.

        Batches of topics, queues and groups that are gone, and those a day old, are forgotten before (autoClean).
        """
        if not self._changed:
            return None
        self._clean(self._is_gone)
        self._changed = False
        return self.persist()

    def encoder(self) -> Callable[[], bytes]:
        """Copy the batches; return a function that encodes the copy on a thread."""
        table = {key: {id_: batch.info() for id_, batch in queues.items()} for key, queues in self._table.items()}
        return lambda: encode_file(ConsumerOrderInfoSerializeWrapper(table))

    def parse(self, data: bytes) -> ConsumerOrderInfoSerializeWrapper:
        """Parse the content of a file.

        Raises:
            CodecError: It is not such a table, or a batch in it cannot come from a pop.
        """
        file = super().parse(data)
        for key, queues in file.table.items():
            for queue_id, info in queues.items():
                if fault := _fault_of(info.offset_list):
                    raise CodecError(f"{self.file_name}: {key}, queue {queue_id}: {fault}")
        return file

    def count(self, file: ConsumerOrderInfoSerializeWrapper) -> int:
        """Return the number of entries."""
        return len(file.table)

    def take(self, file: ConsumerOrderInfoSerializeWrapper) -> None:
        """Replace the table by that of a ``consumerOrderInfo.json``."""
        table = {
            key: {queue_id: _Batch.of(info) for queue_id, info in queues.items() if info.offset_list}
            for key, queues in file.table.items()
        }
        self._table = {key: queues for key, queues in table.items() if queues}

    def _batch(self, topic: str, group: str, queue_id: int) -> _Batch | None:
        queues = self._table.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    def _batch_of(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int) -> _Batch | None:
        """Return the batch of a pop, unless it is no longer the last one of the queue."""
        batch = self._batch(topic, group, queue_id)
        if batch is not None and batch.pop_time == pop_time:
            return batch
        log.debug(
            "ordered POP: offset %d of %s@%s, queue %d, belongs to a pop at %d, which is not the last one",
            offset,
            topic,
            group,
            queue_id,
            pop_time,
        )
        return None

    def _is_gone(self, key: str, queue_id: int, batch: _Batch) -> bool:
        topic, _, group = key.partition("@")
        last_ms = max(batch.pop_time + _CLEAN_SPAN_FROM_LAST_MS, batch.visible_at())
        return (
            queue_id >= (self._read_queue_nums(topic) or 0)
            or not self._has_group(group)
            or last_ms < self._clock.time_ms()
        )

    def _clean(self, is_gone: Callable[[str, int, _Batch], bool]) -> None:
        for key, queues in list(self._table.items()):
            for queue_id, batch in list(queues.items()):
                if is_gone(key, queue_id, batch):
                    self._forget(key, queue_id)

    def _forget(self, key: str, queue_id: int) -> None:
        queues = self._table[key]
        del queues[queue_id]
        if not queues:
            del self._table[key]
        self._changed = True


def _names(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group


def _queue_offsets(offset_list: Sequence[int]) -> list[int]:
    """Return the queue offsets of a batch in a file: the first is written as it is, the others as distances from it."""
    return [*offset_list[:1], *(offset_list[0] + distance for distance in offset_list[1:])]


def _fault_of(offset_list: Sequence[int]) -> str | None:
    """Return what is wrong with the offsets of a batch in a file; ``None`` if nothing is."""
    if len(offset_list) > MAX_BATCH:
        return f"o: a batch of {len(offset_list):,} messages; one pop delivers at most {MAX_BATCH}"
    offsets = _queue_offsets(offset_list)
    if any(offset < 0 for offset in offsets[:1]) or any(a >= b for a, b in pairwise(offsets)):
        return f"o: {offset_list}; expected the first offset, then ascending distances from it"
    return None
