"""``mqanalytics lag``: lag of consumer groups."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rocketbroker.app.mqanalytics.options import ROWS, AsJson, Limit, Stores
from rocketbroker.app.mqanalytics.rendering import print_rows
from rocketbroker.app.mqanalytics.running import failing_in_one_line, known_stores, running
from rocketbroker.app.mqanalytics.table_jobs import SkipDamage, collected
from rocketbroker.common.clock import SystemClock


class Level(StrEnum):
    """Level at which lag is aggregated."""

    queue = "queue"
    topic = "topic"
    group = "group"


def command(
    stores: Stores,
    snapshots: Annotated[
        Path | None,
        typer.Option(
            "--snapshots", metavar="DIR", help="Snapshots taken by `snapshot`; without it, the current state."
        ),
    ] = None,
    by: Annotated[Level, typer.Option("--by", help="Level at which lag is aggregated.")] = Level.queue,
    skip_damage: SkipDamage = False,
    limit: Limit = ROWS,
    as_json: AsJson = False,
) -> None:
    """Show the lag of consumer groups in messages, and the age of the oldest message not consumed."""
    with failing_in_one_line():
        roots = known_stores(stores)
        with running("Reading offsets") as (spark, _):
            from rocketbroker.analytics.columns.selection import EVERYTHING
            from rocketbroker.analytics.jobs.lag import LEVELS, lag
            from rocketbroker.analytics.jobs.scope import Scope
            from rocketbroker.analytics.jobs.snapshots import snapshot_frame, take_snapshot

            scope = Scope(spark, roots, EVERYTHING)
            if snapshots is None:
                taken = spark.createDataFrame(take_snapshot(roots, SystemClock().time_ms()))
            else:
                taken = snapshot_frame(spark, snapshots)
            messages = scope.messages(["broker", "topic", "queue_id", "queue_offset", "store_timestamp"])
            found = lag(taken, messages, by.value)
            rows, columns, more = collected(found, ("time", *LEVELS[by.value]), limit)
            summary = {"more": more, "notRead": None if skip_damage else scope.not_read()._asdict()}
    print_rows("lag", rows, columns, summary, as_json)
