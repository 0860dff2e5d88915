"""``mqadmin tail``: follow a topic as it is written, without a consumer group."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Report, sub_command, with_hint
from rocketbroker.app.mqadmin.message_text import Body, BodyForm, charset_named, decoded_body
from rocketbroker.app.mqadmin.selecting import Key, Sql, Tags, Wanted, wanted
from rocketbroker.app.terminal import escaped, json_text, say, say_json
from rocketbroker.app.times import TIME_FORMS, human_millis, parse_time
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.message_admin import ReadableQueue
from rocketbroker.client.core.pull_result import PullResult, PullStatus
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.common.errors import RocketBrokerError

# A broker holds a pull for so long; Apache's brokers look every 5 s whether it is over.
_HELD_S = 15.0
_RETRY_S = 1.0
# Between pulls that found nothing, if a broker does not hold them.
_PAUSE_S = 0.1
# Refresh of the route, for queues and brokers that are added.
_ROUTE_S = 30.0


class TailRow(msgspec.Struct, rename="camel"):
    """A message; times in ms, ``body`` in the form of ``--body``: a JSON value or a text."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    msg_id: str | None
    offset_msg_id: str
    tags: str | None
    keys: list[str]
    born_timestamp: int
    store_timestamp: int
    reconsume_times: int
    properties: dict[str, str]
    body: Any


class Start:
    """Start of a tail in each queue.

    Args:
        time_ms: begin at messages of this time.
        last: begin so many messages before the end.
        offset: begin at this offset.
    """

    def __init__(self, time_ms: int | None, last: int | None, offset: int | None) -> None:
        self._time_ms = time_ms
        self._last = last
        self._offset = offset

    async def of(self, admin: AdminClient, queue: ReadableQueue) -> int:
        """Return the offset of the first message to read; by default the end of the queue."""
        if self._offset is not None:
            return self._offset
        if self._time_ms is not None:
            return max(await admin.queue_search_offset(queue, self._time_ms), await admin.queue_min_offset(queue))
        end = await admin.queue_max_offset(queue)
        return end if self._last is None else max(end - self._last, await admin.queue_min_offset(queue))


class Tail:
    """Prints messages as they come.

    Args:
        admin: the client.
        selected: messages to print.
        form: form of bodies.
        charset: charset of bodies.
        count: end after so many messages; None never ends.
        as_json: print a JSON value on each line.
    """

    def __init__(
        self, admin: AdminClient, selected: Wanted, form: BodyForm, charset: str, count: int | None, *, as_json: bool
    ) -> None:
        self._admin = admin
        self._wanted = selected
        self._form = form
        self._charset = charset
        self._left = count
        self._as_json = as_json
        self.over = asyncio.Event()

    async def show_all(self, queue: ReadableQueue, begin: int) -> None:
        """Print the messages of a queue that are there."""
        end = await self._admin.queue_max_offset(queue)
        if begin > end:
            note(queue.queue, f"there is no message at offset {begin}; the queue ends before offset {end}")
        pulls = self._admin.read_messages(
            queue,
            begin,
            end,
            selector=self._wanted.selector,
            on_gap=lambda gap: note(
                queue.queue, f"the messages at offsets {gap.begin} to {gap.end - 1} are not there any more"
            ),
        )
        await self._show_pulls(queue, pulls)

    async def follow(self, queue: ReadableQueue, begin: int) -> None:
        """Print the messages of a queue from an offset on, without end; a broker that is away is waited for."""
        await self._show_pulls(queue, self._pulls(queue, begin))

    async def _show_pulls(self, queue: ReadableQueue, pulls: AsyncGenerator[PullResult, None]) -> None:
        async with aclosing(pulls):
            async for result in pulls:
                if result.damage:
                    note(queue.queue, f"a damaged message is left out: {result.damage}")
                for message in result.messages:
                    if self.over.is_set():
                        return
                    if self._wanted.has(message):
                        self._show(queue.queue, message)
                sys.stdout.flush()
                if self.over.is_set():
                    return

    async def _pulls(self, queue: ReadableQueue, begin: int) -> AsyncGenerator[PullResult, None]:
        """Yield pulls without end.

        The first one must succeed: it shows if the filter is valid and the broker there. From then on a broker that is
        away, or too busy, is asked again.

        Raises:
            RocketBrokerError: the first pull failed.
        """
        offset, begun, is_away = begin, False, False
        while True:
            try:
                # The first one is not held, since it is waited for.
                result = await self._admin.pull_messages(
                    queue, offset, selector=self._wanted.selector, suspend_s=_HELD_S if begun else 0
                )
            except RocketBrokerError as error:
                if not begun:
                    raise
                if not is_away:
                    note(queue.queue, f"{with_hint(error)}; trying again")
                is_away = True
                await asyncio.sleep(_RETRY_S)
                continue
            if is_away:
                note(queue.queue, "the broker answers again")
            begun, is_away = True, False
            following = result.next_begin_offset
            if result.damage and following <= offset:
                following = offset + 1
            if result.pull_status is PullStatus.OFFSET_ILLEGAL and following != offset:
                note(queue.queue, f"there is no message at offset {offset}; going on at {following}")
            yield result
            if result.pull_status is not PullStatus.FOUND and following == offset:
                # Apache's brokers may answer at once that there is nothing, instead of holding the pull.
                await asyncio.sleep(_PAUSE_S)
            offset = following

    def _show(self, queue: MessageQueue, message: MessageExt) -> None:
        body = decoded_body(message.body, self._form, self._charset)
        if self._as_json:
            say_json(
                TailRow(
                    queue.topic,
                    queue.broker_name,
                    queue.queue_id,
                    message.queue_offset,
                    message.uniq_key,
                    message.offset_msg_id,
                    message.tags,
                    message.keys,
                    message.born_timestamp,
                    message.store_timestamp,
                    message.reconsume_times,
                    message.properties,
                    body,
                )
            )
        else:
            place = f"{queue.broker_name}/{queue.queue_id}@{message.queue_offset}"
            labels = " ".join([message.tags or "-", ",".join(message.keys) or "-"])
            text = body if isinstance(body, str) else json_text(body)
            # A message is one line, so that tools of lines can be used behind it.
            say(escaped(f"{human_millis(message.store_timestamp)} {place} {labels} {text}", "\t"))
        if self._left is not None:
            self._left -= 1
            if not self._left:
                self.over.set()


def note(queue: MessageQueue, text: str) -> None:
    """Print a note about a queue to stderr."""
    say(f"mqadmin: {queue.topic} {queue.broker_name}/{queue.queue_id}: {text}", err=True)


@sub_command("tail", "Follow a topic as it is written.")
async def tail(
    admin: AdminClient,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to follow.")],
    from_time: Annotated[
        int | None,
        typer.Option(
            "--from", parser=parse_time, metavar="TIME", help=f"Begin at messages of this time: {TIME_FORMS}."
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "-l", "--last", min=0, metavar="COUNT", help="Begin so many messages before the end of each queue."
        ),
    ] = None,
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", metavar="NAME", help="Follow this broker only.")
    ] = None,
    queue: Annotated[
        int | None, typer.Option("-q", "--queue", min=0, metavar="ID", help="Follow this queue only; needs -b.")
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option("-o", "--offset", min=0, metavar="OFFSET", help="Begin at this offset; needs -b and -q."),
    ] = None,
    tags: Tags = None,
    sql: Sql = None,
    key: Key = None,
    body: Body = BodyForm.auto,
    charset: Annotated[
        str, typer.Option("--charset", metavar="CHARSET", help="Charset of bodies.", callback=charset_named)
    ] = "UTF-8",
    count: Annotated[
        int | None, typer.Option("-c", "--count", min=1, metavar="COUNT", help="End after so many messages.")
    ] = None,
    no_follow: Annotated[
        bool, typer.Option("--no-follow", help="End at the last message that is there, and do not wait for more.")
    ] = False,
    as_json: bool = False,
) -> Report:
    """Print the messages of a topic as they are stored, until Ctrl-C; with --json one on each line.

    Without --from, --last or -o it begins after the last message. It joins no consumer group and commits no offset.
    """
    if queue is not None and broker is None:
        raise typer.BadParameter("-q (queue) needs -b (the name of its broker)")
    if offset is not None and queue is None:
        raise typer.BadParameter("-o (offset) needs -b (broker) and -q (queue)")
    if sum(each is not None for each in (from_time, last, offset)) > 1:
        raise typer.BadParameter("give one of --from, --last and -o")
    selected = wanted(from_time, None, key, tags, sql)
    out = Tail(admin, selected, body, charset, count, as_json=as_json)
    start = Start(from_time, last, offset)

    async def queues() -> list[ReadableQueue]:
        if broker is not None and queue is not None:
            return [await admin.readable_queue(topic, broker, queue)]
        found = await admin.readable_queues(topic)
        chosen = [each for each in found if broker in {None, each.queue.broker_name}]
        if not chosen:
            await admin.readable_queue(topic, str(broker), 0)
        return chosen

    if no_follow:
        for each in await queues():
            await out.show_all(each, await start.of(admin, each))
            if out.over.is_set():
                break
    else:
        await _follow(admin, out, start, queues)
    return Report(None, [])


async def _follow(
    admin: AdminClient, out: Tail, start: Start, queues: Callable[[], Awaitable[list[ReadableQueue]]]
) -> None:
    """Follow all queues, those that are added too, until enough is printed.

    Raises:
        RocketBrokerError: the first error of a queue that waiting does not mend.
        OSError: the output cannot be written; BrokenPipeError if nobody reads it any more.
    """
    try:
        await _follow_all(admin, out, start, queues)
    except ExceptionGroup as errors:
        first = errors.exceptions[0]
        if not isinstance(first, RocketBrokerError | OSError):
            raise
        raise first from None


async def _follow_all(
    admin: AdminClient, out: Tail, start: Start, queues: Callable[[], Awaitable[list[ReadableQueue]]]
) -> None:
    followed: set[MessageQueue] = set()
    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[None]] = []
        first = await queues()
        # All starts are known before the first message is printed, so that none stored meanwhile is missed.
        begins = [await start.of(admin, each) for each in first]
        for each, begin in zip(first, begins, strict=True):
            followed.add(each.queue)
            tasks.append(group.create_task(out.follow(each, begin), name=f"tail {each.queue}"))
        while not out.over.is_set():
            try:
                async with asyncio.timeout(_ROUTE_S):
                    await out.over.wait()
            except TimeoutError:
                try:
                    found = await queues()
                except RocketBrokerError:
                    continue  # the queues known are followed; their pulls say what is wrong
                for each in found:
                    if each.queue not in followed:
                        followed.add(each.queue)
                        tasks.append(group.create_task(out.follow(each, 0), name=f"tail {each.queue}"))
        for task in tasks:
            task.cancel()
