"""Notes of clients that pop from a broker that is killed, and what must hold of them afterwards.

Times are in ms by the wall clock, which the broker and its clients share. An answer that was lost says nothing: the
operation happened, or did not. So each delivery has the earliest time at which its message may come again, and an
acknowledgement counts only if it was answered before that time.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple


class Place(NamedTuple):
    """Place of a delivered message in the store; ``retry`` as in handles."""

    retry: str
    queue_id: int
    offset: int


@dataclass(slots=True, eq=False)
class Delivery:
    """A message as one pop delivered it.

    Attributes:
        number: number of the message.
        place: where it is stored.
        pop_ms: time of the pop, by the broker.
        visible_ms: the message does not come again before.
        handle: acknowledges it.
        tried_ms: time at which the first acknowledgement was sent.
        acked_ms: time at which one was answered, before the message could come again.
    """

    number: int
    place: Place
    pop_ms: int
    visible_ms: int
    handle: str
    tried_ms: int | None = None
    acked_ms: int | None = None

    def acknowledging(self, now_ms: int) -> None:
        """Note that an acknowledgement is sent."""
        if self.tried_ms is None:
            self.tried_ms = now_ms

    def acknowledged(self, now_ms: int) -> None:
        """Note that an acknowledgement was answered."""
        if self.acked_ms is None and now_ms < self.visible_ms:
            self.acked_ms = now_ms

    def changing(self, visible_ms: int) -> None:
        """Note that a request is sent to let the message come again at another time."""
        self.visible_ms = min(self.visible_ms, visible_ms)

    def changed(self, before_ms: int, visible_ms: int, now_ms: int) -> None:
        """Note that its time, which was ``before_ms``, was changed; it was too late if the message could have come."""
        if now_ms < before_ms:
            self.visible_ms = visible_ms


@dataclass(slots=True)
class Journal:
    """Notes of one group; ``sent`` says of each number if its send was answered."""

    sent: dict[int, bool] = field(default_factory=dict)
    by_number: dict[int, list[Delivery]] = field(default_factory=lambda: defaultdict(list))

    def delivered(self, found: Iterable[Delivery]) -> None:
        """Note what a pop delivered."""
        for each in found:
            self.by_number[each.number].append(each)

    def missing(self) -> list[int]:
        """Return the numbers of messages that have to come, for the first time or again."""
        return [number for number, is_answered in self.sent.items() if self._is_missing(number, is_answered)]

    def _is_missing(self, number: int, is_answered: bool) -> bool:
        deliveries = self.by_number.get(number)
        return is_answered if deliveries is None else max(deliveries, key=attrgetter("pop_ms")).tried_ms is None

    @property
    def last_visible_ms(self) -> int:
        """Time after which no message comes again."""
        return max((each.visible_ms for those in self.by_number.values() for each in those), default=0)

    def violations(self) -> list[str]:
        """Return what a group must not see: a message twice at a time, one that was acknowledged, or none at all."""
        problems = [f"message {number} did not come, or not again" for number in self.missing()]
        for number, deliveries in self.by_number.items():
            if number not in self.sent:
                problems.append(f"message {number} was not sent")
            for one, other in pairwise(sorted(deliveries, key=attrgetter("pop_ms"))):
                if one.acked_ms is not None:
                    problems.append(f"message {number} came after its acknowledgement: {one}, {other}")
                elif other.pop_ms < one.visible_ms:
                    problems.append(f"message {number} came {one.visible_ms - other.pop_ms} ms early: {one}, {other}")
        return problems

    def violations_of_order(self) -> list[str]:
        """Return what an ordered group must not see besides: a message while an earlier one is open."""
        by_queue: dict[int, list[Delivery]] = defaultdict(list)
        for deliveries in self.by_number.values():
            for each in deliveries:
                by_queue[each.place.queue_id].append(each)
        return [
            f"queue {queue_id}: {problem}"
            for queue_id, deliveries in by_queue.items()
            for problem in _order_violations(deliveries)
        ]


def _order_violations(deliveries: Sequence[Delivery]) -> Iterator[str]:
    """Yield the violations in one queue, whose messages were sent in the order of their numbers."""
    numbers = {each.place.offset: each.number for each in deliveries}
    if (in_order := [number for _, number in sorted(numbers.items())]) != sorted(in_order):
        yield f"the messages are stored as {in_order}"
    earlier: dict[int, Delivery] = {}
    # All before this offset is acknowledged.
    first_open = 0
    by_pop = sorted(deliveries, key=attrgetter("pop_ms"))
    for pop_ms, those in groupby(by_pop, key=attrgetter("pop_ms")):
        batch = {each.place.offset: each for each in those}
        while (last := earlier.get(first_open)) is not None and last.tried_ms is not None and last.tried_ms <= pop_ms:
            first_open += 1
        if first_open < max(batch) and first_open not in batch:
            yield f"offset {max(batch)} came at {pop_ms} before {first_open} was acknowledged: {last}"
        earlier |= batch
        first_open = min(first_open, *batch)
