"""Options, stores, selections, Spark sessions, errors and output of all sub-commands."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from rocketbroker.app.command_line import INSTALL_ANALYTICS
from rocketbroker.app.terminal import Column, Table, print_json, print_table, say
from rocketbroker.app.times import TIME_FORMS, parse_time, plain, shown_ms, shown_time
from rocketbroker.common.errors import ConfigError, RocketBrokerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketbroker.analytics.columns.selection import Selection
    from rocketbroker.analytics.files.store_files import StoreFolder
    from rocketbroker.analytics.files.store_root import StoreRoot
    from rocketbroker.analytics.jobs.scope import Scope

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_FOUND = 3
ROWS = 1000

#: Settings of Spark from the command line, for the session of the sub-command.
SPARK_SETTINGS: ContextVar[Mapping[str, str]] = ContextVar("SPARK_SETTINGS", default={})  # noqa: B039 - never changed

Row = Mapping[str, Any]
#: Called with the number of finished and of all tasks.
Progress = Callable[[int, int], None]

Stores = Annotated[
    list[str],
    typer.Argument(
        metavar="STORE...",
        help="Stores: a store's root directory or its commit-log directory, or an address such as s3://bucket/store; "
        "NAME= before it names its broker.",
    ),
]
Since = Annotated[
    int | None,
    typer.Option(
        "--since",
        parser=parse_time,
        metavar="TIME",
        help=f"Only messages stored at this time or later: {TIME_FORMS}.",
    ),
]
Until = Annotated[
    int | None,
    typer.Option("--until", parser=parse_time, metavar="TIME", help="Only messages stored before this time."),
]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME", help="Only messages of this topic; may be repeated.")
]
Exact = Annotated[
    bool,
    typer.Option("--exact", help="Read the whole log, instead of skipping parts by store times and queues."),
]
SkipDamage = Annotated[
    bool,
    typer.Option(
        "--skip-damage", help="Skip the search for unreadable ranges, which takes one more pass over the log."
    ),
]
Limit = Annotated[int, typer.Option("--limit", min=0, help="Show at most this many rows; 0 shows all.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]


# One process reads this much in about the time that Spark needs to start.
_MOST_LOCAL_BYTES: Final = 4 << 30


class Engine(StrEnum):
    """Engine of a job that needs no Spark."""

    auto = "auto"
    local = "local"
    spark = "spark"

    def resolve(self, roots: "tuple[StoreRoot, ...]") -> "Engine":
        """Return the engine for stores: ``auto`` is Spark where it is to run at a master, else by the logs' size."""
        if self is not Engine.auto:
            return self
        if "spark.master" in SPARK_SETTINGS.get():
            return Engine.spark
        from rocketbroker.analytics.files.commit_log_files import commit_log_files

        size = sum(file.data_end for root in roots for file in commit_log_files(root))
        return Engine.local if size <= _MOST_LOCAL_BYTES else Engine.spark


def print_rows(
    name: str, rows: Sequence[Row], columns: Sequence[str], summary: Mapping[str, Any], as_json: bool
) -> None:
    """Print the rows of the job ``name`` and a summary.

    Args:
        name: name of the job.
        rows: values by column, times as datetimes.
        columns: the columns in their order.
        summary: further members of the JSON document; ``notRead`` and ``more`` are also in the last line of a table.
        as_json: true for JSON, with names in camel case and times in ms since 1970.
    """
    if as_json:
        found = [{camel(column): plain(row[column]) for column in columns} for row in rows]
        print_json({"job": name, "rows": found, **summary})
        return
    is_number = [any(isinstance(row[column], (int, float)) for row in rows) for column in columns]
    titles = [Column(title(column), right) for column, right in zip(columns, is_number, strict=True)]
    print_table(Table(titles, [[text(row[column]) for column in columns] for row in rows]))
    say(last_line(len(rows), summary))


def last_line(count: int, summary: Mapping[str, Any], what: str = "row") -> str:
    """Return the last line of output: number of rows, a note if there are more, and unreadable ranges."""
    parts = [f"{count:,} {what}{'' if count == 1 else 's'}"]
    if summary.get("more"):
        parts.append("and more (--limit)")
    not_read = summary.get("notRead")
    if not_read is None:
        parts.append("not checked for damage")
    elif not_read["ranges"]:
        ranges = "range" if not_read["ranges"] == 1 else "ranges"
        parts.append(f"{not_read['ranges']:,} {ranges}, {not_read['bytes']:,} bytes not read")
    else:
        parts.append("everything was read")
    return "; ".join(parts)


def camel(name: str) -> str:
    """Return ``queue_id`` as ``queueId``, ``p99_9`` as ``p999``."""
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)


def title(name: str) -> str:
    """Return ``queue_id`` as ``Queue id``, ``p99_9`` as ``P99.9``."""
    return re.sub(r"(\d)_(\d)", r"\1.\2", name).replace("_", " ").capitalize()


def text(value: Any) -> str:
    """Return a value as text for people."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return shown_time(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@contextmanager
def failing_in_one_line() -> Iterator[None]:
    """Exit with one line on stderr: code 1 if a store or Spark cannot be used, 2 for an invalid argument."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs a stack trace for every call that Ctrl-C interrupts
    try:
        yield
    except ConfigError as error:
        fail(str(error), EXIT_USAGE)
    except RocketBrokerError as error:
        fail(str(error))
    except ImportError as error:
        fail(f"{error.name} is missing: {INSTALL_ANALYTICS}")


def fail(reason: str, exit_code: int = EXIT_FAILED) -> NoReturn:
    """Exit with one line on stderr."""
    say("mqanalytics:", " ".join(reason.split()), err=True)
    raise typer.Exit(exit_code)


def known_stores(stores: list[str], topics: list[str] | None = None) -> "tuple[StoreRoot, ...]":
    """Return the stores of a command line, checked before Spark takes seconds to start."""
    from rocketbroker.analytics.files.commit_log_files import commit_log_folder
    from rocketbroker.analytics.files.store_files import open_folder
    from rocketbroker.analytics.files.store_names import store_roots

    roots = store_roots(stores)
    folders = [open_folder(root) for root in roots]
    for folder in folders:
        commit_log_folder(folder)
    _warn_of_unknown(topics or [], folders)
    return tuple(roots)


def _warn_of_unknown(topics: list[str], folders: "list[StoreFolder]") -> None:
    """Warn of unknown topics, without an error, since the log may have messages of a deleted topic."""
    from rocketbroker.analytics.files.queue_files import known_topics

    known = set().union(*map(known_topics, folders)) if topics else set()
    for topic in set(topics) - known if known else ():
        near = get_close_matches(topic, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        say(f"mqanalytics: there is no topic {topic!r} in these stores{hint}", err=True)


def selection(since: int | None, until: int | None, topics: list[str] | None, *, exact: bool = False) -> "Selection":
    """Return the selection of the options of a command line."""
    from rocketbroker.analytics.columns.selection import Selection

    if since is not None and until is not None and since >= until:
        raise ConfigError(f"--since {shown_ms(since)} is not before --until {shown_ms(until)}: the range is empty")
    return Selection(since_ms=since, until_ms=until, topics=frozenset(topics) if topics else None, exact=exact)


@contextmanager
def progress_bar(what: str, *columns: str) -> Iterator[Callable[..., None]]:
    """Show a transient bar on stderr, if it is a terminal; yield the function that updates it."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    shown = [progress.SpinnerColumn(), progress.TextColumn("{task.description}")]
    shown += [getattr(progress, name)() for name in (*columns, "TimeElapsedColumn")]
    with progress.Progress(*shown, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield partial(bar.update, bar.add_task(what, total=None))


@contextmanager
def reading() -> Iterator[Callable[[int], None]]:
    """Show the number of messages read; yield the function that updates it."""
    with progress_bar("Reading") as update:
        yield lambda done: update(description=f"Reading: {done:,} messages")


@contextmanager
def running(what: str, settings: Mapping[str, str] = MappingProxyType({})) -> "Iterator[tuple[SparkSession, Progress]]":
    """Run a Spark session and yield it with a progress function; if stderr is a terminal, show a progress bar.

    Those of the command line take precedence over ``settings``.

    Raises:
        StoreError: a job failed.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from rocketbroker.analytics import register, spark_session
    from rocketbroker.analytics.spark.spark_progress import SparkProgress, described, reason_of
    from rocketbroker.common.errors import StoreError

    with progress_bar("Starting Spark", "BarColumn") as update:

        def tell(done: int, total: int) -> None:
            update(description=what, completed=done, total=total)

        with spark_session(f"mqanalytics {what}", {**settings, **SPARK_SETTINGS.get()}) as spark:
            register(spark)
            try:
                with SparkProgress(spark, tell), described(spark, what):
                    yield spark, tell
            except (PySparkException, Py4JError) as error:  # PySpark does not convert all Java errors
                raise StoreError(f"{what.lower()} failed: {reason_of(error)}") from error


@contextmanager
def job_scope(
    what: str,
    roots: "tuple[StoreRoot, ...]",
    wanted: "Selection | None" = None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> "Iterator[Scope]":
    """Run a Spark session and yield the stores and the selection of a job in it, all messages by default."""
    with running(what, settings) as (spark, _):
        from rocketbroker.analytics.columns.selection import EVERYTHING
        from rocketbroker.analytics.jobs.scope import Scope

        yield Scope(spark, roots, wanted or EVERYTHING)


def damage_of(scope: "Scope", skip_damage: bool) -> dict[str, int] | None:
    """Return ``notRead`` of a job: the unreadable ranges and their bytes, None if they were not looked for."""
    return None if skip_damage else scope.not_read()._asdict()
