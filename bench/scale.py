"""Cluster sizes computed from measurements: the tables of docs/operations/scale.md.

    bench/run analytics --json FILE ... && bench/run scale FILE

Cores are those of the measured machine; the network rate of a host is an option.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

TB: Final = 10**12
PB: Final = 10**15
#: Bytes of log, and the minutes available to read them.
TASKS: Final = ((TB, 10), (TB, 60), (PB, 60), (PB, 24 * 60))
#: Cases with Spark, and the matching cases without it.
JOBS: Final = {"spark_traffic": "pruned", "spark_pruned": "pruned", "spark_full": "full"}


@dataclass(frozen=True, slots=True)
class Rate:
    """Throughput of one core in a case: CPU seconds a byte of log, and the share of the decoder.

    Attributes:
        growth: CPU time a byte of the largest store divided by that of the smallest; 1 is linear growth.
        speed_up: wall time with one core divided by that with the most cores.
        cores: the most cores measured.
    """

    job: str
    seconds_a_byte: float
    decoder_share: float
    growth: float
    speed_up: float
    cores: int

    @property
    def bytes_a_second(self) -> float:
        """Bytes a second of one busy core."""
        return 1 / self.seconds_a_byte


def rates(measured: dict[str, Any]) -> list[Rate]:
    """Return the rates of the Spark jobs, from the medians of a run of ``bench/run analytics``."""
    lines: list[dict[str, Any]] = measured["medians"]
    return [rate for job, decoder in JOBS.items() if (rate := _rate(lines, job, decoder)) is not None]


def _rate(lines: Sequence[dict[str, Any]], job: str, decoder: str) -> Rate | None:
    mine = [line for line in lines if line["name"] == job]
    if not mine:
        return None
    most = max(line["cores"] for line in mine)
    by_size = sorted((line for line in mine if line["cores"] == most), key=lambda line: int(line["size"]))
    smallest, largest = by_size[0], by_size[-1]
    plain = [line for line in lines if (line["name"], line["gib"]) == (decoder, smallest["gib"])]
    one_core = [line for line in mine if (line["cores"], line["gib"]) == (1, smallest["gib"])]
    return Rate(
        job,
        _each(largest),
        _each(plain[0]) / _each(smallest) if plain else float("nan"),
        _each(largest) / _each(smallest),
        one_core[0]["wall"] / smallest["wall"] if one_core else float("nan"),
        most,
    )


def _each(line: dict[str, Any]) -> float:
    return float(line["cpu"]) / float(line["size"])


def cores_for(rate: Rate, size: int, minutes: float) -> int:
    """Return the number of busy cores that read ``size`` bytes in the given time."""
    return max(-(-round(size * rate.seconds_a_byte) // round(minutes * 60)), 1)


def hosts_for(size: int, minutes: float, gigabits: float) -> int:
    """Return the number of hosts whose networks fetch ``size`` bytes from an object store in the given time."""
    return max(-(-size * 8 // round(gigabits * 1e9 * minutes * 60)), 1)


def markdown(found: Sequence[Rate], gigabits: float) -> Iterator[str]:
    """Yield the two tables: throughput of a core, and cores needed."""
    yield "| job | MB/s and core | CPU of the decoder | CPU a byte, largest store / smallest | wall, 1 core / all |"
    yield "|---|---:|---:|---:|---:|"
    for rate in found:
        yield (
            f"| {rate.job} | {rate.bytes_a_second / 1e6:,.0f} | {rate.decoder_share * 100:.0f} % | {rate.growth:.2f} "
            f"| {rate.speed_up:.2f} of {rate.cores} |"
        )
    yield ""
    yield f"| log | in | {' | '.join(f'cores, {rate.job}' for rate in found)} | hosts of {gigabits:g} Gbit/s |"
    yield f"|---|---|{'---:|' * (len(found) + 1)}"
    for size, minutes in TASKS:
        cores = " | ".join(f"{cores_for(rate, size, minutes):,}" for rate in found)
        shown, time = f"{size // TB:,} TB", f"{minutes} min" if minutes <= 60 else f"{minutes // 60} h"
        yield f"| {shown} | {time} | {cores} | {hosts_for(size, minutes, gigabits):,} |"


@app.command()
def scale(
    measured: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Output of `analytics --json`.")],
    gigabits: Annotated[float, typer.Option(min=0.1, help="Network rate of a host to the object store, Gbit/s.")] = 10,
) -> None:
    """Print the tables of docs/operations/scale.md. Exit with status 1 without a measurement with Spark."""
    found = rates(json.loads(measured.read_text()))
    if not found:
        cases = ", ".join(JOBS)
        print(f"scale: {measured} has none of the cases {cases}; run bench/run analytics --json", file=sys.stderr)
        raise typer.Exit(1)
    print("\n".join(markdown(found, gigabits)))


def main() -> int:
    """Run the command and return its exit status."""
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
