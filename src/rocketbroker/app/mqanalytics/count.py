"""``mqanalytics count``: messages by topic and queue."""

import json
from typing import TYPE_CHECKING

from rocketbroker.app.mqanalytics.options import AsJson, Stores
from rocketbroker.app.mqanalytics.running import failing_in_one_line

if TYPE_CHECKING:
    from rocketbroker.analytics import TopicQueueCount


def command(stores: Stores, as_json: AsJson = False) -> None:
    """Count the messages of each topic and queue."""
    with failing_in_one_line():
        counts = _count(stores)
    _print_json(counts) if as_json else _print_table(counts)


def _count(stores: list[str]) -> "list[TopicQueueCount]":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from rocketbroker.analytics import count_messages

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("Starting Spark", total=None)
        return count_messages(
            stores,
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
