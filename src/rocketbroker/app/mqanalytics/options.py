"""Options that the sub-commands share."""

from typing import Annotated

import typer

from rocketbroker.app.times import TIME_FORMS, parse_time

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
Limit = Annotated[int, typer.Option("--limit", min=0, help="Show at most this many rows; 0 shows all.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]

ROWS = 1000
