"""``mqanalytics export``: messages as files that other programs read."""

from typing import Annotated

import typer

from rocketbroker.app.mqadmin.rendering import print_json
from rocketbroker.app.mqanalytics.options import AsJson, Exact, Since, Stores, Topics, Until
from rocketbroker.app.mqanalytics.rendering import last_line
from rocketbroker.app.mqanalytics.running import failing_in_one_line, known_stores, running, selection
from rocketbroker.app.mqanalytics.table_jobs import SkipDamage
from rocketbroker.app.terminal import say


def command(  # noqa: PLR0913, PLR0917 - its options
    stores: Stores,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="A new folder or address; for Iceberg a new table.")],
    form: Annotated[str, typer.Option("--format", help="parquet, jsonl, delta or iceberg.")] = "parquet",
    since: Since = None,
    until: Until = None,
    topic: Topics = None,
    exact: Exact = False,
    skip_damage: SkipDamage = False,
    as_json: AsJson = False,
) -> None:
    """Write messages, with every column, into folders by day and topic."""
    with failing_in_one_line():
        wanted, roots = selection(since, until, topic, exact=exact), known_stores(stores, topic)
        from rocketbroker.analytics.jobs.export import check_format, export

        check_format(form)
        with running("Exporting") as (spark, _):
            from rocketbroker.analytics.jobs.scope import Scope

            scope = Scope(spark, roots, wanted)
            written = export(scope.messages(), to, form)
            not_read = None if skip_damage else scope.not_read()._asdict()
    summary = {"messages": written, "to": to, "format": form, "notRead": not_read}
    if as_json:
        print_json({"job": "export", **summary})
    else:
        say(f"{to}: {last_line(written, summary, 'message')}")
