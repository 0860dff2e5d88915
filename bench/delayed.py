"""Delayed messages: delivery rate of a burst due at once, and lateness under a steady load.

    bench/run delayed [--messages 100000] [--rate 1000] [--seconds 5] [--size 128] [--timer]

The store and the delivering service run in one process, without clients. The first load stores messages of one delay
level (with --timer, of one timer slot), then puts the clock of both forward to the due time. The second load stores
messages at a steady rate under the real clock and compares the store time of each copy with its due time.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from bench.harness import Folder, Report, Row, Size, temporary
from bench.measure import latencies
from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.schedule_message_service import ScheduleMessageService
from rocketbroker.broker.timer.timer_message_store import TimerMessageStore
from rocketbroker.broker.timer.timer_progress import TimerProgress
from rocketbroker.broker.timer.timer_rewrite import HandleScheduleMessage
from rocketbroker.broker.waiting_messages import CopyDelivery
from rocketbroker.codec.message.message_const import parse_delay_levels
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_id import encode_unique_id, host_bytes
from rocketbroker.codec.message.message_properties import encode_properties, get_property
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageStatus
from rocketbroker.store.dispatch.commit_log_dispatcher import NoListener
from rocketbroker.store.message_store import MessageStore

TOPIC = "Delayed"
QUEUES = 8
_HOST = host_bytes("127.0.0.1", 10911)
_DELAY_MS, _SHORT_LEVEL = 1000, 1
# Delay of the burst: long enough that all messages are stored before the first is due.
_LONG_MS, _LONG_LEVEL = 7_200_000, 18
_TICK_S = 0.005
_WATCH_S = 0.001
_LIMIT_S = 60
_COLUMNS = {
    "rate": ("due at once, messages/s", ",.0f"),
    "cpu": ("CPU µs", ".1f"),
    "held": ("event loop blocked ms", ".1f"),
    "p50": ("steady, late by ms, p50", ".0f"),
    "p99": ("p99", ".0f"),
    "longest": ("longest", ".0f"),
    "early": ("early by at most", ".0f"),
}


class ForwardClock(SystemClock):
    """The system's clock, which can be put forward."""

    ahead_ms = 0

    def time_ms(self) -> int:
        """Return the milliseconds since the epoch."""
        return super().time_ms() + self.ahead_ms


@dataclass(frozen=True, slots=True)
class Delayed:
    """A store with both delivery services; ``due`` is the time of each message by its key, in ms."""

    store: MessageStore
    clock: ForwardClock
    rewrite: HandleScheduleMessage
    timer: bool
    due: dict[str, int] = field(default_factory=dict)

    def put(self, number: int, body: bytes, *, long: bool) -> None:
        """Store one message that is due in two hours (``long``) or in a second."""
        delay_ms, level = (_LONG_MS, _LONG_LEVEL) if long else (_DELAY_MS, _SHORT_LEVEL)
        delay = {"TIMER_DELAY_MS": str(delay_ms)} if self.timer else {"DELAY": str(level)}
        key = f"{'long' if long else 'short'}-{number}"
        pairs = {"KEYS": key, "UNIQ_KEY": encode_unique_id(bytes(4), 1, 1, 0, number), "WAIT": "true", **delay}
        message = MessageExtBrokerInner(TOPIC, number % QUEUES, body, encode_properties(pairs), born_host=_HOST)
        self.rewrite(message)
        result = self.store.appender.put_message(message)
        if result.status is not PutMessageStatus.PUT_OK:
            raise RuntimeError(result.reason)
        if self.timer:
            precision_ms = self.store.config.timer_precision_ms
            self.due[key] = int(get_property(message.properties, b"TIMER_OUT_MS") or 0) + precision_ms
        else:
            self.due[key] = result.store_timestamp + delay_ms

    def ends(self) -> dict[int, int]:
        """Return the number of delivered copies by queue."""
        return {queue_id: queue.max_offset for queue_id, queue in self.store.queues.queues_of(TOPIC).items()}

    async def delivered(self, before: dict[int, int], count: int) -> None:
        """Wait until ``count`` more messages are delivered than ``before``."""
        async with asyncio.timeout(_LIMIT_S):
            while sum(self.ends().values()) < sum(before.values()) + count:  # noqa: ASYNC110 - no signal
                await asyncio.sleep(0.001)

    def lateness(self, before: dict[int, int]) -> list[int]:
        """Return the lateness of each copy delivered after ``before`` in ms, ascending."""
        late = []
        for queue_id, queue in self.store.queues.queues_of(TOPIC).items():
            for offset in range(before.get(queue_id, 0), queue.max_offset):
                entry = queue.entry(offset)
                record = self.store.commit_log.record(entry[0]) if entry else None
                if record is None:
                    raise RuntimeError(f"message {offset} of queue {queue_id} cannot be read")
                message = decode_record(record, read_body=False)
                late.append(message.store_timestamp - self.due[message.keys[0]])
        return sorted(late)


@asynccontextmanager
async def delivering(root: Path, *, timer: bool) -> AsyncIterator[Delayed]:
    """Run a store in a folder with both delivery services."""
    clock = ForwardClock()
    config = MessageStoreConfig(store_path_root_dir=str(root / "store"))
    store = MessageStore(config, _HOST, NoListener(), clock)
    levels = parse_delay_levels(config.message_delay_level)
    copies = CopyDelivery(store.appender, store.entry_reader, BrokerStatsManager(clock, "Bench"), _HOST)
    schedule = ScheduleMessageService(
        root / "delayOffset.json", copies, store.queues, store.flusher, delay_levels=levels, clock=clock,
    )  # fmt: skip
    wheel = TimerMessageStore(
        config, copies, store.queues, store.flusher,
        TimerProgress(root / "timerProgress.json", store.flusher), _nothing_failed, clock=clock,
    )  # fmt: skip
    rewrite = HandleScheduleMessage(config, clock, len(levels), lambda: wheel.precision_ms)
    await store.start()
    await schedule.start()
    await wheel.start()
    try:
        yield Delayed(store, clock, rewrite, timer)
    finally:
        await wheel.stop()
        await schedule.stop()
        await store.stop()


async def _nothing_failed() -> set[Path]:
    return set()


async def burst(found: Delayed, messages: int, body: bytes) -> dict[str, float]:
    """Store messages that are all due at once, and measure their delivery and the longest block of the event loop."""
    for number in range(messages):
        found.put(number, body, long=True)
        if number % 64 == 0:
            found.store.appender.dispatch()
            await asyncio.sleep(0)
    found.store.appender.dispatch()
    await asyncio.sleep(1)  # lets the timer take its messages in
    gc.collect()
    gc.freeze()  # as the broker does once it is up
    longest_s = 0.0

    async def watch() -> None:
        nonlocal longest_s
        last = time.perf_counter()
        while True:
            await asyncio.sleep(_WATCH_S)
            now = time.perf_counter()
            longest_s = max(longest_s, now - last - _WATCH_S)
            last = now

    before, watching = found.ends(), asyncio.ensure_future(watch())
    found.clock.ahead_ms += _LONG_MS + 2000
    started, cpu = time.perf_counter(), time.process_time()
    await found.delivered(before, messages)
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    watching.cancel()
    return {"rate": messages / took, "cpu": cpu / messages * 1e6, "held": longest_s * 1e3}


async def steady(found: Delayed, rate: int, seconds: int, body: bytes) -> list[int]:
    """Store messages at a steady rate; return the lateness of each copy in ms, ascending."""
    before, count, begun, sent = found.ends(), rate * seconds, time.monotonic(), 0
    while sent < count:
        wanted = min(count, int((time.monotonic() - begun) * rate))
        for number in range(sent, wanted):
            found.put(number, body, long=False)
        found.store.appender.dispatch()
        sent = max(sent, wanted)
        await asyncio.sleep(_TICK_S)
    await found.delivered(before, count)
    return found.lateness(before)


async def measure(
    root: Path, messages: int, rate: int, seconds: int, size: int, *, timer: bool
) -> tuple[dict[str, float], list[int]]:
    """Run both loads, one after the other, and return their results."""
    body = b"x" * size
    async with delivering(root, timer=timer) as found:
        return await burst(found, messages, body), await steady(found, rate, seconds, body)


def delayed(
    messages: Annotated[int, typer.Option(min=1, help="Messages that are due at once.")] = 100_000,
    rate: Annotated[int, typer.Option(min=1, help="Messages a second of the steady load.")] = 1000,
    seconds: Annotated[int, typer.Option(min=1, help="Length of the steady load in seconds.")] = 5,
    size: Size = 128,
    timer: Annotated[bool, typer.Option("--timer", help="Use timer messages instead of a delay level.")] = False,
    folder: Folder = None,
) -> None:
    """Print the delivery rate and the lateness of delayed messages."""
    report = Report(1, messages=messages, rate=rate, seconds=seconds, size=size)
    with temporary(folder) as root:
        figures, late = asyncio.run(measure(root, messages, rate, seconds, size, timer=timer))
    figures |= latencies(late)._asdict() | {"early": max(0, -late[0])}
    report.add(Row(1, "one slot of the timer" if timer else "a delay level", "delayed", figures))
    print("\n" + report.table(["delayed by"], _COLUMNS))
    report.end()
