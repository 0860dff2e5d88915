"""The figures of a report as PNG files, for mail: drawn by matplotlib, which needs no browser."""

from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import numpy as np

from rocketbroker.analytics.report.figures import LIGHT, Figure, Kind, Section, Unit, cut, show, unique

_WIDTH: Final = 10.0  # inches
_HEIGHT: Final = 4.6
_BAR: Final = 0.3  # inches of a horizontal bar
_DPI: Final = 120
_INK: Final = "#1c1b19"
_SOFT: Final = "#63615b"
_LINE: Final = "#e4e2dc"
_NO_WIDTH: Final = "\N{ZERO WIDTH SPACE}"
_MS_PER_DAY: Final = 86_400_000


def write_pngs(sections: Sequence[Section], folder: Path) -> list[Path]:
    """Draw the figures of sections into ``folder``, which is created if missing; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for section in sections:
        if section.figure is not None:
            path = folder / f"{section.figure.name}.png"
            _write(section, section.figure, path)
            written.append(path)
    return written


def _write(section: Section, figure: Figure, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    bars = len(figure.series[0].x) if figure.kind is Kind.LEVELS else 0
    size = _WIDTH, max(_HEIGHT, 1.6 + bars * _BAR)
    canvas = Canvas(figsize=size, dpi=_DPI, facecolor="white", layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.add_subplot()
    canvas.suptitle(_plain(section.title), x=0.02, ha="left", color=_INK, fontsize=15, fontweight="bold")
    _DRAWN[figure.kind](axes, figure)
    _dress(axes, figure)
    if len(figure.series) > 1:
        columns = min(len(figure.series), 4)
        canvas.legend(loc="outside lower left", ncols=columns, frameon=False, labelcolor=_SOFT, fontsize=9)
    canvas.savefig(path, metadata={"Software": None})


def _areas(axes: Any, figure: Figure) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    days = [int(each) / _MS_PER_DAY for each in figure.series[0].x]  # matplotlib counts days since 1970
    heights = [series.y for series in figure.series]
    colours = [LIGHT[series.colour] for series in figure.series]
    axes.stackplot(days, heights, labels=_labels(figure), colors=colours, linewidth=0.6, edgecolor="white")
    axes.xaxis_date(tz=UTC)
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]  # its library is typed in parts
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.margins(x=0)


def _bars(axes: Any, figure: Figure) -> None:
    labels = _stack(axes.bar, figure, 0.86)
    crowded = len(labels) > 10
    axes.set_xticks(range(len(labels)), labels, rotation=40 if crowded else 0, ha="right" if crowded else "center")


def _levels(axes: Any, figure: Figure) -> None:
    labels = _stack(axes.barh, figure, 0.7)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()


def _stack(draw: Any, figure: Figure, width: float) -> list[str]:
    """Draw the bars of all series on top of each other; return the labels of the bars."""
    base = np.zeros(len(figure.series[0].x))
    style = {"edgecolor": "white", "linewidth": 0.8}
    for series, label in zip(figure.series, _labels(figure), strict=True):
        draw(range(len(base)), series.y, width, base, color=LIGHT[series.colour], label=label, **style)
        base = base + series.y
    return _short(figure.series[0].x)


_DRAWN: Final = {Kind.AREAS: _areas, Kind.BARS: _bars, Kind.LEVELS: _levels}


def _dress(axes: Any, figure: Figure) -> None:
    """Style axes, grid and text as on the page."""
    from matplotlib.ticker import FuncFormatter

    flat = figure.kind is Kind.LEVELS
    values = axes.xaxis if flat else axes.yaxis
    values.set_major_formatter(FuncFormatter(lambda value, _: show(round(value, 2), Unit.COUNT)))
    axes.set_xlabel(figure.y_title if flat else figure.x_title, color=_SOFT)
    axes.set_ylabel(figure.x_title if flat else figure.y_title, color=_SOFT)
    axes.grid(axis="x" if flat else "y", color=_LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_SOFT, length=0, labelsize=9)
    for side in axes.spines.values():
        side.set_visible(False)


def _labels(figure: Figure) -> list[str]:
    return _short([series.name for series in figure.series])


def _short(labels: Sequence[int | str]) -> list[str]:
    """Return labels that fit; matplotlib omits one that begins with "_" from the legend."""
    texts = unique([cut(str(label)) for label in labels])
    return [_plain(f"{_NO_WIDTH}{text}" if text.startswith("_") else text) for text in texts]


def _plain(text: str) -> str:
    """Return text escaped for matplotlib's mathematics, without characters that it cannot draw."""
    drawn = (each if each.isprintable() or each == _NO_WIDTH else "\N{REPLACEMENT CHARACTER}" for each in text)
    return "".join(drawn).replace("$", r"\$")
