"""Figures and tables shared by several sections: histograms and percentiles of values counted by class."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.report.figures import Colours, Figure, Kind, ShownTable, Unit, show, unique

# Classes of values for histograms and percentiles: their first three decimal digits.
#
# A few thousand counts give percentiles of any number of values, at most 1 % too high. Powers of ten, and all numbers
# of three digits followed by zeros, are borders of classes.

_EXACT: Final = 1000
_LEADS: Final = 900  # 100 to 999
_POWERS: Final = 10 ** np.arange(19, dtype=np.int64)
#: The class of all values below 0.
BELOW: Final = -1

Ints = npt.NDArray[np.int64]


def class_of(values: Ints) -> Ints:
    """Return the class of each value, shape (n,); classes ascend with the values."""
    scale = _POWERS[np.maximum(np.searchsorted(_POWERS, values, side="right") - 3, 0)]
    classes = _EXACT + (np.searchsorted(_POWERS, scale) - 1) * _LEADS + values // scale - _LEADS // 9
    return np.where(values < 0, BELOW, np.where(values < _EXACT, values, classes)).astype(np.int64)


def largest_of(value_class: int) -> int:
    """Return the largest value of a class; -1 for those below 0."""
    if value_class < _EXACT:
        return value_class
    power, lead = divmod(value_class - _EXACT, _LEADS)
    return int((lead + _LEADS // 9 + 1) * 10 ** (power + 1)) - 1


def quantile(classes: Ints, counts: Ints, part: float) -> int:
    """Return a value that at least ``part`` (0 to 1) of all values do not exceed: the largest of its class.

    ``classes`` ascend and ``counts``, not all 0, are the numbers of their values; both have shape (n,).
    """
    reached = int(np.searchsorted(np.cumsum(counts), part * counts.sum() - 1e-9))
    return largest_of(int(classes[min(reached, len(classes) - 1)]))


_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
#: Borders of the bars, each also a border of classes.
MILLIS_BORDERS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_SECOND, 2 * _SECOND, 5 * _SECOND, 10 * _SECOND, 30 * _SECOND),
    *(_MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 3 * _HOUR, 12 * _HOUR, _DAY, 5 * _DAY, 10 * _DAY),
)
BYTES_BORDERS: Final = tuple(step * 10**power for power in range(2, 10) for step in (1, 2, 5))


class Spread(NamedTuple):
    """Distribution of values: count, percentiles (rounded up to their class), maximum, and count below 0."""

    messages: int
    p50: int
    p90: int
    p99: int
    most: int
    ahead: int


def spread(rows: pa.Table, class_column: str) -> Spread:
    """Return the spread of the values counted in ``rows``, which are not empty."""
    classes, counts = _numbers(rows, class_column)
    order = np.argsort(classes, kind="stable")
    classes, counts = classes[order], counts[order]
    most = max(rows.column("most").to_pylist())
    p50, p90, p99 = (min(quantile(classes, counts, part), max(most, 0)) for part in (0.5, 0.9, 0.99))
    return Spread(int(counts.sum()), p50, p90, p99, most, int(counts[classes < 0].sum()))


def bars(rows: pa.Table, class_column: str, borders: Sequence[int]) -> Ints:
    """Count the values between borders: below the first, from each to the next, and above the last; shape (n + 1,)."""
    classes, counts = _numbers(rows, class_column)
    place = np.searchsorted(class_of(np.array(borders, np.int64)), classes, side="right")
    return np.bincount(place, counts, len(borders) + 1).astype(np.int64)


def _numbers(rows: pa.Table, class_column: str) -> tuple[Ints, ...]:
    return tuple(np.asarray(rows.column(name).to_numpy(), np.int64) for name in (class_column, "messages"))


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
