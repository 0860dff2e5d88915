"""Sub-commands that print the messages of topics and queues (org.apache.rocketmq.tools.command.message).

They print while they read, so that a long topic needs no memory; with ``--json`` one message on each line.
"""

import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

import typer

from rocketbroker.app.mqadmin.command import Report, Topic, TrueFalse, sub_command
from rocketbroker.app.mqadmin.message_text import charset_named, message_line, message_row
from rocketbroker.app.mqadmin.selecting import Span
from rocketbroker.app.terminal import say, say_json
from rocketbroker.app.times import TIME_FORMS, parse_time
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.message_admin import ALL_MESSAGES, ReadableQueue
from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.client.core.pull_result import MessageSelector, PullResult, PullStatus, selector_of
from rocketbroker.common.clock import SystemClock

_RULE = "--------------------------------------------------------"
_DEFAULT_COUNT = 128

Charset = Annotated[
    str, typer.Option("-c", "--charsetName", metavar="CHARSET", help="Charset of bodies.", callback=charset_named)
]
Expression = Annotated[
    str,
    typer.Option("-s", "--subExpression", metavar="TAGS", help="Print messages with these tags only: TagA || TagB."),
]
BeginTime = Annotated[
    int | None,
    typer.Option(
        "-b",
        "--beginTimestamp",
        parser=parse_time,
        metavar="TIME",
        help=f"Begin at messages of this time: {TIME_FORMS}.",
    ),
]
EndTime = Annotated[
    int | None,
    typer.Option("-e", "--endTimestamp", parser=parse_time, metavar="TIME", help="End before messages of this time."),
]


def tags_selector(expression: str) -> MessageSelector:
    """Return the selector for tags.

    Raises:
        typer.BadParameter: the expression looks like SQL.
    """
    try:
        return selector_of(expression)
    except InvalidMessageError as error:
        raise typer.BadParameter(f"-s: {error}") from error


async def span_of(admin: AdminClient, queue: ReadableQueue, begin_ms: int | None, end_ms: int | None) -> Span:
    """Return the offsets of the messages of a queue in a time: all without times."""
    begin = await (admin.queue_min_offset(queue) if begin_ms is None else admin.queue_search_offset(queue, begin_ms))
    end = await (admin.queue_max_offset(queue) if end_ms is None else admin.queue_search_offset(queue, end_ms))
    return Span(max(begin, 0), max(end, 0))


def shown_queue(queue: ReadableQueue) -> str:
    """Return a queue as RocketMQ prints it."""
    topic, name, number = queue.queue.topic, queue.queue.broker_name, queue.queue.queue_id
    return f"MessageQueue [topic={topic}, brokerName={name}, queueId={number}]"


class Printer:
    """Prints pulled messages.

    Args:
        charset: charset of bodies.
        with_body: print the bodies.
        as_json: print a JSON value for each message.
    """

    def __init__(self, charset: str, *, with_body: bool, as_json: bool) -> None:
        self._charset = charset
        self._with_body = with_body
        self._as_json = as_json

    def line(self, text: str) -> None:
        """Print a line between messages, which JSON lacks."""
        if not self._as_json:
            say(text)

    async def messages(self, queue: ReadableQueue, pulls: AsyncGenerator[PullResult, None], *, ok: str = "") -> bool:
        """Print the messages of a queue; return false if the last pull found none.

        Args:
            queue: the queue.
            pulls: its pulls.
            ok: line to print before the messages of each pull.
        """
        found_last = True
        async with aclosing(pulls):
            async for result in pulls:
                found_last = result.pull_status is PullStatus.FOUND
                if ok and result.messages:
                    self.line(ok)
                for message in result.messages:
                    if self._as_json:
                        say_json(message_row(message, []))
                    else:
                        name = queue.queue.broker_name
                        say(message_line(message, name, self._charset, with_body=self._with_body))
                if result.damage:
                    say(f"mqadmin: {shown_queue(queue)}: a message is damaged and left out: {result.damage}", err=True)
                status, offset = result.pull_status, result.next_begin_offset
                if status is PullStatus.NO_MATCHED_MSG:
                    self.line(f"{shown_queue(queue)} no matched msg. status={status.name}, offset={offset}")
                elif status is not PullStatus.FOUND:
                    self.line(f"{shown_queue(queue)} print msg finished. status={status.name}, offset={offset}")
                sys.stdout.flush()
        return found_last


@sub_command("printMsg", "Print the messages of a topic.")
async def print_msg(
    admin: AdminClient,
    topic: Topic,
    begin_timestamp: BeginTime = None,
    end_timestamp: EndTime = None,
    charset_name: Charset = "UTF-8",
    print_body: Annotated[TrueFalse, typer.Option("-d", "--printBody", help="Print the bodies.")] = TrueFalse.true,
    sub_expression: Expression = "*",
    lmq_parent_topic: Annotated[
        str | None,
        typer.Option("-l", "--lmqParentTopic", metavar="TOPIC", help="Find an LMQ by the route of this topic."),
    ] = None,
    as_json: bool = False,
) -> Report:
    """Print the messages of all queues of a topic; with --json one on each line."""
    selector = tags_selector(sub_expression)
    printer = Printer(charset_name, with_body=print_body.is_true, as_json=as_json)
    for queue in await admin.readable_queues(topic, lmq_parent_topic):
        span = await span_of(admin, queue, begin_timestamp, end_timestamp)
        printer.line(f"minOffset={span.begin}, maxOffset={span.end}, {shown_queue(queue)}")
        await printer.messages(queue, admin.read_messages(queue, span.begin, span.end, selector=selector))
        printer.line(_RULE)
    return Report(None, [])


@sub_command("printMsgByQueue", "Print the messages of a queue, or count them by tag.")
async def print_msg_by_queue(
    admin: AdminClient,
    topic: Topic,
    broker_name: Annotated[str, typer.Option("-a", "--brokerName", metavar="NAME", help="Name of the broker.")],
    queue_id: Annotated[int, typer.Option("-i", "--queueId", min=0, metavar="ID", help="Id of the queue.")],
    begin_timestamp: BeginTime = None,
    end_timestamp: EndTime = None,
    charset_name: Charset = "UTF-8",
    print_message: Annotated[TrueFalse, typer.Option("-p", "--printMsg", help="Print the messages.")] = TrueFalse.false,
    print_body: Annotated[TrueFalse, typer.Option("-d", "--printBody", help="Print the bodies.")] = TrueFalse.false,
    calculate: Annotated[
        TrueFalse, typer.Option("-f", "--calculate", help="Count the messages with each tag.")
    ] = TrueFalse.false,
    sub_expression: Expression = "*",
    as_json: bool = False,
) -> Report:
    """Print the messages of one queue (-p true), and how many have each tag (-f true)."""
    selector = tags_selector(sub_expression)
    queue = await admin.readable_queue(topic, broker_name, queue_id)
    span = await span_of(admin, queue, begin_timestamp, end_timestamp)
    printer = Printer(charset_name, with_body=print_body.is_true, as_json=as_json)
    tags: Counter[str] = Counter()

    async def counted() -> AsyncGenerator[PullResult, None]:
        async with aclosing(admin.read_messages(queue, span.begin, span.end, selector=selector)) as pulls:
            async for result in pulls:
                tags.update(message.tags for message in result.messages if message.tags is not None)
                if result.pull_status is not PullStatus.FOUND:
                    continue
                if print_message.is_true:
                    yield result

    await printer.messages(queue, counted())
    if not calculate.is_true:
        return Report(None, [])
    ranks = tags.most_common()
    if as_json:
        say_json({"tags": [{"tag": tag, "count": count} for tag, count in ranks]})
    return Report(None, [f"Tag: {tag:<30} Count: {count}" for tag, count in ranks])


@sub_command("consumeMessage", "Print messages of a topic, a queue or from an offset on.")
async def consume_message(
    admin: AdminClient,
    topic: Topic,
    message_number: Annotated[
        int, typer.Option("-c", "--MessageNumber", min=1, metavar="COUNT", help="At most so many messages.")
    ] = _DEFAULT_COUNT,
    broker_name: Annotated[
        str | None, typer.Option("-b", "--brokerName", metavar="NAME", help="Read this broker only.")
    ] = None,
    queue_id: Annotated[
        int | None, typer.Option("-i", "--queueId", min=0, metavar="ID", help="Read this queue only; needs -b.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("-o", "--offset", min=0, metavar="OFFSET", help="Begin at this offset; needs -i.")
    ] = None,
    begin_timestamp: Annotated[
        int | None,
        typer.Option(
            "-s", "--beginTimestamp", parser=parse_time, metavar="TIME", help="Begin at messages of this time."
        ),
    ] = None,
    end_timestamp: EndTime = None,
    consumer_group: Annotated[
        str | None,
        typer.Option("-g", "--consumerGroup", metavar="GROUP", help="Accepted and not used: no group is joined."),
    ] = None,
    as_json: bool = False,
) -> Report:
    """Print messages as a consumer would get them; no offset is committed and no group joined."""
    del consumer_group
    if queue_id is not None and broker_name is None:
        raise typer.BadParameter("-i (queue) needs -b (the name of its broker)")
    if offset is not None and queue_id is None:
        raise typer.BadParameter("-o (offset) needs -i (queue) and -b (broker)")
    _check_past(begin_timestamp, end_timestamp)
    queues = await admin.readable_queues(topic)
    if broker_name is not None and queue_id is not None:
        queues = [await admin.readable_queue(topic, broker_name, queue_id)]
    elif broker_name is not None:
        await admin.readable_queue(topic, broker_name, 0)
        queues = [each for each in queues if each.queue.broker_name == broker_name]
    printer = Printer("UTF-8", with_body=True, as_json=as_json)
    left = message_number
    for queue in queues:
        if not left:
            break
        span = await span_of(admin, queue, begin_timestamp, end_timestamp)
        begin = max(span.begin, offset or 0)
        if offset is not None and offset > span.end:
            printer.line(f"{shown_queue(queue)} no matched msg, offset={offset}")
            continue
        if span.end - begin > left:
            printer.line(f"The older {left} message of the {queue.queue.queue_id} queue will be provided")
        end = min(span.end, begin + left)
        if end > begin:
            left -= end - begin
            await printer.messages(
                queue, admin.read_messages(queue, begin, end, selector=ALL_MESSAGES), ok="Consume ok"
            )
        else:
            printer.line(f"{shown_queue(queue)} print msg finished. status=NO_NEW_MSG, offset={begin}")
    return Report(None, [])


def _check_past(begin_ms: int | None, end_ms: int | None) -> None:
    now = SystemClock().time_ms()
    for name, value in (("-s (begin)", begin_ms), ("-e (end)", end_ms)):
        if value is not None and value > now:
            raise typer.BadParameter(f"{name} lies in the future; give a time before now")
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise typer.BadParameter("-s (begin) is after -e (end)")
