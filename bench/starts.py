"""Starts of servers: to a first message, after a kill, and on a big store."""

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench.harness import BenchError, Folder, JsonFile, Report, Row, temporary, turns
from bench.load import drain_store, prepare
from bench.measure import drop_from_page_cache
from bench.servers import OUR_SIDE, Side, broker, java_side, log_end, running
from bench.stores import NUMBER, Filled, Messages, body_of, check_room, count_for, fill
from rocketbroker.client import Message, Producer, PushConsumer
from rocketbroker.testing import RocketMQServer

_TOPIC = "First"
_MESSAGE_LIMIT_S = 120
_MOST_ROUNDS_OF_PROCESSES = 3
_HEAP = "1g"
_START_LIMIT_S = 600
TIMES = {"ready": ("ready ms", ",.0f"), "first": ("first message ms", ",.0f"), "stopped": ("stopped ms", ",.0f")}


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


def timed(begun: float, ready: float, first: float, delivered: float) -> dict[str, float]:
    """Return the figures of a round in ms, given its points in time and the seconds to the first message."""
    stopped = time.perf_counter() - delivered
    return {"ready": (ready - begun) * 1e3, "first": first * 1e3, "stopped": stopped * 1e3}


async def embedded() -> dict[str, float]:
    """Run one round with a server for tests in this process."""
    begun = time.perf_counter()
    async with RocketMQServer() as server:
        ready = time.perf_counter()
        first = await deliver(server.namesrv_addr)
        delivered = time.perf_counter()
    return timed(begun, ready, first, delivered)


def processes(side: Side) -> dict[str, float]:
    """Run one round with two processes."""
    begun = time.perf_counter()
    with running(side) as servers:
        ready = time.perf_counter()
        first = asyncio.run(deliver(servers.namesrv))
        delivered = time.perf_counter()
    return timed(begun, ready, first, delivered)


def first_message(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; processes get 3 at most.")] = 20,
    java: Annotated[bool, typer.Option("--java", help="Start Apache's name server and broker as well.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Measure the start of servers, the first message and the stop."""
    report = Report(rounds)
    makers: dict[str, Callable[[], dict[str, float]]] = {
        "RocketMQServer, in a test": lambda: asyncio.run(embedded()),
        "mqnamesrv and mqbroker": lambda: processes(OUR_SIDE),
    }
    if java:
        makers["Apache RocketMQ 5.5.0, two JVMs"] = lambda: processes(java_side(_HEAP))
    for number in range(1, rounds + 1):
        for name, run_once in makers.items():
            if number <= _MOST_ROUNDS_OF_PROCESSES or name.startswith("RocketMQServer"):
                report.add(Row(number, name, "first", run_once()))
    print("\n" + report.table(["servers"], TIMES))
    report.end(json_file)


def starts(
    store: Filled, home: Path, rounds: int, *, cold: bool, kill: Callable[[], None] = lambda: None
) -> Iterator[Row]:
    """Start our broker repeatedly on a store and yield each start; ``kill`` is called before it.

    Raises:
        BenchError: the broker did not start, or the log has the wrong end.
    """
    for number in range(1, rounds + 1):
        kill()
        if cold:
            drop_from_page_cache(store.root)
        with broker(home, store=store.root, limit=_START_LIMIT_S) as found:
            end = log_end(found.address)
            if end != store.end:
                raise BenchError(f"the log of {store.root} ends at {end} instead of {store.end}")
            notes = [line for line in found.out.read_text().splitlines() if "store opened" in line]
        print(notes[-1] if notes else "the broker printed no report")
        figures = {"s": found.seconds, "cpu": found.cpu_seconds}
        yield Row(number, "from the disk" if cold else "from the page cache", "start", figures)


_STARTS = {"s": ("s", ".2f"), "cpu": ("CPU s", ".2f")}


def recovery(
    mib: Annotated[int, typer.Option(min=1, help="MiB of messages in the log.")] = 1024,
    body: Annotated[int, typer.Option(min=9, max=1 << 20, help="Bytes of each body.")] = 1024,
    known: Annotated[float, typer.Option(min=0, max=1, help="Share of the messages before the checkpoint.")] = 0.5,
    rounds: Annotated[int, typer.Option(min=1, help="Number of starts.")] = 3,
    index_known: Annotated[
        bool, typer.Option(help="Let the checkpoint cover the index as well as log and queues.")
    ] = True,
    cold: Annotated[bool, typer.Option("--cold", help="Read the files from the disk at each start.")] = False,
    folder: Folder = None,
) -> None:
    """Measure starts after a kill. Exit with status 1 if the broker does not start with all messages."""
    messages = Messages(body_of(body))
    count = count_for(mib << 20, messages)
    with temporary(folder) as home:
        check_room(home, count, messages)
        report = Report(rounds, mib=mib, messages=count, known=known, index_known=index_known)
        store = fill(home / "store", count, messages)
        kill = partial(store.mark_crashed, known, index_known=index_known)
        for row in starts(store, home, rounds, cold=cold, kill=kill):
            report.add(row)
    print("\n" + report.table(["start after a kill"], _STARTS))
    report.end()


BIG = Messages(NUMBER, b"KEYS\x01k" + NUMBER + b"\x02", ("Big",), queues=8, per_ms=50)
MIDDLE, ALONE = "the middle of the big store", "a store of these messages alone"


def drains(big: Filled, home: Path, count: int, rounds: int) -> Iterator[Row]:
    """Measure Apache's push consumer on the middle of the big store and on a store of so many messages, in turn."""
    alone = fill(home / "alone", count, BIG)
    middle = (big.count - count) // BIG.queues // 2
    for number, (name, store, begin) in turns(rounds, [(MIDDLE, big, middle), (ALONE, alone, 0)]):
        offsets = [begin] * BIG.queues
        rate = drain_store(store.root, home, BIG.topics[0], f"bench_drain_{number}", offsets, count)
        yield Row(number, name, "drain", {"rate": rate})


def big_store(
    messages: Annotated[int, typer.Option(min=1000, help="Messages in the store.")] = 100_000_000,
    pulled: Annotated[int, typer.Option("--pull", min=BIG.queues, help="Messages to consume with --java.")] = 400_000,
    rounds: Annotated[int, typer.Option(min=1, help="Starts, without the first, and drains.")] = 5,
    java: Annotated[bool, typer.Option("--java", help="Have Apache's push consumer drain its middle as well.")] = False,
    folder: Folder = None,
) -> None:
    """Measure a big store. Exit with status 1 if it does not open or returns the wrong messages."""
    with temporary(folder) as home:
        check_room(home, messages + pulled, BIG)
        report = Report(rounds, messages=messages, pull=pulled)
        if java:
            prepare()
        big = fill(home / "store", messages, BIG)
        for count, cold in ((1, True), (rounds, False)):
            for row in starts(big, home, count, cold=cold):
                report.add(row)
        for row in drains(big, home, pulled, rounds) if java else ():
            report.add(row)
    print("\n" + report.table(["store"], _STARTS | {"rate": ("drained messages/s", ",.0f")}))
    report.end()
