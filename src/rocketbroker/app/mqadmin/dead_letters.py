"""``mqadmin resendDlq``: dead letters of a group sent again, each once, by a record of what was sent.

A run leaves out what the record has as ``sent`` or ``sending``.
A message that a consumer has got cannot be taken back. So an undo needs --undo-for, which lets the broker hold the
copies for that time; within it they can be recalled.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Report, sub_command, with_hint
from rocketbroker.app.mqadmin.messages import direct_result_text
from rocketbroker.app.mqadmin.resend_record import LetterId, Record, RecordLine, record_path
from rocketbroker.app.mqadmin.selecting import From, Key, Tags, Until, Wanted, wanted
from rocketbroker.app.terminal import Column, Table, progress, say
from rocketbroker.app.times import human_millis
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.message_admin import ReadableQueue
from rocketbroker.client.core.errors import (
    BrokerNotFoundError,
    ClientError,
    InvalidMessageError,
    SendFailedError,
    TopicRouteError,
)
from rocketbroker.client.producer.copied_message import copied_message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_const import (
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_RETRY_TOPIC,
)
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX, validate_group
from rocketbroker.codec.remoting.bodies.client import CMResult
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import BrokerResponseError, ConfigError, RemotingConnectError, RocketBrokerError

_GROUP: Final = "mqadmin_resendDlq"
_SHOWN: Final = 20
_BODY_SHOWN: Final = 60
# Rejections in a row after which the rest would be rejected too.
_MOST_IN_A_ROW: Final = 10
#: Property of a copy: the offset message id of the dead letter that it was made of.
RESENT_FROM: Final = "RESENT_FROM_DLQ"


class Target(StrEnum):
    """Destination of dead letters."""

    group = "group"
    topic = "topic"
    client = "client"


class DeadLetter(NamedTuple):
    """A dead letter without its body, the topic that it was sent to, and where to read it again."""

    id: LetterId
    topic: str
    row: "LetterRow"
    queue: ReadableQueue


class LetterRow(msgspec.Struct, rename="camel"):
    """A dead letter as shown; times in ms."""

    dlq_msg_id: str
    msg_id: str | None
    topic: str
    broker_name: str
    queue_offset: int
    store_timestamp: int
    tags: str | None
    keys: list[str]
    body: str


@sub_command("resendDlq", "Send the dead letters of a group again.")
async def resend_dlq(
    admin: AdminClient,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group.")],
    from_time: From = None,
    until: Until = None,
    key: Key = None,
    tags: Tags = None,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Dead letters of this topic only.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="COUNT", help="At most so many, the oldest of each queue first."),
    ] = None,
    to: Annotated[
        Target,
        typer.Option(
            "--to", help="group: its retry topic, so that no other group gets them; topic: where they came from."
        ),
    ] = Target.group,
    client_id: Annotated[
        str | None,
        typer.Option("-d", "--clientId", metavar="CLIENT_ID", help="With --to client, the client that consumes them."),
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", min=0, metavar="NUMBER", help="Messages per second; 0: no limit.")
    ] = 100,
    undo_for: Annotated[
        int,
        typer.Option(
            "--undo-for",
            min=0,
            metavar="SECONDS",
            help="With --to topic, let brokers hold the copies so long, for --undo.",
        ),
    ] = 0,
    undo: Annotated[bool, typer.Option("--undo", help="Recall the copies that are still held.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also send those whose outcome is unknown.")] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="FILE",
            help="Record of what was sent; by default one for each user, cluster and group, in ~/.local/state.",
        ),
    ] = None,
    yes: bool = False,
    dry_run: bool = False,
) -> Report:
    """Show the dead letters of a group, and with --yes send them again, each once.

    What was sent is kept in a record: a further run sends the others only. Copies have the property RESENT_FROM_DLQ.
    """
    checked = validate_group(group)
    if not checked.valid:
        raise typer.BadParameter(checked.remark)
    _check_target(to, client_id, undo_for, undo=undo, yes=yes, dry_run=dry_run)
    if record is None:
        record = record_path(await _clusters(admin, group), group, os.environ)
    if undo and not record.exists():
        raise ConfigError(f"--undo: there is no record {record}; name that of the run to undo by --record")
    known = Record(record, writes=(yes or undo) and not dry_run)
    try:
        run = Resend(admin, group, known, to, client_id or "", undo_for, rate)
        if undo:
            return await run.undo(dry_run=dry_run)
        selected = wanted(from_time, until, key, tags)
        found = await run.find(selected, topic, limit, again=again)
        if not yes or dry_run:
            return run.preview(found)
        return await run.send(found)
    finally:
        known.close()


def _check_target(to: Target, client_id: str | None, undo_for: int, *, undo: bool, yes: bool, dry_run: bool) -> None:
    if (to is Target.client) != (client_id is not None):
        raise typer.BadParameter("--to client and -d (client id) need each other")
    if undo_for and to is not Target.topic:
        raise typer.BadParameter("--undo-for needs --to topic: brokers recall no other messages")
    if undo and undo_for:
        raise typer.BadParameter("give either --undo-for, when you send, or --undo, afterwards")
    if yes and dry_run:
        raise typer.BadParameter("give either --yes (send) or --dry-run (show)")


# Errors after which a dead letter is certainly not sent.
_REJECTED: Final = (
    InvalidMessageError,
    BrokerResponseError,
    TopicRouteError,
    BrokerNotFoundError,
    RemotingConnectError,
)
# Answers after which a client may have consumed the message all the same.
_PERHAPS_CONSUMED: Final = frozenset({ResponseCode.CONSUME_MSG_TIMEOUT, ResponseCode.SYSTEM_ERROR})


def is_rejection(error: Exception, to: Target) -> bool:
    """Return true if a dead letter was certainly not sent; false if nobody knows."""
    if isinstance(error, SendFailedError):
        return bool(error.causes) and all(is_rejection(cause, to) for cause in error.causes)
    if to is Target.client and isinstance(error, BrokerResponseError) and error.code in _PERHAPS_CONSUMED:
        return False
    return isinstance(error, _REJECTED)


async def _clusters(admin: AdminClient, group: str) -> str:
    """Return the cluster that has the dead letters of a group; if there are several, all names.

    Raises:
        ClientError: the group has no dead letters.
    """
    topic = DLQ_GROUP_TOPIC_PREFIX + group
    try:
        route = await admin.examine_topic_route_info(topic)
    except TopicRouteError as error:
        raise ClientError(f"group {group} has no dead letters: there is no topic {topic}") from error
    return "+".join(sorted({data.cluster for data in route.broker_datas}))


class Outcome:
    """Counts of a run that sends."""

    def __init__(self) -> None:
        self.sent = 0
        self.failed = 0
        self.unknown = 0
        self.results: list[str] = []
        self.failures: list[str] = []


class Found(NamedTuple):
    """Dead letters to send, and the number of others by reason."""

    letters: list[DeadLetter]
    left_out: dict[str, int]


class Resend:
    """Run over the dead letters of a group.

    Args:
        admin: the client.
        group: the group.
        record: what was sent before.
        to: destination.
        client_id: client that consumes, with ``Target.client``.
        undo_for: seconds for which brokers hold the copies.
        rate: messages in a second, 0 for no limit.
    """

    def __init__(
        self, admin: AdminClient, group: str, record: Record, to: Target, client_id: str, undo_for: int, rate: float
    ) -> None:
        self._admin = admin
        self._group = group
        self._record = record
        self._to = to
        self._client_id = client_id
        self._undo_for = undo_for
        self._interval = 1 / rate if rate else 0.0
        self._clock = SystemClock()
        self._dlq = DLQ_GROUP_TOPIC_PREFIX + group

    async def find(self, selected: Wanted, topic: str | None, limit: int | None, *, again: bool) -> Found:
        """Return the dead letters to send.

        Raises:
            ClientError: the group has no dead letters.
        """
        found = Found([], {})
        async with aclosing(self._letters(selected)) as letters:
            async for message, queue in letters:
                origin = original_topic_of(message)
                if topic is not None and origin != topic:
                    continue
                # Without the body: there may be more dead letters than memory.
                letter = DeadLetter(_id(message), origin, _row(message, origin, queue), queue)
                reason = self._why_not(letter, again=again)
                if reason:
                    found.left_out[reason] = found.left_out.get(reason, 0) + 1
                    continue
                found.letters.append(letter)
                if limit is not None and len(found.letters) >= limit:
                    break
        return found

    def _why_not(self, letter: DeadLetter, *, again: bool) -> str:
        match self._record.state_of(letter.id):
            case "sent":
                return "sent before"
            case "sending" if not again:
                return "outcome unknown, perhaps sent by a run that was interrupted (--again sends them)"
        return "" if letter.topic else "their original topic is not known"

    async def _letters(self, selected: Wanted) -> AsyncGenerator[tuple[MessageExt, ReadableQueue], None]:
        try:
            queues = await self._admin.readable_queues(self._dlq)
        except TopicRouteError as error:
            raise ClientError(f"group {self._group} has no dead letters: there is no topic {self._dlq}") from error
        for queue in queues:
            span = await selected.span(self._admin, queue)
            pulls = self._admin.read_messages(queue, span.begin, span.end, selector=selected.selector)
            async with aclosing(pulls):
                async for result in pulls:
                    for message in result.messages:
                        if selected.has(message):
                            yield message, queue

    def _destination(self, letter: DeadLetter) -> str:
        return {
            Target.group: RETRY_GROUP_TOPIC_PREFIX + self._group,
            Target.topic: letter.topic,
            Target.client: self._client_id,
        }[self._to]

    def preview(self, found: Found) -> Report:
        """Return the dead letters that would be sent."""
        rows = [letter.row for letter in found.letters]
        titles = ("#Stored", "#Topic", "#Broker", "#Offset", "#Tags", "#Keys", "#MsgId", "#Body")
        cells = [
            [
                human_millis(row.store_timestamp),
                row.topic,
                row.broker_name,
                str(row.queue_offset),
                row.tags or "-",
                ",".join(row.keys) or "-",
                row.msg_id or row.dlq_msg_id,
                row.body,
            ]
            for row in rows[:_SHOWN]
        ]
        more = [f"... and {len(rows) - _SHOWN:,} more"] if len(rows) > _SHOWN else []
        lines = [*more, *_left_out(found), f"{len(rows):,} messages would be sent; --yes sends them"]
        data = {"group": self._group, "dryRun": True, "messages": rows, "leftOut": found.left_out}
        data["record"] = str(self._record.path)
        table: list[str | Table] = [Table([*map(Column, titles)], cells), ""] if rows else []
        return Report(data, [*table, *lines])

    async def send(self, found: Found) -> Report:
        """Send dead letters until one has an unknown outcome, and return how many were acknowledged.

        On every way out the user learns how far it came, since the rest needs another run.
        """
        if self._undo_for:
            await self._check_recalls(found)
        outcome, total = Outcome(), len(found.letters)
        try:
            # One try: after a second one nobody could tell if the first has left a copy.
            async with Producer(_GROUP, self._admin.config, retry_times_when_send_failed=0) as producer:
                with progress("Sending", total) as advance:
                    await self._send_all(producer, found.letters, outcome, advance)
        except BaseException:
            say(f"mqadmin: {outcome.sent:,} of {total:,} messages sent; {self._how_to_go_on()}", err=True)
            raise
        if outcome.sent + outcome.failed < total:
            left = total - outcome.sent - outcome.failed - outcome.unknown
            outcome.failures.append(f"stopped, {left:,} not tried; {self._how_to_go_on()}")
        sent = outcome.sent
        held = f", held for {self._undo_for} s: --undo recalls them until then" if self._undo_for and sent else ""
        lines = [*outcome.results, *_left_out(found), f"{sent:,} messages sent{held}"]
        data = {"group": self._group, "dryRun": False, "sent": sent, "leftOut": found.left_out}
        data |= {"failed": outcome.failed, "unknown": outcome.unknown, "record": str(self._record.path)}
        return Report(data, lines, outcome.failures)

    def _how_to_go_on(self) -> str:
        return (
            f"what was sent is noted in {self._record.path}; the same command sends the others, and with --again also "
            "those whose outcome is unknown"
        )

    async def _send_all(
        self, producer: Producer, letters: list[DeadLetter], outcome: Outcome, advance: Callable[[int], None]
    ) -> None:
        in_a_row = 0
        due = time.monotonic()
        for letter in letters:
            await asyncio.sleep(max(due - time.monotonic(), 0))
            due = max(due, time.monotonic()) + self._interval
            message = await self._admin.message_at(letter.queue, letter.row.queue_offset)
            if message is None or _id(message) != letter.id:
                outcome.failed += 1
                outcome.failures.append(f"{letter.id.dlq_msg_id}: the dead letter has expired meanwhile")
                continue
            await self._add(self._line("sending", letter, topic=self._destination(letter)))
            try:
                line, result = await self._send_one(producer, letter, message)
            except RocketBrokerError as error:
                if not is_rejection(error, self._to):
                    outcome.unknown += 1
                    outcome.failures.append(f"{letter.id.dlq_msg_id}: outcome unknown: {with_hint(error)}")
                    return
                line, result = self._line("failed", letter, error=with_hint(error)), ""
            await self._add(line)
            if line.state == "failed":
                outcome.failed += 1
                outcome.failures.append(f"{letter.id.dlq_msg_id}: {line.error}")
                in_a_row += 1
                if in_a_row == _MOST_IN_A_ROW:
                    outcome.failures.append(f"stopped after {in_a_row} failures in a row")
                    return
                continue
            in_a_row = 0
            outcome.results += [result] if result else []
            outcome.sent += 1
            advance(1)

    def _line(
        self,
        state: str,
        letter: DeadLetter,
        *,
        topic: str = "",
        msg_id: str = "",
        recall_handle: str = "",
        deliver_at: int = 0,
        error: str = "",
    ) -> RecordLine:
        now = self._clock.time_ms()
        return RecordLine(
            state,
            letter.id.dlq_msg_id,
            now,
            letter.id.uniq_key,
            letter.id.stored,
            topic,
            msg_id,
            recall_handle,
            deliver_at,
            error,
        )

    async def _add(self, line: RecordLine) -> None:
        await asyncio.to_thread(self._record.add, line)

    async def _send_one(self, producer: Producer, letter: DeadLetter, message: MessageExt) -> tuple[RecordLine, str]:
        """Send one dead letter; return the line of the record, and the result that a client reports.

        Raises:
            RocketBrokerError: ``is_rejection`` says if it was not sent, or if nobody knows.
        """
        destination = self._destination(letter)
        if self._to is Target.client:
            result = await self._admin.consume_message_directly(
                self._group, self._client_id, message.topic, letter.id.dlq_msg_id
            )
            if result.consume_result not in {CMResult.CR_SUCCESS, CMResult.CR_COMMIT}:
                return self._line("failed", letter, topic=destination, error=direct_result_text(result)), ""
            return self._line("sent", letter, topic=destination), direct_result_text(result)
        copy = copied_message(
            letter.topic, message.body, message.properties, message.flag, more={RESENT_FROM: letter.id.dlq_msg_id}
        )
        deliver_at = self._clock.time_ms() + self._undo_for * 1000 if self._undo_for else 0
        if deliver_at:
            copy = msgspec.structs.replace(copy, deliver_time_ms=deliver_at)
        to_group = self._to is Target.group
        answer = await (producer.send_retry(copy, self._group) if to_group else producer.send(copy))
        return self._line(
            "sent",
            letter,
            topic=destination,
            msg_id=answer.msg_id,
            recall_handle=answer.recall_handle or "",
            deliver_at=deliver_at,
        ), ""

    async def _check_recalls(self, found: Found) -> None:
        """Check that the brokers that get the copies hold them for so long, and recall messages.

        Raises:
            ClientError: one does not; the text says how to change it.
        """
        brokers: dict[str, str] = {}
        for topic in sorted({letter.topic for letter in found.letters}):
            with suppress(TopicRouteError):  # its sends say so
                queues = await self._admin.readable_queues(topic)
                brokers |= {queue.address: queue.queue.broker_name for queue in queues}
        for address, name in brokers.items():
            settings = await self._admin.get_broker_config(address)
            if settings.get("recallMessageEnable") != "true":
                raise ClientError(
                    f"--undo-for: broker {name} does not recall messages; set it by mqadmin updateBrokerConfig "
                    f"-b {address} -k recallMessageEnable -v true"
                )
            longest = settings.get("timerMaxDelaySec", "")
            if longest.isdecimal() and self._undo_for > int(longest):
                raise ClientError(
                    f"--undo-for {self._undo_for}: broker {name} holds messages for {longest} s at most "
                    "(timerMaxDelaySec); give less"
                )

    async def undo(self, *, dry_run: bool) -> Report:
        """Recall the copies that brokers still hold."""
        now = self._clock.time_ms()
        sent = [line for line in self._record.last.values() if line.state == "sent"]
        held = [line for line in sent if line.recall_handle and line.deliver_at > now]
        delivered = len(sent) - len(held)
        recalled = 0
        failures = [
            f"{line.dlq_msg_id}: outcome unknown; perhaps a copy was sent, which cannot be recalled"
            for line in self._record.last.values()
            if line.state == "sending"
        ]
        if not dry_run:
            async with Producer(_GROUP, self._admin.config) as producer:
                for line in held:
                    try:
                        await producer.recall(line.topic, line.recall_handle)
                    except RocketBrokerError as error:
                        failures.append(f"{line.dlq_msg_id}: {with_hint(error)}")
                        continue
                    await self._add(
                        RecordLine(
                            "recalled", line.dlq_msg_id, now, line.uniq_key, line.stored, line.topic, line.msg_id
                        )
                    )
                    recalled += 1
        verb = f"{len(held):,} messages would be recalled" if dry_run else f"{recalled:,} messages recalled"
        lines = [f"{delivered:,} messages were delivered, and cannot be taken back"] if delivered else []
        data = {
            "group": self._group,
            "dryRun": dry_run,
            "recalled": recalled,
            "held": len(held),
            "delivered": delivered,
        }
        return Report(data, [*lines, verb], failures)


def original_topic_of(message: MessageExt) -> str:
    """Return the topic that a dead letter was sent to at first, empty if it does not say."""
    return message.get_property(PROPERTY_RETRY_TOPIC) or message.get_property(PROPERTY_DLQ_ORIGIN_TOPIC) or ""


def _id(message: MessageExt) -> LetterId:
    return LetterId(message.offset_msg_id, message.uniq_key or "", message.store_timestamp)


def _row(message: MessageExt, topic: str, queue: ReadableQueue) -> LetterRow:
    text = " ".join(message.body[: 4 * _BODY_SHOWN].decode("utf-8", "backslashreplace").split())
    return LetterRow(
        message.offset_msg_id,
        message.uniq_key,
        topic,
        queue.queue.broker_name,
        message.queue_offset,
        message.store_timestamp,
        message.tags,
        message.keys,
        text if len(text) <= _BODY_SHOWN else f"{text[: _BODY_SHOWN - 3]}...",
    )


def _left_out(found: Found) -> list[str]:
    return [f"left out, {reason}: {count:,}" for reason, count in sorted(found.left_out.items())]
