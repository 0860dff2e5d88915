"""``mqanalytics snapshot``: the current offsets of consumer groups, saved."""

from pathlib import Path
from typing import Annotated

import typer

from rocketbroker.app.mqadmin.rendering import print_json
from rocketbroker.app.mqanalytics.options import AsJson, Stores
from rocketbroker.app.mqanalytics.running import failing_in_one_line, known_stores
from rocketbroker.app.terminal import say
from rocketbroker.common.clock import SystemClock


def command(
    stores: Stores,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder of the snapshots; created if missing.")],
    as_json: AsJson = False,
) -> None:
    """Save the current offsets of consumer groups and the ends of their queues, for ``lag``; without Spark."""
    with failing_in_one_line():
        roots = known_stores(stores)
        from rocketbroker.analytics.jobs.snapshots import take_snapshot, write_snapshot

        now_ms = SystemClock().time_ms()
        snapshot = take_snapshot(roots, now_ms)
        path = write_snapshot(snapshot, to, now_ms)
    if as_json:
        print_json({"job": "snapshot", "file": str(path), "offsets": snapshot.num_rows})
    else:
        say(f"{path}: {snapshot.num_rows:,} offsets")
