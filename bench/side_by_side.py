"""Apache RocketMQ 5.5.0 and ours in turn, under the same load from the official Java client; with or without a slave.

    bench/run side_by_side [--rounds 3] [--seconds 20] [--warm 20] [--only sync64,drain] [--json FILE] ...
    bench/run side_by_side --flush SYNC_FLUSH
    bench/run pop [--rounds 3] [--seconds 20] [--warm 20] [--only pop32,pop1ack,pope2e] [--json FILE] ...
    bench/run replication [--rounds 1] [--seconds 20] [--warm 20] [--mib 1024] [--only loads,catch_up] [--json FILE] ...

bench/README.md explains each figure.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from bench import load
from bench.harness import (
    BenchError,
    Folder,
    Heap,
    JavaOnly,
    JsonFile,
    OursOnly,
    Properties,
    Report,
    Rounds,
    Row,
    Seconds,
    Warm,
    chosen,
    temporary,
    turns,
)  # fmt: skip
from bench.load import POP_SCENARIOS, POP_WARM_UP, SCENARIOS, Loads, Scenario, warm_up
from bench.measure import anonymous_mib, cpu_seconds, probe_fdatasync
from bench.servers import JAVA, OUR_SIDE, OURS, Running, Server, Side, ask, broker, java_side, running, runtime_info
from bench.stores import Messages, body_of, count_for, fill
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.ports import LOOPBACK

FIGURES = (
    "start", "rate", "p50", "p99", "cpu", "slave_cpu", "anon", "slave_anon", "found", "copied", "dispatched",
    "cpu_mib", "slave_cpu_mib",
)  # fmt: skip
HEADS = ("Apache RocketMQ 5.5.0", "ours", "ours / Apache")
# Default loads under SYNC_FLUSH, where each answer waits for the disk.
SYNC_FLUSH_LOADS = "sync64,sync1"
_PROBE_SECONDS = 3


class Flush(StrEnum):
    """``flushDiskType``."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


def measure_side(
    number: int,
    side: Side,
    servers: Running,
    warm_ups: Mapping[str, Scenario],
    wanted: Mapping[str, Scenario],
    seconds: int,
    warm: int,
) -> Iterator[Row]:
    """Measure one round of one side and yield a row for the start and for each load; warm-ups are not recorded."""
    yield Row(number, side.name, "start", {"start": servers.broker.seconds})
    loads = Loads(servers)
    for name, scenario in warm_ups.items() if warm else ():
        _, trouble = loads.run(name, scenario, warm)
        if trouble:
            yield Row(number, side.name, name, {}, trouble)
    for name, scenario in wanted.items():
        yield Row(number, side.name, name, *loads.run(name, scenario, seconds))


def _check_properties(values: list[str] | None) -> list[str]:
    for value in values or []:
        if not value.partition("=")[0].strip() or "=" not in value or "\n" in value:
            raise typer.BadParameter(f"{value!r} is not of the form KEY=VALUE")
    return values or []


def sides(*, java_only: bool, ours_only: bool, heap: str) -> list[Side]:
    """Return the sides to measure, and prepare the driver.

    Raises:
        BenchError: tools are missing.
        JavaError: the driver cannot be made.
    """
    if java_only and ours_only:
        raise typer.BadParameter("--java-only and --ours-only exclude each other")
    load.prepare()
    return ([] if ours_only else [java_side(heap)]) + ([] if java_only else [OUR_SIDE])


def side_by_side(  # noqa: PLR0913, PLR0917 - one argument for each option
    rounds: Rounds = 3,
    seconds: Seconds = 20,
    warm: Warm = 20,
    only: Annotated[str | None, typer.Option(metavar="A,B", help="Loads to run, by name.")] = None,
    flush: Annotated[
        Flush, typer.Option(help=f"flushDiskType; with SYNC_FLUSH the loads are {SYNC_FLUSH_LOADS} unless given.")
    ] = Flush.ASYNC_FLUSH,
    java_only: JavaOnly = False,
    ours_only: OursOnly = False,
    properties: Properties = None,
    heap: Heap = "2g",
    folder: Folder = None,
    json_file: JsonFile = None,
) -> None:
    """Measure Apache RocketMQ 5.5.0 and ours in turn. Exit with status 1 if a send or a delivery fails."""
    synced = flush is Flush.SYNC_FLUSH
    wanted = load.scenarios(only or (SYNC_FLUSH_LOADS if synced else None))
    given = [*_check_properties(properties), *([f"flushDiskType={flush}"] if synced else [])]
    given += [each for scenario in wanted.values() for each in scenario.properties]
    both = sides(java_only=java_only, ours_only=ours_only, heap=heap)
    report = Report(rounds, seconds=seconds, warm=warm, set=" ".join(given) or "-")

    def probe_disk(when: str) -> None:
        if synced:
            report.run[f"disk {when}"] = f"{probe_fdatasync(folder or Path(tempfile.gettempdir()), _PROBE_SECONDS)}"
            print(f"disk {when}: bare fdatasync: {report.run[f'disk {when}']}", flush=True)

    probe_disk("before")
    for number, side in turns(rounds, both):
        with running(side, folder, given) as servers:
            for row in measure_side(number, side, servers, warm_up(wanted), wanted, seconds, warm):
                report.add(row)
    probe_disk("after")
    print("\n" + report.comparison(JAVA, OURS, FIGURES, HEADS))
    report.end(json_file)


def pop(  # noqa: PLR0913, PLR0917 - one argument for each option
    rounds: Rounds = 3,
    seconds: Seconds = 20,
    warm: Warm = 20,
    only: Annotated[str | None, typer.Option(metavar="A,B", help="Loads to run, by name.")] = None,
    java_only: JavaOnly = False,
    ours_only: OursOnly = False,
    properties: Properties = None,
    heap: Heap = "2g",
    folder: Folder = None,
    json_file: JsonFile = None,
) -> None:
    """Measure POP at Apache RocketMQ 5.5.0 and ours in turn. Exit with status 1 if a send or a delivery fails."""
    wanted, given = load.scenarios(only, POP_SCENARIOS), _check_properties(properties)
    both = sides(java_only=java_only, ours_only=ours_only, heap=heap)
    report = Report(rounds, seconds=seconds, warm=warm, set=" ".join(given) or "-")
    for number, side in turns(rounds, both):
        with running(side, folder, given) as servers:
            for row in measure_side(number, side, servers, POP_WARM_UP, wanted, seconds, warm):
                report.add(row)
    print("\n" + report.comparison(JAVA, OURS, FIGURES, HEADS))
    report.end(json_file)


LOADS, CATCH_UP = "loads", "catch_up"
_ALONE = "alone_"
_SENT = {name: SCENARIOS[name] for name in ("sync64", "sync1")}
# Apache's slave ignores haMasterAddress when it starts.
_HA_ADDRESS = [f"brokerIP2={LOOPBACK}"]
_MASTER = [*_HA_ADDRESS, "brokerRole=SYNC_MASTER", "inSyncReplicas=2"]
_SLAVE = ["brokerRole=SLAVE", "brokerId=1"]
_LIMIT = 300  # seconds
_POLL = 0.01
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Progress:
    """End of a broker's log, and of the part that is dispatched."""

    end: int
    dispatched: int


class Sample(NamedTuple):
    """Progress and CPU seconds of a slave at a time."""

    at: float
    progress: Progress
    cpu: float


def progress_of(address: str) -> Progress:
    """Return how far a broker is."""
    found = runtime_info(address)
    end = int(found["commitLogMaxOffset"])
    return Progress(end, end - int(found["dispatchBehindBytes"]))


def _in_sync(master: Server) -> bool:
    return int(json.loads(ask(master.address, RequestCode.GET_BROKER_HA_STATUS).body)["inSyncSlaveNums"]) > 0


def _wait_until(condition: Callable[[], bool], why_not: str) -> None:
    deadline = time.monotonic() + _LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"{why_not} after {_LIMIT} s")
        time.sleep(_POLL)


def _sends(number: int, side: Side, loads: Loads, prefix: str, seconds: int, warm: int) -> Iterator[Row]:
    """Run the loads, after a warm-up, and yield a row for each."""
    if warm:
        loads.run("warm_sync", warm_up([])["warm_sync"], warm)
    for name, scenario in _SENT.items():
        yield Row(number, side.name, prefix + name, *loads.run(name, scenario, seconds))


def measure_loads(number: int, side: Side, folder: Path | None, seconds: int, warm: int) -> Iterator[Row]:
    """Measure the loads on a master alone, then on a synchronous master with its slave."""
    with running(side, folder) as servers:
        yield from _sends(number, side, Loads(servers), _ALONE, seconds, warm)
    with (
        running(side, folder, _MASTER) as servers,
        broker(servers.home, _SLAVE, side=side, namesrv=servers.namesrv, name="slave") as slave,
    ):
        _wait_until(lambda: _in_sync(servers.broker), "the slave is not in sync")
        yield from _sends(number, side, Loads(servers, slave), "", seconds, warm)


def measure_catch_up(number: int, side: Side, folder: Path | None, mib: int) -> Row:
    """Measure an empty slave that copies the log of its master."""
    messages = Messages(body_of(1024))
    with temporary(folder) as place:
        # All in one file: an empty slave begins at the last one.
        made = fill(place / "store", count_for(mib << 20, messages), messages)
        with running(side, folder, _HA_ADDRESS, store=made.root) as servers:
            master_before = cpu_seconds(servers.broker.pid)
            started = Sample(time.perf_counter(), Progress(0, 0), 0.0)
            with broker(servers.home, _SLAVE, side=side, namesrv=servers.namesrv, name="slave") as slave:
                figures = catch_up(made.end, servers.broker, master_before, slave, started)
    return Row(number, side.name, CATCH_UP, figures)


def catch_up(end: int, master: Server, master_before: float, slave: Server, started: Sample) -> dict[str, float]:
    """Wait until a slave has dispatched the log up to ``end``, and return the figures.

    They begin with the first sample that has a part of the log, or with the last one before if that has all.
    """
    begun = done = started
    copied_at = 0.0
    deadline = time.monotonic() + _LIMIT
    while done.progress.dispatched < end:
        if time.monotonic() > deadline:
            raise BenchError(f"the slave has dispatched up to {done.progress.dispatched} of {end} after {_LIMIT} s")
        time.sleep(_POLL)
        done = Sample(time.perf_counter(), progress_of(slave.address), cpu_seconds(slave.pid))
        if done.progress.end < end and not begun.progress.end:
            begun = done
        if done.progress.end >= end and not copied_at:
            copied_at = done.at
    mib = (end - begun.progress.end) / _MIB
    return {
        "copied": mib / (copied_at - begun.at),
        "dispatched": mib / (done.at - begun.at),
        "cpu_mib": (cpu_seconds(master.pid) - master_before) / mib * 1e3,
        "slave_cpu_mib": (done.cpu - begun.cpu) / mib * 1e3,
        "slave_anon": anonymous_mib(slave.pid),
    }


def added_latency(report: Report) -> Iterator[str]:
    """Yield a line for each load and side on what replication adds to its median latency."""
    for name in _SENT:
        for side in (JAVA, OURS):
            pair, alone = (report.median(side, prefix + name, "p50") for prefix in ("", _ALONE))
            if pair is not None and alone is not None:
                yield f"replication adds to p50 of {name}, {side}: {pair - alone:.2f} ms"


def replication(  # noqa: PLR0913, PLR0917 - one argument for each option
    rounds: Rounds = 1,
    seconds: Seconds = 20,
    warm: Warm = 20,
    mib: Annotated[int, typer.Option(min=1, max=1024, help="MiB of messages that an empty slave copies.")] = 1024,
    only: Annotated[str, typer.Option(metavar="A,B", help="Parts to run.")] = f"{LOADS},{CATCH_UP}",
    java_only: JavaOnly = False,
    ours_only: OursOnly = False,
    heap: Heap = "2g",
    folder: Folder = None,
    json_file: JsonFile = None,
) -> None:
    """Measure master and slave of Apache RocketMQ 5.5.0 and ours in turn. Exit with status 1 if a send fails."""
    parts: Sequence[str] = chosen(only, (LOADS, CATCH_UP), "part")
    both = sides(java_only=java_only, ours_only=ours_only, heap=heap)
    report = Report(rounds, seconds=seconds, warm=warm, mib=mib, parts=only)
    for number, side in turns(rounds, both):
        for row in measure_loads(number, side, folder, seconds, warm) if LOADS in parts else ():
            report.add(row)
        if CATCH_UP in parts:
            report.add(measure_catch_up(number, side, folder, mib))
    print("\n" + report.comparison(JAVA, OURS, FIGURES, HEADS))
    print("\n".join(added_latency(report)))
    report.end(json_file)
