"""Cost of reading a store with and without Spark, compared with a plain read, a plain loop and the Java client.

    bench/run analytics [--gib 1,2,4,8] [--rounds 3] [--only read,headers,...] [--cores 1,2] [--java] [--json FILE] ...

bench/README.md describes each case.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import numpy as np
import typer

from bench.analytics_cases import DRAIN, java_drain
from bench.harness import BenchError, Folder, JsonFile, heading
from bench.mixed_store import SEGMENT, write_mixed
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY
from tests.support.mixed_store import MixedStore

WORKER_LIMIT_MIB: Final = 1024
#: The case without messages: the start of a Spark session.
START: Final = "spark_start"


@dataclass(frozen=True, slots=True)
class Measure:
    """One run of one case.

    Attributes:
        gib: segments of 1 GiB in the store; 0 when its size was given as a number of messages.
        cores: cores of the Spark session; 0 without Spark.
        messages, size: messages in the store, and bytes of its log.
        delivered: messages that the case returned or counted.
        wall, cpu: seconds; CPU time of all processes.
        peak: peak memory in MiB of the process, or with Spark of one Python worker.
    """

    round: int
    name: str
    gib: int
    cores: int
    messages: int
    size: int
    delivered: int
    wall: float
    cpu: float
    peak: float


@dataclass(frozen=True, slots=True)
class Line:
    """The medians of one case on one store."""

    name: str
    gib: int
    cores: int
    messages: int
    size: int
    wall: float
    cpu: float
    peak: float

    @property
    def cpu_ns(self) -> float:
        """CPU time a message of the store, ns."""
        return self.cpu / self.messages * 1e9

    @property
    def rate(self) -> float:
        """Bytes of the log a second of wall time."""
        return self.size / self.wall


@dataclass(frozen=True, slots=True)
class Aim:
    """A target for the ratio of two cases.

    Attributes:
        of, to: the cases; the ratio is ``of`` divided by ``to``.
        figure: ``cpu`` or ``wall``.
        most, least: bounds of the ratio.
    """

    text: str
    of: str
    to: str
    figure: str
    most: float | None = None
    least: float | None = None

    def is_met(self, ratio: float) -> bool:
        """Return true if a ratio meets the target."""
        return (self.most is None or ratio <= self.most) and (self.least is None or ratio >= self.least)

    @property
    def bound(self) -> str:
        """The target as text."""
        return f"≤ {self.most:g}" if self.most is not None else f"≥ {self.least:g}"


AIMS: Final = (
    Aim("decode of headers to plain read", "headers", "read", "cpu", most=1.5),
    Aim("the same with the boundary walk to plain read", "headers_walk", "read", "cpu", most=3),
    Aim("plain loop to decoder, columns of the head", "headers_loop", "headers_walk", "cpu", least=5),
    Aim("plain loop to decoder, with the topic", "pruned_loop", "pruned", "cpu", least=5),
    Aim("full decode to traffic from the queues", "full", "traffic_queues", "cpu", least=10),
    Aim("traffic by decode to traffic from the queues", "traffic_decode", "traffic_queues", "cpu", least=10),
    Aim("pruned Spark scan to decoder", "spark_pruned", "pruned", "cpu", most=2),
    Aim("full Spark scan to pruned", "spark_full", "spark_pruned", "cpu", most=3),
    Aim("whole to 1 % of the time, decoder", "pruned", "time_1pct", "cpu", least=10),
    Aim("whole to 1 % of the time, Spark", "spark_pruned", "spark_time_1pct", "cpu", least=10),
    Aim("Java client to traffic job, a message", "java_drain", "spark_traffic", "wall", least=20),
)


def lines(measures: Sequence[Measure]) -> list[Line]:
    """Return the medians of each case, in measuring order."""
    keys = dict.fromkeys((each.name, each.gib, each.cores) for each in measures)
    return [_line([each for each in measures if (each.name, each.gib, each.cores) == key]) for key in keys]


def _line(rounds: Sequence[Measure]) -> Line:
    one = rounds[0]
    medians = [median(getattr(each, figure) for each in rounds) for figure in ("wall", "cpu")]
    return Line(
        one.name, one.gib, one.cores, one.messages, one.size, medians[0], medians[1], max(each.peak for each in rounds)
    )


def ratios(found: Sequence[Line]) -> Iterator[tuple[Aim, int, float]]:
    """Yield each target with both cases measured on a store: the target, the store's GiB and the ratio."""
    by_key: dict[tuple[str, int], Line] = {}
    for line in found:  # the last line of a case has the most cores
        by_key[line.name, line.gib] = line
    for gib in dict.fromkeys(line.gib for line in found):
        for aim in AIMS:
            one, other = by_key.get((aim.of, gib)), by_key.get((aim.to, gib))
            if one is not None and other is not None:
                yield aim, gib, _each(one, aim.figure) / _each(other, aim.figure)


def _each(line: Line, figure: str) -> float:
    return float(getattr(line, figure)) / line.messages


def markdown(found: Sequence[Line]) -> str:
    """Return the tables of all figures and of the targets."""
    rows = ["| case | GiB | cores | messages | wall s | CPU s | CPU ns a message | MB/s | peak MiB |"]
    rows.append("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    rows += map(_row, found)
    rows += ["", "| ratio | GiB | aim | measured | |", "|---|---:|---:|---:|---|"]
    rows += [
        f"| {aim.text} | {gib or '-'} | {aim.bound} | {ratio:.2f} | {'met' if aim.is_met(ratio) else 'not met'} |"
        for aim, gib, ratio in ratios(found)
    ]
    workers = [line.peak for line in found if line.cores]
    if workers:
        met = "met" if max(workers) <= WORKER_LIMIT_MIB else "not met"
        rows.append(f"| peak of a worker, MiB | all | ≤ {WORKER_LIMIT_MIB} | {max(workers):.0f} | {met} |")
    return "\n".join(rows)


def _row(line: Line) -> str:
    begin = f"| {line.name} | {line.gib or '-'} | {line.cores or '-'} | "
    if line.name == START:
        return f"{begin}- | {line.wall:.2f} | {line.cpu:.2f} | - | - | - |"
    each = f"{line.cpu_ns:.1f} | {line.rate / 1e6:,.0f} | {line.peak:,.0f} |"
    return f"{begin}{line.messages:,} | {line.wall:.2f} | {line.cpu:.2f} | {each}"


def as_json(heading: dict[str, str], measures: Sequence[Measure]) -> str:
    """Return all runs, medians and ratios as JSON."""
    found = lines(measures)
    return json.dumps(
        {
            "run": heading,
            "medians": [asdict(line) | {"cpu_ns": line.cpu_ns, "rate": line.rate} for line in found],
            "ratios": [
                {"text": aim.text, "gib": gib, "aim": aim.bound, "ratio": ratio, "met": aim.is_met(ratio)}
                for aim, gib, ratio in ratios(found)
            ],
            "runs": [asdict(each) for each in measures],
        },
        indent=1,
    )


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


def _printed(module: str, *arguments: str) -> Iterator[dict[str, Any]]:
    """Run a bench module and yield each JSON line it prints."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        raise BenchError(f"{module} {' '.join(arguments)} ended with exit status {process.returncode}")


def plain(store: Store, number: int, names: Sequence[str]) -> Iterator[Measure]:
    """Run the cases without Spark once and yield each measure."""
    for name in names:
        (found,) = _printed("bench.analytics_cases", name, str(store.root))
        yield _measure(number, name, store, 0, found)


def with_spark(store: Store, number: int, names: Sequence[str], cores: int) -> Iterator[Measure]:
    """Run the cases once in a Spark session of their own and yield each measure."""
    for found in _printed("bench.analytics_spark", str(store.root), str(cores), *names):
        name = found.pop("name")
        yield _measure(number, name, store, cores, found)


def _measure(number: int, name: str, store: Store, cores: int, found: dict[str, Any]) -> Measure:
    delivered = int(found.pop("messages"))
    # A case that reads all messages must report all of them; a case without a count reports 0.
    if delivered not in {0, store.messages} and "1pct" not in name:
        raise BenchError(f"{name} returned {delivered:,} of {store.messages:,} messages")
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
    folder: Folder = None,
    json_file: JsonFile = None,
) -> None:
    """Measure reads of stores. Exit with status 1 if a case fails or returns the wrong messages."""
    names, sizes, core_counts = _names(only), _numbers(gib), _numbers(cores)
    run = heading(gib=gib, messages=messages, rounds=rounds, cores=cores, only=only or "-")
    measures: list[Measure] = []
    with TemporaryDirectory(prefix="rocketbroker-analytics-", dir=folder) as temporary:
        place = stores or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
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
    return [rate for job, decoder in JOBS.items() if (rate := _job_rate(lines, job, decoder)) is not None]


def _job_rate(lines: Sequence[dict[str, Any]], job: str, decoder: str) -> Rate | None:
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
        _cpu_a_byte(largest),
        _cpu_a_byte(plain[0]) / _cpu_a_byte(smallest) if plain else float("nan"),
        _cpu_a_byte(largest) / _cpu_a_byte(smallest),
        one_core[0]["wall"] / smallest["wall"] if one_core else float("nan"),
        most,
    )


def _cpu_a_byte(line: dict[str, Any]) -> float:
    return float(line["cpu"]) / float(line["size"])


def cores_for(rate: Rate, size: int, minutes: float) -> int:
    """Return the number of busy cores that read ``size`` bytes in the given time."""
    return max(-(-round(size * rate.seconds_a_byte) // round(minutes * 60)), 1)


def hosts_for(size: int, minutes: float, gigabits: float) -> int:
    """Return the number of hosts whose networks fetch ``size`` bytes from an object store in the given time."""
    return max(-(-size * 8 // round(gigabits * 1e9 * minutes * 60)), 1)


def scale_tables(found: Sequence[Rate], gigabits: float) -> Iterator[str]:
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
    print("\n".join(scale_tables(found, gigabits)))
