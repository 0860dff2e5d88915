"""Apache RocketMQ 5.5.0 and ours in turn, under the same load from the official Java client.

    bench/run side_by_side [--rounds 3] [--seconds 20] [--warm 20] [--only sync64,drain] [--json FILE] ...
    bench/run side_by_side --flush SYNC_FLUSH

bench/README.md explains each figure.
"""

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from bench import load
from bench.harness import BenchError, Folder, JavaOnly, JsonFile, OursOnly, Properties, Rounds, heading
from bench.load import SYNC_FLUSH_LOADS, Scenario, chosen, warm_up
from bench.measure import anonymous_mib, cpu_seconds, probe_fdatasync
from bench.servers import JAVA, OURS, Running, Side, java_side, our_side, running
from tests.support.java_toolchain import missing_tools

START = "start"
FIGURES = (
    "rate", "p50", "p99", "cpu", "slave_cpu", "anon", "slave_anon", "found", "copied", "dispatched", "cpu_mib",
    "slave_cpu_mib",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """Result of one scenario on one side in one round.

    Attributes:
        figures: the available figures by name: ``rate`` in messages a second, ``p50`` and ``p99`` in ms, ``cpu`` in µs
            of the broker's CPU time a message, ``anon`` in MiB after the load, ``found`` in ms until the last message
            was found, ``start`` in seconds; of a slave ``slave_cpu``, ``slave_anon``, ``copied`` and ``dispatched`` in
            MiB/s, ``cpu_mib`` and ``slave_cpu_mib`` in ms of CPU time a MiB.
        trouble: a failed send, an undelivered message or a missing figure; empty on success.
    """

    round: int
    side: str
    scenario: str
    figures: dict[str, float]
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: the medians of both sides, ``None`` where a side was not measured."""

    scenario: str
    figure: str
    java: float | None
    ours: float | None

    @property
    def ratio(self) -> float | None:
        """Median of ours divided by the median of Java."""
        return None if self.ours is None or not self.java else self.ours / self.java


def lines(rows: Sequence[Row]) -> Iterator[Line]:
    """Yield a line for each scenario and figure that any side has, in measuring order."""
    for scenario in dict.fromkeys(row.scenario for row in rows):
        for figure in (START,) if scenario == START else FIGURES:
            java, ours = (_median(rows, side, scenario, figure) for side in (JAVA, OURS))
            if java is not None or ours is not None:
                yield Line(scenario, figure, java, ours)


def _median(rows: Sequence[Row], side: str, scenario: str, figure: str) -> float | None:
    values = [
        row.figures[figure] for row in rows if (row.side, row.scenario) == (side, scenario) and figure in row.figures
    ]
    return median(values) if values else None


def comparison(found: Iterable[Line]) -> str:
    """Return the Markdown table."""
    head = ["| scenario | figure | Apache RocketMQ 5.5.0 | ours | ours / Apache |", "|---|---|---:|---:|---:|"]
    body = [
        f"| {line.scenario} | {line.figure} | {_show(line.java)} | {_show(line.ours)} | {_show(line.ratio)} |"
        for line in found
    ]
    return "\n".join(head + body)


def _show(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"


def troubles(rows: Iterable[Row]) -> list[str]:
    """Return one line for each failed row."""
    return [f"round {row.round}, {row.side}, {row.scenario}: {row.trouble}" for row in rows if row.trouble]


def as_json(heading: dict[str, str], rows: Sequence[Row]) -> str:
    """Return all rows and the lines of the table as JSON."""
    measured = [
        {"round": row.round, "side": row.side, "scenario": row.scenario, **row.figures, "trouble": row.trouble}
        for row in rows
    ]
    table = [
        {"scenario": line.scenario, "figure": line.figure, "java": line.java, "ours": line.ours, "ratio": line.ratio}
        for line in lines(rows)
    ]
    return json.dumps({"run": heading, "medians": table, "rows": measured}, indent=1)


def conclude(heading: dict[str, str], rows: Sequence[Row], json_file: Path | None) -> int:
    """Print the troubles of a run, write its figures to ``json_file``, and return the exit status."""
    found = troubles(rows)
    for trouble in found:
        print(f"TROUBLE {trouble}")
    if json_file is not None:
        json_file.write_text(as_json(heading, rows))
    return 1 if found else 0


_PROBE_SECONDS = 3


class Flush(StrEnum):
    """``flushDiskType``."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a measurement; ``seconds`` is the length of a load, ``warm`` that of each warm-up load."""

    rounds: int
    seconds: int
    warm: int
    scenarios: Sequence[Scenario]
    properties: Sequence[str]
    folder: Path | None


def measure_scenario(scenario: Scenario, servers: Running, seconds: int, messages: int) -> tuple[load.Outcome, float]:
    """Run one load; return its outcome and the CPU seconds of the broker's process tree."""
    arguments = scenario.command(servers.namesrv, seconds, messages)
    before = cpu_seconds(servers.broker_pid)
    outcome = load.run_load(arguments, servers.home, limit=seconds * 3 + 90)
    return outcome, cpu_seconds(servers.broker_pid) - before


def measure_side(number: int, side: Side, servers: Running, options: Options) -> Iterator[Row]:
    """Measure one round of one side and yield a row for the start and for each load; warm-ups are not recorded."""
    yield Row(number, side.name, START, {START: servers.start_seconds})
    sent: dict[str, int] = {}
    for scenario in warm_up(options.scenarios) if options.warm else ():
        outcome, _ = _run_next(scenario, servers, options.warm, sent)
        if outcome.trouble:
            yield Row(number, side.name, scenario.name, {}, outcome.trouble)
    for scenario in options.scenarios:
        outcome, cpu = _run_next(scenario, servers, options.seconds, sent)
        yield Row(number, side.name, scenario.name, figures_of(outcome, cpu, servers.broker_pid), outcome.trouble)


def _run_next(scenario: Scenario, servers: Running, seconds: int, sent: dict[str, int]) -> tuple[load.Outcome, float]:
    """Run a load and enter its number of messages into ``sent``, by name, for loads that read them."""
    measured = measure_scenario(scenario, servers, seconds, sent.get(scenario.reads, 0))
    sent[scenario.name] = measured[0].done
    return measured


def figures_of(outcome: load.Outcome, cpu: float, broker_pid: int) -> dict[str, float]:
    """Return the available figures of a load by name, given the broker's CPU seconds."""
    found = {
        "rate": outcome.rate,
        "p50": outcome.p50,
        "p99": outcome.p99,
        "cpu": cpu / outcome.done * 1e6 if outcome.done else None,
        "anon": anonymous_mib(broker_pid),
        "found": outcome.found,
    }
    return {name: value for name, value in found.items() if value is not None}


def measure(sides: Sequence[Side], options: Options) -> Iterator[Row]:
    """Measure all rounds and yield each row; odd and even rounds begin with different sides."""
    for number in range(1, options.rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            with running(side, options.folder, options.properties) as servers:
                yield from measure_side(number, side, servers, options)


def say(row: Row, rounds: int) -> None:
    """Print a row."""
    figures = "  ".join(f"{name} {value:,.2f}" for name, value in row.figures.items())
    print(f"[{row.round}/{rounds}] {row.side:4} {row.scenario:9} {figures} {row.trouble}".rstrip(), flush=True)


def _check_properties(values: list[str]) -> list[str]:
    for value in values:
        if not value.partition("=")[0].strip() or "=" not in value or "\n" in value:
            raise typer.BadParameter(f"{value!r} is not of the form KEY=VALUE")
    return values


def _check_only(value: str | None) -> str | None:
    try:
        chosen(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return value


def sides(*, java_only: bool, ours_only: bool, heap: str) -> list[Side]:
    """Return the sides to measure, and prepare the driver.

    Raises:
        BenchError: tools are missing.
        JavaError: the driver cannot be made.
    """
    if java_only and ours_only:
        raise typer.BadParameter("--java-only and --ours-only exclude each other")
    reason = missing_tools()
    if reason:
        raise BenchError(reason)
    load.prepare()
    return ([] if ours_only else [java_side(heap)]) + ([] if java_only else [our_side()])


def _bare_fdatasync(folder: Path | None) -> str:
    """Return the fdatasync figures of the bare disk, for comparison with the figures of SYNC_FLUSH."""
    return str(probe_fdatasync(folder or Path(tempfile.gettempdir()), _PROBE_SECONDS))


def side_by_side(  # noqa: PLR0913, PLR0917 - one argument for each option
    rounds: Rounds = 3,
    seconds: Annotated[int, typer.Option(min=3, help="Length of each load.")] = 20,
    warm: Annotated[int, typer.Option(min=0, help="Seconds of each unrecorded warm-up load; 0 for none.")] = 20,
    only: Annotated[
        str | None, typer.Option(callback=_check_only, metavar="A,B", help="Loads to run, by name.")
    ] = None,
    flush: Annotated[
        Flush, typer.Option(help=f"flushDiskType; with SYNC_FLUSH the loads are {SYNC_FLUSH_LOADS} unless given.")
    ] = Flush.ASYNC_FLUSH,
    java_only: JavaOnly = False,
    ours_only: OursOnly = False,
    properties: Properties = None,
    heap: Annotated[str, typer.Option(help="Heap of the Java broker.")] = "2g",
    folder: Folder = None,
    json_file: JsonFile = None,
) -> None:
    """Measure Apache RocketMQ 5.5.0 and ours in turn. Exit with status 1 if a send or a delivery fails."""
    synced = flush is Flush.SYNC_FLUSH
    given = [*_check_properties(properties or []), *([f"flushDiskType={flush}"] if synced else [])]
    scenarios = chosen(only or (SYNC_FLUSH_LOADS if synced else None))
    given += [each for scenario in scenarios for each in scenario.properties]
    options = Options(rounds, seconds, warm, scenarios, given, folder)
    rows: list[Row] = []
    both = sides(java_only=java_only, ours_only=ours_only, heap=heap)
    run = heading(rounds=rounds, seconds=seconds, warm=warm, set=" ".join(options.properties) or "-")
    if synced:
        run["disk before"] = _bare_fdatasync(folder)
        print(f"disk before: {run['disk before']}", flush=True)
    for row in measure(both, options):
        rows.append(row)
        say(row, rounds)
    if synced:
        run["disk after"] = _bare_fdatasync(folder)
        print(f"disk after: {run['disk after']}")
    print("\n" + comparison(lines(rows)))
    raise typer.Exit(conclude(run, rows, json_file))
