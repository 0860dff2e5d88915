"""Requests with replies: questions that wait, and the replies that brokers push (RequestFutureHolder, MessageUtil)."""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Protocol

from rocketbroker.client.errors import InvalidMessageError
from rocketbroker.codec.message.compression import decompress
from rocketbroker.codec.message.message_const import (
    COMPRESSED_FLAG,
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MESSAGE_REPLY_TO_CLIENT,
    PROPERTY_MESSAGE_TTL,
    PROPERTY_MESSAGE_TYPE,
)
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.remoting.headers.message import ReplyMessageRequestHeader

_REPLY_TOPIC_POSTFIX = "_REPLY_TOPIC"
_COPIED = (PROPERTY_CORRELATION_ID, PROPERTY_MESSAGE_REPLY_TO_CLIENT, PROPERTY_MESSAGE_TTL)


class Question(Protocol):
    """Received message that may ask for a reply."""

    @property
    def properties(self) -> dict[str, str]:
        """All properties."""


class PendingReplies:
    """Questions of one client that wait for their replies, by correlation id."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}

    def open(self) -> tuple[str, asyncio.Future[MessageExt]]:
        """Return a new correlation id, and the future of its reply; ``close`` it afterwards."""
        correlation_id = str(uuid.uuid4())
        reply = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        return correlation_id, reply

    def close(self, correlation_id: str) -> None:
        """Ignore a later reply."""
        self._waiting.pop(correlation_id, None)

    def take(self, reply: MessageExt) -> bool:
        """Give a reply to its question; return false if no question waits for it."""
        waiting = self._waiting.get(reply.get_property(PROPERTY_CORRELATION_ID) or "")
        if waiting is None or waiting.done():
            return False
        waiting.set_result(reply)
        return True


def question_properties(correlation_id: str, client_id: str, timeout_s: float) -> dict[str, str]:
    """Return the properties that ask for a reply to a client."""
    return {
        PROPERTY_CORRELATION_ID: correlation_id,
        PROPERTY_MESSAGE_REPLY_TO_CLIENT: client_id,
        PROPERTY_MESSAGE_TTL: str(round(timeout_s * 1000)),
    }


def reply_topic(question: Question) -> str:
    """Return the topic of the reply to a question.

    Raises:
        InvalidMessageError: The message asks for no reply.
    """
    return f"{_asked(question, PROPERTY_CLUSTER)}{_REPLY_TOPIC_POSTFIX}"


def reply_properties(question: Question) -> Mapping[str, str]:
    """Return the properties of the reply to a question.

    Raises:
        InvalidMessageError: The message asks for no reply.
    """
    return {PROPERTY_MESSAGE_TYPE: "reply"} | {name: _asked(question, name) for name in _COPIED}


def _asked(question: Question, name: str) -> str:
    value = question.properties.get(name)
    if not value:
        raise InvalidMessageError(f"the message asks for no reply: it has no property {name}")
    return value


def reply_message(header: ReplyMessageRequestHeader, body: bytes) -> MessageExt:
    """Return the message that a broker pushes as a reply.

    Raises:
        CodecError: The body cannot be decompressed, or an address is wrong.
    """
    text = decompress(body, header.sys_flag) if header.sys_flag & COMPRESSED_FLAG else body
    return MessageExt(
        header.topic,
        header.queue_id,
        0,
        0,
        0,
        text,
        header.properties.encode(),
        header.flag,
        header.sys_flag,
        0,
        header.born_timestamp,
        _host(header.born_host),
        header.store_timestamp,
        _host(header.store_host),
        header.reconsume_times,
        0,
        len(body),
        0,
    )


def _host(text: str) -> bytes:
    ip, _, port = text.removeprefix("/").rpartition(":")
    return host_bytes(ip.strip("[]"), int(port) if port.isdigit() else 0)
