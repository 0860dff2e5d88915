"""Harness of the benchmarks: commands, common options, failures, rounds, and the report of a run."""

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
from importlib import import_module
from itertools import product
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final, TypeVar

import typer

from tests.support.java_toolchain import JavaError, find_tools

ROOT: Final = Path(__file__).resolve().parent.parent
#: Module of each command of bench/run; the command is its function of that name.
COMMANDS: Final = {
    "analytics": "analytics",
    "analytics_live": "analytics_live",
    "analytics_store": "mixed_stores",
    "big_store": "starts",
    "broker_processes": "scaling",
    "broker_scale": "scaling",
    "cleaning": "cleaning",
    "clients": "clients",
    "delayed": "delayed",
    "first_message": "starts",
    "metrics": "metrics",
    "namesrv_scale": "scaling",
    "pop": "side_by_side",
    "profile_batch": "profiles",
    "profile_pop": "pops",
    "profile_send": "profiles",
    "recovery": "starts",
    "replication": "side_by_side",
    "scale": "analytics",
    "sdk": "sdk",
    "security": "security",
    "side_by_side": "side_by_side",
}

Rounds = Annotated[int, typer.Option(min=1, help="Rounds; the figures are their medians.")]
Seconds = Annotated[int, typer.Option(min=3, help="Length of each load.")]
Warm = Annotated[int, typer.Option(min=0, help="Seconds of each unrecorded warm-up load; 0 for none.")]
Heap = Annotated[str, typer.Option(help="Heap of each Java broker.")]
Size = Annotated[int, typer.Option(min=0, max=1 << 20, help="Bytes of each body.")]
Bursts = Annotated[int, typer.Option(min=1, help="How often each step is timed.")]
JavaOnly = Annotated[bool, typer.Option("--java-only", help="Measure Apache RocketMQ alone.")]
OursOnly = Annotated[bool, typer.Option("--ours-only", help="Measure ours alone.")]
Properties = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A broker property; repeatable.")
]
Folder = Annotated[
    Path | None,
    typer.Option("--dir", exists=True, file_okay=False, resolve_path=True, help="Folder for temporary stores."),
]
KeptStore = Annotated[
    Path | None, typer.Option(file_okay=False, resolve_path=True, help="Keep stores here and reuse existing ones.")
]
JsonFile = Annotated[Path | None, typer.Option("--json", dir_okay=False, help="Write all figures to this file.")]


Item = TypeVar("Item")


class BenchError(Exception):
    """A server, a load or a case failed, or returned the wrong messages."""


def application(name: str) -> typer.Typer:
    """Return a command of ``bench/run``; a failure is one line, and exit status 1."""
    work = getattr(import_module(f"bench.{COMMANDS[name]}"), name)

    @wraps(work)
    def reported(*arguments: Any, **options: Any) -> None:
        try:
            work(*arguments, **options)
        except (BenchError, JavaError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            raise typer.Exit(1) from error

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name)(reported)
    return app


def main() -> int:
    """Run the command that ``bench/run`` names, and return its exit status."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))  # so that servers are stopped cleanly
    application(sys.argv[0])()
    return 0


@contextmanager
def temporary(folder: Path | None = None) -> Iterator[Path]:
    """Yield a temporary folder, in ``folder`` or where the system puts them."""
    with tempfile.TemporaryDirectory(prefix="rocketbroker-bench-", dir=folder) as home:
        yield Path(home)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """Return a Markdown table; ``align`` has a letter a column, l or r, by default l for the first and r for others."""
    line = "".join("---|" if each == "l" else "---:|" for each in align or "l".ljust(len(head), "r"))
    return "\n".join([f"| {' | '.join(head)} |", f"|{line}", *(f"| {' | '.join(cells)} |" for cells in rows)])


def heading(**options: object) -> dict[str, str]:
    """Print and return commit, date, machine and options of a run, by name."""
    found = {
        "commit": commit(),
        "day": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, load average {os.getloadavg()[0]:.2f} at the start",
        "python": platform.python_version(),
        "java": _java_version(),
        "options": ", ".join(f"{name} {value}" for name, value in options.items()),
    }
    print("\n".join(f"{name}: {value}" for name, value in found.items()), flush=True)
    return found


def commit() -> str:
    """Return the commit of the checkout, with ``-dirty`` for local changes, or ``unknown`` outside a checkout."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=9", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def _java_version() -> str:
    done = subprocess.run([find_tools()["java"], "-version"], capture_output=True, text=True, check=False)
    return done.stderr.partition("\n")[0] or "unknown"


@dataclass(frozen=True, slots=True)
class Row:
    """Figures by name that one subject, such as a side or a client, had under one load in one round.

    ``trouble`` names a failed send, an undelivered message or a missing figure; it is empty on success.
    """

    round: int
    subject: str
    load: str
    figures: dict[str, float]
    trouble: str = ""


#: Title and format of the columns of a report, by figure.
Columns = Mapping[str, tuple[str, str]]


class Report:
    """Figures of a run: each is printed as it comes, and the medians of the rounds at the end."""

    def __init__(self, rounds: int, **options: object) -> None:
        self.run = heading(rounds=rounds, **options)
        self.rows: list[Row] = []
        self._rounds = rounds

    def add(self, row: Row) -> None:
        """Keep and print a row."""
        self.rows.append(row)
        figures = "  ".join(f"{name} {value:,.2f}" for name, value in row.figures.items())
        print(f"[{row.round}/{self._rounds}] {row.subject:5} {row.load:9} {figures} {row.trouble}".rstrip(), flush=True)

    def loads(self) -> list[str]:
        """Return the names of all loads in measuring order."""
        return list(dict.fromkeys(row.load for row in self.rows))

    def median(self, subject: str, load: str, figure: str) -> float | None:
        """Return the median of the rounds that have the figure, or ``None`` if none has it."""
        mine = [row.figures for row in self.rows if (row.subject, row.load) == (subject, load)]
        values = [figures[figure] for figures in mine if figure in figures]
        return median(values) if values else None

    def table(self, heads: Sequence[str], columns: Columns) -> str:
        """Return the medians as a Markdown table with a line for each subject, and each load if ``heads`` has two."""
        lines = []
        for subject, load in dict.fromkeys((row.subject, row.load) for row in self.rows):
            values = [(self.median(subject, load, figure), form) for figure, (_, form) in columns.items()]
            cells = ["-" if value is None else format(value, form) for value, form in values]
            lines.append([*[subject, load][: len(heads)], *cells])
        titles = [title for title, _ in columns.values()]
        return table([*heads, *titles], lines, "l" * len(heads) + "r" * len(titles))

    def comparison(self, subject: str, other: str, figures: Sequence[str], heads: Sequence[str]) -> str:
        """Return the medians of two subjects and their ratios as a Markdown table, a line for each load and figure."""
        lines = []
        for load, figure in product(self.loads(), figures):
            found = [self.median(each, load, figure) for each in (subject, other)]
            if found != [None, None]:
                first, second = found
                ratio = second / first if first and second is not None else None
                lines.append([load, figure, *map(_shown, (first, second, ratio))])
        return table(["scenario", "figure", *heads], lines, "llrrr")

    def end(self, json_file: Path | None = None) -> None:
        """Print the troubles, write all rows and medians to ``json_file``, and exit with status 1 after a trouble."""
        troubles = [row for row in self.rows if row.trouble]
        for row in troubles:
            print(f"TROUBLE round {row.round}, {row.subject}, {row.load}: {row.trouble}")
        if json_file is not None:
            keys = dict.fromkeys((row.subject, row.load, figure) for row in self.rows for figure in row.figures)
            medians = [
                dict(zip(("subject", "load", "figure"), key, strict=True), median=self.median(*key)) for key in keys
            ]
            rows = [asdict(row) for row in self.rows]
            json_file.write_text(json.dumps({"run": self.run, "medians": medians, "rows": rows}, indent=1))
        if troubles:
            raise typer.Exit(1)


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"


def turns(rounds: int, items: Sequence[Item]) -> Iterator[tuple[int, Item]]:
    """Yield all items in each round; odd and even rounds begin with different ones."""
    for number in range(1, rounds + 1):
        for item in items if number % 2 else reversed(items):
            yield number, item


def chosen(names: str, known: Iterable[str], noun: str) -> list[str]:
    """Return the names of ``--only a,b`` in the given order.

    Raises:
        BadParameter: one is unknown.
    """
    found = list(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in found:
        if name not in known:
            raise typer.BadParameter(f"unknown {noun} {name!r}; known: {', '.join(known)}")
    return found


def figures_table(figures: Iterable[tuple[str, str]]) -> None:
    """Print the commit, and figures as they come as the lines of a Markdown table."""
    print(f"commit {commit()}\n\n| figure | value |\n|---|---|")
    for name, value in figures:
        print(f"| {name} | {value} |", flush=True)
