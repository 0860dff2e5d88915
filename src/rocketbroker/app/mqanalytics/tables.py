"""Sub-commands that print rows, most of them generated from ``analytics/jobs/job_list.py``."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rocketbroker.analytics.jobs.job_list import Job, Option
from rocketbroker.app.mqanalytics.running import (
    EXIT_FOUND,
    ROWS,
    AsJson,
    Engine,
    Exact,
    Limit,
    Since,
    SkipDamage,
    Stores,
    Topics,
    Until,
    damage_of,
    failing_in_one_line,
    job_scope,
    known_stores,
    last_line,
    print_rows,
    reading,
    selection,
)
from rocketbroker.app.terminal import escaped, print_json, say
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rocketbroker.analytics import DecodeReport, StoreRoot, TopicQueueCount
    from rocketbroker.analytics.jobs.scope import Scope

    Counted = tuple[list[TopicQueueCount], dict[str, int] | None]

# The JVM sees only the groups of a job: its optimizing compiler would take more time than it saves. Without a limit its
# young generation would grow to a third of the heap before the first collections, 250 MiB for nothing.
_JOB_SETTINGS: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Xmn96m"}


def command_of(job: Job) -> Callable[..., None]:
    """Return the command of a job, with its own and the common options."""

    def command(
        stores: Stores,
        since: Since = None,
        until: Until = None,
        topic: Topics = None,
        exact: Exact = False,
        skip_damage: SkipDamage = False,
        limit: Limit = ROWS,
        as_json: AsJson = False,
        **options: Any,
    ) -> None:
        with failing_in_one_line():
            wanted, roots = selection(since, until, topic, exact=exact), known_stores(stores, topic)
            with job_scope(job.summary.rstrip("."), roots, wanted, _JOB_SETTINGS) as scope:
                frame = run(job, scope, options)
                rows, columns, summary = rows_and_summary(scope, frame, job.order, limit, skip_damage=skip_damage)
        print_rows(job.name, rows, columns, summary, as_json)

    signature = inspect.signature(command)
    common = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    own = [_parameter(option) for option in job.options]
    at = next(number for number, each in enumerate(common) if each.name == "exact")
    command.__signature__ = signature.replace(parameters=[*common[:at], *own, *common[at:]])  # type: ignore[attr-defined]
    command.__annotations__ |= {each.name: each.annotation for each in own}
    command.__doc__ = job.summary
    return command


def _parameter(option: Option) -> inspect.Parameter:
    kind: Any = type(option.default)
    if isinstance(option.default, tuple):
        kind = list[type(option.default[0])]  # type: ignore[misc]
    name = f"--{option.name.replace('_', '-')}"
    annotation = Annotated[kind, typer.Option(name, help=option.help, min=option.least)]
    default = list(option.default) if isinstance(option.default, tuple) else option.default
    return inspect.Parameter(
        option.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation
    )


def run(job: Job, scope: "Scope", options: dict[str, Any]) -> "DataFrame":
    """Return the data frame of a job over the selection of ``scope``."""
    tables = [scope.table(name, columns) for name, columns in job.reads.items() if name != "messages"]
    now = {"now_ms": SystemClock().time_ms()} if job.needs_now else {}
    found: DataFrame = job.load()(scope, *tables, **options, **now)
    return found


def rows_and_summary(
    scope: "Scope", frame: "DataFrame", order: tuple[str, ...], limit: int, *, skip_damage: bool
) -> tuple[list[dict[str, Any]], list[str], dict[str, Any]]:
    """Return the first rows of a data frame, its columns, and the summary for ``print_rows``."""
    rows, columns, more = collected(frame, order, limit)
    return rows, columns, {"more": more, "notRead": damage_of(scope, skip_damage)}


def collected(frame: "DataFrame", order: tuple[str, ...], limit: int) -> tuple[list[dict[str, Any]], list[str], bool]:
    """Return the first ``limit`` rows of a data frame (all if 0), its columns, and true if there are more."""
    from pyspark.sql import functions as F  # noqa: N812

    by = [F.desc(name[1:]) if name.startswith("-") else F.asc(name) for name in order]
    ordered = frame.orderBy(*by)
    table = (ordered.limit(limit + 1) if limit else ordered).toArrow()
    rows = table.to_pylist()
    return (rows[:limit] if limit else rows), table.column_names, bool(limit) and len(rows) > limit


def count(
    stores: Stores,
    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            help="Count in this process (local), with Spark, or automatically: with Spark above 4 GiB of log or at a "
            "--master.",
        ),
    ] = Engine.auto,
    skip_damage: SkipDamage = False,
    as_json: AsJson = False,
) -> None:
    """Count the messages of each topic and queue."""
    with failing_in_one_line():
        roots = known_stores(stores)
        is_local = engine.resolve(roots) is Engine.local
        counts, not_read = (_locally if is_local else _by_spark)(roots, skip_damage)
    (_print_json if as_json else _print_table)(counts, {"notRead": not_read})


def _locally(roots: "tuple[StoreRoot, ...]", skip_damage: bool) -> "Counted":
    from rocketbroker.analytics import DecodeReport, count_locally

    report = DecodeReport()
    with reading() as tell:
        counts = count_locally(roots, report, tell)
    return counts, None if skip_damage else _unread(report)


def _unread(report: "DecodeReport") -> dict[str, int]:
    return {"ranges": len(report.ranges), "bytes": sum(each.length for each in report.ranges)}


def _by_spark(roots: "tuple[StoreRoot, ...]", skip_damage: bool) -> "Counted":
    with job_scope("Counting messages", roots, settings=_JOB_SETTINGS) as scope:
        from rocketbroker.analytics import count_messages

        return count_messages(roots, scope.spark), damage_of(scope, skip_damage)


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


def queue_traffic(
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
    # Most of the log was not read, so that it is not known to be sound.
    summary = {"more": len(rows) < found.num_rows, "notRead": _unread(report) if report.ranges else None}
    print_rows("queue-traffic", rows, found.column_names, summary, as_json)


class Place(StrEnum):
    """Part of a message to search."""

    body = "body"
    properties = "properties"


def search(
    stores: Stores,
    text: Annotated[str | None, typer.Option("--text", help="Text to search for.")] = None,
    regex: Annotated[str | None, typer.Option("--regex", help="Regular expression (RE2) to search for.")] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", help="Ignore case.")] = False,
    places: Annotated[
        list[Place] | None, typer.Option("--in", help="Search only this part; bodies are decompressed first.")
    ] = None,
    since: Since = None,
    until: Until = None,
    topic: Topics = None,
    exact: Exact = False,
    skip_damage: SkipDamage = False,
    limit: Limit = ROWS,
    as_json: AsJson = False,
) -> None:
    """Search for text in bodies and properties; exit code 0 even without a match."""
    with failing_in_one_line():
        if (text is None) == (regex is None):
            raise ConfigError("give either --text or --regex")
        wanted, roots = selection(since, until, topic, exact=exact), known_stores(stores, topic)
        from rocketbroker.analytics.jobs.search import COLUMNS_OF, SHOWN, Pattern, search

        where = tuple(each.value for each in places or Place)
        pattern = Pattern(text or regex or "", regex is not None, ignore_case, where)
        with job_scope("Searching", roots, wanted) as scope:
            messages = scope.messages([*SHOWN, *(COLUMNS_OF[place] for place in pattern.places)])
            order = ("store_timestamp", "broker", "physical_offset", "found_in")
            rows, columns, summary = rows_and_summary(
                scope, search(messages, pattern), order, limit, skip_damage=skip_damage
            )
    print_rows("search", rows, columns, summary, as_json)


class By(StrEnum):
    """Identity of a message in both stores."""

    physical = "physical"
    queue = "queue"


def compare(
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
        wanted, roots = selection(since, until, topic, exact=exact), known_stores([first, second], topic)
        with job_scope("Comparing", roots, wanted) as both:
            from rocketbroker.analytics.jobs.compare import STORED_COLUMNS, as_stored, compare
            from rocketbroker.analytics.jobs.scope import as_time

            scopes = [replace(both, stores=(root,)) for root in roots]
            ours, theirs = (as_stored(scope.messages(STORED_COLUMNS)) for scope in scopes)
            found = compare(ours, theirs, by.value, tuple(ignore or ()))
            found = found.withColumn("store_timestamp", as_time(found["store_timestamp"]))
            rows, columns, more = collected(found, ("topic", "queue_id", "queue_offset", "physical_offset"), limit)
            parts = [scope.not_read() for scope in scopes]
    not_read = {"ranges": sum(part.ranges for part in parts), "bytes": sum(part.bytes for part in parts)}
    print_rows("compare", rows, columns, {"more": more, "notRead": not_read}, as_json)
    if rows:
        raise typer.Exit(EXIT_FOUND)


def snapshot(
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


class Level(StrEnum):
    """Level at which lag is aggregated."""

    queue = "queue"
    topic = "topic"
    group = "group"


def lag(
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
        with job_scope("Reading offsets", roots) as scope:
            from rocketbroker.analytics.jobs.message_jobs import LEVELS, lag
            from rocketbroker.analytics.jobs.snapshots import snapshot_frame, take_snapshot

            if snapshots is None:
                taken = scope.spark.createDataFrame(take_snapshot(roots, SystemClock().time_ms()))
            else:
                taken = snapshot_frame(scope.spark, snapshots)
            messages = scope.messages(["broker", "topic", "queue_id", "queue_offset", "store_timestamp"])
            found = lag(taken, messages, by.value)
            order = ("time", *LEVELS[by.value])
            rows, columns, summary = rows_and_summary(scope, found, order, limit, skip_damage=skip_damage)
    print_rows("lag", rows, columns, summary, as_json)
