"""Cost of reading a store with and without Spark, compared with a plain read, a plain loop and the Java client.

    bench/run analytics [--gib 1,2,4,8] [--rounds 3] [--only read,headers,...] [--cores 1,2] [--java] [--json FILE] ...
    bench/run scale FILE [--gigabits 10]

bench/README.md describes each case. ``scale`` computes cluster sizes from the figures: the tables of
docs/operations/scale.md. Cores are those of the measured machine; the network rate of a host is an option.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final

import numpy as np
import typer

from bench import load, raw_load
from bench.harness import BenchError, Folder, JsonFile, KeptStore, Rounds, heading, table, temporary
from bench.mixed_store import SEGMENT, write_mixed
from bench.servers import name_server, opened, our_side
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY
from tests.support.java_toolchain import JavaError, missing_tools
from tests.support.mixed_store import MixedStore

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
#: The case without messages: the start of a Spark session.
START: Final = "spark_start"
WORKER_LIMIT_MIB: Final = 1024
_SMALL_SEGMENT: Final = 1 << 28
_BUFFER: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Measure:
    """One run of one case, or the medians of all its runs on one store.

    Attributes:
        round: number of the run, 0 for medians.
        gib: segments of 1 GiB in the store; 0 when its size was given as a number of messages.
        cores: cores of the Spark session; 0 without Spark.
        messages, size: messages in the store, and bytes of its log.
        wall, cpu: seconds; CPU time of all processes.
        peak: peak memory in MiB of the process, or with Spark of one Python worker.
    """

    round: int
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
    """A target for the ratio of case ``of`` to case ``to`` by ``figure``, cpu or wall: at ``most`` or at ``least``."""

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
        write_mixed(root, gib) if gib else MixedStore(root, messages, mapped_file_size_commit_log=_SMALL_SEGMENT).make()
    logs = sorted((root / "commitlog").iterdir())
    for path in logs:
        with path.open("rb", buffering=0) as file:
            while file.read(_BUFFER):
                pass
    sizes = [np.fromfile(path, CONSUME_QUEUE_ENTRY)["size"] for path in (root / "consumequeue").glob("*/*/*")]
    count = sum(int((each > 0).sum()) for each in sizes)
    return Store(root, gib, count, max(sum(int(each.sum()) for each in sizes), len(logs) * SEGMENT if gib else 0))


def measure(stores: Sequence[Store], names: Sequence[str], rounds: int, cores: Sequence[int]) -> Iterator[Measure]:
    """Run all rounds over all stores and yield each measure; the cases of one Spark session share a process."""
    for number in range(1, rounds + 1):
        for store in stores:
            mine = [name for name in names if store is stores[0] or name in GROWING]
            for name in PLAIN:
                if name in mine:
                    yield from _run(store, number, 0, "bench.analytics_cases", name, str(store.root))
            spark = [name for name in SPARK if name in mine]
            for each in cores if spark else ():
                yield from _run(store, number, each, "bench.analytics_spark", str(store.root), str(each), *spark)


def _run(store: Store, number: int, cores: int, module: str, *arguments: str) -> Iterator[Measure]:
    """Run a process of cases and yield a measure for each JSON line it prints."""
    command = [sys.executable, "-P", "-m", module, *arguments]
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
        raise BenchError(f"{module} {' '.join(arguments)} ended with exit status {process.returncode}")


DRAIN: Final = "java_drain"
TOPIC: Final = "orders"
_GROUP: Final = "bench_analytics"
_DRAIN_LIMIT: Final = 900  # seconds


def java_drain(root: Path, home: Path, segment: int) -> float:
    """Return the messages a second of a push consumer, from its first to its last delivery.

    Args:
        root: the store; a copy is served because a broker writes delayed messages into it.
        home: folder for the copy and for the logs.
        segment: size of its CommitLog files in bytes.

    Raises:
        JavaError, BenchError: Java is missing, or a process failed.
    """
    reason = missing_tools()
    if reason:
        raise JavaError(reason)
    load.prepare()
    copy, servers = shutil.copytree(root, home / "drained"), home / "drain"
    servers.mkdir()
    queues = sorted((copy / "consumequeue" / TOPIC).iterdir(), key=lambda path: int(path.name))
    messages = sum(
        int((np.fromfile(path, CONSUME_QUEUE_ENTRY)["size"] > 0).sum()) for queue in queues for path in queue.iterdir()
    )
    settings = [f"mappedFileSizeCommitLog={segment}", "mappedFileSizeConsumeQueue=6000000", "messageIndexEnable=false"]
    with (
        name_server(our_side(), servers) as namesrv,
        opened(copy, servers, settings, namesrv=namesrv.address) as broker,
    ):
        raw_load.commit_offsets(broker.address, _GROUP, TOPIC, [0] * len(queues))
        outcome = load.run_load(
            ["drain", namesrv.address, TOPIC, _GROUP, str(messages), str(_DRAIN_LIMIT)],
            servers,
            limit=_DRAIN_LIMIT + 60,
        )
    shutil.rmtree(copy)
    if outcome.trouble or outcome.rate is None:
        raise BenchError(outcome.trouble)
    return outcome.rate


def lines(measures: Sequence[Measure]) -> list[Measure]:
    """Return the medians of each case on each store, in measuring order, with the highest peak."""
    keys = dict.fromkeys((each.name, each.gib, each.cores, each.messages, each.size) for each in measures)
    found = []
    for key in keys:
        mine = [each for each in measures if (each.name, each.gib, each.cores, each.messages, each.size) == key]
        wall, cpu = median(each.wall for each in mine), median(each.cpu for each in mine)
        found.append(Measure(0, *key, wall, cpu, max(each.peak for each in mine)))
    return found


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
        begin, times = (
            [line.name, str(line.gib or "-"), str(line.cores or "-")],
            [f"{line.wall:.2f}", f"{line.cpu:.2f}"],
        )
        each = [f"{line.cpu_ns:.1f}", f"{line.rate / 1e6:,.0f}", f"{line.peak:,.0f}"]
        of_messages = line.name != START
        rows.append(
            [*begin, f"{line.messages:,}" if of_messages else "-", *times, *(each if of_messages else ["-"] * 3)]
        )
    aims = [
        [aim.text, str(gib or "-"), aim.bound, f"{ratio:.2f}", "met" if aim.is_met(ratio) else "not met"]
        for aim, gib, ratio in ratios(found)
    ]
    if workers := [line.peak for line in found if line.cores]:
        met = "met" if max(workers) <= WORKER_LIMIT_MIB else "not met"
        aims.append(["peak of a worker, MiB", "all", f"≤ {WORKER_LIMIT_MIB}", f"{max(workers):.0f}", met])
    return table(head, rows) + "\n\n" + table(["ratio", "GiB", "aim", "measured", ""], aims, "lrrrl")


def as_json(run: dict[str, str], measures: Sequence[Measure]) -> str:
    """Return all runs, medians and ratios as JSON."""
    found = lines(measures)
    return json.dumps(
        {
            "run": run,
            "medians": [asdict(line) | {"cpu_ns": line.cpu_ns, "rate": line.rate} for line in found],
            "ratios": [
                {"text": aim.text, "gib": gib, "aim": aim.bound, "ratio": ratio, "met": aim.is_met(ratio)}
                for aim, gib, ratio in ratios(found)
            ],
            "runs": [asdict(each) for each in measures],
        },
        indent=1,
    )


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


def analytics(  # noqa: PLR0913, PLR0917 - one argument for each option
    gib: Annotated[str, typer.Option(metavar="A,B", help="Sizes of the stores; all cases run on the first.")] = "1",
    messages: Annotated[int, typer.Option(min=0, help="Measure one store of this many messages instead.")] = 0,
    rounds: Rounds = 3,
    only: Annotated[str | None, typer.Option(metavar="A,B", help="Cases to run, by name.")] = None,
    cores: Annotated[str, typer.Option(metavar="A,B", help="Cores of the Spark sessions, the most last.")] = "1,2",
    java: Annotated[bool, typer.Option("--java", help="Have the official client consume the largest topic.")] = False,
    stores: KeptStore = None,
    folder: Folder = None,
    json_file: JsonFile = None,
) -> None:
    """Measure reads of stores. Exit with status 1 if a case fails or returns the wrong messages."""
    names, sizes, core_counts = _names(only), _numbers(gib), _numbers(cores)
    run = heading(gib=gib, messages=messages, rounds=rounds, cores=cores, only=only or "-")
    measures: list[Measure] = []

    def keep(found: Measure) -> None:
        measures.append(found)
        where = f"{found.gib} GiB" if found.gib else f"{found.messages:,} messages"
        with_cores = f", {found.cores} cores" if found.cores else ""
        print(
            f"[{found.round}] {found.name:16} {where}{with_cores}: {found.wall:8.2f} s, CPU {found.cpu:8.2f} s, "
            f"{found.cpu_ns:8.1f} ns a message, peak {found.peak:6.0f} MiB",
            flush=True,
        )

    with temporary(folder) as home:
        place = stores or home
        place.mkdir(parents=True, exist_ok=True)
        try:
            found = [made(place, 0, messages)] if messages else [made(place, each, 0) for each in sizes]
            for one in measure(found, names, rounds, core_counts):
                keep(one)
            if java:
                # The client drains one topic; its time is scaled to all messages of the store.
                first = found[0]
                seconds = first.messages / java_drain(first.root, home, SEGMENT if first.gib else _SMALL_SEGMENT)
                keep(Measure(1, DRAIN, first.gib, 0, first.messages, first.size, seconds, 0.0, 0.0))
        finally:
            if json_file is not None and measures:
                json_file.write_text(as_json(run, measures))
    print("\n" + markdown(lines(measures)))


TB: Final = 10**12
PB: Final = 10**15
#: Bytes of log, and the minutes available to read them.
TASKS: Final = ((TB, 10), (TB, 60), (PB, 60), (PB, 24 * 60))
#: Cases with Spark, and the matching cases without it.
JOBS: Final = {"spark_traffic": "pruned", "spark_pruned": "pruned", "spark_full": "full"}


@dataclass(frozen=True, slots=True)
class Rate:
    """Throughput of one core in a job: CPU seconds a byte of log, and the share of the decoder.

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
        yield Rate(job, _cpu_a_byte(largest), share, _cpu_a_byte(largest) / _cpu_a_byte(smallest), speed_up, most)


def _cpu_a_byte(line: dict[str, Any]) -> float:
    return float(line["cpu"]) / float(line["size"])


def cores_for(rate: Rate, size: int, minutes: float) -> int:
    """Return the number of busy cores that read ``size`` bytes in the given time."""
    return max(-(-round(size * rate.seconds_a_byte) // round(minutes * 60)), 1)


def hosts_for(size: int, minutes: float, gigabits: float) -> int:
    """Return the number of hosts whose networks fetch ``size`` bytes from an object store in the given time."""
    return max(-(-size * 8 // round(gigabits * 1e9 * minutes * 60)), 1)


def scale(
    measured: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Output of `analytics --json`.")],
    gigabits: Annotated[float, typer.Option(min=0.1, help="Network rate of a host to the object store, Gbit/s.")] = 10,
) -> None:
    """Print the tables of docs/operations/scale.md. Exit with status 1 without a measurement with Spark."""
    found = list(rates(json.loads(measured.read_text())["medians"]))
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
