"""``mqadmin resendDlq``: dead letters of a group sent again, each once, by a record of what was sent.

The record is a file of JSON lines, on disk before and after each send:

    sending   a dead letter is about to be sent; without a later line nobody knows whether it was
    sent      its send was acknowledged
    failed    its send was rejected
    recalled  its copy was cancelled before its delivery (--undo)

The next run leaves out what is ``sent`` or ``sending``. A message that a consumer has got cannot be taken back. So an
undo needs --undo-for, which lets the broker hold the copies for that time; within it they can be recalled.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Final, NamedTuple

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Report, sub_command, with_hint
from rocketbroker.app.mqadmin.messages import direct_result_text
from rocketbroker.app.mqadmin.selecting import From, Key, Tags, Until, Wanted, wanted
from rocketbroker.app.terminal import Column, Table, progress
from rocketbroker.app.times import human_millis
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import BrokerNotFoundError, ClientError, InvalidMessageError, TopicRouteError
from rocketbroker.client.producer.copied_message import copied_message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_const import (
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_RETRY_TOPIC,
)
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX, validate_group
from rocketbroker.codec.remoting.bodies.client import CMResult
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import BrokerResponseError, ConfigError, RocketBrokerError, StoreError

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


class RecordLine(msgspec.Struct, rename="camel", omit_defaults=True):
    """A line of the record; ``time`` and ``deliver_at`` in ms."""

    state: str
    dlq_msg_id: str
    time: int
    topic: str = ""
    msg_id: str = ""
    recall_handle: str = ""
    deliver_at: int = 0
    error: str = ""


class DeadLetter(NamedTuple):
    """A dead letter, and the topic that it was sent to."""

    message: MessageExt
    topic: str

    @property
    def id(self) -> str:
        """Its offset message id, which no other dead letter has."""
        return self.message.offset_msg_id


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


class Record:
    """The record of what was sent of a group's dead letters.

    Args:
        path: the file; it need not exist.

    Raises:
        ConfigError: the file has lines of another kind.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self.last: dict[str, RecordLine] = {}
        try:
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        except OSError as error:
            raise ConfigError(f"--record {path}: {error.strerror}") from error
        self._size = 0
        for line in lines:
            try:
                found = msgspec.json.decode(line, type=RecordLine)
            except msgspec.DecodeError as error:
                if line is lines[-1] and not line.endswith(b"\n"):
                    break  # cut off by a kill: the line before it is "sending"
                raise ConfigError(f"--record {path} is no record of resendDlq: {error}; name another file") from error
            self.last[found.dlq_msg_id] = found
            self._size += len(line)

    def add(self, line: RecordLine) -> None:
        """Write a line, and wait until it is on disk.

        Raises:
            StoreError: it cannot be written.
        """
        try:
            if self._file is None:
                self._file = self._path.open("ab")
                self._file.truncate(self._size)
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StoreError(f"--record {self._path}: {error.strerror}") from error
        self.last[line.dlq_msg_id] = line

    def state_of(self, letter: DeadLetter) -> str:
        """Return the last state of a dead letter, empty if it has none."""
        found = self.last.get(letter.id)
        return found.state if found is not None else ""

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


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
    again: Annotated[bool, typer.Option("--again", help="Also send those that a killed run may have sent.")] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record", metavar="FILE", help="Record of what was sent; by default resendDlq-GROUP.jsonl here."
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
    known = Record(record or Path(f"resendDlq-{group}.jsonl"))
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


# Answers after which a dead letter is certainly not sent.
_REJECTED: Final = (InvalidMessageError, BrokerResponseError, TopicRouteError, BrokerNotFoundError)


class Found(NamedTuple):
    """Dead letters to send, and the number of others by reason."""

    letters: list[tuple[DeadLetter, str]]  # with the name of the broker
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
            async for message, broker in letters:
                origin = original_topic_of(message)
                if topic is not None and origin != topic:
                    continue
                letter = DeadLetter(message, origin)
                reason = self._why_not(letter, again=again)
                if reason:
                    found.left_out[reason] = found.left_out.get(reason, 0) + 1
                    continue
                found.letters.append((letter, broker))
                if limit is not None and len(found.letters) >= limit:
                    break
        return found

    def _why_not(self, letter: DeadLetter, *, again: bool) -> str:
        match self._record.state_of(letter):
            case "sent":
                return "sent before"
            case "sending" if not again:
                return "perhaps sent by a run that was killed (--again sends them)"
        return "" if letter.topic else "their original topic is not known"

    async def _letters(self, selected: Wanted) -> AsyncGenerator[tuple[MessageExt, str], None]:
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
                            yield message, queue.queue.broker_name

    def _destination(self, letter: DeadLetter) -> str:
        return {
            Target.group: RETRY_GROUP_TOPIC_PREFIX + self._group,
            Target.topic: letter.topic,
            Target.client: self._client_id,
        }[self._to]

    def preview(self, found: Found) -> Report:
        """Return the dead letters that would be sent."""
        rows = [_row(letter, broker) for letter, broker in found.letters]
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
        table: list[str | Table] = [Table([*map(Column, titles)], cells), ""] if rows else []
        return Report(data, [*table, *lines])

    async def send(self, found: Found) -> Report:
        """Send dead letters, and return how many were acknowledged."""
        if self._undo_for:
            await self._check_recalls()
        sent, failures = 0, []
        results: list[str] = []
        in_a_row = 0
        async with Producer(_GROUP, self._admin.config) as producer:
            with progress("Sending", len(found.letters)) as advance:
                due = time.monotonic()
                for letter, _ in found.letters:
                    await asyncio.sleep(max(due - time.monotonic(), 0))
                    due = max(due, time.monotonic()) + self._interval
                    await self._add(RecordLine("sending", letter.id, self._clock.time_ms(), self._destination(letter)))
                    try:
                        line, result = await self._send_one(producer, letter)
                    except _REJECTED as error:
                        line = RecordLine("failed", letter.id, self._clock.time_ms(), error=with_hint(error))
                    if line.state == "failed":
                        await self._add(line)
                        failures.append(f"{letter.id}: {line.error}")
                        in_a_row += 1
                        if in_a_row == _MOST_IN_A_ROW:
                            failures.append(f"stopped after {in_a_row} failures in a row")
                            break
                        continue
                    in_a_row = 0
                    await self._add(line)
                    results += [result] if result else []
                    sent += 1
                    advance(1)
        held = f", held for {self._undo_for} s: --undo recalls them until then" if self._undo_for and sent else ""
        lines = [*results, *_left_out(found), f"{sent:,} messages sent{held}"]
        data = {"group": self._group, "dryRun": False, "sent": sent, "leftOut": found.left_out}
        return Report(data, lines, failures)

    async def _add(self, line: RecordLine) -> None:
        await asyncio.to_thread(self._record.add, line)

    async def _send_one(self, producer: Producer, letter: DeadLetter) -> tuple[RecordLine, str]:
        """Send one dead letter; return the line of the record, and the result that a client reports.

        Raises:
            RocketBrokerError: one of ``_REJECTED`` if it was not sent; after any other nobody knows.
        """
        destination, now = self._destination(letter), self._clock.time_ms()
        if self._to is Target.client:
            result = await self._admin.consume_message_directly(
                self._group, self._client_id, letter.message.topic, letter.id
            )
            if result.consume_result not in {CMResult.CR_SUCCESS, CMResult.CR_COMMIT}:
                return RecordLine("failed", letter.id, now, destination, error=direct_result_text(result)), ""
            return RecordLine("sent", letter.id, now, destination), direct_result_text(result)
        message = letter.message
        copy = copied_message(
            letter.topic, message.body, message.properties, message.flag, more={RESENT_FROM: letter.id}
        )
        if self._undo_for:
            copy = msgspec.structs.replace(copy, deliver_time_ms=now + self._undo_for * 1000)
        to_group = self._to is Target.group
        answer = await (producer.send_retry(copy, self._group) if to_group else producer.send(copy))
        line = RecordLine(
            "sent",
            letter.id,
            now,
            destination,
            answer.msg_id,
            answer.recall_handle or "",
            now + self._undo_for * 1000 if self._undo_for else 0,
        )
        return line, ""

    async def _check_recalls(self) -> None:
        """Check that the brokers recall messages.

        Raises:
            ClientError: one does not; the text says how to change it.
        """
        for queue in await self._admin.readable_queues(self._dlq):
            settings = await self._admin.get_broker_config(queue.address)
            if settings.get("recallMessageEnable") != "true":
                name = queue.queue.broker_name
                raise ClientError(
                    f"--undo-for: broker {name} does not recall messages; set it by mqadmin updateBrokerConfig "
                    f"-b {queue.address} -k recallMessageEnable -v true"
                )

    async def undo(self, *, dry_run: bool) -> Report:
        """Recall the copies that brokers still hold."""
        now = self._clock.time_ms()
        sent = [line for line in self._record.last.values() if line.state == "sent"]
        held = [line for line in sent if line.recall_handle and line.deliver_at > now]
        delivered = len(sent) - len(held)
        recalled, failures = 0, []
        if not dry_run:
            async with Producer(_GROUP, self._admin.config) as producer:
                for line in held:
                    try:
                        await producer.recall(line.topic, line.recall_handle)
                    except RocketBrokerError as error:
                        failures.append(f"{line.dlq_msg_id}: {with_hint(error)}")
                        continue
                    await self._add(RecordLine("recalled", line.dlq_msg_id, now, line.topic, line.msg_id))
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


def _row(letter: DeadLetter, broker: str) -> LetterRow:
    message = letter.message
    text = " ".join(message.body[: 4 * _BODY_SHOWN].decode("utf-8", "backslashreplace").split())
    return LetterRow(
        letter.id,
        message.uniq_key,
        letter.topic,
        broker,
        message.queue_offset,
        message.store_timestamp,
        message.tags,
        message.keys,
        text if len(text) <= _BODY_SHOWN else f"{text[: _BODY_SHOWN - 3]}...",
    )


def _left_out(found: Found) -> list[str]:
    return [f"left out, {reason}: {count:,}" for reason, count in sorted(found.left_out.items())]
