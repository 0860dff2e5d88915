"""Colours of series: a topic has the same colour in all figures."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from rocketbroker.analytics.report.figures import MOST_SERIES, OTHERS, Series


@dataclass(frozen=True, slots=True)
class Colours:
    """Names with their own colour, in order; all others are drawn as "others"."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, counts: pa.Table, column: str) -> "Colours":
        """Return colours for the values of a column with the most messages."""
        totals = counts.group_by(column).aggregate([("messages", "sum")])
        order = [("messages_sum", "descending"), (column, "ascending")]
        found: list[str] = totals.sort_by(order).column(column).to_pylist()
        return cls(tuple(found[:MOST_SERIES]))

    def colour(self, name: str) -> int:
        """Return the index of a name's colour."""
        return self.names.index(name) if name in self.names else MOST_SERIES

    def series(self, x: list[int] | list[str], by_name: Mapping[str, Iterable[float]]) -> list[Series]:
        """Return a series for each name with a colour that is among ``by_name``, and one for all others together."""
        found = [Series(name, x, list(by_name[name]), self.colour(name)) for name in self.names if name in by_name]
        rest = [list(values) for name, values in by_name.items() if name not in self.names]
        if rest:
            found.append(Series(OTHERS, x, [sum(each) for each in zip(*rest, strict=True)], MOST_SERIES))
        return found
