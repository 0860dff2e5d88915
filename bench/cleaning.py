"""Latency of sends while expired CommitLog files are removed.

    bench/run cleaning [--segments 5] [--mib 1024] [--rate 2000] [--size 1024] [--seconds 5] [--set KEY=VALUE]

bench/README.md describes the steps.
"""

import asyncio
import json
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated

import typer

from bench import raw_load
from bench.harness import BenchError, Folder, Properties, commit
from bench.measure import room
from bench.raw_load import frame
from bench.servers import opened
from bench.store_generator import NUMBER, Messages, StoreGenerator
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import MessageStoreConfig

_TICK_S = 0.002
_ANSWER_LIMIT = 30  # seconds
_LENGTH = 4
_HEAD = 8


@dataclass(frozen=True, slots=True)
class Latencies:
    """Number of sends in a period, and their latencies in ms."""

    sends: int
    p50: float
    p99: float
    longest: float

    def __str__(self) -> str:
        return f"{self.sends:,} sends, p50 {self.p50:.2f} ms, p99 {self.p99:.2f} ms, longest {self.longest:.2f} ms"


def latencies(seconds: Sequence[float]) -> Latencies:
    """Return the figures of at least two sends, given in seconds."""
    p99 = quantiles(seconds, n=100, method="inclusive")[98]
    return Latencies(len(seconds), median(seconds) * 1000, p99 * 1000, max(seconds) * 1000)


class SteadySender(asyncio.Protocol):
    """Sender to one topic, which the first message creates.

    Args:
        topic: the topic.
        size: bytes of each body.
        rate: messages a second.

    Attributes:
        taken: send time and latency of each message, in seconds.
    """

    def __init__(self, topic: str, size: int, rate: int) -> None:
        self._topic = topic
        self._body = b"x" * size
        self._rate = rate
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._sent_at: dict[int, float] = {}
        self._next = 0
        self._error = ""
        self.taken: list[tuple[float, float]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the lost connection as an error."""
        self._error = self._error or f"the broker closed the connection: {exc}"

    def data_received(self, data: bytes) -> None:
        """Process the received answers."""
        now = perf_counter()
        received = self._received + data
        position = 0
        while len(received) - position >= _HEAD:
            length, head = struct.unpack_from(">II", received, position)
            if len(received) - position < _LENGTH + length:
                break
            self._take(received[position + _HEAD : position + _HEAD + (head & 0xFFFFFF)], now)
            position += _LENGTH + length
        self._received = received[position:]

    def _take(self, header: bytes, now: float) -> None:
        answer = json.loads(header)
        sent_at = self._sent_at.pop(answer["opaque"])
        if answer["code"] != ResponseCode.SUCCESS:
            self._error = self._error or f"the broker answered {answer['code']}: {answer.get('remark')}"
        self.taken.append((sent_at, now - sent_at))

    async def run(self, until: Callable[[], bool]) -> list[float]:
        """Send until a condition holds, wait for the answers and return their latencies in seconds.

        Raises:
            BenchError: a message was rejected, or not answered within 30 s.
        """
        first, begun, done = self._next, perf_counter(), len(self.taken)
        while not until() and not self._error:
            await asyncio.sleep(_TICK_S)
            due = first + int((perf_counter() - begun) * self._rate)
            self._send(due - self._next)
        deadline = perf_counter() + _ANSWER_LIMIT
        while self._sent_at and not self._error:
            if perf_counter() > deadline:
                self._error = f"{len(self._sent_at)} sends were not answered within {_ANSWER_LIMIT} s"
            await asyncio.sleep(_TICK_S)
        if self._error:
            raise BenchError(self._error)
        return [latency for _, latency in self.taken[done:]]

    def _send(self, count: int) -> None:
        numbers = range(self._next, self._next + count)
        if not numbers:
            return
        assert self._transport is not None
        data = b"".join(map(self._frame, numbers))
        self._next += count
        self._sent_at.update(dict.fromkeys(numbers, perf_counter()))
        self._transport.write(data)

    def _frame(self, number: int) -> bytes:
        fields = {
            "a": "bench_producer", "b": self._topic, "c": "TBW102", "d": _QUEUES,
            "e": number % _QUEUES, "f": 0, "g": 0, "h": 0, "i": "", "j": 0, "k": "false", "m": "false",
            "n": "broker-a",
        }  # fmt: skip
        return frame(RequestCode.SEND_MESSAGE_V2, fields, number, self._body)


TOPIC = "Cleaning"
OLD_TOPICS = ("OldA", "OldB")
_QUEUES = 4
# Long messages: a segment holds few of them and is written fast.
_OLD_BODY = NUMBER + b"x" * 16_000
_OLD_PROPERTIES = b"KEYS\x01k" + NUMBER + b"\x02"
_AGE_HOURS = 1000
_REMOVAL_LIMIT = 120  # seconds
_AFTER_REMOVAL = 1  # seconds in which blocks of the last file may still be given back
_BEFORE, _DURING, _AFTER = "before", "while files are removed", "after"

Figures = dict[str, Latencies]


@dataclass(frozen=True, slots=True)
class Options:
    """Number and size (bytes) of the removed files; ``seconds`` of sending before and after the removal."""

    segments: int
    file_size: int
    seconds: int
    properties: Sequence[str]


def generator_of(root: Path, segments: int, file_size: int) -> StoreGenerator:
    """Return the generator of a store with ``segments`` full log files and a hundred messages in the next one."""
    config = MessageStoreConfig(store_path_root_dir=str(root), mapped_file_size_commit_log=file_size)
    messages = Messages(OLD_TOPICS, _QUEUES, _OLD_BODY, _OLD_PROPERTIES, 0)
    per_file = StoreGenerator(config, messages, 1).per_file
    first = SystemClock().time_ms() - _AGE_HOURS * 3_600_000
    return StoreGenerator(config, replace(messages, first_timestamp=first), segments * per_file + 100)


def expire(made: StoreGenerator, segments: int) -> list[Path]:
    """Set the modification time of the first log files back beyond the retention time; return the files."""
    files = sorted(made.config.commit_log_dir.iterdir())[:segments]
    then = SystemClock().time_ms() / 1000 - _AGE_HOURS * 3600
    for file in files:
        os.utime(file, (then, then))
    return files


def other_hour() -> int:
    """Return an hour outside this run, so that no file is removed before the request."""
    return (time.localtime(SystemClock().time_ms() // 1000).tm_hour + 12) % 24


class Removal:
    """A request to remove files, and its end.

    Args:
        address: the broker's.
        files: the files that must disappear.
    """

    def __init__(self, address: str, files: Sequence[Path]) -> None:
        loop = asyncio.get_running_loop()
        self._files = files
        self._begun = time.monotonic()
        self._gone_at = 0.0
        self._asked = loop.run_in_executor(None, raw_load.ask, address, RequestCode.DELETE_EXPIRED_COMMITLOG)

    def is_over(self) -> bool:
        """Return true if the removal failed, or all files are gone and their blocks had time to be freed."""
        now = time.monotonic()
        if not self._gone_at and not any(file.exists() for file in self._files):
            self._gone_at = now
        refused = self._asked.done() and self._asked.exception() is not None
        late = now > self._begun + _REMOVAL_LIMIT
        return refused or late or (self._gone_at > 0 and now > self._gone_at + _AFTER_REMOVAL)

    async def seconds(self) -> float:
        """Return the seconds until the last file was gone.

        Raises:
            BenchError: the broker rejected the request, or did not remove all files.
        """
        await self._asked
        left = sum(file.exists() for file in self._files)
        if left:
            raise BenchError(f"{left} of {len(self._files)} files are still there after {_REMOVAL_LIMIT} s")
        return self._gone_at - self._begun


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


async def measure(address: str, expired: Sequence[Path], sender: SteadySender, seconds: float) -> tuple[float, Figures]:
    """Send before, during and after the removal; return its duration in seconds and the latencies.

    Raises:
        BenchError: a send failed, or the files were not removed.
    """
    host, _, port = address.rpartition(":")
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: sender, host, int(port))
    try:
        await sender.run(_after(1))  # creates the topic and touches the first pages
        before = await sender.run(_after(seconds))
        removal = Removal(address, expired)
        during = await sender.run(removal.is_over)
        took = await removal.seconds()
        after = await sender.run(_after(seconds))
    finally:
        transport.close()
    return took, {_BEFORE: latencies(before), _DURING: latencies(during), _AFTER: latencies(after)}


def table(figures: Figures) -> Iterator[str]:
    """Yield a Markdown table with the latencies of each phase."""
    yield "| sends | count | p50 ms | p99 ms | longest ms |"
    yield "|---|---:|---:|---:|---:|"
    for when, found in figures.items():
        yield f"| {when} | {found.sends:,} | {found.p50:.2f} | {found.p99:.2f} | {found.longest:.2f} |"


def _run(home: Path, options: Options, sender: SteadySender) -> None:
    made = generator_of(home / "store", options.segments, options.file_size)
    if made.disk_bytes > room(home):
        raise BenchError(f"{home} has no room for {made.disk_bytes >> 20:,} MiB; free some space or use --dir")
    made.write()
    made.mark_clean()
    expired = expire(made, options.segments)
    settings = [
        f"deleteWhen={other_hour():02d}",
        "diskMaxUsedSpaceRatio=95",
        f"mappedFileSizeCommitLog={options.file_size}",
        *options.properties,
    ]
    with opened(home / "store", home, settings) as broker:
        took, figures = asyncio.run(measure(broker.address, expired, sender, options.seconds))
    print(f"{options.segments} files were gone {took:.2f} s after the request\n")
    print("\n".join(table(figures)))


def cleaning(
    segments: Annotated[int, typer.Option(min=1, max=60, help="Files to remove.")] = 5,
    mib: Annotated[int, typer.Option(min=16, max=1024, help="MiB of each file.")] = 1024,
    rate: Annotated[int, typer.Option(min=1, help="Messages a second.")] = 2000,
    size: Annotated[int, typer.Option(min=0, max=1 << 20, help="Bytes of each body.")] = 1024,
    seconds: Annotated[int, typer.Option(min=1, help="Seconds of sending before and after the removal.")] = 5,
    properties: Properties = None,
    folder: Folder = None,
) -> None:
    """Measure sends while files are removed. Exit with status 1 if a send fails or a file stays."""
    print(f"commit {commit()}, {segments} files of {mib:,} MiB, {rate:,} sends a second of {size:,} B", flush=True)
    with TemporaryDirectory(prefix="rocketbroker-cleaning-", dir=folder) as home:
        options = Options(segments, mib << 20, seconds, properties or [])
        _run(Path(home), options, SteadySender(TOPIC, size, rate))
