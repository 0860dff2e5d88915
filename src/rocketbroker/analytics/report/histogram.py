"""Histograms and percentiles of tables that count values by class."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from rocketbroker.analytics.report.value_classes import Ints, class_of, quantile

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
