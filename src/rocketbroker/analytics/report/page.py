"""The report as a self-contained HTML page, with style, script, plotly and numbers."""

import json
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from rocketbroker.analytics.report.facts import StoreFacts
from rocketbroker.analytics.report.figures import (
    DARK,
    LIGHT,
    Figure,
    Kind,
    Section,
    ShownTable,
    Tile,
    Unit,
    cut,
    show,
    unique,
)
from rocketbroker.analytics.report.png import write_pngs
from rocketbroker.analytics.report.sections import sections, tiles
from rocketbroker.common.errors import StoreError

_HERE: Final = Path(__file__).parent
# The page may fetch nothing, since its content is untrusted: any producer chooses names of topics and keys.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
# Pixels of a bar, and of the space around all bars.
_LEVEL: Final = 24
_LEVELS_FRAME: Final = 76
# Smaller values are shown with fractions.
_SMALL: Final = 10


def html_page(title: str, lead: str, tiles: Sequence[Tile], sections: Sequence[Section]) -> str:
    """Return the page; ``lead`` is the sentence below its title."""
    from plotly.offline import get_plotlyjs

    drawn = [section for section in sections if section.figure is not None]
    figures = {section.name: _plotly(section.figure) for section in drawn if section.figure is not None}
    script = (_HERE / "page.js").read_text()
    parts = [
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{escape(title)}</title>",
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name=viewport content="width=device-width, initial-scale=1">',
        '<meta name=color-scheme content="light dark">',
        f"<style>{(_HERE / 'page.css').read_text()}{_colour_rules()}</style></head><body>",
        _head(title, lead, tiles, sections),
        "<main>",
        *(_section(section) for section in sections),
        "</main>",
        f"<script>{get_plotlyjs()}</script>",
        f"<script>const COLOURS = {_json({'light': LIGHT, 'dark': DARK})}; const FIGURES = {_json(figures)};</script>",
        f"<script>{script}</script></body></html>\n",
    ]
    return "\n".join(parts)


def _head(title: str, lead: str, tiles: Sequence[Tile], sections: Sequence[Section]) -> str:
    links = "".join(f'<a href="#{section.name}">{escape(section.title)}</a>' for section in sections)
    numbers = "".join(map(_tile, tiles))
    button = '<button id=theme type=button aria-label="Light or dark">◐</button>'
    return (
        f"<header><div class=bar><h1>{escape(title)}</h1>{button}</div><p class=lead>{escape(lead)}</p>"
        f"<nav>{links}</nav><div class=tiles>{numbers}</div></header>"
    )


def _tile(tile: Tile) -> str:
    text = f"<b>{escape(tile.value)}</b><span>{escape(tile.title)}</span>"
    return f'<div class="tile{" alarm" if tile.alarm else ""}">{text}</div>'


def _section(section: Section) -> str:
    shown = section.table.rows
    body = f'<div class="both{"" if section.figure else " alone"}">{_figure(section)}{_table(section.table)}</div>'
    return (
        f'<section id="{section.name}"{" class=alarm" if section.alarm else ""}><h2>{escape(section.title)}</h2>'
        f"<p>{escape(section.note)}</p>{body if shown else f'<p class=empty>{escape(section.empty)}</p>'}</section>"
    )


def _figure(section: Section) -> str:
    if section.figure is None:
        return ""
    levels = len(section.figure.series[0].x) if section.figure.kind is Kind.LEVELS else 0
    style = f' style="height:{_LEVELS_FRAME + _LEVEL * levels}px;min-height:0"' if levels else ""
    label = escape(f"{section.title}: {section.figure.y_title}")
    place = f'<div class=figure id="figure-{section.name}" role=img aria-label="{label}"{style}></div>'
    return f"<div>{_legend(section.figure)}{place}</div>"


def _legend(figure: Figure) -> str:
    """Return the legend; the style cuts long names, and the tooltip shows them in full."""
    if len(figure.series) < 2:
        return ""
    entries = "".join(
        f'<li title="{escape(each.name)}"><i class="c{each.colour}"></i>{escape(each.name)}</li>'
        for each in figure.series
    )
    return f"<ul class=legend>{entries}</ul>"


def _table(table: ShownTable) -> str:
    units = list(table.columns.values())
    head = "".join(f"<th{_side(unit)}>{escape(title)}</th>" for title, unit in table.columns.items())
    rows = "".join(f"<tr>{_cells(units, row)}</tr>" for row in table.rows)
    rest = f"<p class=rest>and {table.left_out:,} more</p>" if table.left_out else ""
    return f"<div class=table tabindex=0><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}</div>"


def _cells(units: Sequence[Unit], row: Sequence[int | float | str | None]) -> str:
    return "".join(f"<td{_side(unit)}>{escape(show(value, unit))}</td>" for unit, value in zip(units, row, strict=True))


def _side(unit: Unit) -> str:
    """Return the class that aligns numbers to the right."""
    return "" if unit is Unit.TEXT else " class=n"


def _plotly(figure: Figure) -> dict[str, Any]:
    """Return the traces and the layout that the page's script passes to plotly."""
    flat = figure.kind is Kind.LEVELS
    return {
        "kind": figure.kind,
        "xTitle": figure.x_title,
        "yTitle": figure.y_title,
        "small": max((max(series.y, default=0) for series in figure.series), default=0) < _SMALL,
        "series": [
            {
                "name": _text(series.name),
                "x": list(series.y) if flat else _axis(series.x),
                "y": _axis(series.x) if flat else list(series.y),
                "colour": series.colour,
            }
            for series in figure.series
        ],
    }


def _axis(values: Sequence[int | str]) -> list[int | str]:
    texts = iter(unique([cut(value) for value in values if isinstance(value, str)]))
    return [_text(next(texts)) if isinstance(value, str) else value for value in values]


def _text(name: str) -> str:
    """Return a name escaped for plotly's markup, which interprets some tags."""
    return escape(cut(name), quote=False)


def _colour_rules() -> str:
    """Return the colours of series as CSS, the same as in plotly."""
    light = "".join(f".c{number}{{background:{colour}}}" for number, colour in enumerate(LIGHT))
    dark = "".join(f"[data-theme=dark] .c{number}{{background:{colour}}}" for number, colour in enumerate(DARK))
    return light + dark


def _json(value: Any) -> str:
    """Return JSON that is safe inside a script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def write_report(facts: StoreFacts, output: Path, png_dir: Path | None = None) -> list[Path]:
    """Write the page to ``output``, atomically, and PNGs of its figures to ``png_dir``; return the files."""
    shown = sections(facts)
    page = html_page("Store report", lead(facts), tiles(facts), shown)
    try:
        _write_whole(output, page)
        return [output, *(write_pngs(shown, png_dir) if png_dir is not None else [])]
    except OSError as error:
        raise StoreError(f"cannot write {error.filename or output}: {error.strerror}") from error


def lead(facts: StoreFacts) -> str:
    """Return the lead of the page: stores, time range and selection."""
    names = ", ".join(broker for broker, _ in facts.stores)
    times = f"{show(facts.first_ms, Unit.TIME)} to {show(facts.last_ms, Unit.TIME)} UTC"
    text = f"{names}: {'no messages' if facts.first_ms is None else times}"
    return f"{text}; {facts.asked}" if facts.asked else text


def _write_whole(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", encoding="utf-8", errors="replace", delete=False
    ) as part:
        part_path = Path(part.name)
        try:
            part.write(text)
            part.close()
            part_path.chmod(0o644)
            part_path.replace(path)
        except BaseException:
            part_path.unlink(missing_ok=True)
            raise
