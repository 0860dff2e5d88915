"""Stores, selections, Spark sessions and errors of all sub-commands."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

import typer

from rocketbroker.app.command_line import INSTALL_ANALYTICS
from rocketbroker.app.terminal import say
from rocketbroker.app.times import shown_ms
from rocketbroker.common.errors import ConfigError, RocketBrokerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketbroker.analytics.columns.selection import Selection
    from rocketbroker.analytics.files.store_files import StoreFolder
    from rocketbroker.analytics.files.store_root import StoreRoot

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_FOUND = 3

#: Called with the number of finished and of all tasks.
Progress = Callable[[int, int], None]


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
    from rocketbroker.analytics.files.open_store import open_folder
    from rocketbroker.analytics.files.store_root import store_roots

    roots = store_roots(stores)
    folders = [open_folder(root) for root in roots]
    for folder in folders:
        commit_log_folder(folder)
    _warn_of_unknown(topics or [], folders)
    return tuple(roots)


def _warn_of_unknown(topics: list[str], folders: "list[StoreFolder]") -> None:
    """Warn of unknown topics, without an error, since the log may have messages of a deleted topic."""
    from rocketbroker.analytics.queues.queue_folders import known_topics

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
def reading() -> Iterator[Callable[[int], None]]:
    """Show the number of messages read on stderr, if it is a terminal; yield the function that updates it."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("Reading", total=None)
        yield lambda done: bar.update(task, description=f"Reading: {done:,} messages")


@contextmanager
def running(what: str) -> "Iterator[tuple[SparkSession, Progress]]":
    """Run a Spark session and yield it with a progress function; if stderr is a terminal, show a progress bar.

    Raises:
        StoreError: a job failed.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from rocketbroker.analytics import register, spark_session
    from rocketbroker.analytics.spark.spark_progress import SparkProgress, reason_of
    from rocketbroker.common.errors import StoreError

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("Starting Spark", total=None)

        def tell(done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        with spark_session(f"mqanalytics {what}") as spark:
            register(spark)
            try:
                with SparkProgress(spark, tell):
                    yield spark, tell
            except (PySparkException, Py4JError) as error:  # PySpark does not convert all Java errors
                raise StoreError(f"{what.lower()} failed: {reason_of(error)}") from error
