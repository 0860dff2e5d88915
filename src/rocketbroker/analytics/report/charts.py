"""Figures and tables shared by several sections."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.report.colours import Colours
from rocketbroker.analytics.report.figures import Figure, Kind, ShownTable, Unit
from rocketbroker.analytics.report.histogram import bars
from rocketbroker.analytics.report.labels import unique
from rocketbroker.analytics.report.units import show

#: Most rows of a table, and bars of a figure.
ROWS: Final = 100
LEVELS: Final = 20

Row = Sequence[int | float | str | None]


def by_value(table: pa.Table, column: str) -> dict[Any, pa.Table]:
    """Return the rows of each value of a column."""
    values = pc.unique(table.column(column)).to_pylist()
    return {value: table.filter(pc.equal(table.column(column), value)) for value in values}


def shown(columns: Mapping[str, Unit], rows: Sequence[Row]) -> ShownTable:
    """Return a table of the first rows, as many as fit beside a figure."""
    return ShownTable(columns, rows[:ROWS], max(len(rows) - ROWS, 0))


def histogram_figure(
    name: str, groups: dict[str, pa.Table], column: str, borders: Sequence[int], unit: Unit, colours: Colours
) -> Figure | None:
    """Return bars between borders, without empty bars at both ends."""
    heights = {group: bars(rows, column, borders) for group, rows in groups.items()}
    if not heights:
        return None
    used = np.flatnonzero(sum(heights.values()))
    low, high = int(used[0]), int(used[-1]) + 1
    labels = [f"< {show(border, unit)}" for border in borders] + [f"≥ {show(borders[-1], unit)}"]
    cut = {group: [float(count) for count in counts[low:high]] for group, counts in heights.items()}
    return Figure(name, Kind.BARS, "", "messages", Unit.COUNT, colours.series(labels[low:high], cut))


def levels_figure(name: str, y_title: str, rows: Sequence[tuple[str, float, str]], colours: Colours) -> Figure | None:
    """Return a horizontal bar for each (label, value, name with a colour), as many as fit."""
    if not rows:
        return None
    labels = unique([label for label, _, _ in rows[:LEVELS]])
    by_name = {
        owner: [value if mine == owner else 0.0 for _, value, mine in rows[:LEVELS]] for _, _, owner in rows[:LEVELS]
    }
    return Figure(name, Kind.LEVELS, "", y_title, Unit.COUNT, colours.series(labels, by_name))


def descending(rows: list[Row]) -> list[Row]:
    """Sort rows by their second column, the largest first, then by their first column."""
    return sorted(rows, key=lambda row: (-float(row[1] or 0), str(row[0])))
