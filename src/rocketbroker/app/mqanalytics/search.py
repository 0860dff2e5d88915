"""``mqanalytics search``: looks for text in bodies and properties."""

from enum import StrEnum
from typing import Annotated

import typer

from rocketbroker.app.mqanalytics.options import ROWS, AsJson, Exact, Limit, Since, Stores, Topics, Until
from rocketbroker.app.mqanalytics.rendering import print_rows
from rocketbroker.app.mqanalytics.running import failing_in_one_line, known_stores, running, selection
from rocketbroker.app.mqanalytics.table_jobs import SkipDamage, told
from rocketbroker.common.errors import ConfigError


class Place(StrEnum):
    """Where to look."""

    body = "body"
    properties = "properties"


def command(  # noqa: PLR0913, PLR0917 - its options
    stores: Stores,
    text: Annotated[str | None, typer.Option("--text", help="Look for this text.")] = None,
    regex: Annotated[
        str | None, typer.Option("--regex", help="Look for what this regular expression (RE2) matches.")
    ] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", help="Take upper and lower case for the same.")] = False,
    places: Annotated[
        list[Place] | None, typer.Option("--in", help="Look here only; bodies are unpacked before.")
    ] = None,
    since: Since = None,
    until: Until = None,
    topic: Topics = None,
    exact: Exact = False,
    skip_damage: SkipDamage = False,
    limit: Limit = ROWS,
    as_json: AsJson = False,
) -> None:
    """Look for text in bodies and properties; exit code 0 whether it is found or not."""
    with failing_in_one_line():
        if (text is None) == (regex is None):
            raise ConfigError("a search is for either --text or --regex")
        wanted, roots = selection(since, until, topic, exact=exact), known_stores(stores, topic)
        from rocketbroker.analytics.jobs.search import COLUMNS_OF, SHOWN, Pattern, search

        where = tuple(each.value for each in places or Place)
        pattern = Pattern(text or regex or "", regex is not None, ignore_case, where)
        with running("Searching") as (spark, _):
            from rocketbroker.analytics.jobs.scope import Scope

            scope = Scope(spark, roots, wanted)
            messages = scope.messages([*SHOWN, *(COLUMNS_OF[place] for place in pattern.places)])
            order = ("store_timestamp", "broker", "physical_offset", "found_in")
            rows, columns, summary = told(scope, search(messages, pattern), order, limit, skip_damage=skip_damage)
    print_rows("search", rows, columns, summary, as_json)
