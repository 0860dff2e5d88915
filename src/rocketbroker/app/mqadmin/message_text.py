"""Messages as the sub-commands print them: lines as by RocketMQ's tools, rows for JSON, and decoded bodies."""

import base64
import codecs
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from rocketbroker.app.mqadmin.command import java_text
from rocketbroker.app.times import human_millis
from rocketbroker.client.admin.admin_client import MessageTrack
from rocketbroker.codec.message.message_ext import MessageExt

NO_TRANSACTION = "null"
# Java's bytes, by their unsigned values.
_SIGNED = [str(byte - 256 if byte > 127 else byte) for byte in range(256)]


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
        "Message Body:": text_of(message.body, body_format),
    }
    return [f"{name:<20} {value}" for name, value in fields.items()]


def message_line(message: MessageExt, broker_name: str, charset: str, *, with_body: bool) -> str:
    """Return a message on one line, as RocketMQ's printMsg does (MessageExt.toString).

    Args:
        message: the message.
        broker_name: name of the broker that it was pulled from.
        charset: charset of the body.
        with_body: false prints a note in place of the decoded body.
    """
    fields: dict[str, Any] = {
        "brokerName": broker_name,
        "queueId": message.queue_id,
        "storeSize": message.store_size,
        "queueOffset": message.queue_offset,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": f"/{message.born_host_text}",
        "storeTimestamp": message.store_timestamp,
        "storeHost": f"/{message.store_host_text}",
        "msgId": message.offset_msg_id,
        "commitLogOffset": message.commit_log_offset,
        "bodyCRC": message.body_crc,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }
    signed = ", ".join(map(_SIGNED.__getitem__, message.body))
    inner = (
        f"Message{{topic='{message.topic}', flag={message.flag}, properties={java_text(message.properties)}, "
        f"body=[{signed}], transactionId='{NO_TRANSACTION}'}}"
    )
    shown = ", ".join([*(f"{name}={value}" for name, value in fields.items()), f"toString()={inner}"])
    body = text_of(message.body, charset) if with_body else "NOT PRINT BODY"
    return f"MSGID: {message.uniq_key or message.offset_msg_id} MessageExt [{shown}] BODY: {body}"


def text_of(body: bytes, charset: str) -> str:
    """Return a body as text; escape bytes that the charset cannot decode."""
    return body.decode(charset, "backslashreplace")


def charset_named(name: str) -> str:
    """Return the name of a charset.

    Raises:
        typer.BadParameter: unknown charset.
    """
    try:
        # Others than charsets of text are codecs too, such as base64.
        "".encode(name)
        codecs.lookup(name)
    except LookupError:
        raise typer.BadParameter(f"charset {name!r} is unknown; use one that Python knows, such as UTF-8") from None
    return name


class BodyForm(StrEnum):
    """Form in which bodies are printed."""

    auto = "auto"
    json = "json"
    text = "text"
    hex = "hex"
    base64 = "base64"


Body = Annotated[
    BodyForm,
    typer.Option(
        "--body",
        help="Form of bodies; auto: JSON or text where the body is, else hex. With --json a value of that kind.",
    ),
]


def decoded_body(body: bytes, form: BodyForm, charset: str) -> Any:
    """Return a body for JSON: a JSON value, or a text.

    With ``json``, a body that is no JSON is its text. With ``auto`` a body that is neither JSON of an object or list
    nor printable text is in hex.
    """
    match form:
        case BodyForm.hex:
            return body.hex()
        case BodyForm.base64:
            return base64.b64encode(body).decode()
        case BodyForm.text:
            return text_of(body, charset)
        case BodyForm.json:
            found = _json_of(body)
            return text_of(body, charset) if found is msgspec.UNSET else found
    if body[:1] in {b"{", b"["} and (found := _json_of(body)) is not msgspec.UNSET:
        return found
    try:
        text = body.decode(charset)
    except UnicodeDecodeError:
        return body.hex()
    return text if "".join(text.split()).isprintable() else body.hex()


def _json_of(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return msgspec.UNSET
