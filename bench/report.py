"""Medians, ratios and the table of measurements."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

JAVA, OURS = "java", "ours"
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


def markdown(found: Iterable[Line]) -> str:
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
