"""Sub-commands about messages (org.apache.rocketmq.tools.command.message)."""

import base64
import codecs
from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Report, Topic, sub_command
from rocketbroker.app.times import human_millis
from rocketbroker.client.admin.admin_client import AdminClient, MessageTrack, message_track_detail
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.common.errors import RocketBrokerError


class MessageRow(msgspec.Struct, rename="camel"):
    """A message; times in ms, ``body`` in base64."""

    offset_msg_id: str
    msg_id: str | None
    topic: str
    tags: str | None
    keys: list[str]
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    reconsume_times: int
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    sys_flag: int
    properties: dict[str, str]
    body: str
    tracks: list[MessageTrack]


@sub_command("queryMsgById", "Show a message by its id.", reads=True)
async def query_msg_by_id(
    admin: AdminClient,
    topic: Topic,
    msg_id: Annotated[str, typer.Option("-i", "--msgId", metavar="ID[,...]", help="Offset message ids or unique ids.")],
    body_format: Annotated[
        str, typer.Option("-f", "--bodyFormat", metavar="CHARSET", help="Charset of the body.")
    ] = "UTF-8",
) -> Report:
    """Show messages by offset message id or by unique id."""
    try:
        codecs.lookup(body_format)
    except LookupError:
        raise typer.BadParameter(
            f"charset {body_format!r} is unknown; use one that Python knows, such as UTF-8"
        ) from None
    ids = [part.strip() for part in msg_id.split(",") if part.strip()]
    if not ids:
        raise typer.BadParameter("-i contains no message id")
    rows, lines, failures = [], [], []
    for each in ids:
        try:
            message = await admin.find_message(topic, each)
        except RocketBrokerError as error:
            failures.append(f"{each}: {error}")
            continue
        tracks = await message_track_detail(admin, message)
        rows.append(message_row(message, tracks))
        lines += [
            *message_lines(message, body_format),
            "",
            *([str(track) for track in tracks] or ["WARN: No Consumer"]),
        ]
    return Report({"messages": rows}, lines, failures)


def message_row(message: MessageExt, tracks: list[MessageTrack]) -> MessageRow:
    """Return a message as a row for JSON."""
    return MessageRow(
        offset_msg_id=message.offset_msg_id,
        msg_id=message.uniq_key,
        topic=message.topic,
        tags=message.tags,
        keys=message.keys,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        commit_log_offset=message.commit_log_offset,
        reconsume_times=message.reconsume_times,
        born_timestamp=message.born_timestamp,
        store_timestamp=message.store_timestamp,
        born_host=message.born_host_text,
        store_host=message.store_host_text,
        sys_flag=message.sys_flag,
        properties=message.properties,
        body=base64.b64encode(message.body).decode(),
        tracks=tracks,
    )


def message_lines(message: MessageExt, body_format: str) -> list[str]:
    """Return a message as lines of text; escape bytes that the charset cannot decode."""
    properties = ", ".join(f"{name}={value}" for name, value in message.properties.items())
    fields: dict[str, object] = {
        "OffsetID:": message.offset_msg_id,
        "Topic:": message.topic,
        "Tags:": f"[{message.tags or 'null'}]",
        "Keys:": f"[{' '.join(message.keys) or 'null'}]",
        "Queue ID:": message.queue_id,
        "Queue Offset:": message.queue_offset,
        "CommitLog Offset:": message.commit_log_offset,
        "Reconsume Times:": message.reconsume_times,
        "Born Timestamp:": human_millis(message.born_timestamp),
        "Store Timestamp:": human_millis(message.store_timestamp),
        "Born Host:": message.born_host_text,
        "Store Host:": message.store_host_text,
        "System Flag:": message.sys_flag,
        "Properties:": f"{{{properties}}}",
        "Message Body:": message.body.decode(body_format, "backslashreplace"),
    }
    return [f"{name:<20} {value}" for name, value in fields.items()]
