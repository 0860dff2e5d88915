"""What a sub-command found, as plain data: for people as text and tables, for programs as one JSON value."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Column(NamedTuple):
    """A column of a table; numbers stand at the right."""

    title: str
    right: bool = False


class Table(NamedTuple):
    """Rows of text under columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


class Report(NamedTuple):
    """The outcome of a sub-command.

    ``data`` is what ``--json`` prints: structs, lists and dicts. ``parts`` are what people see. ``failures`` are lines
    for stderr about what could not be found out; with any the exit code is 1.
    """

    data: Any
    parts: Sequence[str | Table]
    failures: Sequence[str] = ()
