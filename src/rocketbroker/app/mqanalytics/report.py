"""``mqanalytics report``: one HTML page about stores."""

from pathlib import Path
from typing import Annotated

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
        if not output.parent.is_dir():
            raise ConfigError(f"--output {output}: there is no folder {output.parent}")
        from rocketbroker.analytics.report.collect import collect_facts
        from rocketbroker.analytics.report.page import write_report

        with reading() as tell:
            facts = collect_facts(stores, wanted, asked=_in_words(since, until, topic), progress=tell)
        for path in write_report(facts, output, png):
            say(path)


def _in_words(since: int | None, until: int | None, topics: list[str] | None) -> str:
    from rocketbroker.analytics.report.figures import Unit, show

    parts = [f"stored since {show(since, Unit.TIME)} UTC"] if since is not None else []
    parts += [f"stored before {show(until, Unit.TIME)} UTC"] if until is not None else []
    parts += [f"of {', '.join(topics)}"] if topics else []
    return f"only messages {', '.join(parts)}" if parts else ""
