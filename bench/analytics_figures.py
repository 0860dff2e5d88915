"""Medians, ratios with their targets, and tables of the analytics measurements."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

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
