"""Queues as groups pop them: the offset to pop next, and the check points that are open.

The offset that a group pops next is its consumer offset, as in RocketMQ: it is committed when messages are popped, not
when they are acknowledged. So the offsets file must never be ahead of the check points on disk: after a power loss the
file would skip messages whose check points are gone, and nobody would deliver them again. ``consumerOffset.json``
therefore gets, for a queue whose last check points are not on disk yet, the offset before them.

An open check point takes about 550 bytes, with its entries in all tables; one of 32 messages that do not follow each
other takes 1,850 (measured with tracemalloc, Python 3.11).
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager, OffsetTable
from rocketbroker.broker.persist.durable_progress import LogEnds

# Check points to look at for a report; those of one invisible time return in the order in which they were made.
_MOST_LOOKED_AT = 1_000
_NO_OFFSETS: Final[dict[int, int]] = {}


class OpenCheckPoint(msgspec.Struct, gc=False, eq=False):
    """Messages of one queue that one pop returned, and that are not all acknowledged (PopCheckPoint).

    Attributes:
        queue: the queue as the group pops it.
        start_offset: queue offset at which the pop began to read.
        pop_time: time of the pop in ms.
        invisible_time: ms after ``pop_time`` at which unacknowledged messages return.
        offsets: queue offsets of the messages, ascending; a range if they follow each other.
        left: bit i is set until message i is acknowledged.
        revive_queue_id: queue of the revive topic that its records name.
        place: queue offset of its record in the timer's queue.
        suspended: true if its return does not count as another delivery.
        tick: time at which it is due, in the unit of ``PopCheckPoints``.
    """

    queue: "PopQueue"
    start_offset: int
    pop_time: int
    invisible_time: int
    offsets: range | tuple[int, ...]
    left: int
    revive_queue_id: int
    place: int = -1
    suspended: bool = False
    tick: int = 0

    @property
    def revive_time(self) -> int:
        """Time in ms at which unacknowledged messages return."""
        return self.pop_time + self.invisible_time

    def bits_of(self, offsets: Iterable[int]) -> int:
        """Return the bits of the messages with these queue offsets; others are ignored."""
        bits, own = 0, self.offsets
        if isinstance(own, range) and isinstance(offsets, range):
            # Both follow each other: so do the bits.
            first, end = max(own.start, offsets.start), min(own.stop, offsets.stop)
            return ((1 << end - first) - 1) << first - own.start if first < end else 0
        for offset in offsets:
            if isinstance(own, range):
                bits |= 1 << offset - own.start if offset in own else 0
            elif (index := bisect_left(own, offset)) < len(own) and own[index] == offset:
                bits |= 1 << index
        return bits

    @property
    def unacknowledged(self) -> list[int]:
        """Queue offsets of the messages that are not acknowledged."""
        left = self.left
        return [offset for index, offset in enumerate(self.offsets) if left >> index & 1]


def compact(offsets: Sequence[int]) -> range | tuple[int, ...]:
    """Return ascending offsets in a form that takes little memory."""
    first, count = offsets[0], len(offsets)
    return range(first, first + count) if offsets[-1] == first + count - 1 else tuple(offsets)


class PopQueue:
    """A queue of a topic as one group pops it.

    Attributes:
        topic: the topic, which may be a retry topic of POP.
        where: topic, group and queue id.
        key: ``topic@group``, as offset tables have it.
        open: open check points by start offset and pop time.
        in_flight: messages popped and not acknowledged.
        is_busy: true while a pop reads the queue; another one leaves it out.
        next_offset: offset to pop next, ``None`` to take the committed one.
        durable_offset: the committed offset whose check points are on disk.
        check_points_stored, acks_stored: number of records stored since the start.
        sets: how often the offset was found set by somebody else; commits before that do not count.
    """

    __slots__ = (
        "acks_stored",
        "check_points_stored",
        "durable_offset",
        "group",
        "in_flight",
        "is_busy",
        "key",
        "next_offset",
        "open",
        "queue_id",
        "sets",
        "topic",
        "where",
    )

    def __init__(self, topic: str, group: str, queue_id: int, durable_offset: int) -> None:
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self.where = topic, group, queue_id
        self.key = f"{topic}@{group}"
        self.open: dict[tuple[int, int], OpenCheckPoint] = {}
        self.in_flight = 0
        self.is_busy = False
        self.next_offset: int | None = None
        self.durable_offset = durable_offset
        self.sets = 0
        self.check_points_stored = self.acks_stored = 0

    def forget(self) -> dict[tuple[int, int], OpenCheckPoint]:
        """Drop the open check points, and return them.

        The offset to pop next stays known: at a stop, the offsets are written before the log is on disk.
        """
        forgotten, self.open = self.open, {}
        self.in_flight = 0
        return forgotten

    @property
    def first_revive_time(self) -> int | None:
        """Time in ms at which the first messages return, among the oldest check points; ``None`` without one."""
        return min((each.revive_time for each in islice(self.open.values(), _MOST_LOOKED_AT)), default=None)


class _Commit(NamedTuple):
    """A committed offset, and the end of the log after its check point; ``sets`` is that of the queue then."""

    log_end: int
    queue: PopQueue
    offset: int
    sets: int


class PopQueues:
    """All queues that groups pop. All methods are for the event loop.

    Args:
        offsets: the consumer offsets.
        log: the ends of the log that has the check points.
    """

    def __init__(self, offsets: ConsumerOffsetManager, log: LogEnds) -> None:
        self._offsets = offsets
        self._log = log
        self._queues: dict[tuple[str, str, int], PopQueue] = {}
        # Commits whose check points may not be on disk, in order.
        self._commits: deque[_Commit] = deque()
        offsets.held_back = self.held_back

    def __iter__(self) -> Iterator[PopQueue]:
        return iter(self._queues.values())

    @property
    def uncommitted(self) -> int:
        """Number of commits whose check points may not be on disk."""
        return len(self._commits)

    def get(self, topic: str, group: str, queue_id: int) -> PopQueue:
        """Return a queue of a group."""
        key = topic, group, queue_id
        found = self._queues.get(key)
        if found is None:
            found = self._queues[key] = PopQueue(topic, group, queue_id, self._offsets.query(group, topic, queue_id))
        return found

    def find(self, topic: str, group: str, queue_id: int) -> PopQueue | None:
        """Return a queue that the group has popped, ``None`` if it has not."""
        return self._queues.get((topic, group, queue_id))

    def position(self, queue: PopQueue) -> int:
        """Return the offset to pop next; -1 if the group has none yet.

        A committed offset that is not the last one of a pop was set by somebody else, and counts.
        """
        committed = self._offsets.query(queue.group, queue.topic, queue.queue_id)
        if committed != queue.next_offset:
            queue.next_offset = None
        return committed

    def known_position(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the offset to pop next if the last pop left it, ``None`` if it was set since then.

        No reset may be pending.
        """
        queue = self._queues.get((topic, group, queue_id))
        if queue is None:
            return None
        committed = self._offsets.table.get(queue.key, _NO_OFFSETS).get(queue_id)
        return committed if committed == queue.next_offset else None

    def commit(self, queue: PopQueue, offset: int, share: bytes | None) -> None:
        """Commit the offset to pop next, after the check point of what lies before it was stored.

        Raises:
            BrokerResponseError: There are too many consumer offsets.
        """
        if queue.next_offset is None:
            # The committed offset was set without a pop: it is in the file, or may be.
            queue.durable_offset = self._offsets.query(queue.group, queue.topic, queue.queue_id)
            queue.sets += 1
        self._offsets.commit(queue.group, queue.topic, queue.queue_id, offset, share)
        queue.next_offset = offset
        self._commits.append(_Commit(self._log.max_offset, queue, offset, queue.sets))

    def held_back(self) -> OffsetTable:
        """Return the offsets to write instead of the committed ones, by ``topic@group``; -1 to write none."""
        flushed, commits = self._log.flushed_offset, self._commits
        while commits and commits[0].log_end <= flushed:
            _, queue, offset, sets = commits.popleft()
            if sets == queue.sets:
                queue.durable_offset = offset
        held: OffsetTable = {}
        for _, queue, _, _ in commits:
            # An offset that somebody else has set since then counts as it is.
            if self.position(queue) == queue.next_offset:
                held.setdefault(queue.key, {})[queue.queue_id] = queue.durable_offset
        return held

    def remove(self, queues: Iterable[PopQueue]) -> None:
        """Forget queues whose group or topic is gone; their check points must be closed."""
        for queue in list(queues):
            del self._queues[queue.where]
