"""Time from nothing to a first message: a server for tests, our servers as processes, and Apache's two JVMs.

    bench/run first_message [--rounds 20] [--java] [--json FILE]

Each round starts a name server and a broker, delivers one message of a new topic to a push consumer of a new group by
our client, and stops them. bench/README.md explains each figure.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.failures import failures_reported
from bench.machine import heading
from bench.servers import Side, java_side, our_side, running
from rocketbroker.client import Message, Producer, PushConsumer
from rocketbroker.testing import RocketMQServer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_TOPIC = "First"
_LIMIT_S = 120
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
        asyncio.timeout(_LIMIT_S),
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


def table(found: dict[str, list[Times]]) -> str:
    """Return the medians and the longest times as a Markdown table."""
    lines = ["| servers | rounds | ready ms | first message ms | stopped ms |", "|---|---:|---:|---:|---:|"]
    for name, rounds in found.items():
        cells = [
            f"{statistics.median(values):,.0f} (longest {max(values):,.0f})"
            for values in ([getattr(times, field) for times in rounds] for field in Times.__slots__)
        ]
        lines.append(f"| {name} | {len(rounds)} | {' | '.join(cells)} |")
    return "\n".join(lines)


@app.command()
def first_message(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; processes get 3 at most.")] = 20,
    java: Annotated[bool, typer.Option("--java", help="Start Apache's name server and broker as well.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", dir_okay=False, help="Write all figures there.")] = None,
) -> None:
    """Measure the start of servers, the first message and the stop."""
    found: dict[str, list[Times]] = {}
    with failures_reported("first_message"):
        run = heading({"rounds": rounds})
        print("\n".join(f"{name}: {value}" for name, value in run.items()), flush=True)
        makers: dict[str, Callable[[], Times]] = {"mqnamesrv and mqbroker": lambda: processes(our_side())}
        if java:
            makers["Apache RocketMQ 5.5.0, two JVMs"] = lambda: processes(java_side(_HEAP))
        found["RocketMQServer, in a test"] = [asyncio.run(embedded()) for _ in range(rounds)]
        for name, run_once in makers.items():
            found[name] = [run_once() for _ in range(min(rounds, _MOST_ROUNDS_OF_PROCESSES))]
    print("\n" + table(found))
    if json_file is not None:
        rows = {name: [asdict(times) for times in rounds_of] for name, rounds_of in found.items()}
        json_file.write_text(json.dumps({"run": run, "rows": rows}, indent=1))


def main() -> int:
    """Run the command and return its exit status."""
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
