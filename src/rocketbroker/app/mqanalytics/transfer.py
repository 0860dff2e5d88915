"""``mqanalytics export``, ``compact`` and ``replay``: messages as files for other programs, and sent again."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketbroker.app.mqanalytics.running import (
    AsJson,
    Exact,
    Progress,
    Since,
    SkipDamage,
    Stores,
    Topics,
    Until,
    camel,
    damage_of,
    fail,
    failing_in_one_line,
    job_scope,
    known_stores,
    last_line,
    running,
    selection,
)
from rocketbroker.app.terminal import print_json, say
from rocketbroker.client.producer.producer import Producer
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rocketbroker.analytics.jobs.replay import Replayed


FileSize = Annotated[str, typer.Option("--file-size", metavar="SIZE", help="Bytes of a file.")]


def export(
    stores: Stores,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="A new folder or address; for Iceberg a new table.")],
    form: Annotated[str, typer.Option("--format", help="parquet, jsonl, delta or iceberg.")] = "parquet",
    append: Annotated[
        bool, typer.Option("--append", help="Add what is beyond the last message of each broker to the target.")
    ] = False,
    partition_by: Annotated[
        str, typer.Option("--partition-by", metavar="NAMES", help="Folders: day, topic, broker with commas, or none.")
    ] = "day,topic",
    file_size: FileSize = "128m",
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
        from rocketbroker.analytics.jobs.export import export, exported_ends, folder_columns, shown_target

        folder_columns(form, partition_by)
        with job_scope("Exporting", roots, wanted) as scope:
            messages = scope.messages_beyond(exported_ends(scope.spark, to, form)) if append else scope.messages()
            options: Any = {"append": append, "partition_by": partition_by, "file_size": file_size}
            written, not_read = export(messages, to, form, **options), damage_of(scope, skip_damage)
    shown = shown_target(to)
    summary = {"messages": written, "to": shown, "format": form, "notRead": not_read}
    if as_json:
        print_json({"job": "export", **summary})
    else:
        say(f"{shown}: {last_line(written, summary, 'message')}")


def compact(
    target: Annotated[str, typer.Argument(metavar="EXPORT", help="Folder or address of an export in files.")],
    file_size: FileSize = "128m",
    as_json: AsJson = False,
) -> None:
    """Join the small files of an export, folder by folder; without Spark."""
    with failing_in_one_line():
        from rocketbroker.analytics.files.store_root import place_of
        from rocketbroker.analytics.jobs.export import shown_target, size_of_files
        from rocketbroker.analytics.jobs.exported_files import ExportedFiles

        done = ExportedFiles(place_of(target)).compact(size_of_files(file_size))
    shown = shown_target(target)
    if as_json:
        print_json({"job": "compact", "to": shown, **{camel(name): value for name, value in done._asdict().items()}})
    elif done.small:
        say(
            f"{shown}: {done.small:,} files of {done.bytes_before:,} bytes joined to {done.joined:,} "
            f"of {done.bytes_after:,} bytes"
        )
    else:
        say(f"{shown}: no two small files in a folder")


def replay(
    source: Annotated[str, typer.Argument(metavar="EXPORT", help="An export written by `mqanalytics export`.")],
    form: Annotated[str, typer.Option("--format", help="parquet or jsonl.")] = "parquet",
    namesrv_addr: Annotated[
        str,
        typer.Option("-n", "--namesrvAddr", envvar="NAMESRV_ADDR", metavar="HOST:PORT[;...]", help="Name servers."),
    ] = "",
    send: Annotated[bool, typer.Option("--send", help="Send; without it, only count the messages to send.")] = False,
    rate: Annotated[float, typer.Option("--rate", min=0, help="Messages per second; 0 means no limit.")] = 100,
    to_topic: Annotated[
        list[str] | None,
        typer.Option("--to-topic", metavar="OLD=NEW", help="Send a topic's messages to another; may be repeated."),
    ] = None,
    group: Annotated[str, typer.Option("--group", help="The producer group.")] = "mqanalytics_replay",
    since: Since = None,
    until: Until = None,
    topic: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Send exported messages again, at least once each, in the order in which they were stored."""
    with failing_in_one_line():
        wanted, topics = selection(since, until, topic), _topics(to_topic or [])
        if send and not namesrv_addr:
            raise ConfigError("no name server; use -n host:port or set NAMESRV_ADDR")
        with running("Replaying") as (spark, tell):
            from rocketbroker.analytics.jobs.replay import exported_messages, in_order, rehearse
            from rocketbroker.analytics.jobs.scope import selected

            rows = in_order(selected(exported_messages(spark, source, form), wanted))
            sending = partial(_send, rows, topics, namesrv_addr, group, rate, tell)
            done = asyncio.run(sending()) if send else rehearse(rows, topics)
    ended(done, sent=send, as_json=as_json)


def ended(done: "Replayed", *, sent: bool, as_json: bool) -> None:
    """Print the outcome of a replay; exit with code 1 if it ended early."""
    _print(done, sent=sent, as_json=as_json)
    if done.failure:
        hint = "nothing was sent" if done.resume_ms is None else f"resume with --since {done.resume_ms}"
        fail(f"{done.failure}; {hint}")


def _topics(given: list[str]) -> dict[str, str]:
    found = {}
    for each in given:
        old, _, new = each.partition("=")
        if not old or not new:
            raise ConfigError(f"--to-topic is {each!r}; give OLD=NEW")
        found[old] = new
    return found


async def _send(
    rows: "Iterable[Mapping[str, Any]]",
    topics: dict[str, str],
    namesrv_addr: str,
    group: str,
    rate: float,
    tell: Progress,
) -> "Replayed":
    from rocketbroker.analytics.jobs.replay import Replay

    async with Producer(group, namesrv_addr) as producer:
        return await Replay(producer, SystemClock(), rate=rate, topics=topics, progress=lambda n: tell(n, 0)).run(rows)


def _print(done: "Replayed", *, sent: bool, as_json: bool) -> None:
    if as_json:
        data = {
            "job": "replay",
            "dryRun": not sent,
            "sent": dict(sorted(done.sent.items())),
            "skipped": dict(sorted(done.skipped.items())),
            "failure": done.failure or None,
            "resumeFrom": done.resume_ms,
        }
        print_json(data)
        return
    for topic, count in sorted(done.sent.items()):
        say(f"{topic}: {count:,} {'sent' if sent else 'would be sent'}")
    for reason, count in sorted(done.skipped.items()):
        say(f"left out, {reason}: {count:,}")
    say(f"{done.sent.total():,} messages {'sent' if sent else 'would be sent; --send sends them'}")
