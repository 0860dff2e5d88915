"""``mqanalytics count``: messages by topic and queue."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rocketbroker.app.mqadmin.rendering import print_json
from rocketbroker.app.mqanalytics.options import AsJson, Stores
from rocketbroker.app.mqanalytics.rendering import last_line
from rocketbroker.app.mqanalytics.running import failing_in_one_line, known_stores, reading, running
from rocketbroker.app.mqanalytics.table_jobs import SkipDamage
from rocketbroker.app.terminal import escaped, say

if TYPE_CHECKING:
    from rocketbroker.analytics import TopicQueueCount
    from rocketbroker.analytics.files.store_root import StoreRoot

    Counted = tuple[list[TopicQueueCount], dict[str, int] | None]

# One process reads this much in about the time that Spark needs to start.
_MOST_LOCAL_BYTES: Final = 4 << 30


class Engine(StrEnum):
    """Engine that counts."""

    auto = "auto"
    local = "local"
    spark = "spark"


def command(
    stores: Stores,
    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            help="Count in this process (local), with Spark, or automatically: with Spark above 4 GiB of log.",
        ),
    ] = Engine.auto,
    skip_damage: SkipDamage = False,
    as_json: AsJson = False,
) -> None:
    """Count the messages of each topic and queue."""
    with failing_in_one_line():
        roots = known_stores(stores)
        if engine is Engine.auto:
            engine = Engine.local if _size(roots) <= _MOST_LOCAL_BYTES else Engine.spark
        counts, not_read = (_by_spark if engine is Engine.spark else _locally)(roots, skip_damage)
    (_print_json if as_json else _print_table)(counts, {"notRead": not_read})


def _size(roots: "tuple[StoreRoot, ...]") -> int:
    from rocketbroker.analytics.log.split import plan_splits

    return sum(split.high - split.low for split in plan_splits(roots))


def _locally(roots: "tuple[StoreRoot, ...]", skip_damage: bool) -> "Counted":
    from rocketbroker.analytics import DecodeReport, count_locally

    report = DecodeReport()
    with reading() as tell:
        counts = count_locally(roots, report, tell)
    lengths = [each.length for each in report.ranges]
    return counts, None if skip_damage else {"ranges": len(lengths), "bytes": sum(lengths)}


def _by_spark(roots: "tuple[StoreRoot, ...]", skip_damage: bool) -> "Counted":
    with running("Counting messages") as (spark, _):
        from rocketbroker.analytics import count_messages
        from rocketbroker.analytics.columns.selection import EVERYTHING
        from rocketbroker.analytics.jobs.scope import Scope

        counts = count_messages(roots, spark)
        return counts, None if skip_damage else Scope(spark, roots, EVERYTHING).not_read()._asdict()


def _print_json(counts: "list[TopicQueueCount]", summary: dict[str, Any]) -> None:
    rows = [{"topic": row.topic, "queueId": row.queue_id, "messages": row.messages} for row in counts]
    print_json({"messages": sum(row.messages for row in counts), "queues": rows, **summary})


def _print_table(counts: "list[TopicQueueCount]", summary: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_footer=True)
    table.add_column("Topic", "all", overflow="fold")
    table.add_column("Queue", justify="right")
    table.add_column("Messages", f"{sum(row.messages for row in counts):,}", justify="right")
    for row in counts:
        table.add_row(Text(escaped(row.topic)), str(row.queue_id), f"{row.messages:,}")
    Console().print(table)
    say(last_line(len(counts), summary, "queue"))
