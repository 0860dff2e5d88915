"""Output of reports: tables by rich, JSON by msgspec."""

import sys
from typing import Any

import msgspec

from rocketbroker.app.mqadmin.report import Report, Table

# Files and other programs get rows that are never folded.
_UNLIMITED = 100_000


def print_report(report: Report, *, as_json: bool) -> None:
    """Print a report to stdout and its failures to stderr."""
    if as_json:
        print_json(report.data)
    else:
        for part in report.parts:
            print(part) if isinstance(part, str) else print_table(part)
    for failure in report.failures:
        print_error(failure)


def print_json(data: Any) -> None:
    """Print one JSON value."""
    print(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())


def print_table(table: Table) -> None:
    """Print a table, folded to the width of a terminal; elsewhere print each row on one line."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=_UNLIMITED)
    grid = RichTable(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in table.columns:
        grid.add_column(Text(column.title), justify="right" if column.right else "left", overflow="fold")
    for row in table.rows:
        grid.add_row(*map(Text, row))
    console.print(grid)


def print_error(reason: str) -> None:
    """Print the reason to stderr as one line."""
    print("mqadmin:", " ".join(reason.split()), file=sys.stderr)
