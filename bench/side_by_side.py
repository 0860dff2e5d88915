"""Apache RocketMQ 5.5.0 and ours in turn, under the same load from the official Java client.

    bench/run side_by_side [--rounds 3] [--seconds 20] [--warm 20] [--only sync64,drain] [--json FILE] ...
    bench/run side_by_side --flush SYNC_FLUSH

bench/README.md explains each figure.
"""

import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench import load, report
from bench.disk import probe_fdatasync
from bench.failures import failures_reported
from bench.machine import heading
from bench.measure import anonymous_mib, cpu_seconds
from bench.report import Row
from bench.scenarios import SYNC_FLUSH_LOADS, Scenario, chosen, warm_up
from bench.servers import Running, ServerError, Side, java_side, our_side, running
from tests.support.java_toolchain import missing_tools

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


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
    yield Row(number, side.name, report.START, {report.START: servers.start_seconds})
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
        ServerError: tools are missing.
        JavaError: the driver cannot be made.
    """
    if java_only and ours_only:
        raise typer.BadParameter("--java-only and --ours-only exclude each other")
    reason = missing_tools()
    if reason:
        raise ServerError(reason)
    load.prepare()
    return ([] if ours_only else [java_side(heap)]) + ([] if java_only else [our_side()])


def _bare_fdatasync(folder: Path | None) -> str:
    """Return the fdatasync figures of the bare disk, for comparison with the figures of SYNC_FLUSH."""
    return str(probe_fdatasync(folder or Path(tempfile.gettempdir()), _PROBE_SECONDS))


@app.command()
def side_by_side(  # noqa: PLR0913, PLR0917 - one argument for each option
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the figures are their medians.")] = 3,
    seconds: Annotated[int, typer.Option(min=3, help="Length of each load.")] = 20,
    warm: Annotated[int, typer.Option(min=0, help="Seconds of each unrecorded warm-up load; 0 for none.")] = 20,
    only: Annotated[
        str | None, typer.Option(callback=_check_only, metavar="A,B", help="Loads to run, by name.")
    ] = None,
    flush: Annotated[
        Flush, typer.Option(help=f"flushDiskType; with SYNC_FLUSH the loads are {SYNC_FLUSH_LOADS} unless given.")
    ] = Flush.ASYNC_FLUSH,
    java_only: Annotated[bool, typer.Option("--java-only", help="Measure Apache RocketMQ alone.")] = False,
    ours_only: Annotated[bool, typer.Option("--ours-only", help="Measure ours alone.")] = False,
    properties: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A broker property for both sides; repeatable."),
    ] = None,
    heap: Annotated[str, typer.Option(help="Heap of the Java broker.")] = "2g",
    folder: Annotated[
        Path | None,
        typer.Option("--dir", exists=True, file_okay=False, resolve_path=True, help="Folder for temporary stores."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", dir_okay=False, help="Write all figures to this file.")
    ] = None,
) -> None:
    """Measure Apache RocketMQ 5.5.0 and ours in turn. Exit with status 1 if a send or a delivery fails."""
    synced = flush is Flush.SYNC_FLUSH
    given = [*_check_properties(properties or []), *([f"flushDiskType={flush}"] if synced else [])]
    scenarios = chosen(only or (SYNC_FLUSH_LOADS if synced else None))
    given += [each for scenario in scenarios for each in scenario.properties]
    options = Options(rounds, seconds, warm, scenarios, given, folder)
    rows: list[Row] = []
    with failures_reported("side_by_side"):
        both = sides(java_only=java_only, ours_only=ours_only, heap=heap)
        run = heading({"rounds": rounds, "seconds": seconds, "warm": warm, "set": " ".join(options.properties) or "-"})
        if synced:
            run["disk before"] = _bare_fdatasync(folder)
        print("\n".join(f"{name}: {value}" for name, value in run.items()), flush=True)
        for row in measure(both, options):
            rows.append(row)
            say(row, rounds)
        if synced:
            run["disk after"] = _bare_fdatasync(folder)
            print(f"disk after: {run['disk after']}")
    print("\n" + report.markdown(report.lines(rows)))
    raise typer.Exit(report.conclude(run, rows, json_file))


def main() -> int:
    """Run the command and return its exit status."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))  # so that the servers are stopped cleanly
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
