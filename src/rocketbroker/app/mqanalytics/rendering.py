"""Output of rows: a table for people, one JSON document for programs."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rocketbroker.app.mqadmin.rendering import print_json, print_table
from rocketbroker.app.mqadmin.report import Column, Table
from rocketbroker.app.terminal import say
from rocketbroker.app.times import plain, shown_time

Row = Mapping[str, Any]


def print_rows(
    name: str, rows: Sequence[Row], columns: Sequence[str], summary: Mapping[str, Any], as_json: bool
) -> None:
    """Print the rows of the job ``name`` and a summary.

    Args:
        name: name of the job.
        rows: values by column, times as datetimes.
        columns: the columns in their order.
        summary: further members of the JSON document; ``notRead`` and ``more`` are also in the last line of a table.
        as_json: true for JSON, with names in camel case and times in ms since 1970.
    """
    if as_json:
        found = [{camel(column): plain(row[column]) for column in columns} for row in rows]
        print_json({"job": name, "rows": found, **summary})
        return
    print_table(Table([Column(title(column), _is_number(rows, column)) for column in columns], _texts(rows, columns)))
    say(last_line(len(rows), summary))


def last_line(count: int, summary: Mapping[str, Any], what: str = "row") -> str:
    """Return the last line of output: number of rows, a note if there are more, and unreadable ranges."""
    parts = [f"{count:,} {what}{'' if count == 1 else 's'}"]
    if summary.get("more"):
        parts.append("and more (--limit)")
    not_read = summary.get("notRead")
    if not_read is None:
        parts.append("not checked for damage")
    elif not_read["ranges"]:
        ranges = "range" if not_read["ranges"] == 1 else "ranges"
        parts.append(f"{not_read['ranges']:,} {ranges}, {not_read['bytes']:,} bytes not read")
    else:
        parts.append("everything was read")
    return "; ".join(parts)


def camel(name: str) -> str:
    """Return ``queue_id`` as ``queueId``."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def title(name: str) -> str:
    """Return ``queue_id`` as ``Queue id``, ``p99_9`` as ``P99.9``."""
    return re.sub(r"(\d)_(\d)", r"\1.\2", name).replace("_", " ").capitalize()


def _is_number(rows: Sequence[Row], column: str) -> bool:
    return any(isinstance(row[column], (int, float)) for row in rows)


def _texts(rows: Sequence[Row], columns: Sequence[str]) -> list[list[str]]:
    return [[text(row[column]) for column in columns] for row in rows]


def text(value: Any) -> str:
    """Return a value as text for people."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return shown_time(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
