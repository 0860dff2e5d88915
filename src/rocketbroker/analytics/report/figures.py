"""Content of figures and tables, independent of the drawing library: labels, colours, and numbers as text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import pyarrow as pa

from rocketbroker.analytics.columns.message_schema import FIRST_MS, LAST_MS

#: Colours of series in their order, for a light and a dark background; each pair is one hue. The last is for "others".
LIGHT: Final = ("#2a78d6", "#eb6834", "#1baf7a", "#eda100", "#4a3aa7", "#e34948", "#e87ba4", "#008300", "#8b8a85")
DARK: Final = ("#3987e5", "#d95926", "#199e70", "#c98500", "#9085e9", "#e66767", "#d55181", "#4fa34f", "#8b8a85")
#: Number of series with their own hue.
MOST_SERIES: Final = len(LIGHT) - 1
OTHERS: Final = "others"


class Kind(StrEnum):
    """Form of a figure."""

    AREAS = "areas"  # stacked, x is time in ms since 1970
    BARS = "bars"  # stacked, x is a category
    LEVELS = "levels"  # horizontal bars, stacked, the first category on top


class Unit(StrEnum):
    """Unit of a number."""

    COUNT = "count"
    BYTES = "bytes"
    MILLIS = "ms"
    TIME = "time"  # ms since 1970
    SHARE = "share"  # of 1
    TEXT = "text"


COUNT, BYTES, MILLIS, TIME, SHARE, TEXT = Unit


@dataclass(frozen=True, slots=True)
class Series:
    """Values by x; ``colour`` is an index of the colours."""

    name: str
    x: Sequence[int | str]
    y: Sequence[float]
    colour: int


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure; ``name`` is that of its file, ``y_unit`` the unit of the values."""

    name: str
    kind: Kind
    x_title: str
    y_title: str
    y_unit: Unit
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class ShownTable:
    """Units of columns by title, and rows with ``None`` for no value; ``left_out`` more rows are not shown."""

    columns: Mapping[str, Unit]
    rows: Sequence[Sequence[int | float | str | None]]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page: title, note, figure and table."""

    name: str
    title: str
    note: str  # explanation of the numbers
    figure: Figure | None
    table: ShownTable
    empty: str  # text if there is nothing to show
    alarm: bool = False  # true if its content is bad news


@dataclass(frozen=True, slots=True)
class Tile:
    """A number at the head of the page, as text."""

    title: str
    value: str
    alarm: bool = False


_LONGEST: Final = 30
_TAIL: Final = 8


def cut(name: str) -> str:
    """Shorten a name in the middle to fit beside a figure."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - _TAIL - 1]}…{name[-_TAIL:]}"


def unique(labels: Sequence[str]) -> list[str]:
    """Number repeated labels, since a category axis merges equal ones."""
    seen: dict[str, int] = {}
    found = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        found.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return found


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


NOTHING: Final = "\N{EN DASH}"
_BYTES: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_THOUSAND: Final = 1000
_SPANS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def show(value: float | str | None, unit: Unit) -> str:
    """Return a value as text, a dash for None."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    return _SHOWN[unit](value)


def _count(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def _bytes(value: float) -> str:
    power = 0
    while power < len(_BYTES) - 1 and abs(value) >= _THOUSAND ** (power + 1):
        power += 1
    return f"{_three_digits(value / _THOUSAND**power)} {_BYTES[power]}"


def _span(value: float) -> str:
    """Return milliseconds in the largest unit that the span reaches."""
    for size, name in _SPANS:
        if abs(value) >= size:
            return f"{_three_digits(value / size)} {name}"
    return f"{value:.0f} ms"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _time(value: float) -> str:
    if not FIRST_MS <= value <= LAST_MS:
        return f"{value:.0f} ms since 1970"
    return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _share(value: float) -> str:
    return f"{value * 100:.1f} %"


_SHOWN: Final[dict[Unit, Callable[[float], str]]] = {
    Unit.COUNT: _count,
    Unit.BYTES: _bytes,
    Unit.MILLIS: _span,
    Unit.TIME: _time,
    Unit.SHARE: _share,
    Unit.TEXT: str,
}
