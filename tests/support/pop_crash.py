"""A seeded run of POP consumption over a recording file system, and what has to hold after a crash of it.

Group G pops without order and receives messages again from its retry topic, group O pops in order. After a crash, and a
kill amid what returns then, both consume all that is left, and ``pop_history`` says if that is right.
"""

import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from rocketbroker.codec.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.admin import DeleteSubscriptionGroupRequestHeader
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.processor.admin.groups import GroupRequests
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock
from tests.support.pop_broker import QUEUE_NUMS, TOPIC, Handed, PopBroker
from tests.support.pop_history import (
    Came,
    Fate,
    History,
    OrderState,
    Return,
    after_power_loss,
    any_pop,
    fits,
    order_fits,
    popped,
)
from tests.support.processor_calls import family
from tests.support.recorded_script import OnDisk, Operation, RecordedScript
from tests.support.recording_file_system import Loss
from tests.support.stores import crash_copy

GROUP, ORDERED = "G", "O"
INVISIBLE_MS = (1_000, 5_000, 30_000, 120_000)
# Messages that a consumer remembers, also those that it has acknowledged.
REMEMBERED = 40
MOST_QUEUES = 4
# Times looked at one by one after a crash.
MOST_TIMES = 6


class At(NamedTuple):
    """The clock shows this time, in ms."""

    time_ms: int


class Trying(NamedTuple):
    """An operation is under way; the functions return the states that it may leave when it does not end."""

    fates: Callable[[int, Fate], Iterable[Fate]] = lambda _number, _fate: ()
    orders: Callable[[int, OrderState], Iterable[OrderState]] = lambda _queue_id, _state: ()


class Did(NamedTuple):
    """An operation was answered."""

    apply: Callable[["Promised"], object]


@dataclass
class Promised:
    """Deliveries to come, by the marks up to a point."""

    fates: dict[int, History[Fate]] = field(default_factory=lambda: defaultdict(lambda: History(Fate())))
    queues: dict[int, History[OrderState]] = field(default_factory=lambda: defaultdict(lambda: History(OrderState())))
    time_ms: int = field(default_factory=lambda: FakeClock().time_ms())
    # The latest one that the clock has shown.
    latest_ms: int = field(default_factory=lambda: FakeClock().time_ms())
    trying: Trying = field(default_factory=Trying)

    def take(self, mark: object) -> None:
        """Apply one mark."""
        match mark:
            case Trying():
                self.trying = mark
            case Did(apply):
                apply(self)
                self.trying = Trying()
            case OnDisk():
                for fate in self.fates.values():
                    fate.on_disk()
                for queue in self.queues.values():
                    queue.on_disk()
            case At(time_ms):
                self.time_ms, self.latest_ms = time_ms, max(time_ms, self.latest_ms)


class Delivery(NamedTuple):
    """A message that a client has."""

    group: str
    found: Handed

    @property
    def number(self) -> int:
        """Number of the message."""
        return number_of(self.found)


def number_of(found: Handed) -> int:
    """Return the number of a message."""
    return int(found.body.split(b" ", 1)[0])


class PopCrashScript(RecordedScript[Promised]):
    """A run of sends, pops, acknowledgements, resets and all else that moves a group."""

    def __init__(self, root: Path, flush_disk_type: str, seed: int) -> None:
        super().__init__(root, flush_disk_type, seed)
        random.seed(seed)
        self._separate_retry_queues = bool(seed % 2)
        self._queue_nums = QUEUE_NUMS
        self._live = Promised()
        # Queue and offset of each message.
        self._places: dict[int, tuple[int, int]] = {}
        self._deliveries: list[Delivery] = []
        self._attempt = "a0"
        self._broker: PopBroker
        #: What happened, by name, so that a test sees that all did.
        self.counts: dict[str, int] = defaultdict(int)

    @property
    def _running(self) -> MessageStore:
        return self._broker.store

    def _weighted(self) -> list[tuple[Operation, int]]:
        return [
            (self._send, 25),
            (self._pop, 24),
            (self._pop_in_order, 14),
            (self._ack, 22),
            (self._ack_batch, 6),
            (self._change, 8),
            (self._reset, 3),
            (self._delete_group, 1),
            (self._change_queues, 2),
            (self._wait, 16),
            (self._step_clock, 2),
            (self._sync, 6),
            (self._write_tables, 8),
            (self._flush_queues, 3),
            (self._restart, 2),
        ]

    def _mark(self, mark: object) -> None:
        self.file_system.mark(mark)
        self._live.take(mark)

    def _made(self, root: Path, clock: FakeClock, file_system: FileSystem = LOCAL) -> PopBroker:
        config = BrokerConfig(
            broker_name="broker-a",
            broker_ip1="127.0.0.1",
            use_separate_retry_queue=self._separate_retry_queues,
        )
        return PopBroker(root / "store", clock, file_system, config, flush_disk_type=self._flush_disk_type)

    async def _start(self) -> None:
        self._broker = self._made(self._root, self._clock, self.file_system)
        await self._broker.start()

    async def stop(self) -> None:
        """Stop cleanly."""
        await self._broker.stop()
        self._mark(OnDisk())

    async def _answered(self) -> None:
        """Note that what was acknowledged is on disk, if the answer waited for that."""
        if self._flush_disk_type == "SYNC_FLUSH":
            self._mark(OnDisk())

    # -- operations

    async def _send(self) -> None:
        for _ in range(self._chance.choice([1, 1, 4])):
            number, queue_id = next(self._numbers), self._chance.randrange(self._queue_nums)
            body = self._body(number)
            self._mark(Trying(partial(_maybe_sent, number), partial(_maybe_stored, queue_id)))
            self._places[number] = queue_id, self._broker.send(body, queue_id, UNIQ_KEY=f"U{number}")
            self._mark(Did(partial(_sent, number, queue_id)))
        if self._flush_disk_type == "SYNC_FLUSH":
            await self._sync()

    async def _pop(self) -> None:
        now, invisible_ms = self._clock.time_ms(), self._chance.choice(INVISIBLE_MS)
        latest_ms = self._live.latest_ms
        self._mark(Trying(lambda _, fate: any_pop(fate, now + invisible_ms, latest_ms)))
        queue_id, most = self._chance.choice([-1, -1, *range(self._queue_nums)]), self._chance.choice([1, 3, 32])
        found = await self._broker.pop(GROUP, queue_id, most, invisible_ms)
        self._mark(Did(partial(_popped, found)))
        for each in found:
            self._remember(GROUP, each)
            self.counts["again" if each.message.reconsume_times else "first"] += 1
            self.counts[f"retry {each.info.retry}"] += 1

    async def _pop_in_order(self) -> None:
        now, invisible_ms = self._clock.time_ms(), self._chance.choice(INVISIBLE_MS)
        again = self._chance.random() < 0.15
        if not again:
            self._attempt = f"a{next(self._numbers)}"
        queue_id, most = self._chance.choice([-1, *range(self._queue_nums)]), self._chance.choice([1, 3, 32])
        found = await self._broker.pop(ORDERED, queue_id, most, invisible_ms, order=True, attempt_id=self._attempt)
        self._mark(Did(partial(_popped_in_order, found, now, again)))
        for each in found:
            self._remember(ORDERED, each)
        self.counts["ordered"] += len(found)

    def _remember(self, group: str, found: Handed) -> None:
        self._deliveries = [*self._deliveries, Delivery(group, found)][-REMEMBERED:]

    def _chosen(self) -> Delivery | None:
        """Choose a message that a client has, rather one of the last ones, and perhaps forget it."""
        if not self._deliveries:
            return None
        chosen = self._chance.choice(self._deliveries[-self._chance.choice([8, REMEMBERED]) :])
        if self._chance.random() < 0.8:
            self._deliveries.remove(chosen)
        return chosen

    async def _ack(self) -> None:
        for _ in range(self._chance.choice([1, 3])):
            if (chosen := self._chosen()) is not None:
                self._mark(self._trying_to_ack([chosen]))
                await self._broker.ack(chosen.group, chosen.found)
                self._mark(Did(partial(_acked, [chosen])))
                await self._answered()
                self.counts["acked"] += 1

    async def _ack_batch(self) -> None:
        chosen = [each for each in (self._chosen() for _ in range(self._chance.randint(1, 6))) if each is not None]
        if not chosen:
            return
        chosen.sort(key=lambda each: each.found.info.queue_offset)
        self._mark(self._trying_to_ack(chosen))
        await ack_batch(self._broker, chosen)
        self._mark(Did(partial(_acked, chosen)))
        await self._answered()
        self.counts["acked in a batch"] += len(chosen)

    def _trying_to_ack(self, chosen: list[Delivery]) -> Trying:
        latest_ms = self._live.latest_ms

        def fates(number: int, fate: Fate) -> Iterable[Fate]:
            own = [each for each in chosen if each.group == GROUP and each.number == number]
            return accumulate(own, partial(_acked_fate, latest_ms), initial=fate)

        def orders(queue_id: int, state: OrderState) -> Iterable[OrderState]:
            own = [each for each in chosen if each.group == ORDERED and each.found.info.queue_id == queue_id]
            return accumulate(own, _acked_order, initial=state)

        return Trying(fates, orders)

    async def _change(self) -> None:
        if (chosen := self._chosen()) is None:
            return
        now, invisible_ms = self._clock.time_ms(), self._chance.choice([0, *INVISIBLE_MS])
        suspend = self._chance.random() < 0.3
        info, latest_ms = chosen.found.info, self._live.latest_ms
        times, handle = chosen.found.message.reconsume_times + (not suspend), chosen.found.handle

        def fates(number: int, fate: Fate) -> Iterable[Fate]:
            if (GROUP, number) != (chosen.group, chosen.number):
                return ()
            # The new time is at least this one.
            return [fate.changed(handle, Return(now + invisible_ms, times), latest_ms)]

        def orders(queue_id: int, state: OrderState) -> Iterable[OrderState]:
            if chosen.group != ORDERED or queue_id != info.queue_id:
                return ()
            return [state.changed(info.queue_offset, info.pop_time, now + invisible_ms)]

        self._mark(Trying(fates, orders))
        changed = await self._broker.change(chosen.group, chosen.found, invisible_ms, suspend=suspend)
        returns = Return(visible_ms(changed), times, changed.handle)
        if chosen.group == GROUP:
            self._mark(Did(lambda p: p.fates[chosen.number].add(
                p.fates[chosen.number].now.changed(handle, returns, latest_ms)
            )))  # fmt: skip
        else:
            self._mark(Did(lambda p: p.queues[info.queue_id].add(
                p.queues[info.queue_id].now.changed(info.queue_offset, info.pop_time, returns.visible_ms)
            )))  # fmt: skip
        await self._answered()
        self._deliveries.append(Delivery(chosen.group, changed))
        self.counts["suspended" if suspend else "changed"] += 1

    async def _reset(self) -> None:
        """Reset a group in a queue, mostly back."""
        queue_id, group = self._chance.randrange(self._queue_nums), self._chance.choice([GROUP, ORDERED])
        end = self._broker.store.queues.max_offset_in_queue(TOPIC, queue_id)
        target = self._chance.choice([0, end, self._chance.randint(0, end), max(end - 3, 0)])

        def fate(number: int, fate: Fate) -> list[Fate]:
            place = self._places.get(number)
            if group != GROUP or place is None or place[0] != queue_id:
                return [fate]
            return [fate.reset(first=place[1] >= target)]

        def order(each: int, state: OrderState) -> OrderState:
            return state.reset(target) if (group, queue_id) == (ORDERED, each) else state

        await self._change_on_disk(fate, order, partial(self._do_reset, group, queue_id, target))
        self.counts["reset"] += 1

    async def _do_reset(self, group: str, queue_id: int, target: int) -> None:
        self._broker.reset.assign(group, TOPIC, {queue_id: target})
        await self._broker.reset.store()

    async def _delete_group(self) -> None:
        def gone(_number: int, fate: Fate) -> list[Fate]:
            # Amid it, each topic has the offset of the file or none.
            forgotten, dropped = fate.forgotten(), fate.dropped()
            return [forgotten, dropped, forgotten._replace(first=fate.first), dropped.reset(first=True)]

        await self._change_on_disk(gone, lambda _, state: state, self._do_delete_group)
        self.counts["deleted"] += 1

    async def _do_delete_group(self) -> None:
        broker = self._broker
        requests = family(GroupRequests, groups=broker.groups, offsets=broker.offsets, stats=broker.stats)
        header = DeleteSubscriptionGroupRequestHeader(GROUP, clean_offset=True)
        await broker.call(requests.delete_subscriptiongroup, header)

    async def _change_queues(self) -> None:
        """Let messages return to queue 0 or to those of their numbers from now on, and give the topic another queue."""
        self._separate_retry_queues = not self._separate_retry_queues
        apply_updates([self._broker.config], {"useSeparateRetryQueue": str(self._separate_retry_queues).lower()})
        if self._queue_nums < MOST_QUEUES:
            self._broker.topics.update(TopicConfig(TOPIC, self._queue_nums + 1, self._queue_nums + 1))
            self._queue_nums += 1
            self.counts["more queues"] += 1

    async def _change_on_disk(
        self,
        fates: Callable[[int, Fate], list[Fate]],
        order: Callable[[int, OrderState], OrderState],
        do: Operation,
    ) -> None:
        """Do what a power loss does not take back once it is answered.

        Args:
            fates: returns the fate afterwards, then those that are possible before the answer.
            order: returns the state of a queue afterwards.
            do: does it.
        """

        def apply(promised: Promised) -> None:
            for number, history in promised.fates.items():
                history.change(lambda fate, number=number: fates(number, fate)[0])  # type: ignore[misc]
            for queue_id, states in promised.queues.items():
                states.change(partial(order, queue_id))

        self._mark(Trying(fates, lambda q, each: [order(q, each)]))
        await do()
        self._mark(Did(apply))

    def _move_clock(self, seconds: float) -> None:
        self._clock.advance(seconds)
        self._mark(At(self._clock.time_ms()))

    async def _wait(self) -> None:
        """Let time pass, often to a millisecond before a message may return."""
        now = self._clock.time_ms()
        fates = [history.now for history in self._live.fates.values()]
        ahead = [each.visible_ms for fate in fates for each in fate.returns if each.visible_ms > now]
        just_before = (min(ahead) - 1 - now) / 1000 if ahead else 0.0
        self._move_clock(self._chance.choice([min(just_before, 130), 0.001, 0.1, 1, 5, 40]))
        await self._broker.run()

    async def _step_clock(self) -> None:
        """Set the wall clock, as an administrator or NTP does."""
        self._move_clock(self._chance.choice([-3, -90, 600]))

    async def _write_tables(self) -> None:
        self._broker.offsets.flush()
        if self._chance.random() < 0.3:
            self._broker.orders.flush()

    async def _sync(self) -> None:
        await self._broker.sync()
        self._mark(OnDisk())

    # -- after a crash

    async def check(self, root: Path, promised: Promised, loss: Loss, number: int) -> None:
        """Start after a crash, be killed during returns, start again, and compare all that is consumed."""
        clock = FakeClock(promised.time_ms)
        chance = random.Random(number)
        lost = loss is not Loss.NOTHING
        trying = promised.trying
        fates = {
            each: history.possible(lost=lost, amid=partial(trying.fates, each))
            for each, history in promised.fates.items()
        }
        queues = {
            each: history.possible(lost=lost, amid=partial(trying.orders, each))
            for each, history in promised.queues.items()
        }
        if lost:
            queues = {each: after_power_loss(states) for each, states in queues.items()}
        first = self._made(root, clock)
        await first.start()
        clock.advance(chance.choice([0, 6, 200]))
        await first.run()
        killed = crash_copy(root, root.with_name(f"{root.name}-killed"))
        await first.stop()
        again = self._made(killed, clock)
        await again.start()
        try:
            came, in_order = await _consumed(again, _times(chance, fates, queues), promised.latest_ms)
        finally:
            await again.stop()
        shutil.rmtree(killed)
        for each, possible in fates.items():
            assert any(fits(fate, came[each]) for fate in possible), (
                f"message {each} at {self._places.get(each)} was delivered as {came[each]}; possible: {possible}"
            )
        for queue_id, states in queues.items():
            assert any(order_fits(state, in_order[queue_id]) for state in states), (
                f"queue {queue_id} was delivered in order as {in_order[queue_id]}; possible: {states}"
            )


def came_of(found: Handed, latest_ms: int) -> Came:
    """Return a delivery for ``pop_history``."""
    return Came(latest_ms, found.message.reconsume_times, found.info.retry == "0")


def return_of(found: Handed) -> Return:
    """Return what comes of a delivery without an acknowledgement."""
    return Return(visible_ms(found), found.message.reconsume_times + 1, found.handle)


# -- states after operations


def visible_ms(found: Handed) -> int:
    """Return the time at which a message returns, by its handle."""
    return found.info.pop_time + found.info.invisible_time


def _maybe_sent(sent: int, number: int, fate: Fate) -> Iterable[Fate]:
    return [fate._replace(stored=True, first=True)] if sent == number else ()


def _maybe_stored(sent_to: int, queue_id: int, state: OrderState) -> Iterable[OrderState]:
    return [state._replace(stored=state.stored + 1)] if sent_to == queue_id else ()


def _sent(number: int, queue_id: int, promised: Promised) -> None:
    history = promised.fates[number]
    history.add(history.now._replace(stored=True, first=True))
    queue = promised.queues[queue_id]
    queue.add(queue.now._replace(stored=queue.now.stored + 1))


def _popped(found: list[Handed], promised: Promised) -> None:
    for each in found:
        history = promised.fates[number_of(each)]
        history.add(popped(history.now, return_of(each), came_of(each, promised.latest_ms)))


def _popped_in_order(found: list[Handed], now: int, again: bool, promised: Promised) -> None:
    by_queue: dict[int, list[Handed]] = defaultdict(list)
    for each in found:
        by_queue[each.info.queue_id].append(each)
    for queue_id, those in by_queue.items():
        history, info = promised.queues[queue_id], those[0].info
        offsets = [each.info.queue_offset for each in those]
        history.add(history.now.popped(offsets, now, info.pop_time, info.invisible_time, again=again))


def _acked(chosen: list[Delivery], promised: Promised) -> None:
    for each in chosen:
        if each.group == GROUP:
            history = promised.fates[each.number]
            history.add(_acked_fate(promised.latest_ms, history.now, each))
        else:
            queue = promised.queues[each.found.info.queue_id]
            queue.add(_acked_order(queue.now, each))


def _acked_fate(latest_ms: int, fate: Fate, acked: Delivery) -> Fate:
    return fate.acked(acked.found.handle, latest_ms)


def _acked_order(state: OrderState, acked: Delivery) -> OrderState:
    return state.acked(acked.found.info.queue_offset, acked.found.info.pop_time)


# -- consumption after a crash


async def ack_batch(broker: PopBroker, chosen: list[Delivery]) -> None:
    """Acknowledge messages of several pops by one request."""
    by_pop: dict[tuple[str, int, int, str, int], list[Delivery]] = {}
    for each in chosen:
        info = each.found.info
        key = each.group, info.ck_queue_offset, info.pop_time, info.retry, info.queue_id
        by_pop.setdefault(key, []).append(each)
    acks = []
    for (group, start, pop_time, retry, queue_id), those in by_pop.items():
        bits = 0
        for each in those:
            bits |= 1 << each.found.info.queue_offset - start
        info = those[0].found.info
        acks.append(
            BatchAck(
                group,
                TOPIC,
                retry,
                start,
                queue_id,
                info.revive_qid,
                pop_time,
                info.invisible_time,
                bits.to_bytes(-(-bits.bit_length() // 8), "little"),
            )
        )
    await broker.call(broker.acks.batch_ack_message, None, BatchAckMessageRequestBody("broker-a", acks).encode())


def _times(chance: random.Random, fates: dict[int, list[Fate]], queues: dict[int, list[OrderState]]) -> list[int]:
    """Choose some of the times at which messages may return, and the last one."""
    found = {each.visible_ms for states in fates.values() for state in states for each in state.returns}
    found |= {at for states in queues.values() for state in states for at in state.open.values()}
    some = chance.sample(sorted(found), min(len(found), MOST_TIMES))
    return sorted({*some, max(found, default=0)})


async def _consumed(
    broker: PopBroker, times: list[int], latest_ms: int
) -> tuple[dict[int, list[Came]], dict[int, list[tuple[int, int]]]]:
    """Consume all; return the deliveries of each message to G, and those of each queue to O as offset and time."""
    came: dict[int, list[Came]] = defaultdict(list)
    in_order: dict[int, list[tuple[int, int]]] = defaultdict(list)
    await _consume(broker, latest_ms, came, in_order)
    for at in times:
        # A millisecond before one returns it must not come; a tick afterwards it must.
        for until in (at - 1, at + 200):
            if (ms := until - broker.clock.time_ms()) > 0:
                broker.clock.advance(ms / 1000)
            await _consume(broker, latest_ms, came, in_order)
    broker.clock.advance(400)
    await _consume(broker, latest_ms, came, in_order)
    return came, in_order


async def _consume(
    broker: PopBroker, latest_ms: int, came: dict[int, list[Came]], in_order: dict[int, list[tuple[int, int]]]
) -> None:
    await broker.run()
    await broker.sync()
    now, attempts = broker.clock.time_ms(), _attempts()
    while found := await broker.pop(GROUP, invisible_ms=3_600_000):
        for each in found:
            came[number_of(each)].append(came_of(each, max(now, latest_ms)))
        await ack_batch(broker, [Delivery(GROUP, each) for each in found])
    while found := await broker.pop(ORDERED, invisible_ms=3_600_000, order=True, attempt_id=next(attempts)):
        for each in found:
            in_order[each.info.queue_id].append((each.info.queue_offset, now))
            await broker.ack(ORDERED, each)


def _attempts() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"after the crash {number}"
