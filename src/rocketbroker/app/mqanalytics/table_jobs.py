"""Sub-commands generated from ``analytics/jobs/job_list.py``: the rows of a job as a table."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketbroker.analytics.jobs.job_list import Job, Option
from rocketbroker.app.mqanalytics.options import ROWS, AsJson, Exact, Limit, Since, Stores, Topics, Until
from rocketbroker.app.mqanalytics.rendering import print_rows
from rocketbroker.app.mqanalytics.running import failing_in_one_line, known_stores, running, selection
from rocketbroker.common.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rocketbroker.analytics.jobs.scope import Scope

SkipDamage = Annotated[
    bool,
    typer.Option(
        "--skip-damage", help="Skip the search for unreadable ranges, which takes one more pass over the log."
    ),
]


def command_of(job: Job) -> Callable[..., None]:
    """Return the command of a job, with its own and the common options."""

    def command(  # noqa: PLR0913, PLR0917 - its options
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
            wanted = selection(since, until, topic, exact=exact)
            roots = known_stores(stores, topic)
            with running(job.summary.rstrip(".")) as (spark, _):
                from rocketbroker.analytics.jobs.scope import Scope

                scope = Scope(spark, roots, wanted)
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
    frames = [
        scope.messages(columns) if name == "messages" else scope.table(name, columns)
        for name, columns in job.reads.items()
    ]
    now = {"now_ms": SystemClock().time_ms()} if job.needs_now else {}
    found: DataFrame = job.load()(*frames, **options, **now)
    return found


def rows_and_summary(
    scope: "Scope", frame: "DataFrame", order: tuple[str, ...], limit: int, *, skip_damage: bool
) -> tuple[list[dict[str, Any]], list[str], dict[str, Any]]:
    """Return the first rows of a data frame, its columns, and the summary for ``print_rows``."""
    rows, columns, more = collected(frame, order, limit)
    return rows, columns, {"more": more, "notRead": None if skip_damage else scope.not_read()._asdict()}


def collected(frame: "DataFrame", order: tuple[str, ...], limit: int) -> tuple[list[dict[str, Any]], list[str], bool]:
    """Return the first ``limit`` rows of a data frame (all if 0), its columns, and true if there are more."""
    from pyspark.sql import functions as F  # noqa: N812

    by = [F.desc(name[1:]) if name.startswith("-") else F.asc(name) for name in order]
    ordered = frame.orderBy(*by)
    table = (ordered.limit(limit + 1) if limit else ordered).toArrow()
    rows = table.to_pylist()
    return (rows[:limit] if limit else rows), table.column_names, bool(limit) and len(rows) > limit
