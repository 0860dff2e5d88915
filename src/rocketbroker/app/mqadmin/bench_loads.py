"""Loads of ``mqadmin bench``: sends, pulls and end-to-end deliveries, each with its rate and latencies.

The loads use pulls of the group TOOLS_CONSUMER, which every broker has. They send no heartbeats for it and commit no
offsets, so a load leaves its messages behind and nothing else.
"""

import asyncio
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from struct import Struct

import msgspec

from rocketbroker.client.consumer.pull_api_wrapper import PullAPIWrapper
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.message import Message
from rocketbroker.client.core.pull_result import MessageSelector, PullResult, PullStatus, subscription_data
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.common.lifecycle import TaskOwner, stop_all

GROUP = "TOOLS_CONSUMER"
#: Bytes of a body that name its run and the time of its send.
LEAST_SIZE = 16
_STAMP = Struct(">8sq")
_MIB = 1 << 20
_PULLED = 32  # brokers limit pulls of new messages to this number
_HELD_S = 2.0  # how long a broker holds a pull of an end-to-end load
_LATE_S = 5.0  # how long deliveries may follow the last send
_PAUSE_S = 0.1  # after a failure, so that a dead broker is not asked in a busy loop
_PULL_LIMIT_S = 10.0


class Load(StrEnum):
    """Loads by the name of their option, in the order in which they run."""

    SYNC = "sync"
    ASYNC = "async"
    BATCH = "batch"
    CONSUME = "consume"
    E2E = "e2e"


#: Loads that send messages.
SENDING = frozenset({Load.SYNC, Load.ASYNC, Load.BATCH, Load.E2E})


_SHARES = (50, 95, 99, 99.9)
#: Names of the figures of a distribution, all in ms.
FIGURES = (*(f"p{share:g}" for share in _SHARES), "max")


class Latencies:
    """Distribution of times, each kept within 1 %, in memory that does not grow with their number."""

    _BASE = math.log(1.01)

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self._max_s = 0.0

    def add(self, seconds: float) -> None:
        """Add a time."""
        self._buckets[round(math.log(max(seconds, 1e-6)) / self._BASE)] += 1
        self._max_s = max(self._max_s, seconds)

    def figures(self) -> dict[str, float]:
        """Return percentiles and maximum in ms, by name; empty without a time."""
        if not self._buckets:
            return {}
        values = [*map(self._percentile_ms, _SHARES), round(self._max_s * 1000, 3)]
        return dict(zip(FIGURES, values, strict=True))

    def _percentile_ms(self, share: float) -> float:
        rank, seen = math.ceil(self._buckets.total() * share / 100), 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                return round(min(math.exp(bucket * self._BASE), self._max_s) * 1000, 3)
        raise AssertionError("a rank is at most the number of times")


class Outcome(msgspec.Struct, rename="camel"):
    """Outcome of a load.

    Attributes:
        load: name of the load.
        messages: messages that were acknowledged, pulled or delivered.
        failed: messages whose send failed or that were not delivered.
        seconds: duration.
        rate: messages a second.
        mib_per_second: their bodies in MiB a second.
        latency_ms: percentiles and maximum by name, of requests, or of deliveries for ``e2e``.
        client_busy: share of the time for which this process used a CPU; near 1 the client is the limit.
        error: the first failure, empty without one.
    """

    load: Load
    messages: int
    failed: int
    seconds: float
    rate: float
    mib_per_second: float
    latency_ms: dict[str, float]
    client_busy: float
    error: str = ""


class Meter:
    """Counts of a running load, and its end: after a number of messages, a duration, or a stop.

    Args:
        messages: number of messages to take, None for no limit.
        duration_s: seconds after which nothing more is taken.
        stop: set to end the load early.
    """

    def __init__(self, messages: int | None, duration_s: float, stop: asyncio.Event) -> None:
        self._left = math.inf if messages is None else messages
        self._stop = stop
        self.began = time.perf_counter()
        self.deadline = self.began + duration_s
        self._cpu_began = time.process_time()
        self._ended: float | None = None
        self.latencies = Latencies()
        self.messages = self.failed = self.size = 0
        self.error = ""

    def take(self, count: int = 1) -> int:
        """Return how many messages may be sent or pulled next, up to ``count``; 0 at the end of the load."""
        if self._stop.is_set() or time.perf_counter() >= self.deadline:
            return 0
        taken = int(min(count, self._left))
        self._left -= taken
        return taken

    def give_back(self, count: int) -> None:
        """Return what was taken and neither sent nor pulled."""
        self._left += count

    def add(self, messages: int, size: int, seconds: float) -> None:
        """Count messages of one request, the bytes of their bodies and the time that it took."""
        self.messages += messages
        self.size += size
        self.latencies.add(seconds)

    def fail(self, messages: int, error: object, seconds: float | None = None) -> None:
        """Count messages that failed, and the time that their request took; the first error is kept."""
        self.failed += messages
        if seconds is not None:
            # Latencies without failures would be best where the brokers are worst.
            self.latencies.add(seconds)
        self.error = self.error or str(error)

    def end(self) -> None:
        """Keep this moment as the end of the load, if it has none yet."""
        self._ended = self._ended or time.perf_counter()

    def outcome(self, load: Load) -> Outcome:
        """Return the figures."""
        self.end()
        assert self._ended is not None
        seconds = max(self._ended - self.began, 1e-6)
        return Outcome(
            load,
            self.messages,
            self.failed,
            round(seconds, 3),
            round(self.messages / seconds, 1),
            round(self.size / seconds / _MIB, 3),
            self.latencies.figures(),
            round((time.process_time() - self._cpu_began) / seconds, 2),
            self.error,
        )


class LoadSettings(msgspec.Struct, frozen=True):
    """Settings of all loads.

    Attributes:
        topic: topic of the messages.
        tasks: sends at a time in ``sync`` and ``batch``.
        in_flight: sends at a time in ``async``.
        size: bytes of a body, at least ``LEAST_SIZE``.
        batch: messages of a batch.
        rate: sends a second in ``e2e``.
        messages: number of messages after which a load ends, None for no such limit.
        duration_s: seconds after which a load ends.
    """

    topic: str
    tasks: int
    in_flight: int
    size: int
    batch: int
    rate: float
    messages: int | None
    duration_s: float


class Loads:
    """Runs loads one after the other on one client.

    Args:
        client: a started client.
        producer: a started producer on it, which compresses nothing.
        settings: size and limits.
        stop: set to end the running load and to skip those after it.
    """

    def __init__(self, client: ClientInstance, producer: Producer, settings: LoadSettings, stop: asyncio.Event) -> None:
        self._client = client
        self._producer = producer
        self._settings = settings
        self._stop = stop
        self._run_id = os.urandom(8)
        self._body = os.urandom(settings.size)
        self._pulls = PullAPIWrapper(client, GROUP, _PULL_LIMIT_S)
        self._subscription = subscription_data(settings.topic, MessageSelector.by_tag("*"), SystemClock().time_ms())

    async def offsets(self, *, ends: bool) -> dict[MessageQueue, int]:
        """Return the offset after the last message of each queue, or with ``ends=False`` that of the first one.

        Raises:
            RocketBrokerError: no route, or a broker refused or does not answer.
        """
        queues = (await self._client.routes.route(self._settings.topic)).subscribe_queues
        ask = self._client.offsets.max_offset if ends else self._client.offsets.min_offset
        return dict(zip(queues, await asyncio.gather(*map(ask, queues)), strict=True))

    async def run(self, load: Load, starts: Mapping[MessageQueue, int]) -> Outcome:
        """Run one load to its end; errors are a part of the outcome.

        Args:
            load: the load.
            starts: offsets from which ``consume`` reads up to the present ends.
        """
        try:
            return await self._run(load, starts)
        except RocketBrokerError as error:
            meter = self._meter()
            meter.fail(0, error)
            return meter.outcome(load)

    async def _run(self, load: Load, starts: Mapping[MessageQueue, int]) -> Outcome:
        settings = self._settings
        if load is Load.SYNC:
            return await self._send(load, settings.tasks, 1)
        if load is Load.ASYNC:
            return await self._send(load, settings.in_flight, 1)
        if load is Load.BATCH:
            return await self._send(load, settings.tasks, settings.batch)
        if load is Load.CONSUME:
            return await self._consume(starts)
        return await self._end_to_end()

    def _meter(self) -> Meter:
        return Meter(self._settings.messages, self._settings.duration_s, self._stop)

    async def _send(self, load: Load, tasks: int, count: int) -> Outcome:
        meter = self._meter()
        message = Message(self._settings.topic, self._body)

        async def work() -> None:
            while taken := meter.take(count):
                began = time.perf_counter()
                try:
                    if count == 1:
                        await self._producer.send(message)
                    else:
                        await self._producer.send_batch([message] * taken)
                except RocketBrokerError as error:
                    meter.fail(taken, error, time.perf_counter() - began)
                    await asyncio.sleep(_PAUSE_S)
                else:
                    meter.add(taken, taken * len(self._body), time.perf_counter() - began)

        await asyncio.gather(*(work() for _ in range(tasks)))
        return meter.outcome(load)

    async def _pull(self, queue: MessageQueue, offset: int, most: int, held_s: float) -> PullResult:
        return await self._pulls.pull(queue, offset, most, self._subscription, held_s)

    async def _consume(self, starts: Mapping[MessageQueue, int]) -> Outcome:
        ends = await self.offsets(ends=True)
        meter = self._meter()

        async def read(queue: MessageQueue, offset: int) -> None:
            while offset < ends[queue] and (most := meter.take(min(_PULLED, ends[queue] - offset))):
                began = time.perf_counter()
                try:
                    result = await self._pull(queue, offset, most, 0)
                except RocketBrokerError as error:
                    meter.give_back(most)
                    meter.fail(0, error)
                    await asyncio.sleep(_PAUSE_S)
                    continue
                found = result.messages
                meter.give_back(max(most - len(found), 0))
                if found:
                    meter.add(len(found), sum(len(each.body) for each in found), time.perf_counter() - began)
                elif result.pull_status is PullStatus.NO_NEW_MSG:
                    return  # deleted since, or a slave that is behind
                offset = max(result.next_begin_offset, offset + (result.damage != ""))

        await asyncio.gather(*(read(queue, starts.get(queue, 0)) for queue in ends))
        return meter.outcome(Load.CONSUME)

    async def _end_to_end(self) -> Outcome:
        """Send at a constant rate, however long each send takes, and time each message until a pull has it."""
        ends = await self.offsets(ends=True)
        meter, receivers, senders = self._meter(), TaskOwner("bench-receive"), TaskOwner("bench-send")
        sent = 0
        arrived, ended = asyncio.Event(), asyncio.Event()

        async def receive(queue: MessageQueue, offset: int) -> None:
            while not ended.is_set():
                try:
                    result = await self._pull(queue, offset, _PULLED, _HELD_S)
                except RocketBrokerError as error:
                    meter.fail(0, error)
                    await asyncio.sleep(_PAUSE_S)
                    continue
                now = time.monotonic_ns()
                offset = max(result.next_begin_offset, offset + (result.damage != ""))
                for each in result.messages:
                    if each.body[: len(self._run_id)] == self._run_id:
                        meter.add(1, len(each.body), (now - _STAMP.unpack_from(each.body)[1]) / 1e9)
                        arrived.set()

        async def send() -> None:
            nonlocal sent
            stamp = _STAMP.pack(self._run_id, time.monotonic_ns())
            try:
                await self._producer.send(Message(self._settings.topic, stamp + self._body[len(stamp) :]))
            except RocketBrokerError as error:
                meter.fail(1, error)
            else:
                sent += 1

        try:
            for queue, offset in ends.items():
                receivers.start(receive(queue, offset), f"{queue.broker_name}-{queue.queue_id}")
            running = await self._start_at_rate(meter, lambda: senders.start(send(), "one"))
            meter.end()
            await asyncio.gather(*running)
            try:
                async with asyncio.timeout(_LATE_S):
                    while meter.messages < sent:
                        arrived.clear()
                        await arrived.wait()
            except TimeoutError:
                missing = sent - meter.messages
                meter.fail(missing, f"{missing} messages were not delivered within {_LATE_S:g} s after the last send")
        finally:
            ended.set()
            await stop_all(receivers.stop, senders.stop)
        return meter.outcome(Load.E2E)

    async def _start_at_rate(self, meter: Meter, start: Callable[[], asyncio.Task[None]]) -> list[asyncio.Task[None]]:
        """Start sends at the rate of the settings until the load ends; return those that still run."""
        number = 0
        running: list[asyncio.Task[None]] = []
        while meter.take():
            running = [*(each for each in running if not each.done()), start()]
            number += 1
            await asyncio.sleep(max(meter.began + number / self._settings.rate - time.perf_counter(), 0))
        return running
