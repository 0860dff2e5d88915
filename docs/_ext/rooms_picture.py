"""Picture of the rooms, as SVG, drawn from the import contracts in ``pyproject.toml``."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import rocketbroker

_PACKAGE = Path(rocketbroker.__file__).parent
_WIDTH = 1080
_MARGIN = 16
_GAP = 8
_LINE = 30
_TITLE = 28
_FILLS = ("#eef3f8", "#ffffff")
_STYLE = "text{font:14px system-ui,sans-serif;fill:#1c2733}.room{font-weight:600}.note{fill:#5a6b7b}"
# Stations of a send in order, as on the architecture page.
SEND = ("transport", "codec", "processor", "store.message_appender", "store.commitlog", "store.dispatch", "store.queue")

Layers = list[list[str]]


class Box(NamedTuple):
    """Position and size of a room in the picture."""

    left: float
    top: float
    width: float
    height: float


def contracts() -> dict[str, Layers]:
    """Return the layers of each room with inner rooms, from the top; the empty name is the package."""
    held = tomllib.loads((_PACKAGE.parents[1] / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers: dict[str, Layers] = {}
    for contract in held:
        if contract["type"] == "layers":
            container = contract["containers"][0].removeprefix("rocketbroker").removeprefix(".")
            folder = _PACKAGE / container
            rows = [[word.strip(" ()") for word in layer.split("|")] for layer in contract["layers"]]
            layers[container] = [[name for name in row if _is_there(folder / name)] for row in rows]
    return layers


def _is_there(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


def render() -> str:
    """Return the picture."""
    held = contracts()
    height = _height("", held) + 2 * _MARGIN + _TITLE
    note = "A room imports from the rooms below it, never from beside or above. Numbers follow a send."
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{note}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text class="note" x="{_MARGIN}" y="{_MARGIN + 12}">{note}</text>',
        *_rows("", Box(_MARGIN, _MARGIN + _TITLE, _WIDTH - 2 * _MARGIN, height), held),
        "</svg>",
        "",
    ]
    return "\n".join(lines)


def _height(room: str, held: dict[str, Layers]) -> int:
    """Return the height of the rows in a room, including gaps."""
    return sum(_row_height(room, row, held) + _GAP for row in held[room]) - _GAP


def _row_height(room: str, row: list[str], held: dict[str, Layers]) -> int:
    return max(_TITLE + _height(path, held) + _GAP if path in held else _LINE for path in _paths(room, row))


def _paths(room: str, row: list[str]) -> list[str]:
    return [f"{room}.{name}".removeprefix(".") for name in row]


def _rows(room: str, inside: Box, held: dict[str, Layers]) -> Iterator[str]:
    """Draw the layers of a room from the top; rooms with layers of their own get three times the width of others."""
    top = inside.top
    for row in held[room]:
        height = _row_height(room, row, held)
        paths = _paths(room, row)
        shares = [3 if path in held else 1 for path in paths]
        unit = (inside.width - _GAP * (len(row) - 1)) / sum(shares)
        left = inside.left
        for path, share in zip(paths, shares, strict=True):
            yield from _box(path, Box(left, top, unit * share, height), held)
            left += unit * share + _GAP
        top += height + _GAP


def _box(path: str, box: Box, held: dict[str, Layers]) -> Iterator[str]:
    depth = path.count(".")
    yield (
        f'<rect x="{box.left:.0f}" y="{box.top:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="5" '
        f'fill="{_FILLS[depth]}" stroke="#9db2c6"/>'
    )
    name = path.rpartition(".")[2]
    yield f'<text class="{"" if depth else "room"}" x="{box.left + 10:.0f}" y="{box.top + 20:.0f}">{name}</text>'
    if path in SEND:
        x, y = box.left + box.width - 16, box.top + 15
        yield f'<circle cx="{x:.0f}" cy="{y:.0f}" r="10" fill="#1d6fb8"/>'
        number = SEND.index(path) + 1
        yield f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" style="fill:#fff">{number}</text>'
    if path in held:
        yield from _rows(path, Box(box.left + _GAP, box.top + _TITLE, box.width - 2 * _GAP, box.height), held)
