"""Output of rows: ``name=value`` pairs for people, JSON lines for programs."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Annotated, Any

import typer

from rocketbroker.app.terminal import json_text, say, say_json
from rocketbroker.app.times import human_millis

Limit = Annotated[int, typer.Option("--limit", min=0, metavar="COUNT", help="Rows to show at most; 0 shows all.")]

Row = Mapping[str, Any]


def print_rows(rows: Iterable[Row], *, as_json: bool, limit: int = 0) -> None:
    """Print rows; in text, values in ms whose names end in ``Timestamp`` become dates."""
    for row in islice(rows, limit or None):
        say_json(row) if as_json else say(_line(row))


def _line(row: Row) -> str:
    return " ".join(f"{name}={_text(name, value)}" for name, value in row.items() if value is not None)


def _text(name: str, value: Any) -> str:
    if name.endswith("Timestamp"):
        return human_millis(value).replace(" ", "T", 1) if value > 0 else str(value)
    if isinstance(value, str):
        plain = value and value.isprintable() and not set(value) & set(' "=')
        return value if plain else json_text(value)
    return json_text(value)
