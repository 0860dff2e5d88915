"""Notes of clients that pop from a broker that is killed, and what must hold of them afterwards.

Times are in ms by the wall clock, which the broker and its clients share. An answer that was lost says nothing: the
operation happened, or did not. So each delivery has the earliest time at which its message may come again, and an
acknowledgement counts only if it was answered before that time.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
    """Notes of one group.

    Attributes:
        sent: says of each number if its send was answered.
        by_number: deliveries of each number.
        doubtful: queue and offset of messages that may be stored and acknowledged, without a note of it.
    """

    sent: dict[int, bool] = field(default_factory=dict)
    by_number: dict[int, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    doubtful: set[tuple[int, int]] = field(default_factory=set)

    def delivered(self, found: Iterable[Delivery]) -> None:
        """Note what a pop delivered."""
        for each in found:
            self.by_number[each.number].append(each)

    def copy(self) -> "Journal":
        """Return the notes as they are now, for ``fall_back``."""
        deliveries = {number: [replace(each) for each in those] for number, those in self.by_number.items()}
        return Journal(dict(self.sent), defaultdict(list, deliveries))

    def fall_back(self, known: "Journal") -> None:
        """Note that a server goes on that knows what was noted in ``known``, and perhaps some of what came later.

        A send, an acknowledgement or a change since then may be undone, and a message popped since then may come again
        at any time.
        """
        self.sent = {number: known.sent.get(number, False) for number in self.sent}
        stored = {number for number, is_answered in known.sent.items() if is_answered} | known.by_number.keys()
        for number, deliveries in list(self.by_number.items()):
            if number not in stored:
                places = (each.place for each in deliveries if each.tried_ms is not None)
                self.doubtful |= {(place.queue_id, place.offset) for place in places}
                del self.by_number[number]
                continue
            before = known.by_number.get(number, [])
            for each in deliveries[len(before) :]:
                each.visible_ms, each.acked_ms = 0, None
            for each, was in zip(deliveries, before, strict=False):
                each.visible_ms, each.acked_ms = min(each.visible_ms, was.visible_ms), was.acked_ms

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
            for problem in _order_violations(
                deliveries, {offset for doubtful_id, offset in self.doubtful if doubtful_id == queue_id}
            )
        ]


def _order_violations(deliveries: Sequence[Delivery], doubtful: set[int]) -> Iterator[str]:
    """Yield the violations in one queue, whose messages were sent in the order of their numbers."""

    def may_be_acked(offset: int, by_ms: int) -> bool:
        last = earlier.get(offset)
        return offset in doubtful or (last is not None and last.tried_ms is not None and last.tried_ms <= by_ms)

    numbers = {each.place.offset: each.number for each in deliveries}
    if (in_order := [number for _, number in sorted(numbers.items())]) != sorted(in_order):
        yield f"the messages are stored as {in_order}"
    earlier: dict[int, Delivery] = {}
    # All before this offset is acknowledged.
    first_open = 0
    by_pop = sorted(deliveries, key=attrgetter("pop_ms"))
    for pop_ms, those in groupby(by_pop, key=attrgetter("pop_ms")):
        batch = {each.place.offset: each for each in those}
        while may_be_acked(first_open, pop_ms):
            first_open += 1
        if first_open < max(batch) and first_open not in batch:
            last = earlier.get(first_open)
            yield f"offset {max(batch)} came at {pop_ms} before {first_open} was acknowledged: {last}"
        earlier |= batch
        first_open = min(first_open, *batch)
