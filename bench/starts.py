"""Starts of servers: to a first message, and after a kill."""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from bench.harness import BenchError, Folder, JsonFile, commit, heading
from bench.measure import drop_from_page_cache, room
from bench.raw_load import log_end
from bench.servers import Side, java_side, opened, our_side, running
from bench.store_generator import NUMBER, Messages, StoreGenerator
from rocketbroker.client import Message, Producer, PushConsumer
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.testing import RocketMQServer

_TOPIC = "First"
_MESSAGE_LIMIT_S = 120
# Rounds of servers that start in seconds.
_MOST_ROUNDS_OF_PROCESSES = 3
_HEAP = "1g"


@dataclass(frozen=True, slots=True)
class Times:
    """Times of one round in ms: until the servers are ready, until the message is there, and of the stop."""

    ready: float
    first: float
    stopped: float


async def deliver(namesrv: str) -> float:
    """Start a producer and a push consumer; return the seconds until the first message has arrived."""
    begun = time.perf_counter()
    async with (
        asyncio.timeout(_MESSAGE_LIMIT_S),
        Producer("PG_First", namesrv) as producer,
        PushConsumer("CG_First", namesrv) as consumer,
    ):
        await consumer.subscribe(_TOPIC)
        await producer.send(Message(_TOPIC, b"first"))
        async for _ in consumer:
            taken = time.perf_counter() - begun
            break
        return taken


async def embedded() -> Times:
    """Run one round with a server for tests in this process."""
    begun = time.perf_counter()
    async with RocketMQServer() as server:
        ready = time.perf_counter()
        first = await deliver(server.namesrv_addr)
        ended = time.perf_counter()
    return _times(ready - begun, first, time.perf_counter() - ended)


def processes(side: Side) -> Times:
    """Run one round with two processes."""
    begun = time.perf_counter()
    with running(side, None, ()) as servers:
        ready = time.perf_counter()
        first = asyncio.run(deliver(servers.namesrv))
        ended = time.perf_counter()
    return _times(ready - begun, first, time.perf_counter() - ended)


def _times(*seconds: float) -> Times:
    return Times(*(each * 1000 for each in seconds))


def times_table(found: dict[str, list[Times]]) -> str:
    """Return the medians and the longest times as a Markdown times_table."""
    lines = ["| servers | rounds | ready ms | first message ms | stopped ms |", "|---|---:|---:|---:|---:|"]
    for name, rounds in found.items():
        cells = [
            f"{statistics.median(values):,.0f} (longest {max(values):,.0f})"
            for values in ([getattr(times, field) for times in rounds] for field in Times.__slots__)
        ]
        lines.append(f"| {name} | {len(rounds)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def first_message(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; processes get 3 at most.")] = 20,
    java: Annotated[bool, typer.Option("--java", help="Start Apache's name server and broker as well.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Measure the start of servers, the first message and the stop."""
    found: dict[str, list[Times]] = {}
    run = heading(rounds=rounds)
    makers: dict[str, Callable[[], Times]] = {"mqnamesrv and mqbroker": lambda: processes(our_side())}
    if java:
        makers["Apache RocketMQ 5.5.0, two JVMs"] = lambda: processes(java_side(_HEAP))
    found["RocketMQServer, in a test"] = [asyncio.run(embedded()) for _ in range(rounds)]
    for name, run_once in makers.items():
        found[name] = [run_once() for _ in range(min(rounds, _MOST_ROUNDS_OF_PROCESSES))]
    print("\n" + times_table(found))
    if json_file is not None:
        rows = {name: [asdict(times) for times in rounds_of] for name, rounds_of in found.items()}
        json_file.write_text(json.dumps({"run": run, "rows": rows}, indent=1))


TOPICS = ("BenchA", "BenchB", "BenchC", "BenchD")
QUEUES = 4
PER_MS = 20
# Properties that the Java client and the broker set on a message with one key and one tag.
PROPERTIES = (
    b"KEYS\x01order-" + NUMBER + b"\x02UNIQ_KEY\x017F00000112671B28CDFA000" + NUMBER
    + b"\x02WAIT\x01true\x02TAGS\x01T\x02"
    b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
)  # fmt: skip
_START_LIMIT = 600  # seconds after which a start counts as failed


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the measurement; ``known`` is the share of the messages before the checkpoint."""

    rounds: int
    known: float
    index_known: bool
    cold: bool


@dataclass(frozen=True, slots=True)
class Start:
    """One start: wall and CPU seconds from exec to the first answer, and the broker's own report."""

    seconds: float
    cpu_seconds: float
    report: str


def body_of(size: int) -> bytes:
    """Return a body of ``size`` bytes, at least 9, that begins with the message's number."""
    return (NUMBER + b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size]


def generator_of(root: Path, log_bytes: int, body: int) -> StoreGenerator:
    """Return the generator of a store with about ``log_bytes`` of messages, stored in the last minutes."""
    config = MessageStoreConfig(store_path_root_dir=str(root))
    count = _count(config, log_bytes, body)
    first = SystemClock().time_ms() - count // PER_MS - 60_000
    return StoreGenerator(config, _shape(body, first), count)


def _shape(body: int, first_timestamp: int) -> Messages:
    return Messages(TOPICS, QUEUES, body_of(body), PROPERTIES, first_timestamp, PER_MS)


def _count(config: MessageStoreConfig, log_bytes: int, body: int) -> int:
    one = StoreGenerator(config, _shape(body, 0), 1)
    files, rest = divmod(log_bytes, config.mapped_file_size_commit_log)
    return max(files * one.per_file + min(rest // one.template.size, one.per_file), 1)


def starts(made: StoreGenerator, home: Path, options: Options) -> Iterator[Start]:
    """Start the broker repeatedly on the store as left by a kill, and yield each start.

    Raises:
        BenchError: the broker did not start, or the log has the wrong end.
    """
    root = Path(made.config.store_path_root_dir)
    for _ in range(options.rounds):
        made.mark_crashed(options.known, index_known=options.index_known)
        if options.cold:
            drop_from_page_cache(root)
        with opened(root, home, limit=_START_LIMIT) as broker:
            _check_end(made, broker.address)
            found = [line for line in broker.out.read_text().splitlines() if "store opened" in line]
        yield Start(broker.seconds, broker.cpu_seconds, found[-1] if found else "the broker printed no report")


def _check_end(made: StoreGenerator, address: str) -> None:
    found = log_end(address)
    if found != made.end:
        raise BenchError(f"the log ends at {found} after recovery instead of {made.end}")


def recovery(
    mib: Annotated[int, typer.Option(min=1, help="MiB of messages in the log.")] = 1024,
    body: Annotated[int, typer.Option(min=9, max=4 << 20, help="Bytes of each body.")] = 1024,
    known: Annotated[float, typer.Option(min=0, max=1, help="Share of the messages before the checkpoint.")] = 0.5,
    rounds: Annotated[int, typer.Option(min=1, help="Number of starts.")] = 3,
    index_known: Annotated[
        bool, typer.Option(help="Let the checkpoint cover the index as well as log and queues.")
    ] = True,
    cold: Annotated[bool, typer.Option("--cold", help="Read the files from the disk at each start.")] = False,
    folder: Folder = None,
) -> None:
    """Measure starts after a kill. Exit with status 1 if the broker does not start with all messages."""
    with TemporaryDirectory(prefix="rocketbroker-recovery-", dir=folder) as made_in:
        home = Path(made_in)
        made = generator_of(home / "store", mib << 20, body)
        if made.disk_bytes > room(home):
            need = f"no room for {made.disk_bytes >> 20:,} MiB; free some space or use --dir"
            print(f"recovery: {home} has {need}", file=sys.stderr)
            raise typer.Exit(1)
        made.write()
        print(
            f"commit {commit()}, {made.count:,} messages of {made.template.size} B in {mib:,} MiB, "
            f"{known:.0%} before the checkpoint, index {'included' if index_known else 'not included'}"
        )
        seconds = []
        for start in starts(made, home, Options(rounds, known, index_known, cold)):
            seconds.append(start.seconds)
            print(f"start {start.seconds:.2f} s, CPU {start.cpu_seconds:.2f} s: {start.report}", flush=True)
    print(f"\nstart after kill, median of {rounds}: {median(seconds):.2f} s (least {min(seconds):.2f})")
