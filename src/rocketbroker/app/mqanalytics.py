"""``mqanalytics``: PySpark over a store."""

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketbroker.app.mqanalytics_report import command as report
from rocketbroker.common.errors import RocketBrokerError

if TYPE_CHECKING:
    from rocketbroker.analytics import TopicQueueCount

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

StoreDir = Annotated[
    Path, typer.Argument(metavar="STORE_DIR", help="A store's root directory, or its commit-log directory.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]


@app.callback()
def mqanalytics() -> None:
    """PySpark over the store of a RocketMQ broker, also while the broker runs."""


@app.command()
def count(store_dir: StoreDir, as_json: AsJson = False) -> None:
    """Count the messages of each topic and queue in the commit log."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs a stack for every call that a Ctrl-C interrupts
    try:
        counts = _count(store_dir)
    except RocketBrokerError as error:
        print(f"mqanalytics: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    _print_json(counts) if as_json else _print_table(counts)


app.command("report")(report)


def main() -> None:
    """Entry point; exit code 0 done, 1 the store or Spark could not be used, 2 wrong arguments, 130 interrupted."""
    app()


def _count(store_dir: Path) -> "list[TopicQueueCount]":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    try:
        from rocketbroker.analytics import count_messages
    except ImportError as error:
        raise RocketBrokerError(f"{error.name} is missing: pip install 'rocketbroker[analytics]'") from error
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("Starting Spark", total=None)
        return count_messages(
            store_dir,
            progress=lambda done, total: progress.update(
                task, description="Counting messages", completed=done, total=total
            ),
        )


def _print_json(counts: "list[TopicQueueCount]") -> None:
    rows = [{"topic": row.topic, "queueId": row.queue_id, "messages": row.messages} for row in counts]
    print(json.dumps({"messages": sum(row.messages for row in counts), "queues": rows}, indent=2, ensure_ascii=False))


def _print_table(counts: "list[TopicQueueCount]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_footer=True)
    table.add_column("Topic", "all", overflow="fold")
    table.add_column("Queue", justify="right")
    table.add_column("Messages", f"{sum(row.messages for row in counts):,}", justify="right")
    for row in counts:
        table.add_row(row.topic, str(row.queue_id), f"{row.messages:,}")
    Console().print(table)


if __name__ == "__main__":
    main()
