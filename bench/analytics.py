"""Cost of reading a store with and without Spark, compared with a plain read, a plain loop and the Java client.

    bench/run analytics [--gib 1,2,4,8] [--rounds 3] [--only read,headers,...] [--cores 1,2] [--java] [--json FILE] ...

bench/README.md describes each case.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import numpy as np
import typer

from bench.analytics_drain import DRAIN, java_drain
from bench.analytics_figures import Measure, as_json, lines, markdown
from bench.failures import failures_reported
from bench.machine import heading
from bench.store_growth import SEGMENT, write_mixed
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY
from tests.support.mixed_store import MixedStore

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

PLAIN: Final = (
    *("read", "headers", "headers_walk", "headers_loop", "pruned", "pruned_loop", "full", "time_1pct"),
    *("traffic_decode", "traffic_queues"),
)
SPARK: Final = ("spark_pruned", "spark_full", "spark_time_1pct", "spark_traffic")
#: Cases that are run on stores of each size; all others on the first size only.
GROWING: Final = (
    *("read", "headers_walk", "pruned", "traffic_queues"),
    *("spark_pruned", "spark_time_1pct", "spark_traffic"),
)
_BUFFER: Final = 8 << 20


class CaseError(Exception):
    """A case failed or returned the wrong messages."""


@dataclass(frozen=True, slots=True)
class Store:
    """A measured store; ``gib`` is 0 when its size was given as a number of messages."""

    root: Path
    gib: int
    messages: int
    size: int


def made(folder: Path, gib: int, messages: int) -> Store:
    """Return the store in a folder, created if missing, after reading its log into the page cache."""
    root = folder / (f"{gib}gib" if gib else f"{messages}messages")
    if not root.exists():
        write_mixed(root, gib) if gib else MixedStore(root, messages, mapped_file_size_commit_log=1 << 28).make()
    logs = sorted((root / "commitlog").iterdir())
    for path in logs:
        with path.open("rb", buffering=0) as file:
            while file.read(_BUFFER):
                pass
    entries = [np.fromfile(path, CONSUME_QUEUE_ENTRY)["size"] for path in (root / "consumequeue").glob("*/*/*")]
    size = sum(int(each.sum()) for each in entries)
    return Store(
        root, gib, sum(int((each > 0).sum()) for each in entries), max(size, len(logs) * SEGMENT if gib else 0)
    )


def _lines(module: str, *arguments: str) -> Iterator[dict[str, Any]]:
    """Run a bench module and yield each JSON line it prints."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        raise CaseError(f"{module} {' '.join(arguments)} ended with exit status {process.returncode}")


def plain(store: Store, number: int, names: Sequence[str]) -> Iterator[Measure]:
    """Run the cases without Spark once and yield each measure."""
    for name in names:
        (found,) = _lines("bench.analytics_cases", name, str(store.root))
        yield _measure(number, name, store, 0, found)


def with_spark(store: Store, number: int, names: Sequence[str], cores: int) -> Iterator[Measure]:
    """Run the cases once in a Spark session of their own and yield each measure."""
    for found in _lines("bench.analytics_spark", str(store.root), str(cores), *names):
        name = found.pop("name")
        yield _measure(number, name, store, cores, found)


def _measure(number: int, name: str, store: Store, cores: int, found: dict[str, Any]) -> Measure:
    delivered = int(found.pop("messages"))
    # A case that reads all messages must report all of them; a case without a count reports 0.
    if delivered not in {0, store.messages} and "1pct" not in name:
        raise CaseError(f"{name} returned {delivered:,} of {store.messages:,} messages")
    return Measure(number, name, store.gib, cores, store.messages, store.size, delivered, **found)


def measure(stores: Sequence[Store], names: Sequence[str], rounds: int, cores: Sequence[int]) -> Iterator[Measure]:
    """Run all rounds over all stores and yield each measure."""
    for number in range(1, rounds + 1):
        for store in stores:
            mine = [name for name in names if store is stores[0] or name in GROWING]
            yield from plain(store, number, [name for name in PLAIN if name in mine])
            spark = [name for name in SPARK if name in mine]
            for each in cores if spark else ():
                yield from with_spark(store, number, spark, each)


def _numbers(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",") if part]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers, such as 1,2,4") from None
    if any(each < 1 for each in found):
        raise typer.BadParameter(f"{text!r} has a number below 1; give numbers from 1 up")
    return found


def _names(text: str | None) -> list[str]:
    known = [*PLAIN, *SPARK]
    names = [part for part in (text or "").split(",") if part] or known
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"unknown case {name!r}; known cases: {', '.join(known)}")
    return names


def _tell(found: Measure) -> None:
    where = f"{found.gib} GiB" if found.gib else f"{found.messages:,} messages"
    cores = f", {found.cores} cores" if found.cores else ""
    print(
        f"[{found.round}] {found.name:16} {where}{cores}: {found.wall:8.2f} s, CPU {found.cpu:8.2f} s, "
        f"{found.cpu / found.messages * 1e9:8.1f} ns a message, peak {found.peak:6.0f} MiB",
        flush=True,
    )


@app.command()
def analytics(  # noqa: PLR0913, PLR0917 - one argument for each option
    gib: Annotated[str, typer.Option(metavar="A,B", help="Sizes of the stores; all cases run on the first.")] = "1",
    messages: Annotated[int, typer.Option(min=0, help="Measure one store of this many messages instead.")] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the figures are their medians.")] = 3,
    only: Annotated[str | None, typer.Option(metavar="A,B", help="Cases to run, by name.")] = None,
    cores: Annotated[str, typer.Option(metavar="A,B", help="Cores of the Spark sessions, the most last.")] = "1,2",
    java: Annotated[bool, typer.Option("--java", help="Have the official client consume the largest topic.")] = False,
    stores: Annotated[
        Path | None,
        typer.Option(file_okay=False, resolve_path=True, help="Keep the stores here and reuse existing ones."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", exists=True, file_okay=False, resolve_path=True, help="Folder for temporary stores."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", dir_okay=False, help="Write all figures to this file.")
    ] = None,
) -> None:
    """Measure reads of stores. Exit with status 1 if a case fails or returns the wrong messages."""
    names, sizes, core_counts = _names(only), _numbers(gib), _numbers(cores)
    run = heading({"gib": gib, "messages": messages, "rounds": rounds, "cores": cores, "only": only or "-"})
    print("\n".join(f"{name}: {value}" for name, value in run.items()), flush=True)
    measures: list[Measure] = []
    with TemporaryDirectory(prefix="rocketbroker-analytics-", dir=folder) as temporary:
        place = stores or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        with failures_reported("analytics", CaseError):
            try:
                found = [made(place, 0, messages)] if messages else [made(place, each, 0) for each in sizes]
                for one in measure(found, names, rounds, core_counts):
                    measures.append(one)
                    _tell(one)
                if java:
                    measures.append(_drained(found[0], Path(temporary)))
                    _tell(measures[-1])
            finally:
                if json_file is not None and measures:
                    json_file.write_text(as_json(run, measures))
    print("\n" + markdown(lines(measures)))


def _drained(store: Store, home: Path) -> Measure:
    """Measure the official client on one topic and scale its time to all messages of the store."""
    rate = java_drain(store.root, home, SEGMENT if store.gib else 1 << 28)
    seconds = store.messages / rate
    return Measure(1, DRAIN, store.gib, 0, store.messages, store.size, 0, seconds, 0.0, 0.0)


def main() -> int:
    """Run the command and return its exit status."""
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
