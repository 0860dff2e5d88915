"""``mqanalytics search``: search for text in bodies and properties."""

from enum import StrEnum
from typing import Annotated

import typer

from rocketbroker.app.mqanalytics.options import ROWS, AsJson, Exact, Limit, Since, Stores, Topics, Until
from rocketbroker.app.mqanalytics.rendering import print_rows
from rocketbroker.app.mqanalytics.running import failing_in_one_line, known_stores, running, selection
from rocketbroker.app.mqanalytics.table_jobs import SkipDamage, rows_and_summary
from rocketbroker.common.errors import ConfigError


class Place(StrEnum):
    """Part of a message to search."""

    body = "body"
    properties = "properties"


def command(  # noqa: PLR0913, PLR0917 - its options
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
        with running("Searching") as (spark, _):
            from rocketbroker.analytics.jobs.scope import Scope

            scope = Scope(spark, roots, wanted)
            messages = scope.messages([*SHOWN, *(COLUMNS_OF[place] for place in pattern.places)])
            order = ("store_timestamp", "broker", "physical_offset", "found_in")
            rows, columns, summary = rows_and_summary(
                scope, search(messages, pattern), order, limit, skip_damage=skip_damage
            )
    print_rows("search", rows, columns, summary, as_json)
