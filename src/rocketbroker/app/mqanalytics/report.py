"""``mqanalytics report``: one HTML page about stores."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketbroker.app.mqanalytics.running import (
    Since,
    Stores,
    Topics,
    Until,
    failing_in_one_line,
    known_stores,
    reading,
    selection,
)
from rocketbroker.app.terminal import say
from rocketbroker.common.errors import ConfigError

if TYPE_CHECKING:
    from rocketbroker.analytics.columns.selection import Selection
    from rocketbroker.analytics.report.facts import StoreFacts

Output = Annotated[
    Path, typer.Option("--output", "-o", dir_okay=False, metavar="FILE", help="Output file; replaced if it exists.")
]
Pngs = Annotated[
    Path | None, typer.Option("--png", file_okay=False, metavar="DIR", help="Also draw its figures as PNG there.")
]


def command(
    stores: Stores,
    output: Output = Path("report.html"),
    png: Pngs = None,
    since: Since = None,
    until: Until = None,
    topic: Topics = None,
) -> None:
    """Write a self-contained HTML page about stores: traffic, sizes, keys, queues, delays, lag, damage."""
    with failing_in_one_line():
        wanted = selection(since, until, topic)
        known_stores(stores, topic)
        for path in _written(stores, output, png, wanted, _in_words(since, until, topic)):
            say(path)


def _written(stores: list[str], output: Path, png: Path | None, wanted: "Selection", asked: str) -> list[Path]:
    from rocketbroker.analytics.report.page import write_report

    if not output.parent.is_dir():
        raise ConfigError(f"--output {output}: there is no folder {output.parent}")
    return write_report(_collected(stores, wanted, asked), output, png)


def _collected(stores: list[str], wanted: "Selection", asked: str) -> "StoreFacts":
    from rocketbroker.analytics.report.collect import collect_facts

    with reading() as tell:
        return collect_facts(stores, wanted, asked=asked, progress=tell)


def _in_words(since: int | None, until: int | None, topics: list[str] | None) -> str:
    from rocketbroker.analytics.report.figures import Unit, show

    parts = [f"stored since {show(since, Unit.TIME)} UTC"] if since is not None else []
    parts += [f"stored before {show(until, Unit.TIME)} UTC"] if until is not None else []
    parts += [f"of {', '.join(topics)}"] if topics else []
    return f"only messages {', '.join(parts)}" if parts else ""
