"""Result of a sub-command as plain data: text and tables for people, one JSON value for programs."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Column(NamedTuple):
    """A column of a table; ``right`` aligns numbers."""

    title: str
    right: bool = False


class Table(NamedTuple):
    """Rows of text under columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


class Report(NamedTuple):
    """The outcome of a sub-command.

    ``--json`` prints ``data`` (structs, lists and dicts), otherwise ``parts`` are printed. ``failures`` are lines for
    stderr; any failure makes the exit code 1.
    """

    data: Any
    parts: Sequence[str | Table]
    failures: Sequence[str] = ()
