"""Held pulls of a queue, and their deadlines (PullRequest and ManyPullRequest of RocketMQ)."""

import asyncio
import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from rocketbroker.codec.remoting.handler import Answer, Connection
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
