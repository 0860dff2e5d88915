"""Rows of an export, and the messages in them: the form that exports by Spark and by ``mqadmin`` share.

Needs neither pyspark nor pyarrow, so that JSON lines are written and read without the extra ``analytics``.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.copied_message import copied_message
from rocketbroker.codec.message.compression import decompress
from rocketbroker.codec.message.message_const import (
    COMPRESSED_FLAG,
    COMPRESSION_TYPE_COMPARATOR,
    INNER_BATCH_FLAG,
    PROPERTY_KEYS,
)
from rocketbroker.codec.message.message_ext import MessageExt
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
_NEVER_NULL: Final = ("topic", "queue_id", "store_timestamp", "flag", "sys_flag")
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


class Ready(NamedTuple):
    """A message to send, with its original queue and store time."""

    message: Message
    queue: tuple[str, int]
    stored_ms: int


def prepare(row: Mapping[str, Any], topics: Mapping[str, str]) -> Ready | str:
    """Return the message in a row with ``COLUMNS``, or the reason to leave it out; ``topics`` renames topics.

    Keys, tags, flag, body and all properties of the application are kept. RocketMQ's own properties, including the
    unique id, are set again. A compressed body is decompressed; the client compresses it again.
    """
    if any(row.get(name) is None for name in _NEVER_NULL):
        return NO_MESSAGE
    topic = row["topic"]
    reason = _why_not(topic, row["sys_flag"])
    if reason:
        return reason
    body = bytes(row["body"] or b"")
    if body and row["sys_flag"] & COMPRESSED_FLAG:
        try:
            body = decompress(body, row["sys_flag"])
        except CodecError:
            return "body cannot be decompressed"
    try:
        message = copied_message(topics.get(topic, topic), body, dict(row["properties"] or {}), row["flag"])
    except InvalidMessageError as error:
        return str(error)
    return Ready(message, (topic, row["queue_id"]), row["store_timestamp"])


def _why_not(topic: str, sys_flag: int) -> str:
    if topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)):
        return "retry or dead letter"
    if topic == RMQ_SYS_SCHEDULE_TOPIC or is_system_topic(topic):
        return "system topic"
    if sys_flag & INNER_BATCH_FLAG:
        return "batch of a BatchCQ topic"
    return ""
