"""Master and slave of Apache RocketMQ 5.5.0 and of ours in turn, under the same load from the official Java client.

    bench/run replication [--rounds 1] [--seconds 20] [--warm 20] [--mib 1024] [--only loads,catch_up] [--json FILE] ...

bench/README.md explains each figure.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from bench.harness import BenchError, Folder, JavaOnly, JsonFile, OursOnly, Rounds, heading
from bench.load import SCENARIOS, Scenario, warm_up
from bench.measure import anonymous_mib, cpu_seconds
from bench.raw_load import ask
from bench.servers import Running, Server, Side, name_server, registered
from bench.side_by_side import Line, Row, comparison, conclude, figures_of, lines, measure_scenario, say, sides
from bench.starts import generator_of
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.ports import LOOPBACK

LOADS, CATCH_UP = "loads", "catch_up"
_ALONE = "alone_"
_SENT = ("sync64", "sync1")
# Apache's slave ignores haMasterAddress when it starts.
_HA_ADDRESS = [f"brokerIP2={LOOPBACK}"]
_MASTER = [*_HA_ADDRESS, "brokerRole=SYNC_MASTER", "inSyncReplicas=2"]
_SLAVE = ["brokerRole=SLAVE", "brokerId=1"]
_BODY = 1024
_LIMIT = 300  # seconds
_POLL = 0.01
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a measurement; ``seconds`` is the length of a load, ``warm`` that of each warm-up load."""

    rounds: int
    seconds: int
    warm: int
    mib: int
    only: Sequence[str]
    folder: Path | None


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
    table = json.loads(ask(address, RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    end = int(table["commitLogMaxOffset"])
    return Progress(end, end - int(table["dispatchBehindBytes"]))


@contextmanager
def home_of(side: Side, folder: Path | None) -> Iterator[tuple[Path, str]]:
    """Yield a temporary folder and the name server of a side."""
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix=f"rocketbroker-bench-{side.name}-", dir=folder))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        yield home, stack.enter_context(name_server(side, home)).address


@contextmanager
def slave_of(side: Side, home: Path, namesrv: str) -> Iterator[Server]:
    """Run a slave with an empty store."""
    with registered(side, home, namesrv, _SLAVE, name="slave", store="slave-store") as slave:
        yield slave


def measure_alone(number: int, side: Side, options: Options) -> Iterator[Row]:
    """Measure the loads on a master without a slave, and yield a row for each."""
    with home_of(side, options.folder) as (home, namesrv), registered(side, home, namesrv, []) as master:
        for scenario, figures, trouble in _loads(master, home, namesrv, options):
            yield Row(number, side.name, _ALONE + scenario, figures, trouble)


def measure_pair(number: int, side: Side, options: Options) -> Iterator[Row]:
    """Measure the loads on a synchronous master with its slave, and yield a row for each."""
    with (
        home_of(side, options.folder) as (home, namesrv),
        registered(side, home, namesrv, _MASTER) as master,
        slave_of(side, home, namesrv) as slave,
    ):
        _wait_until(lambda: _slaves_in_sync(master.address) > 0, "the slave is not in sync")
        for scenario, figures, trouble in _loads(master, home, namesrv, options, slave):
            yield Row(number, side.name, scenario, figures, trouble)


def _slaves_in_sync(address: str) -> int:
    return int(json.loads(ask(address, RequestCode.GET_BROKER_HA_STATUS).body)["inSyncSlaveNums"])


def _wait_until(condition: Callable[[], bool], why_not: str) -> None:
    deadline = time.monotonic() + _LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"{why_not} after {_LIMIT} s")
        time.sleep(_POLL)


def _loads(
    master: Server, home: Path, namesrv: str, options: Options, slave: Server | None = None
) -> Iterator[tuple[str, dict[str, float], str]]:
    """Run the loads, after a warm-up, and yield name, figures and failure of each."""
    servers = Running(namesrv, master.pid, master.seconds, home)
    wanted = [SCENARIOS[name] for name in _SENT]
    for scenario in warm_up(wanted)[:1] if options.warm else ():
        measure_scenario(scenario, servers, options.warm, 0)
    for scenario in wanted:
        yield scenario.name, *_load(scenario, servers, options.seconds, slave)


def _load(scenario: Scenario, servers: Running, seconds: int, slave: Server | None) -> tuple[dict[str, float], str]:
    before = cpu_seconds(slave.pid) if slave else 0
    outcome, cpu = measure_scenario(scenario, servers, seconds, 0)
    figures = figures_of(outcome, cpu, servers.broker_pid)
    if slave is not None and outcome.done:
        figures["slave_cpu"] = (cpu_seconds(slave.pid) - before) / outcome.done * 1e6
        figures["slave_anon"] = anonymous_mib(slave.pid)
    return figures, outcome.trouble


def measure_catch_up(number: int, side: Side, options: Options) -> Row:
    """Measure an empty slave that copies the log of its master."""
    with home_of(side, options.folder) as (home, namesrv):
        # All in one file: an empty slave begins at the last one.
        made = generator_of(home / "store", options.mib << 20, _BODY)
        made.write()
        made.mark_clean()
        with registered(side, home, namesrv, _HA_ADDRESS) as master:
            master_before = cpu_seconds(master.pid)
            started = Sample(time.perf_counter(), Progress(0, 0), 0.0)
            with slave_of(side, home, namesrv) as slave:
                return Row(number, side.name, CATCH_UP, catch_up(made.end, master, master_before, slave, started))


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


def measure(both: Sequence[Side], options: Options) -> Iterator[Row]:
    """Measure all rounds and yield each row; odd and even rounds begin with different sides."""
    for number in range(1, options.rounds + 1):
        for side in both if number % 2 else reversed(both):
            if LOADS in options.only:
                yield from measure_alone(number, side, options)
                yield from measure_pair(number, side, options)
            if CATCH_UP in options.only:
                yield measure_catch_up(number, side, options)


def added_latency(found: Sequence[Line]) -> Iterator[str]:
    """Yield a line for each load on what replication adds to its median latency."""
    p50 = {line.scenario: line for line in found if line.figure == "p50"}
    for name in _SENT:
        if (pair := p50.get(name)) and (alone := p50.get(_ALONE + name)):
            added = [
                "-" if with_slave is None or without is None else f"{with_slave - without:.2f} ms"
                for with_slave, without in ((pair.java, alone.java), (pair.ours, alone.ours))
            ]
            yield f"replication adds to p50 of {name}: Apache {added[0]}, ours {added[1]}"


def _check_only(value: str) -> str:
    if unknown := set(value.split(",")) - {LOADS, CATCH_UP}:
        raise typer.BadParameter(f"unknown part {min(unknown)!r}; known parts: {LOADS}, {CATCH_UP}")
    return value


def replication(  # noqa: PLR0913, PLR0917 - one argument for each option
    rounds: Rounds = 1,
    seconds: Annotated[int, typer.Option(min=3, help="Length of each load.")] = 20,
    warm: Annotated[int, typer.Option(min=0, help="Seconds of each unrecorded warm-up load; 0 for none.")] = 20,
    mib: Annotated[int, typer.Option(min=1, max=1024, help="MiB of messages that an empty slave copies.")] = 1024,
    only: Annotated[
        str, typer.Option(callback=_check_only, metavar="A,B", help="Parts to run.")
    ] = f"{LOADS},{CATCH_UP}",
    java_only: JavaOnly = False,
    ours_only: OursOnly = False,
    heap: Annotated[str, typer.Option(help="Heap of each Java broker.")] = "2g",
    folder: Folder = None,
    json_file: JsonFile = None,
) -> None:
    """Measure master and slave of Apache RocketMQ 5.5.0 and ours in turn. Exit with status 1 if a send fails."""
    options = Options(rounds, seconds, warm, mib, only.split(","), folder)
    rows: list[Row] = []
    both = sides(java_only=java_only, ours_only=ours_only, heap=heap)
    run = heading(rounds=rounds, seconds=seconds, warm=warm, mib=mib, parts=only)
    for row in measure(both, options):
        rows.append(row)
        say(row, rounds)
    found = list(lines(rows))
    print("\n" + comparison(found))
    print("\n".join(added_latency(found)))
    raise typer.Exit(conclude(run, rows, json_file))
