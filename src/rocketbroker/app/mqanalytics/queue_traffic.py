"""``mqanalytics queue-traffic``: the result of ``traffic`` from the queues, without Spark."""

from typing import TYPE_CHECKING, Annotated

import typer

from rocketbroker.app.mqanalytics.options import ROWS, AsJson, Limit, Since, Stores, Topics, Until
from rocketbroker.app.mqanalytics.rendering import print_rows
from rocketbroker.app.mqanalytics.running import failing_in_one_line, known_stores, selection

if TYPE_CHECKING:
    from rocketbroker.analytics.columns.decode_report import DecodeReport


def command(
    stores: Stores,
    interval: Annotated[int, typer.Option("--interval", min=60, help="Seconds of an interval: whole minutes.")] = 60,
    since: Since = None,
    until: Until = None,
    topic: Topics = None,
    limit: Limit = ROWS,
    as_json: AsJson = False,
) -> None:
    """Count messages and bytes of each topic by time, from the queues: without Spark, and without most of the log.

    --since and --until are whole minutes. Where queues do not cover the log, the log is read, with a warning.
    """
    with failing_in_one_line():
        wanted, roots = selection(since, until, topic), known_stores(stores, topic)
        from rocketbroker.analytics.columns.decode_report import DecodeReport
        from rocketbroker.analytics.jobs.queue_traffic import queue_traffic

        report = DecodeReport()
        found = queue_traffic(
            roots, interval, since_ms=wanted.since_ms, until_ms=wanted.until_ms, topics=wanted.topics, report=report
        )
    rows = found.slice(0, limit or None).to_pylist()
    summary = {"more": len(rows) < found.num_rows, "notRead": _not_read(report)}
    print_rows("queue-traffic", rows, found.column_names, summary, as_json)


def _not_read(report: "DecodeReport") -> dict[str, int] | None:
    """Return the damage; None without any, since most of the log was not read."""
    ranges = report.ranges
    return {"ranges": len(ranges), "bytes": sum(each.length for each in ranges)} if ranges else None
