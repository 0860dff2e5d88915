"""Picture of some panels of the Grafana board, as SVG, drawn from what a real Prometheus answered.

``board.json`` holds the answers; ``tests/support/watched_cluster.py`` records them.
"""

import json
from html import escape
from pathlib import Path
from typing import Final

# Points of a series: seconds since the start, and the value.
Series = list[tuple[int, float]]

_DATA: Final = Path(__file__).with_name("board.json")
# Panels and their units.
PANELS: Final = {
    "Messages in and out": "messages/s",
    "Messages in by topic": "messages/s",
    "Time of sends": "ms",
    "Lag": "messages",
    "Age of the oldest message not consumed": "ms",
    "Lag by queue": "messages",
    "Requests": "requests/s",
    "Used share of the disk": "",
    "gRPC calls": "calls/s",
    "Time of gRPC calls": "s",
    "Open gRPC calls, and proxies": "",
    "Longest hold of the event loop": "s",
}
_COLUMNS: Final = 3
_WIDTH, _HEIGHT, _GAP = 360, 220, 12
_PLOT_LEFT, _PLOT_TOP, _PLOT_HEIGHT = 52, 34, 110
_MOST_SERIES: Final = 5
_COLOURS: Final = ("#2f7ed8", "#d9822b", "#3a9d5d", "#a854a8", "#c23b3b")
_STYLE: Final = (
    "text{font:11px system-ui,sans-serif;fill:#1c2733}.title{font-weight:600;font-size:13px}.note{fill:#5a6b7b}"
)


def recorded() -> dict[str, dict[str, Series]]:
    """Return the series of each panel by their legends."""
    panels: dict[str, dict[str, Series]] = json.loads(_DATA.read_text("utf-8"))
    return panels


def render() -> str:
    """Return the picture."""
    panels = recorded()
    rows = -(-len(PANELS) // _COLUMNS)
    width, height = _COLUMNS * (_WIDTH + _GAP) + _GAP, rows * (_HEIGHT + _GAP) + _GAP
    note = "Panels of the board: two minutes in which a group stands still and catches up."
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{note}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#f4f6f8"/>',
    ]
    for index, title in enumerate(PANELS):
        left = _GAP + index % _COLUMNS * (_WIDTH + _GAP)
        top = _GAP + index // _COLUMNS * (_HEIGHT + _GAP)
        lines += _panel(title, panels[title], left, top)
    return "\n".join([*lines, "</svg>", ""])


def _panel(title: str, series: dict[str, Series], left: int, top: int) -> list[str]:
    shown = sorted(series.items(), key=lambda each: -max((value for _, value in each[1]), default=0.0))[:_MOST_SERIES]
    most = max((value for _, points in shown for _, value in points), default=0.0) or 1.0
    last = max((at for _, points in shown for at, _ in points), default=1) or 1
    plot_width = _WIDTH - _PLOT_LEFT - _GAP
    lines = [
        f'<g transform="translate({left},{top})">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill="#ffffff" stroke="#d6dde4"/>',
        f'<text class="title" x="{_GAP}" y="20">{escape(title)}</text>',
        f'<text class="note" x="{_WIDTH - _GAP}" y="20" text-anchor="end">{PANELS[title]}</text>',
    ]
    for share in (0.0, 0.5, 1.0):
        y = _PLOT_TOP + _PLOT_HEIGHT * (1 - share)
        lines.append(f'<path d="M{_PLOT_LEFT} {y:g}h{plot_width}" stroke="#e3e8ed"/>')
        lines.append(
            f'<text class="note" x="{_PLOT_LEFT - 6}" y="{y + 4:g}" text-anchor="end">{_short(most * share)}</text>'
        )
    for at in (0, last // 2, last):
        x = _PLOT_LEFT + plot_width * at / last
        lines.append(
            f'<text class="note" x="{x:g}" y="{_PLOT_TOP + _PLOT_HEIGHT + 14}" text-anchor="end">{at} s</text>'
        )
    for index, (legend, points) in enumerate(shown):
        colour = _COLOURS[index]
        places = " ".join(
            f"{_PLOT_LEFT + plot_width * at / last:.1f},{_PLOT_TOP + _PLOT_HEIGHT * (1 - value / most):.1f}"
            for at, value in points
        )
        lines.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        x, y = _GAP + index % 2 * _WIDTH // 2, _PLOT_TOP + _PLOT_HEIGHT + 32 + index // 2 * 15
        lines.append(f'<rect x="{x}" y="{y - 8}" width="8" height="8" fill="{colour}"/>')
        lines.append(f'<text x="{x + 12}" y="{y}">{escape(legend)}</text>')
    return [*lines, "</g>"]


def _short(value: float) -> str:
    """Return a number of an axis: 0.5, 12, 3.4k."""
    for unit in ("", "k", "M", "G"):
        if abs(value) < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}T"
