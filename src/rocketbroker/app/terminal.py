"""Output of the commands: text, tables by rich, JSON by msgspec. Texts that clients chose reach a terminal escaped.

Clients choose their ids, and the tags, keys and bodies of messages. An escape sequence in one of them would hide lines,
rename the window, or type for the reader. So all that the commands print goes through this file; a test holds them to
it.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec

# Controls that JSON leaves as they are: DEL, the 8-bit ones (0x9B begins a sequence), and those that turn text around.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Bodies have up to 4 MiB: only runs of other characters than these are looked at one by one.
_NOT_PLAIN = re.compile("[^ -~]+")


def escaped(text: str, keep: str = "") -> str:
    """Return a text with escapes such as ``\\x1b`` for characters that are not printable, except those to keep."""
    if text.isprintable():
        return text

    def safe(found: re.Match[str]) -> str:
        run = found[0]
        if run in keep or run.isprintable():
            return run
        return "".join(char if char.isprintable() or char in keep else ascii(char)[1:-1] for char in run)

    return _NOT_PLAIN.sub(safe, text)


def say(*texts: object, err: bool = False) -> None:
    """Print texts with a blank between them, to stdout or stderr; their line feeds and tabs are kept."""
    print(escaped(" ".join(map(str, texts)), "\n\t"), file=sys.stderr if err else sys.stdout)


def json_text(data: Any, indent: int | None = None) -> str:
    """Return a JSON value, with escapes for all control characters."""
    encoded = msgspec.json.encode(data)
    text = (encoded if indent is None else msgspec.json.format(encoded, indent=indent)).decode()
    return _UNSAFE_IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text)


def say_json(data: Any, indent: int | None = None) -> None:
    """Print one JSON value."""
    print(json_text(data, indent))


@contextmanager
def json_list(data: Mapping[str, Any], name: str) -> Iterator[Callable[[Any], None]]:
    """Print one JSON object whose last value is a list, and yield a function that prints an item of it.

    The object is whole even if an error or Ctrl-C ends the work.

    Args:
        data: the other values.
        name: key of the list.
    """
    print(f"{json_text(dict(data))[:-1]}{',' if data else ''}{json_text(name)}:[", end="")
    separator = "\n"

    def add(item: Any) -> None:
        nonlocal separator
        print(f"{separator}{json_text(item)}", end="", flush=True)
        separator = ",\n"

    try:
        yield add
    finally:
        print("]}")


# A command line in a text: up to the end or to what follows a semicolon.
_COMMAND = re.compile(r"(mqadmin (?:(?!; ).)*)(?:; )?")


def prose(text: str, indent: str = "", *, err: bool = False) -> str:
    """Return sentences folded between words to the width of the terminal; elsewhere as one line.

    Command lines of mqadmin stay whole, each on lines of its own, so that they can be copied.

    Args:
        text: the sentences.
        indent: begins each line.
        err: it is for stderr.
    """
    if not (sys.stderr if err else sys.stdout).isatty():
        return indent + text
    from shutil import get_terminal_size
    from textwrap import fill

    width = get_terminal_size().columns
    fold = partial(fill, width=width, break_long_words=False, break_on_hyphens=False)
    parts = [part.strip() for part in _COMMAND.split(text) if part.strip()]
    return "\n".join(
        indent + part if part.startswith("mqadmin ") else fold(part, initial_indent=indent, subsequent_indent=indent)
        for part in parts
    )


def clear_screen() -> None:
    """Clear the terminal and go to its top; do nothing where the output goes elsewhere."""
    if sys.stdout.isatty():
        print("\x1b[H\x1b[2J\x1b[3J", end="")


def confirmed(question: str, where: str = "") -> bool:
    """Ask a question on a terminal, and return true for y or yes; without a terminal return true.

    Scripts that were written for RocketMQ's tools answer nothing, so they must not be asked.

    Args:
        question: begins with the verb, such as ``Delete topic T?``.
        where: address of the servers, to tell clusters apart.
    """
    if not sys.stdin.isatty():
        return True
    print(escaped(f"{question}{where and f' ({where})'} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def ask_hidden(question: str) -> str:
    """Ask for a secret on the terminal of this process, which does not show it.

    Raises:
        EOFError: the terminal has ended.
    """
    from getpass import getpass

    return getpass(escaped(question))


@contextmanager
def progress(text: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr if that is a terminal, and yield a function that advances it by a count.

    Args:
        text: names the work.
        total: count at which it is done, or None if nobody knows.
    """
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escaped(text), total=total)
        yield lambda count: bar.advance(task, count)


class Column(NamedTuple):
    """A column of a table; ``right`` aligns numbers."""

    title: str
    right: bool = False


class Table(NamedTuple):
    """Rows of text under columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


# Columns between those of a table, and the least width of a text that is longer.
_GAP = 2
_LEAST_TEXT = 10


def print_json(data: Any) -> None:
    """Print one JSON value."""
    say_json(data, indent=2)


def print_table(table: Table) -> None:
    """Print a table, folded to the width of a terminal; elsewhere print each row on one line.

    Where folding would cut numbers and the words of titles, print a line for each cell instead.
    """
    table = Table(table.columns, [[escaped(cell) for cell in row] for row in table.rows])
    if not sys.stdout.isatty():
        _print_rows(table)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    cells = [[column.title, *(row[at] for row in table.rows)] for at, column in enumerate(table.columns)]
    widths = [_least_width(column, cells[at]) for at, column in enumerate(table.columns)]
    folds = sum(max(map(len, each)) + _GAP for each in cells) + 1 > console.width
    if sum(widths) + len(widths) * _GAP + 1 > console.width:
        print_cells(table)
        return
    # The box has a blank between two columns, and one at each edge.
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
    for column, width in zip(table.columns, widths, strict=True):
        side: Literal["left", "right"] = "right" if column.right else "left"
        # A column with a width is not made narrower for the others.
        fixed = width if folds and column.right else None
        grid.add_column(Text(column.title), justify=side, overflow="fold", width=fixed)
    for row in table.rows:
        grid.add_row(*map(Text, row))
    console.print(grid)


def _print_rows(table: Table) -> None:
    """Print each row on one line, without rich: it takes a millisecond for a row."""
    from rich.cells import cell_len

    rows = [[column.title for column in table.columns], *table.rows]
    widths = [max(cell_len(row[at]) for row in rows) for at in range(len(table.columns))]
    for row in rows:
        pads = (" " * (width - cell_len(cell)) for width, cell in zip(widths, row, strict=True))
        padded = (
            pad + cell if column.right else cell + pad
            for column, pad, cell in zip(table.columns, pads, row, strict=True)
        )
        print((" " * _GAP).join(padded))


def _least_width(column: Column, cells: Sequence[str]) -> int:
    """Return the width below which a column cannot be read: numbers stay whole, and texts fold at ``_LEAST_TEXT``.

    Args:
        column: the column.
        cells: its title and its values.
    """
    longest = max(map(len, cells[1:]), default=0)
    return max(*map(len, column.title.split()), longest if column.right else min(longest, _LEAST_TEXT))


def print_cells(table: Table) -> None:
    """Print title and value of each cell on a line of its own, and an empty line after each row."""
    width = max(len(column.title) for column in table.columns) + _GAP
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            say(f"{column.title:{width}}{cell}".rstrip())
        say()
