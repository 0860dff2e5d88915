"""Messages made ready for the wire (DefaultMQProducerImpl.sendKernelImpl, MessageBatch)."""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.client.core.message import Message, MessageType
from rocketbroker.client.core.requests import client_request
from rocketbroker.codec.message.compression import compress
from rocketbroker.codec.message.message_batch import MIN_INNER_SIZE, encode_batch
from rocketbroker.codec.message.message_const import (
    COMPRESSED_FLAG,
    COMPRESSION_LZ4_TYPE,
    COMPRESSION_ZLIB_TYPE,
    COMPRESSION_ZSTD_TYPE,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.message_properties import check_properties_length, encode_properties
from rocketbroker.codec.message.topic_validator import AUTO_CREATE_TOPIC_KEY_TOPIC, RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode

_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class CompressionType(IntEnum):
    """Compression of bodies by its sysFlag bits; clients before 5.0 read zlib only."""

    ZLIB = COMPRESSION_ZLIB_TYPE
    LZ4 = COMPRESSION_LZ4_TYPE
    ZSTD = COMPRESSION_ZSTD_TYPE


class Compression(NamedTuple):
    """Compression of bodies of ``over`` bytes or more."""

    over: int
    kind: CompressionType = CompressionType.ZLIB
    level: int = 5


class Outgoing(msgspec.Struct, frozen=True):
    """A message or a batch as it is sent, the same on each try; ``unique_ids`` is comma-joined for a batch."""

    topic: str
    body: bytes
    properties: str
    unique_ids: str
    flag: int = 0
    sys_flag: int = 0
    is_batch: bool = False
    batch_id: str = ""
    is_reply: bool = False
    messages: tuple[Message, ...] = ()
    msg_type: MessageType = MessageType.NORMAL

    def request(
        self,
        group: str,
        queue: MessageQueue,
        born_timestamp: int,
        default_topic_queue_nums: int,
        *,
        oneway: bool = False,
        unit_mode: bool = False,
        with_batch_id: bool = True,
    ) -> Command:
        """Return the request that sends it to a queue."""
        properties = self.properties
        if self.batch_id and with_batch_id:
            properties += encode_properties({PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: self.batch_id}).decode()
        header = SendMessageRequestHeaderV2(
            producer_group=group,
            topic=self.topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=default_topic_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=self.sys_flag,
            born_timestamp=born_timestamp,
            flag=self.flag,
            properties=properties,
            unit_mode=unit_mode,
            batch=self.is_batch,
            broker_name=queue.broker_name,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if self.is_batch else RequestCode.SEND_MESSAGE_V2
        if self.is_reply:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        return client_request(code, header, self.body, oneway=oneway)


def prepare_message(
    message: Message, unique_id: str, compression: Compression, system_properties: Mapping[str, str] = _NO_PROPERTIES
) -> Outgoing:
    """Encode one message; a long body is compressed if that makes it smaller.

    Raises:
        CodecError: A property holds a separator, or all properties together are too long.
    """
    properties = _encoded_properties(message, unique_id, system_properties)
    body, sys_flag = message.body, 0
    if len(body) >= compression.over:
        packed = compress(body, compression.level, compression.kind)
        if len(packed) < len(body):
            body, sys_flag = packed, COMPRESSED_FLAG | compression.kind
    return Outgoing(
        message.topic,
        body,
        properties.decode(),
        unique_id,
        message.flag,
        sys_flag,
        messages=(message,),
        msg_type=message.msg_type,
    )


def prepare_batches(messages: Sequence[Message], new_unique_id: Callable[[], str], max_size: int) -> list[Outgoing]:
    """Encode messages as batches, as few as fit into ``max_size`` bytes each.

    Raises:
        InvalidMessageError: They cannot be one batch; the text says why.
        CodecError: As in ``prepare_message``.
    """
    check_batch(messages)
    batches: list[Outgoing] = []
    parts: list[_Part] = []
    room = max_size
    for message in messages:
        part = _part(message, new_unique_id(), max_size)
        if part.size > room:
            batches.append(_batch(parts, new_unique_id()))
            parts, room = [], max_size
        parts.append(part)
        room -= part.size
    return [*batches, _batch(parts, new_unique_id())]


class _Part(NamedTuple):
    """A message of a batch."""

    message: Message
    unique_id: str
    properties: bytes
    size: int


def _part(message: Message, unique_id: str, max_size: int) -> _Part:
    properties = _encoded_properties(message, unique_id)
    size = MIN_INNER_SIZE + len(message.body) + len(properties)
    if size > max_size:
        raise InvalidMessageError(
            f"a message of the batch has {size:,} bytes with its properties, over the limit of {max_size:,} "
            "(max_message_size); send it alone"
        )
    return _Part(message, unique_id, properties, size)


def _batch(parts: Sequence[_Part], unique_id: str) -> Outgoing:
    body = encode_batch((part.message.flag, part.message.body, part.properties) for part in parts)
    first = parts[0].message
    wait = "true" if first.wait_store_msg_ok else "false"
    return Outgoing(
        first.topic,
        body,
        encode_properties({PROPERTY_WAIT_STORE_MSG_OK: wait}).decode(),
        ",".join(part.unique_id for part in parts),
        is_batch=True,
        batch_id=unique_id,
        messages=tuple(part.message for part in parts),
    )


def check_batch(messages: Sequence[Message]) -> None:
    """Check that messages can go as one batch (MessageBatch.generateFromList).

    Raises:
        InvalidMessageError: No messages, different topics or waits, or a message that is delayed, retried or has a
            priority.
    """
    if not messages:
        raise InvalidMessageError("the batch is empty; give at least one message")
    first = messages[0]
    if first.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        raise InvalidMessageError(f"topic {first.topic} is a retry topic; send its messages one by one")
    for message in messages:
        if message.topic != first.topic:
            raise InvalidMessageError(
                f"a batch has one topic, but this one has {first.topic} and {message.topic}; send one batch for each"
            )
        if message.wait_store_msg_ok != first.wait_store_msg_ok:
            raise InvalidMessageError(
                "the messages of a batch differ in wait_store_msg_ok; send one batch for each value"
            )
        if message.is_delayed:
            raise InvalidMessageError("delayed messages cannot be sent as a batch; send them one by one")
        if message.priority is not None:
            raise InvalidMessageError("messages with priorities cannot be sent as a batch; send them one by one")


def _encoded_properties(
    message: Message, unique_id: str, system_properties: Mapping[str, str] = _NO_PROPERTIES
) -> bytes:
    properties = message.all_properties()
    properties.update(system_properties)
    properties[PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = unique_id
    encoded = encode_properties(properties)
    check_properties_length(encoded)
    return encoded
