"""Rows of an export, and the messages in them: the form that exports by Spark and by ``mqadmin`` share.

Needs neither pyspark nor pyarrow, so that JSON lines are written and read without the extra ``analytics``.
"""

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.client.core.message import MAX_MESSAGE_SIZE, Message
from rocketbroker.client.producer.copied_message import copied_message
from rocketbroker.codec.message.compression import decompress
from rocketbroker.codec.message.message_const import (
    COMPRESSED_FLAG,
    COMPRESSION_TYPE_COMPARATOR,
    INNER_BATCH_FLAG,
    PROPERTY_KEYS,
)
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.topic_validator import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    RMQ_SYS_SCHEDULE_TOPIC,
    is_system_topic,
)
from rocketbroker.common.errors import CodecError

#: Columns of a row that a replay needs, and their types in Spark.
REPLAY_SCHEMA: Final = (
    "broker string, topic string, queue_id int, physical_offset bigint, store_timestamp bigint, flag int, sys_flag int,"
    " body binary, properties map<string,string>"
)
#: Columns of an export that a replay needs.
COLUMNS: Final = tuple(column.split()[0] for column in REPLAY_SCHEMA.split(", "))
#: Reason to leave out a row that lacks values of every message: a line of invalid JSON, or of another kind of file.
NO_MESSAGE: Final = "not a message of an export"
#: Reasons to leave out a row that are no failure: its message belongs to the brokers it comes from.
RETRY_OR_DEAD_LETTER: Final = "retry or dead letter"
SYSTEM_TOPIC: Final = "system topic"
#: Begin of the reason to leave out a message that is too large.
OVER_SIZE: Final = "body over "
_CRC_MASK: Final = 0x7FFFFFFF
_IS_COMPRESSED: Final = COMPRESSED_FLAG | COMPRESSION_TYPE_COMPARATOR


def exported_row(message: MessageExt, broker: str) -> dict[str, Any]:
    """Return a pulled message as a row: the columns of ``message_schema.MESSAGE_SCHEMA``, times in ms since 1970.

    The body is decompressed, as it was pulled; flag and checksum agree with it. ``broker`` is the broker's name.
    """
    return {
        "broker": broker,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.commit_log_offset,
        "store_timestamp": message.store_timestamp,
        "born_timestamp": message.born_timestamp,
        "born_host": message.born_host_text,
        "store_host": message.store_host_text,
        "msg_id": message.offset_msg_id,
        "uniq_key": message.uniq_key,
        "keys": message.get_property(PROPERTY_KEYS),
        "tags": message.tags,
        "flag": message.flag,
        "sys_flag": message.sys_flag & ~_IS_COMPRESSED,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "body": message.body,
        "body_crc": zlib.crc32(message.body) & _CRC_MASK,
        "properties": message.properties,
        "size": message.store_size,
    }


def row_in_json(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row read from JSON, where the body is base64, with its bytes.

    Raises:
        ValueError: the body is not base64.
    """
    body = value.get("body")
    return {**value, "body": base64.b64decode(body, validate=True) if isinstance(body, str) else b""}


class ReplayRow(msgspec.Struct):
    """The columns of a row that a replay needs, and their types."""

    topic: str
    queue_id: int
    store_timestamp: int
    flag: int
    sys_flag: int
    broker: str | None = None
    body: bytes | None = None
    properties: dict[str, str] | None = None


def replay_row(row: Mapping[str, Any]) -> ReplayRow | None:
    """Return the columns that a replay needs; None if one is missing, or of another type."""
    try:
        return msgspec.convert(row, ReplayRow)
    except msgspec.ValidationError:
        return None


class Origin(NamedTuple):
    """The queue that a message was exported from; ``broker`` is empty where the export does not tell it."""

    broker: str
    topic: str
    queue_id: int


class Ready(NamedTuple):
    """A message to send, with its original queue and store time."""

    message: Message
    queue: Origin
    stored_ms: int


class TargetQueues:
    """Target queues of original queues: one for each, so that order is kept, and all of them in use.

    Within a topic an original queue gets the number of its id, or if that is taken by a queue of another broker, the
    lowest number that is free. So the queues of several brokers spread over all queues of the target. The numbers
    depend on the order of appearance only.
    """

    def __init__(self) -> None:
        self._numbers: dict[Origin, int] = {}
        self._taken: dict[str, set[int]] = {}
        self._free: dict[str, int] = {}

    def number(self, origin: Origin) -> int:
        """Return the number of an original queue, a new one at its first appearance."""
        found = self._numbers.get(origin)
        if found is not None:
            return found
        taken = self._taken.setdefault(origin.topic, set())
        number = origin.queue_id
        if number in taken:
            number = self._free.get(origin.topic, 0)
            while number in taken:
                number += 1
            self._free[origin.topic] = number
        taken.add(number)
        self._numbers[origin] = number
        return number


def queue_of_number(number: int, queues: Sequence[MessageQueue], _message: Message) -> MessageQueue:
    """Return the queue of a number, counted around: a ``QueueSelector`` once the number is given."""
    return queues[number % len(queues)]


def prepare(row: Mapping[str, Any], topics: Mapping[str, str], max_size: int = MAX_MESSAGE_SIZE) -> Ready | str:
    """Return the message in a row with ``COLUMNS``, or the reason to leave it out.

    Keys, tags, flag, body and all properties of the application are kept. RocketMQ's own properties, including the
    unique id, are set again. A compressed body is decompressed; the client compresses it again.

    Args:
        row: the row.
        topics: new names of topics by old ones.
        max_size: largest body in bytes.
    """
    found = replay_row(row)
    if found is None:
        return NO_MESSAGE
    topic = found.topic
    reason = _why_not(topic, found.sys_flag)
    if reason:
        return reason
    body = found.body or b""
    if body and found.sys_flag & COMPRESSED_FLAG:
        try:
            body = decompress(body, found.sys_flag)
        except CodecError:
            return "body cannot be decompressed"
    if len(body) > max_size:
        return f"{OVER_SIZE}{max_size:,} bytes"
    try:
        message = copied_message(topics.get(topic, topic), body, found.properties or {}, found.flag, max_size=max_size)
    except InvalidMessageError as error:
        return str(error)
    return Ready(message, Origin(found.broker or "", topic, found.queue_id), found.store_timestamp)


def _why_not(topic: str, sys_flag: int) -> str:
    if topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)):
        return RETRY_OR_DEAD_LETTER
    if topic == RMQ_SYS_SCHEDULE_TOPIC or is_system_topic(topic):
        return SYSTEM_TOPIC
    if sys_flag & INNER_BATCH_FLAG:
        return "batch of a BatchCQ topic"
    return ""
