"""``mqanalytics report``: one page on stores."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketbroker.app.mqanalytics.times import parse_time
from rocketbroker.common.errors import ConfigError, RocketBrokerError

if TYPE_CHECKING:
    from rocketbroker.analytics.report.facts import StoreFacts
    from rocketbroker.analytics.selection import Selection

Stores = Annotated[
    list[str],
    typer.Argument(
        metavar="STORE...",
        help="A store's root or its commit-log directory, or an address such as s3://bucket/store; NAME= before it "
        "names its broker.",
    ),
]
Output = Annotated[
    Path, typer.Option("--output", "-o", dir_okay=False, metavar="FILE", help="Where the page is written; replaced.")
]
Pngs = Annotated[
    Path | None, typer.Option("--png", file_okay=False, metavar="DIR", help="Also draw its figures as PNG there.")
]
Since = Annotated[
    int | None,
    typer.Option("--since", parser=parse_time, metavar="TIME", help="Only messages stored at this time or later."),
]
Until = Annotated[
    int | None, typer.Option("--until", parser=parse_time, metavar="TIME", help="Only messages stored before.")
]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME", help="Only messages of this topic; may be repeated.")
]


def command(
    stores: Stores,
    output: Output = Path("report.html"),
    png: Pngs = None,
    since: Since = None,
    until: Until = None,
    topics: Topics = None,
) -> None:
    """Write one HTML page on stores, which needs nothing else: traffic, sizes, keys, queues, delays, lag, damage."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        for path in _written(stores, output, png, _selected(since, until, topics), _in_words(since, until, topics)):
            print(path)
    except ConfigError as error:
        _fail(str(error), 2)
    except RocketBrokerError as error:
        _fail(str(error), 1)
    except ImportError as error:
        _fail(f"{error.name} is missing: pip install 'rocketbroker[analytics]'", 1)


def _fail(reason: str, exit_code: int) -> None:
    print(f"mqanalytics: {reason}", file=sys.stderr)
    raise typer.Exit(exit_code)


def _selected(since: int | None, until: int | None, topics: list[str] | None) -> "Selection":
    from rocketbroker.analytics import Selection

    if since is not None and until is not None and since >= until:
        _fail(f"--since {since} is not before --until {until} (ms since 1970): no time lies between", 2)
    return Selection(since_ms=since, until_ms=until, topics=frozenset(topics) if topics else None)


def _written(stores: list[str], output: Path, png: Path | None, selection: "Selection", asked: str) -> list[Path]:
    from rocketbroker.analytics.report.store_report import write_report

    if not output.parent.is_dir():
        raise ConfigError(f"--output {output}: there is no folder {output.parent}")
    return write_report(_collected(stores, selection, asked), output, png)


def _collected(stores: list[str], selection: "Selection", asked: str) -> "StoreFacts":
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from rocketbroker.analytics.report.collect import collect_facts

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("Reading", total=None)

        def tell(done: int) -> None:
            bar.update(task, description=f"Reading: {done:,} messages")

        return collect_facts(stores, selection, asked=asked, progress=tell)


def _in_words(since: int | None, until: int | None, topics: list[str] | None) -> str:
    from rocketbroker.analytics.report.figures import Unit
    from rocketbroker.analytics.report.units import show

    parts = [f"stored since {show(since, Unit.TIME)} UTC"] if since is not None else []
    parts += [f"stored before {show(until, Unit.TIME)} UTC"] if until is not None else []
    parts += [f"of {', '.join(topics)}"] if topics else []
    return f"only messages {', '.join(parts)}" if parts else ""
