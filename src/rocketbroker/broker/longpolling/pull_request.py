"""Held pulls of a queue (PullRequest and ManyPullRequest of RocketMQ)."""

from collections.abc import Callable, Iterator
from typing import Any

from rocketbroker.broker.longpolling.held_requests import HeldRequest
from rocketbroker.codec.remoting.handler import Answer, Connection
from rocketbroker.store.read.get_message import MessageFilter

#: Tags codes (``None`` for all messages), and a filter on properties, which replaces them.
Wanted = tuple[frozenset[int] | None, MessageFilter | None]


class PullRequest(HeldRequest):
    """A held pull.

    Attributes:
        offset: queue offset of the first message wanted.
        carried: subscription that the pull brought and its header no longer has; ``None`` to use that of its group.
    """

    __slots__ = ("carried", "offset")

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
        super().__init__(
            connection, command, topic, queue_id, tag_codes, has_match, run, filtered_queues=int(carried is not None)
        )
        self.offset = offset
        self.carried = carried


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
