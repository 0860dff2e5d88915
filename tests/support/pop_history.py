"""Deliveries that POP owes its groups, kept apart from the broker's code and compared with those after a crash.

Of a group without order each message is followed alone: it is still to be delivered for the first time, or comes back
at certain times. Of an ordered group each queue is followed. A crash may take what was done since the log was on disk,
but only from the end, so each state since then is right; a kill takes nothing.
"""

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S")


class Return(NamedTuple):
    """A delivery that was not acknowledged: the message comes once more.

    Attributes:
        visible_ms: not earlier than this.
        times: its reconsumeTimes then.
        handle: identifies the delivery; a message whose time was changed has another one.
        sure: false if it may have ended meanwhile.
    """

    visible_ms: int
    times: int
    handle: str = ""
    sure: bool = True


class Fate(NamedTuple):
    """Deliveries to come of a message for a group.

    Attributes:
        stored: false before it is in the log.
        first: true if the message comes from its own topic.
        returns: deliveries to come from the retry topic.
        copies: reconsumeTimes of the copies in the retry topic that were delivered.
    """

    stored: bool = False
    first: bool = False
    returns: tuple[Return, ...] = ()
    copies: tuple[int, ...] = ()

    def with_return(self, added: Return) -> "Fate":
        """Return the fate after a delivery."""
        return self._replace(returns=(*self.returns, added))

    def of(self, handle: str) -> Return | None:
        """Return what is to come of a delivery, ``None`` if it was acknowledged, changed, or delivered."""
        return next((each for each in self.returns if each.handle == handle), None)

    def without(self, gone: Return) -> "Fate":
        """Return the fate after a return was delivered or acknowledged."""
        left = list(self.returns)
        left.remove(gone)
        return self._replace(returns=tuple(left))

    def acked(self, handle: str, latest_ms: int) -> "Fate":
        """Return the fate after an acknowledgement, which may have been too late."""
        found = self.of(handle)
        if found is None:
            return self
        left = self.without(found)
        return left if found.visible_ms > latest_ms else left.with_return(found._replace(sure=False))

    def changed(self, handle: str, changed: Return, latest_ms: int) -> "Fate":
        """Return the fate after the time of a delivery was changed, which may have been too late."""
        found = self.of(handle)
        if found is None:
            return self
        if found.visible_ms > latest_ms:
            return self.without(found).with_return(changed._replace(sure=found.sure))
        return self.acked(handle, latest_ms).with_return(changed._replace(sure=False))

    def reset(self, *, first: bool) -> "Fate":
        """Return the fate after the offset of the group was set before or after the message."""
        return self._replace(first=first and self.stored)

    def dropped(self) -> "Fate":
        """Return the fate while the group is gone: what is due then does not return."""
        return self._replace(returns=tuple(each._replace(sure=False) for each in self.returns))

    def forgotten(self) -> "Fate":
        """Return the fate after the group was deleted with its offsets, and is to begin again."""
        copies = [Return(0, times, sure=False) for times in self.copies]
        gone = self.dropped().reset(first=True)
        return gone._replace(returns=(*gone.returns, *copies))


class Came(NamedTuple):
    """A delivery.

    Attributes:
        time_ms: the latest time that the clock had shown: a message that has returned stays when the clock goes back.
        times: its reconsumeTimes.
        is_first: true if it came from its own topic.
    """

    time_ms: int
    times: int
    is_first: bool


def fits(fate: Fate, came: Iterable[Came]) -> bool:
    """Return true if these deliveries, each acknowledged at once, are what the fate says."""
    came = list(came)
    if sum(each.is_first for each in came) != fate.first:
        return False
    again = [each for each in came if not each.is_first]
    if not {each.times for each in again} <= {each.times for each in fate.returns}:
        return False
    for times in {each.times for each in fate.returns}:
        due = [each for each in fate.returns if each.times == times]
        got = sorted(each.time_ms for each in again if each.times == times)
        if not sum(each.sure for each in due) <= len(got) <= len(due):
            return False
        earliest = sorted(each.visible_ms for each in due)
        if any(time_ms < visible_ms for time_ms, visible_ms in zip(got, earliest, strict=False)):
            return False
    return True


class OrderState(NamedTuple):
    """Deliveries to come of a queue that a group consumes in order.

    Attributes:
        stored: number of messages in the queue.
        begin: the first offset that may be delivered.
        acknowledged: offsets from there on that are not delivered again.
        batch: offsets delivered last, and when each is visible again if it is not acknowledged.
        pop_time: the time of that pop.
    """

    stored: int = 0
    begin: int = 0
    acknowledged: frozenset[int] = frozenset()
    batch: tuple[tuple[int, int], ...] = ()
    pop_time: int = 0

    @property
    def open(self) -> dict[int, int]:
        """The messages of the batch that are not acknowledged, and when each is visible again."""
        return {offset: at for offset, at in self.batch if offset not in self.acknowledged}

    def acked(self, offset: int, pop_time: int) -> "OrderState":
        """Return the state after an acknowledgement, which does nothing if its batch is not the last one."""
        if pop_time != self.pop_time:
            return self
        return self._replace(acknowledged=self.acknowledged | {offset})

    def changed(self, offset: int, pop_time: int, visible_ms: int) -> "OrderState":
        """Return the state after the time of a message was changed."""
        if pop_time != self.pop_time:
            return self
        return self._replace(batch=tuple((each, visible_ms if each == offset else at) for each, at in self.batch))

    def popped(self, offsets: list[int], now: int, pop_time: int, invisible_ms: int, *, again: bool) -> "OrderState":
        """Return the state after a pop delivered these messages; ``again`` if it repeats the last one.

        Raises:
            AssertionError: They were not to be delivered then.
        """
        assert offsets == self.to_come()[: len(offsets)], f"{offsets} delivered: {self}"
        blocked = [at for at in self.open.values() if at > now]
        assert again or not blocked, f"{offsets} delivered at {now}: {self}"
        return self._replace(batch=tuple((each, pop_time + invisible_ms) for each in offsets), pop_time=pop_time)

    def reset(self, offset: int) -> "OrderState":
        """Return the state after the offset of the group was set."""
        return self._replace(begin=offset, acknowledged=frozenset(), batch=(), pop_time=0)

    def to_come(self) -> list[int]:
        """Return the offsets that are not acknowledged, in order."""
        return [offset for offset in range(self.begin, self.stored) if offset not in self.acknowledged]


def after_power_loss(states: list[OrderState]) -> list[OrderState]:
    """Return the states that a power loss may leave, if it may leave these by what the log has.

    Acknowledgements of a later state, or those of its last batch alone, may be on disk besides, in a file beside the
    log. What the file says of the batch itself is not known then, so that few of the results differ.
    """
    bare = {state._replace(batch=(), pop_time=0) for state in states}
    written = {
        (state.begin, acknowledged)
        for state in states
        for acknowledged in (state.acknowledged, state.acknowledged.intersection(dict(state.batch)))
    }
    found = dict.fromkeys(states)
    for state in bare:
        for begin, acknowledged in written:
            if begin == state.begin:
                stored = {offset for offset in acknowledged if offset < state.stored}
                found[state._replace(acknowledged=state.acknowledged | stored)] = None
    return list(found)


def order_fits(state: OrderState, came: list[tuple[int, int]]) -> bool:
    """Return true if these deliveries (offset, time), each batch acknowledged at once, are what the state says."""
    earliest = state.open
    return [offset for offset, _ in came] == state.to_come() and all(
        time_ms >= earliest.get(offset, 0) for offset, time_ms in came
    )


class History(Generic[S]):
    """States of one thing since the log was on disk, the last one is that of now."""

    def __init__(self, state: S) -> None:
        self.states = [state]

    @property
    def now(self) -> S:
        """The last state."""
        return self.states[-1]

    def add(self, state: S) -> None:
        """Take a new state, which a power loss may take back."""
        if state != self.now:
            self.states.append(state)

    def on_disk(self) -> None:
        """Note that nothing of what was done can be taken back."""
        self.states = [self.now]

    def change(self, changed: Callable[[S], S]) -> None:
        """Take a change that is on disk, whatever was before it."""
        self.states = list(map(changed, self.states))

    def possible(self, *, lost: bool, amid: Callable[[S], Iterable[S]]) -> list[S]:
        """Return the states after a crash amid an operation; ``lost`` if it takes what is not on disk."""
        states = self.states if lost else self.states[-1:]
        return list(dict.fromkeys([*states, *(each for state in states for each in amid(state))]))


def popped(fate: Fate, back: Return, came: Came) -> Fate:
    """Return the fate after a pop delivered the message.

    Args:
        fate: its fate before.
        back: its return without an acknowledgement.
        came: the delivery.

    Raises:
        AssertionError: It was not to be delivered then.
    """
    if came.is_first:
        assert fate.first, f"delivered once more from its topic: {fate}"
        return fate._replace(first=False).with_return(back)
    # Not a delivery of this millisecond: it cannot have returned, whatever the clock has shown before it was set back.
    now = _pop_time(back.handle)
    due = [
        each
        for each in fate.returns
        if each.times == came.times and each.visible_ms <= came.time_ms and (not now or _pop_time(each.handle) != now)
    ]
    assert due, f"delivered from the retry topic at {came.time_ms} for the {came.times}. time: {fate}"
    # Those that may have ended last.
    gone = min(due, key=lambda each: (not each.sure, each.visible_ms))
    return fate.without(gone).with_return(back)._replace(copies=(*fate.copies, came.times))


def _pop_time(handle: str) -> str:
    return handle.split(" ", 2)[1] if handle else ""


def any_pop(fate: Fate, visible_ms: int, now: int) -> list[Fate]:
    """Return the fates of a message that a pop, amid which the broker ended, may have delivered, also several times."""
    deliveries = [Came(now, each.times, is_first=False) for each in fate.returns if each.visible_ms <= now]
    deliveries += [Came(now, 0, is_first=True)] if fate.first else []
    found = [fate]
    for each in deliveries:
        found += [popped(before, Return(visible_ms, each.times + 1), each) for before in found]
    return found
