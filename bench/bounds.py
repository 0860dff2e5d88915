"""Bounds of the send path: our broker, one that answers without storing, and one that stores without parsing.

    bench/run bounds [--rounds 3] [--seconds 10] [--warm 5] [--only sync64,async8]

The official Java client sends to each of them in turn.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from bench import load
from bench.failures import failures_reported
from bench.machine import commit
from bench.scenarios import chosen
from bench.servers import Side, our_side, running
from bench.side_by_side import measure_scenario
from tests.support.java_toolchain import missing_tools

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_ROOT = Path(__file__).resolve().parent.parent
_WHOLE = "whole"
_BOUNDS = {"answers": "answers without storing", "stores": "stores without parsing"}

Figures = Mapping[tuple[str, str], list[tuple[float, float]]]


def sides() -> list[Side]:
    """Return our broker and the shortened ones."""
    whole = our_side()
    namesrv, broker = whole.namesrv_command, whole.broker_command
    shortened = [sys.executable, "-m", "bench.bounded_broker"]
    return [Side(_WHOLE, namesrv, broker), *(Side(name, namesrv, [*shortened, name]) for name in _BOUNDS)]


def table(figures: Figures) -> Iterator[str]:
    """Yield a Markdown table of the median rate and CPU time of each load on each broker."""
    yield "| load | broker | messages/s | CPU, µs a message |"
    yield "|---|---|---:|---:|"
    for (load_name, side), rounds in figures.items():
        rates, cpus = zip(*rounds, strict=True)
        yield f"| {load_name} | {_BOUNDS.get(side, side)} | {median(rates):,.0f} | {median(cpus):.2f} |"


@app.command()
def bounds(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the figures are their medians.")] = 3,
    seconds: Annotated[int, typer.Option(min=3, help="Length of each load.")] = 10,
    warm: Annotated[int, typer.Option(min=3, help="Seconds of each unrecorded warm-up load.")] = 5,
    only: Annotated[str, typer.Option(metavar="A,B", help="Loads that send one message at a time.")] = "sync64,async8",
) -> None:
    """Print rate and CPU time of each load on each broker."""
    reason = missing_tools()
    if reason:
        raise typer.BadParameter(reason)
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    with failures_reported("bounds"):
        load.prepare()
        for number in range(1, rounds + 1):
            for side in sides() if number % 2 else reversed(sides()):
                with running(side, None, []) as servers:
                    for scenario in chosen(only):
                        measure_scenario(scenario, servers, warm, 0)
                        outcome, cpu = measure_scenario(scenario, servers, seconds, 0)
                        assert outcome.rate is not None, outcome.error
                        found[scenario.name, side.name].append((outcome.rate, cpu / outcome.done * 1e6))
    print(f"commit {commit()}\n")
    print("\n".join(table(found)))


def main() -> int:
    """Run the command and return its exit status."""
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
