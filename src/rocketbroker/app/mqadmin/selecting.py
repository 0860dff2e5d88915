"""Options that select messages by time, key, tag or property, for tail, export, import and resendDlq."""

from typing import Annotated, NamedTuple

import typer

from rocketbroker.app.times import TIME_FORMS, parse_time
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.message_admin import ReadableQueue
from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.client.core.pull_result import MessageSelector, selector_of
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.common.errors import MQFilterError


class GivenTime(NamedTuple):
    """A time in ms, and the text that it was given as: ``now`` is another time in the next run."""

    ms: int
    text: str


def given_time(text: str) -> GivenTime:
    """Parse a time and keep its text.

    Raises:
        typer.BadParameter: it is no time.
    """
    return GivenTime(parse_time(text), text.strip())


GivenFrom = Annotated[
    GivenTime | None,
    typer.Option(
        "--from", parser=given_time, metavar="TIME", help=f"Messages stored at this time or later: {TIME_FORMS}."
    ),
]
GivenUntil = Annotated[
    GivenTime | None,
    typer.Option("--until", parser=given_time, metavar="TIME", help="Messages stored before this time."),
]
From = Annotated[
    int | None,
    typer.Option(
        "--from", parser=parse_time, metavar="TIME", help=f"Messages stored at this time or later: {TIME_FORMS}."
    ),
]
Until = Annotated[
    int | None,
    typer.Option("--until", parser=parse_time, metavar="TIME", help="Messages stored before this time."),
]
Key = Annotated[
    str | None, typer.Option("-k", "--key", metavar="KEY", help="Messages with this key or unique id only.")
]
Tags = Annotated[
    str | None,
    typer.Option("-s", "--subExpression", metavar="TAGS", help="Messages with these tags only: TagA || TagB."),
]
Sql = Annotated[
    str | None,
    typer.Option(
        "--sql",
        metavar="EXPRESSION",
        help="Messages whose properties fulfil this, such as: a > 5. Needs enablePropertyFilter.",
    ),
]


class Span(NamedTuple):
    """Offsets of a queue to read: from ``begin`` to before ``end``."""

    begin: int
    end: int


class Wanted(NamedTuple):
    """The messages wanted: by store time in ms, by key, and by an expression that brokers apply."""

    from_ms: int | None
    until_ms: int | None
    key: str | None
    selector: MessageSelector

    def has(self, message: MessageExt) -> bool:
        """Return true for a message of that time and key."""
        stored = message.store_timestamp
        if self.from_ms is not None and stored < self.from_ms:
            return False
        if self.until_ms is not None and stored >= self.until_ms:
            return False
        return self.key is None or self.key in message.keys or self.key == message.uniq_key

    async def span(self, admin: AdminClient, queue: ReadableQueue) -> Span:
        """Return the offsets of a queue that have all messages of that time, and perhaps others at the ends."""
        begin, end = await admin.queue_min_offset(queue), await admin.queue_max_offset(queue)
        if self.from_ms is not None:
            begin = max(begin, await admin.queue_search_offset(queue, self.from_ms))
        if self.until_ms is not None:
            found = await admin.queue_search_offset(queue, self.until_ms)
            # Beyond the last message brokers answer the last message, or the end.
            message = await admin.message_at(queue, found) if found < end else None
            if message is not None and message.store_timestamp >= self.until_ms:
                end = found
        return Span(max(begin, 0), max(end, 0))


def wanted(
    from_ms: int | None = None,
    until_ms: int | None = None,
    key: str | None = None,
    tags: str | None = None,
    sql: str | None = None,
) -> Wanted:
    """Return the messages that options select.

    Raises:
        typer.BadParameter: they contradict each other, or tags look like SQL.
    """
    if from_ms is not None and until_ms is not None and from_ms >= until_ms:
        raise typer.BadParameter("--from is not before --until")
    if tags is not None and sql is not None:
        raise typer.BadParameter("give either -s (tags) or --sql")
    if key is not None and not key.strip():
        raise typer.BadParameter("-k is empty, and no message has an empty key; give a key, or leave the option out")
    if tags is not None and not tags.replace("|", "").strip():
        raise typer.BadParameter(f"-s {tags!r} names no tag; give TagA || TagB, or * for all messages")
    if sql is not None:
        # A broker of Apache RocketMQ that cannot parse the expression of a pull answers all messages. The parser takes
        # 0.1 s to import.
        from rocketbroker.codec.filter.selector_parser import parse

        try:
            parse(sql)
        except MQFilterError as error:
            raise typer.BadParameter(f"--sql {sql!r}: {error}") from None
        return Wanted(from_ms, until_ms, key, MessageSelector.by_sql(sql))
    try:
        selector = selector_of(tags if tags is not None else "*")
    except InvalidMessageError:
        raise typer.BadParameter(f"-s {tags!r} looks like SQL; give it by --sql") from None
    return Wanted(from_ms, until_ms, key, selector)
