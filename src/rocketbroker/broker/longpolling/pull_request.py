"""Held pulls of a queue with their deadlines (PullRequest and ManyPullRequest of RocketMQ)."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Final, Generic, NamedTuple, TypeVar

from rocketbroker.broker.message_copy import REAL_TOPIC, Place, real_place
from rocketbroker.codec.message.message_const import STOREHOSTADDRESS_V6_FLAG, host_flags
from rocketbroker.codec.message.message_decoder import RECORD_HEADS, SYS_FLAG_POSITION
from rocketbroker.codec.message.raw_records import ExpectedRecord
from rocketbroker.codec.remoting.handler import Answer, Connection
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult
from rocketbroker.store.read.get_message import MessageFilter

_TICK_S = 0.05
# Empty ticks are dropped once they outnumber the others by this.
_MOST_STALE = 1_024

T = TypeVar("T")


class Deadlines(Generic[T]):
    """Items grouped by the 50 ms tick at which they are due.

    Items due at once cost one call; a timer for each would block the event loop until all had been called.

    Args:
        due: called with the items that are due, which are then forgotten.
    """

    def __init__(self, due: Callable[[Iterable[T]], None]) -> None:
        self._due = due
        self._items: dict[int, set[T]] = {}
        # A heap; ticks without items are skipped.
        self._ticks: list[int] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))

    def add(self, item: T, seconds: float) -> int:
        """Schedule an item and return its key for ``discard``."""
        tick = int((asyncio.get_running_loop().time() + seconds) / _TICK_S) + 1
        items = self._items.get(tick)
        if items is None:
            items = self._items[tick] = set()
            heapq.heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._set_timer()
        items.add(item)
        return tick

    def discard(self, item: T, tick: int) -> None:
        """Forget an item."""
        items = self._items.get(tick)
        if items is None:
            return
        items.discard(item)
        if not items:
            del self._items[tick]
            if len(self._ticks) > 2 * len(self._items) + _MOST_STALE:
                self._ticks = list(self._items)
                heapq.heapify(self._ticks)

    def stop(self) -> None:
        """Forget all items."""
        self._items.clear()
        self._ticks.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ticks:
            self._timer = asyncio.get_running_loop().call_at(self._ticks[0] * _TICK_S, self._run)

    def _run(self) -> None:
        now = int(asyncio.get_running_loop().time() / _TICK_S)
        while self._ticks and self._ticks[0] <= now:
            items = self._items.pop(heapq.heappop(self._ticks), None)
            if items:
                self._due(items)
        self._set_timer()


# Messages that wait in a system topic, decoded for their copies from records that are known to be sound.
#
# This does in one step what ``decode_record`` and ``copy_message`` do in general, because all messages due at once pass
# through it.

#: Stores a copy, or sends it to another master; in that case its result has to be awaited.
Put = Callable[[MessageExtBrokerInner], PutMessageResult | Awaitable[PutMessageResult]]

_REAL_TOPIC_NAME: Final = REAL_TOPIC + b"\x01"
_PAIR_END: Final = 2
_PROPERTIES_LENGTH: Final = 2
# Bounds of the cache: number of property ends, and the longest of them.
_MOST_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED: Final = 256


class WaitingMessage(NamedTuple):
    """A message with its place in the queue in which it waits.

    Attributes:
        queue_offset: its offset in that queue.
        store_timestamp: store time there, in ms.
        message: its copy, without a topic yet and with unchanged properties.
    """

    queue_offset: int
    store_timestamp: int
    message: MessageExtBrokerInner


def unbroken(found: Sequence[WaitingMessage], entries: Sequence[ExpectedRecord]) -> list[WaitingMessage]:
    """Return the messages before the first one that entries name and that was not found."""
    pairs = zip(found, entries, strict=False)
    return [message for message, _ in takewhile(lambda pair: pair[0].queue_offset == pair[1][0], pairs)]


class WaitingMessages:
    """Decoder of the messages of one topic.

    Args:
        topic: topic in which they wait, at most 127 bytes long.
        store_host: address of this broker; its family (IPv4, IPv6) may have changed since they were stored.
    """

    def __init__(self, topic: str, store_host: bytes) -> None:
        # The topic's length takes a byte.
        self._behind_body = 1 + len(topic.encode()) + _PROPERTIES_LENGTH
        self._store_flag = host_flags(b"", store_host)
        self._places: dict[bytes, Place | None] = {}

    def read(self, record: memoryview) -> WaitingMessage:
        """Decode a sound record of the topic; the body is a slice of the record."""
        head = RECORD_HEADS[record[SYS_FLAG_POSITION + 3] >> 4 & 3]
        fields = head.unpack_from(record)
        body_end = head.size + fields[14]
        message = MessageExtBrokerInner(
            "",
            0,
            record[head.size : body_end],
            bytes(record[body_end + self._behind_body :]),
            fields[4],
            fields[7] & ~STOREHOSTADDRESS_V6_FLAG | self._store_flag,
            fields[8],
            fields[9],
            fields[12],
        )
        return WaitingMessage(fields[5], fields[10], message)

    def place(self, properties: bytes) -> Place | None:
        """Return topic and queue of REAL_TOPIC and REAL_QID; ``None`` if the copy may not go there.

        The properties from REAL_TOPIC on are the same in many messages, and are cached.
        """
        at = properties.rfind(_REAL_TOPIC_NAME)
        end = properties[at:] if at == 0 or (at > 0 and properties[at - 1] == _PAIR_END) else b""
        if end in self._places:
            return self._places[end]
        found = real_place(properties)
        if found is not None and real_place(end) == found and len(end) <= _LONGEST_REMEMBERED:
            if len(self._places) >= _MOST_REMEMBERED:
                self._places.clear()
            self._places[end] = found
        return found


#: Tags codes (``None`` for all messages), and a filter on properties, which replaces them.
Wanted = tuple[frozenset[int] | None, MessageFilter | None]

# Memory of a held pull in units of a plain one: tags per unit, and units of its own filter, which caches results.
_TAGS_A_UNIT = 4
_FILTER_UNITS = 32


class PullRequest:
    """A held pull.

    Attributes:
        run: function that runs the pull again and returns its answer.
        offset: queue offset of the first message wanted.
        tag_codes: tags codes wanted, ``None`` for all.
        has_match: set if the pull filters by properties. Returns true if a wanted message has arrived since the last
            call, ``None`` if it must be called again after other work.
        carried: subscription that the pull brought and its header no longer has; ``None`` to use that of its group.
        deadline: key in the service's ``Deadlines``.
        held: true while the service holds the pull.
        weight: memory in units of a plain pull.
        woken: true once the pull is scheduled to run again.
    """

    __slots__ = (
        "carried",
        "command",
        "connection",
        "deadline",
        "has_match",
        "held",
        "offset",
        "queue_id",
        "run",
        "tag_codes",
        "topic",
        "weight",
        "woken",
    )

    def __init__(  # noqa: PLR0913 - a held pull has these parts
        self,
        connection: Connection,
        command: Any,
        topic: str,
        queue_id: int,
        offset: int,
        tag_codes: frozenset[int] | None,
        has_match: Callable[[], bool | None] | None = None,
        *,
        run: "Callable[[Connection, Any, PullRequest], Answer]",
        carried: Wanted | None = None,
    ) -> None:
        self.run = run
        self.connection = connection
        self.command = command
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.tag_codes = tag_codes
        self.has_match = has_match
        self.carried = carried
        self.deadline = 0
        self.held = False
        self.woken = False
        own_filter = carried is not None and has_match is not None
        tags = 0 if tag_codes is None else len(tag_codes)
        self.weight = 1 + tags // _TAGS_A_UNIT + (_FILTER_UNITS if own_filter else 0)


# Pulls compared with each message: more than most queues have. The others are found by tag.
_FEW = 4


class ManyPullRequest:
    """Held pulls of one queue; the cost of a message does not grow with the pulls that do not want it.

    Attributes:
        count: number of pulls.
        filtered: pulls that filter by properties.
        max_offset: end of the queue.
    """

    __slots__ = ("_by_code", "_everything", "_few", "count", "filtered", "max_offset", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.count = 0
        self.max_offset = 0
        self.filtered: set[PullRequest] = set()
        self._few: list[PullRequest] = []
        self._everything: set[PullRequest] = set()
        self._by_code: dict[int, set[PullRequest]] = {}

    def __iter__(self) -> Iterator[PullRequest]:
        """Iterate over the pulls that no message has taken; one with several tags may occur several times."""
        yield from self._few
        yield from self.filtered
        yield from self._everything
        for of_code in self._by_code.values():
            yield from of_code

    def add(self, request: PullRequest) -> None:
        """Add a pull."""
        self.count += 1
        if request.has_match is not None:
            self.filtered.add(request)
        elif len(self._few) < _FEW:
            self._few.append(request)
        elif request.tag_codes is None:
            self._everything.add(request)
        else:
            for code in request.tag_codes:
                self._by_code.setdefault(code, set()).add(request)

    def remove(self, request: PullRequest) -> None:
        """Remove a pull that was added, whether a message has taken it or not."""
        self.count -= 1
        if request in self._few:
            self._few.remove(request)
        elif request.has_match is not None:
            self.filtered.discard(request)
        elif request.tag_codes is None:
            self._everything.discard(request)
        elif self._by_code:
            for code in request.tag_codes:
                of_code = self._by_code.get(code)
                if of_code is not None:
                    of_code.discard(request)
                    if not of_code:
                        del self._by_code[code]

    def take(self, tags_code: int, max_offset: int) -> list[PullRequest]:
        """Remove and return the pulls that want a message; those that filter by properties stay."""
        self.max_offset = max_offset
        woken = []
        for request in self._few:
            codes = request.tag_codes
            if (codes is None or tags_code in codes) and request.offset < max_offset:
                woken.append(request)
        for request in woken:
            self._few.remove(request)
        if self._everything:
            woken += _take(self._everything, max_offset)
        if self._by_code:
            of_code = self._by_code.get(tags_code)
            if of_code:
                woken += _take(of_code, max_offset)
        return woken


def _take(waiting: set[PullRequest], max_offset: int) -> list[PullRequest]:
    taken = [each for each in waiting if each.offset < max_offset]
    if len(taken) == len(waiting):
        waiting.clear()
    else:
        waiting.difference_update(taken)
    return taken
