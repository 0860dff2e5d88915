"""``mqanalytics compare``: comparison of the messages of two stores."""

from enum import StrEnum
from typing import Annotated

import typer

from rocketbroker.app.mqanalytics.options import ROWS, AsJson, Exact, Limit, Since, Topics, Until
from rocketbroker.app.mqanalytics.rendering import print_rows
from rocketbroker.app.mqanalytics.running import EXIT_FOUND, failing_in_one_line, known_stores, running, selection
from rocketbroker.app.mqanalytics.table_jobs import collected


class By(StrEnum):
    """Identity of a message in both stores."""

    physical = "physical"
    queue = "queue"


def command(  # noqa: PLR0913, PLR0917 - its options
    first: Annotated[str, typer.Argument(metavar="FIRST", help="A store.")],
    second: Annotated[str, typer.Argument(metavar="SECOND", help="The store to compare it with.")],
    by: Annotated[
        By,
        typer.Option(
            "--by",
            help="Identity of a message: physical, its offset in the commit log, for a master and its slave; "
            "queue, its topic, queue and queue offset.",
        ),
    ] = By.physical,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="COLUMN", help="Do not compare this column; may be repeated."),
    ] = None,
    since: Since = None,
    until: Until = None,
    topic: Topics = None,
    exact: Exact = False,
    limit: Limit = ROWS,
    as_json: AsJson = False,
) -> None:
    """Compare the messages of two stores; exit code 3 if they differ."""
    with failing_in_one_line():
        wanted = selection(since, until, topic, exact=exact)
        roots = known_stores([first, second], topic)
        with running("Comparing") as (spark, _):
            from rocketbroker.analytics.jobs.columns import as_time
            from rocketbroker.analytics.jobs.compare import STORED_COLUMNS, as_stored, compare
            from rocketbroker.analytics.jobs.scope import Scope

            scopes = [Scope(spark, (root,), wanted) for root in roots]
            ours, theirs = (as_stored(scope.messages(STORED_COLUMNS)) for scope in scopes)
            found = compare(ours, theirs, by.value, tuple(ignore or ()))
            found = found.withColumn("store_timestamp", as_time(found["store_timestamp"]))
            rows, columns, more = collected(found, ("topic", "queue_id", "queue_offset", "physical_offset"), limit)
            parts = [scope.not_read() for scope in scopes]
    not_read = {"ranges": sum(part.ranges for part in parts), "bytes": sum(part.bytes for part in parts)}
    print_rows("compare", rows, columns, {"more": more, "notRead": not_read}, as_json)
    if rows:
        raise typer.Exit(EXIT_FOUND)
