"""Cost of reading a store with and without Spark, compared with a plain read, a plain loop and the Java client.

    bench/run analytics [--gib 1,2,4,8] [--rounds 3] [--only read,headers,...] [--cores 1,2] [--java] [--json FILE] ...
    bench/run scale FILE [--gigabits 10]

bench/README.md describes each case. ``scale`` computes cluster sizes from the figures: the tables of
docs/operations/scale.md. Cores are those of the measured machine; the network rate of a host is an option.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final

import numpy as np
import typer

from bench import load
from bench.analytics_cases import POLLS
from bench.harness import ROOT, BenchError, Folder, JsonFile, KeptStore, Rounds, chosen, heading, table, temporary
from bench.measure import shared_anonymous_mib, watched
from bench.mixed_stores import MIXED_A_GIB, fill_mixed
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY

PLAIN: Final = (
    *("read", "headers", "headers_walk", "pruned", "pruned_loop", "full", "time_1pct"),
    *("traffic_decode", "traffic_queues", "poll"),
)
SPARK: Final = ("spark_pruned", "spark_full", "spark_time_1pct", "spark_traffic")
#: Spark cases with the messages as Parquet, and commands, their start included; they run if they are named.
STAGED: Final = ("spark_export", "spark_parquet_pruned")
COMMANDS: Final = {
    "audit": ("mqanalytics", "audit"),
    "check": ("mqstore", "check"),
    "traffic": ("mqanalytics", "traffic"),
    "hot-keys": ("mqanalytics", "hot-keys"),
    "count_spark": ("mqanalytics", "count", "--engine", "spark"),
    "count": ("mqanalytics", "count"),
}
#: Commands that are to take less than ``COUNTING_LIMIT_MIB`` with all their processes.
COUNTING: Final = ("traffic", "hot-keys", "count_spark", "count")
COUNTING_LIMIT_MIB: Final = 1024
KNOWN: Final = (*PLAIN, *SPARK, *STAGED, *COMMANDS)
#: Cases that are run on stores of each size; all others on the first size only.
GROWING: Final = (
    *("read", "headers_walk", "pruned", "traffic_queues"),
    *("spark_pruned", "spark_time_1pct", "spark_traffic"),
)
#: The cases without messages: the start of a Spark session, and the polls of a stream.
START, POLL = "spark_start", "poll"
POLL_LIMIT_MS: Final = 10
#: Apache's push consumer drains one topic; its time is scaled to all messages of the store.
DRAIN, DRAIN_TOPIC, _DRAIN_LIMIT_S = "java_drain", "orders", 900
WORKER_LIMIT_MIB: Final = 1024
_SEGMENT: Final = 1 << 28
_BUFFER: Final = 8 << 20
_SHOWN: Final = 2000  # last characters of the output of a failed command


@dataclass(frozen=True, slots=True)
class Measure:
    """One run of one case, or the medians of all its runs on one store.

    Attributes:
        round: number of the run, 0 for medians.
        gib: size of the store; 0 when it was given as a number of messages.
        cores: cores of the Spark session; 0 without Spark.
        messages, size: messages in the store, and bytes of its log.
        wall, cpu: seconds; CPU time of all processes.
        peak: peak memory in MiB: of the process, with Spark of one Python worker, and the anonymous memory of all
            processes of a command; 0 if it was not measured.
    """

    round: int
    name: str
    gib: int
    cores: int
    messages: int
    size: int
    wall: float
    cpu: float
    peak: float = 0.0

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
    """A target for the ratio of case ``of`` to case ``to`` by CPU or wall time: at most ``bound``, or at least."""

    text: str
    of: str
    to: str
    bound: float
    least: bool = False
    figure: str = "cpu"

    @property
    def shown(self) -> str:
        """The target as text."""
        return f"{'≥' if self.least else '≤'} {self.bound:g}"

    def judged(self, ratio: float) -> str:
        """Return the judgement of a ratio."""
        return "met" if (ratio >= self.bound if self.least else ratio <= self.bound) else "not met"


AIMS: Final = (
    Aim("decode of headers to plain read", "headers", "read", 1.5),
    Aim("the same with the boundary walk to plain read", "headers_walk", "read", 3),
    Aim("plain loop to decoder", "pruned_loop", "pruned", 5, least=True),
    Aim("full decode to traffic from the queues", "full", "traffic_queues", 10, least=True),
    Aim("traffic by decode to traffic from the queues", "traffic_decode", "traffic_queues", 10, least=True),
    Aim("pruned Spark scan to decoder", "spark_pruned", "pruned", 2),
    Aim("full Spark scan to pruned", "spark_full", "spark_pruned", 3),
    Aim("whole to 1 % of the time, decoder", "pruned", "time_1pct", 10, least=True),
    Aim("whole to 1 % of the time, Spark", "spark_pruned", "spark_time_1pct", 10, least=True),
    Aim("Java client to traffic job, a message", DRAIN, "spark_traffic", 20, least=True, figure="wall"),
)


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
        fill_mixed(root, messages or gib * MIXED_A_GIB, segment=_SEGMENT, index=not gib)
    for path in sorted((root / "commitlog").iterdir()):
        with path.open("rb", buffering=0) as file:
            while file.read(_BUFFER):
                pass
    sizes = _sizes(root, "*")
    return Store(root, gib, int((sizes > 0).sum()), int(sizes.sum()))


def _sizes(root: Path, topic: str) -> Any:
    """Return the sizes of all queue entries of a topic; unused ones are 0."""
    files = (root / "consumequeue").glob(f"{topic}/*/*")
    return np.concatenate([np.fromfile(path, CONSUME_QUEUE_ENTRY)["size"].astype(np.int64) for path in files])


def measure(stores: Sequence[Store], names: Sequence[str], rounds: int, cores: Sequence[int]) -> Iterator[Measure]:
    """Run all rounds over all stores and yield each measure; the cases of one Spark session share a process."""
    for number in range(1, rounds + 1):
        for store in stores:
            mine = [name for name in names if store is stores[0] or name in GROWING]
            for name in PLAIN:
                if name in mine:
                    yield from run_cases(store, number, 0, *python("analytics_cases"), name, str(store.root))
            spark = [name for name in (*SPARK, *STAGED) if name in mine]
            for each in cores if spark else ():
                command = [*python("analytics_spark"), str(store.root), str(each), *spark]
                yield from run_cases(store, number, each, *command)
            for name in COMMANDS:
                if name in mine:
                    yield run_command(store, number, name)


def python(module: str) -> list[str]:
    """Return the begin of a command that runs a module of this package."""
    return [sys.executable, "-P", "-m", f"bench.{module}"]


def run_cases(store: Store, number: int, cores: int, *command: str) -> Iterator[Measure]:
    """Run a process of cases and yield a measure for each JSON line it prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found = json.loads(line)
            name, delivered = found.pop("name"), int(found.pop("messages"))
            # A case that reads all messages must report all of them; a case without a count reports 0.
            if delivered not in {0, store.messages} and "1pct" not in name:
                raise BenchError(f"{name} returned {delivered:,} of {store.messages:,} messages")
            yield Measure(number, name, store.gib, cores, store.messages, store.size, **found)
    if process.returncode:
        raise BenchError(f"{' '.join(command)} ended with exit status {process.returncode}")


def run_command(store: Store, number: int, name: str) -> Measure:
    """Run one of ``COMMANDS`` twice and return the measure of the second run."""
    program, job, *options = COMMANDS[name]
    for _ in range(2):
        # Spark's JVM waits for its workers, and the command for the JVM, so that children have the time of all.
        before, begun = os.times(), time.perf_counter()
        with (
            subprocess.Popen(
                [ROOT / "bin" / program, job, *options, store.root],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as process,
            watched(partial(shared_anonymous_mib, process.pid)) as peaks,
        ):
            said, _ = process.communicate()
        wall, after = time.perf_counter() - begun, os.times()
        if process.returncode:
            raise BenchError(f"{program} {job} ended with exit status {process.returncode}: {said[-_SHOWN:].strip()}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Measure(number, name, store.gib, 0, store.messages, store.size, wall, cpu, max(peaks))


def java_drain(store: Store, home: Path) -> Measure:
    """Measure Apache's push consumer on a copy of the store, into which a broker writes delayed messages."""
    copy, servers = shutil.copytree(store.root, home / "drained"), home / "drain"
    servers.mkdir()
    begins = [0] * len(list((copy / "consumequeue" / DRAIN_TOPIC).iterdir()))
    messages = int((_sizes(copy, DRAIN_TOPIC) > 0).sum())
    queue_file = next((copy / "consumequeue" / DRAIN_TOPIC).glob("*/*")).stat().st_size
    settings = [f"mappedFileSizeCommitLog={_SEGMENT}", f"mappedFileSizeConsumeQueue={queue_file}"]
    settings.append("messageIndexEnable=false")
    rate = load.drain_store(copy, servers, DRAIN_TOPIC, "bench_drain", begins, messages, settings, _DRAIN_LIMIT_S)
    shutil.rmtree(copy)
    return Measure(1, DRAIN, store.gib, 0, store.messages, store.size, store.messages / rate, 0.0)


def lines(measures: Sequence[Measure]) -> list[Measure]:
    """Return the medians of each case on each store, in measuring order, with the highest peak."""
    by_key: dict[tuple[str, int, int, int, int], list[Measure]] = {}
    for each in measures:
        by_key.setdefault((each.name, each.gib, each.cores, each.messages, each.size), []).append(each)
    return [
        Measure(0, *key, median(e.wall for e in mine), median(e.cpu for e in mine), max(e.peak for e in mine))
        for key, mine in by_key.items()
    ]


def ratios(found: Sequence[Measure]) -> Iterator[tuple[Aim, int, float]]:
    """Yield each target with both cases measured on a store: the target, the store's GiB and the ratio."""
    # With the most cores where a case was measured with several.
    cases = {(line.name, line.gib): line for line in sorted(found, key=lambda line: line.cores)}
    for gib in dict.fromkeys(line.gib for line in found):
        for aim in AIMS:
            one, other = cases.get((aim.of, gib)), cases.get((aim.to, gib))
            if one is not None and other is not None:
                of, to = (float(getattr(line, aim.figure)) / line.messages for line in (one, other))
                yield aim, gib, of / to


def markdown(found: Sequence[Measure]) -> str:
    """Return the tables of all figures and of the targets."""
    head = ["case", "GiB", "cores", "messages", "wall s", "CPU s", "CPU ns a message", "MB/s", "peak MiB"]
    rows = []
    for line in found:
        begin = [line.name, str(line.gib or "-"), str(line.cores or "-")]
        times = [f"{line.wall:.2f}", f"{line.cpu:.2f}"]
        each = [f"{line.cpu_ns:.1f}", f"{line.rate / 1e6:,.0f}", f"{line.peak:,.0f}"]
        rows.append(
            [*begin, "-", *times, *"---"]
            if line.name in {START, POLL}
            else [*begin, f"{line.messages:,}", *times, *each]
        )
    aims = [
        [aim.text, str(gib or "-"), aim.shown, f"{ratio:.2f}", aim.judged(ratio)] for aim, gib, ratio in ratios(found)
    ]
    most = (
        ("peak of a worker, MiB", WORKER_LIMIT_MIB, [line.peak for line in found if line.cores]),
        ("peak of a command that counts, MiB", COUNTING_LIMIT_MIB, [e.peak for e in found if e.name in COUNTING]),
        (
            "CPU of a poll of a stream, ms",
            POLL_LIMIT_MS,
            [line.cpu / POLLS * 1e3 for line in found if line.name == POLL],
        ),
    )
    for text, limit, values in most:
        if values:
            met = "met" if max(values) <= limit else "not met"
            aims.append([text, "all", f"≤ {limit}", f"{max(values):.0f}", met])
    return table(head, rows) + "\n\n" + table(["ratio", "GiB", "aim", "measured", ""], aims, "lrrrl")


STAGING: Final = (
    *("GiB", "cores", "direct, messages/s", "Parquet, messages/s", "export, messages/s"),
    *("queries until an export pays off, wall", "CPU"),
)


def staging(found: Sequence[Measure]) -> Iterator[list[str]]:
    """Yield for each session that has all three cases how reads of Parquet compare with those of the store.

    An export pays off after as many queries as the time of one that it saves fits into its own.
    """
    names = ("spark_pruned", "spark_parquet_pruned", "spark_export")
    cases = {(line.gib, line.cores, line.name): line for line in found}
    for gib, cores in dict.fromkeys((line.gib, line.cores) for line in found):
        mine = [cases[gib, cores, name] for name in names if (gib, cores, name) in cases]
        if len(mine) == len(names):
            direct, parquet, export = mine
            pays = [
                f"{getattr(export, figure) / saved:.0f}" if saved > 0 else "never"
                for figure in ("wall", "cpu")
                for saved in [getattr(direct, figure) - getattr(parquet, figure)]
            ]
            yield [str(gib or "-"), str(cores), *(f"{line.messages / line.wall:,.0f}" for line in mine), *pays]


def told(found: Measure) -> Measure:
    """Print a measure and return it."""
    where = f"{found.gib} GiB" if found.gib else f"{found.messages:,} messages"
    with_cores = f", {found.cores} cores" if found.cores else ""
    print(
        f"[{found.round}] {found.name:16} {where}{with_cores}: {found.wall:8.2f} s, CPU {found.cpu:8.2f} s, "
        f"{found.cpu_ns:8.1f} ns a message, peak {found.peak:6.0f} MiB",
        flush=True,
    )
    return found


def write_json(path: Path | None, run: dict[str, str], medians: Sequence[Measure], measures: Sequence[Measure]) -> None:
    """Write medians and all measures to a file, if there is one to write."""
    if path is not None:
        shown = {"run": run, "medians": list(map(asdict, medians)), "runs": list(map(asdict, measures))}
        path.write_text(json.dumps(shown, indent=1))


def _numbers(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",") if part]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers, such as 1,2,4") from None
    if any(each < 1 for each in found):
        raise typer.BadParameter(f"{text!r} has a number below 1; give numbers from 1 up")
    return found


def analytics(  # noqa: PLR0913, PLR0917 - one argument for each option
    gib: Annotated[str, typer.Option(metavar="A,B", help="Sizes of the stores; all cases run on the first.")] = "1",
    messages: Annotated[int, typer.Option(min=0, help="Measure one store of this many messages instead.")] = 0,
    rounds: Rounds = 3,
    only: Annotated[str, typer.Option(metavar="A,B", help="Cases to run, by name.")] = ",".join((*PLAIN, *SPARK)),
    cores: Annotated[str, typer.Option(metavar="A,B", help="Cores of the Spark sessions, the most last.")] = "1,2",
    java: Annotated[bool, typer.Option("--java", help="Have the official client consume the largest topic.")] = False,
    stores: KeptStore = None,
    folder: Folder = None,
    json_file: JsonFile = None,
) -> None:
    """Measure reads of stores. Exit with status 1 if a case fails or returns the wrong messages."""
    names, sizes, core_counts = chosen(only, KNOWN, "case"), _numbers(gib), _numbers(cores)
    if java:
        load.prepare()
    run = heading(gib=gib, messages=messages, rounds=rounds, cores=cores, only=only)
    with temporary(folder) as home:
        place = stores or home
        place.mkdir(parents=True, exist_ok=True)
        found = [made(place, 0, messages)] if messages else [made(place, each, 0) for each in sizes]
        measures = list(map(told, measure(found, names, rounds, core_counts)))
        if java:
            measures.append(told(java_drain(found[0], home)))
    medians = lines(measures)
    write_json(json_file, run, medians, measures)
    print("\n" + markdown(medians))
    if staged := list(staging(medians)):
        print("\n" + table(STAGING, staged))


TB: Final = 10**12
PB: Final = 10**15
#: Bytes of log, and the minutes available to read them.
TASKS: Final = ((TB, 10), (TB, 60), (PB, 60), (PB, 24 * 60))
#: Cases with Spark, and the matching cases without it.
JOBS: Final = {"spark_traffic": "pruned", "spark_pruned": "pruned", "spark_full": "full", "spark_export": "full"}
#: Bytes of a store that one host, and ten, read.
STORE_SIZE: Final = 100 * 10**9
HOSTS: Final = (1, 10)


@dataclass(frozen=True, slots=True)
class Rate:
    """Throughput of one core in a job: CPU seconds a byte of log, and the share of the decoder.

    Attributes:
        growth: CPU time a byte of the largest store divided by that of the smallest; 1 is linear growth.
        speed_up: wall time with one core divided by that with the most cores.
        cores: the most cores measured.
        busy: CPU time of the largest store divided by its wall time and by the cores.
    """

    job: str
    seconds_a_byte: float
    decoder_share: float
    growth: float
    speed_up: float
    cores: int
    busy: float


def rates(medians: Sequence[dict[str, Any]]) -> Iterator[Rate]:
    """Yield the rates of the Spark jobs that were measured, from the medians of a run of ``bench/run analytics``."""
    for job, decoder in JOBS.items():
        mine = [line for line in medians if line["name"] == job]
        if not mine:
            continue
        most = max(line["cores"] for line in mine)
        by_size = sorted((line for line in mine if line["cores"] == most), key=lambda line: int(line["size"]))
        smallest, largest = by_size[0], by_size[-1]
        plain = [line for line in medians if (line["name"], line["gib"]) == (decoder, smallest["gib"])]
        one_core = [line for line in mine if (line["cores"], line["gib"]) == (1, smallest["gib"])]
        share = _cpu_a_byte(plain[0]) / _cpu_a_byte(smallest) if plain else float("nan")
        speed_up = one_core[0]["wall"] / smallest["wall"] if one_core else float("nan")
        growth, busy = _cpu_a_byte(largest) / _cpu_a_byte(smallest), largest["cpu"] / largest["wall"] / most
        yield Rate(job, _cpu_a_byte(largest), share, growth, speed_up, most, busy)


def _cpu_a_byte(line: dict[str, Any]) -> float:
    return float(line["cpu"]) / float(line["size"])


def cores_for(rate: Rate, size: int, minutes: float) -> int:
    """Return the number of busy cores that read ``size`` bytes in the given time."""
    return max(-(-round(size * rate.seconds_a_byte) // round(minutes * 60)), 1)


def hosts_for(size: int, minutes: float, gigabits: float) -> int:
    """Return the number of hosts whose networks fetch ``size`` bytes from an object store in the given time."""
    return max(-(-size * 8 // round(gigabits * 1e9 * minutes * 60)), 1)


def seconds_for(rate: Rate, hosts: int, start: float, gigabits: float) -> float:
    """Return the seconds in which hosts like the measured one read ``STORE_SIZE``, by CPU or by network."""
    by_cpu = STORE_SIZE * rate.seconds_a_byte / (hosts * rate.cores * rate.busy)
    return start + max(by_cpu, STORE_SIZE * 8 / (hosts * gigabits * 1e9))


def scale(
    measured: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Output of `analytics --json`.")],
    gigabits: Annotated[float, typer.Option(min=0.1, help="Network rate of a host to the object store, Gbit/s.")] = 10,
) -> None:
    """Print the tables of docs/operations/scale.md. Exit with status 1 without a measurement with Spark."""
    medians = json.loads(measured.read_text())["medians"]
    found, start = list(rates(medians)), max((line["wall"] for line in medians if line["name"] == START), default=0.0)
    if not found:
        raise BenchError(f"{measured} has none of the cases {', '.join(JOBS)}; run bench/run analytics --json")
    head = ["job", "MB/s and core", "CPU of the decoder", "CPU a byte, largest store / smallest", "wall, 1 core / all"]
    rows = [
        [
            rate.job, f"{1 / rate.seconds_a_byte / 1e6:,.0f}", f"{rate.decoder_share * 100:.0f} %",
            f"{rate.growth:.2f}", f"{rate.speed_up:.2f} of {rate.cores}",
        ]
        for rate in found
    ]  # fmt: skip
    print(table(head, rows) + "\n")
    needs = [
        [
            f"{size // TB:,} TB", f"{minutes} min" if minutes <= 60 else f"{minutes // 60} h",
            *(f"{cores_for(rate, size, minutes):,}" for rate in found), f"{hosts_for(size, minutes, gigabits):,}",
        ]
        for size, minutes in TASKS
    ]  # fmt: skip
    jobs = [f"cores, {rate.job}" for rate in found]
    print(table(["log", "in", *jobs, f"hosts of {gigabits:g} Gbit/s"], needs, "ll" + "r" * (len(jobs) + 1)))
    parts = [
        [
            rate.job, f"{start:.1f}", f"{rate.seconds_a_byte * 1e9:.2f}", str(rate.cores), f"{rate.busy:.2f}",
            *(f"{seconds_for(rate, hosts, start, gigabits):,.0f}" for hosts in HOSTS),
        ]
        for rate in found
    ]  # fmt: skip
    head = [
        "job",
        "start, s",
        "CPU, s a GB",
        "cores of a host",
        "busy",
        *(f"{hosts} host{'s'[: hosts > 1]}, s" for hosts in HOSTS),
    ]
    print("\n" + table(head, parts))
