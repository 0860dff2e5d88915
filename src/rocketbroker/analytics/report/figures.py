"""Content of figures and tables, independent of the drawing library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

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
