"""``mqanalytics count``: messages by topic and queue."""

from typing import TYPE_CHECKING, Any

from rocketbroker.app.mqadmin.rendering import print_json
from rocketbroker.app.mqanalytics.options import AsJson, Stores
from rocketbroker.app.mqanalytics.rendering import told
from rocketbroker.app.mqanalytics.running import failing_in_one_line, known_stores, running
from rocketbroker.app.mqanalytics.table_jobs import SkipDamage

if TYPE_CHECKING:
    from rocketbroker.analytics import TopicQueueCount


def command(stores: Stores, skip_damage: SkipDamage = False, as_json: AsJson = False) -> None:
    """Count the messages of each topic and queue."""
    with failing_in_one_line():
        roots = known_stores(stores)
        with running("Counting messages") as (spark, _):
            from rocketbroker.analytics import count_messages
            from rocketbroker.analytics.columns.selection import EVERYTHING
            from rocketbroker.analytics.jobs.scope import Scope

            counts = count_messages(roots, spark)
            not_read = None if skip_damage else Scope(spark, roots, EVERYTHING).not_read()._asdict()
    (_print_json if as_json else _print_table)(counts, {"notRead": not_read})


def _print_json(counts: "list[TopicQueueCount]", summary: dict[str, Any]) -> None:
    rows = [{"topic": row.topic, "queueId": row.queue_id, "messages": row.messages} for row in counts]
    print_json({"messages": sum(row.messages for row in counts), "queues": rows, **summary})


def _print_table(counts: "list[TopicQueueCount]", summary: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_footer=True)
    table.add_column("Topic", "all", overflow="fold")
    table.add_column("Queue", justify="right")
    table.add_column("Messages", f"{sum(row.messages for row in counts):,}", justify="right")
    for row in counts:
        table.add_row(row.topic, str(row.queue_id), f"{row.messages:,}")
    Console().print(table)
    print(told(len(counts), summary, "queue"))
