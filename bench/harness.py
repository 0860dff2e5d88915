"""Harness of the benchmarks: their commands, common options, failures, tables, and the origin of their figures."""

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tests.support.java_toolchain import JavaError, find_tools

ROOT: Final = Path(__file__).resolve().parent.parent
#: Module of each command of bench/run; the command is its function of that name.
COMMANDS: Final = {
    **dict.fromkeys(("analytics", "scale"), "analytics"),
    "analytics_store": "mixed_store",
    "big_store": "big_store",
    "bounds": "bounds",
    **dict.fromkeys(("broker_processes", "broker_scale"), "broker_scale"),
    "cleaning": "cleaning",
    "clients": "clients",
    "delayed": "delayed",
    **dict.fromkeys(("first_message", "recovery"), "starts"),
    "namesrv_scale": "namesrv_scale",
    **dict.fromkeys(("profile_batch", "profile_send"), "profiles"),
    "replication": "replication",
    "side_by_side": "side_by_side",
}

Rounds = Annotated[int, typer.Option(min=1, help="Rounds; the figures are their medians.")]
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


def figures_line(figures: Mapping[str, float]) -> str:
    """Return figures by name in one line."""
    return "  ".join(f"{name} {value:,.2f}" for name, value in figures.items())
