"""Messages of gRPC as those of RocketMQ, and back (GrpcConverter, SendMessageActivity.buildMessage).

gRPC                             stored
user_properties                  properties, but for names in STRING_HASH_SET
tag, keys                        TAGS, KEYS joined by blanks
message_id                       UNIQ_KEY
message_group                    __SHARDINGKEY
delivery_timestamp               TIMER_DELIVER_MS
priority                         _SYS_MSG_PRIORITY_
message_type TRANSACTION         TRAN_MSG and the bits of a half message in sysFlag
orphaned_transaction_recovery_duration   CHECK_IMMUNITY_TIME_IN_SECONDS
trace_context, born_host         TRACE_CONTEXT, __BORNHOST
born_timestamp                   BORN_TIMESTAMP and the record's field
body_encoding GZIP               the compressed bit of sysFlag; nothing is decompressed on the way
"""

import re
from hashlib import md5, sha1
from typing import Final, NamedTuple
from zlib import crc32

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from rocketbroker.codec.message import topic_message_type
from rocketbroker.codec.message.message_const import (
    COMPRESSED_FLAG,
    KEY_SEPARATOR,
    PROPERTY_BORN_HOST,
    PROPERTY_BORN_TIMESTAMP,
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_KEYS,
    PROPERTY_PRIORITY,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRACE_CONTEXT,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    STRING_HASH_SET,
    TRANSACTION_PREPARED_TYPE,
)
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_id import host_text
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import shown
from rocketbroker.proxy.call_context import StatusError
from rocketbroker.proxy.messaging_pb2 import (
    Code,
    DeadLetterQueue,
    Digest,
    DigestType,
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
)

# Ids of the SDKs have 34 characters, those of RocketMQ's older clients up to 56.
_LONGEST_ID: Final = 255
# Of the year 9999; protobuf allows no later time.
_LAST_SECOND: Final = 253_402_300_799

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
#: Types of messages by the values of a topic's attribute ``message.type``.
MESSAGE_TYPES: Final = {
    topic_message_type.NORMAL: MessageType.NORMAL,
    topic_message_type.FIFO: MessageType.FIFO,
    topic_message_type.DELAY: MessageType.DELAY,
    topic_message_type.TRANSACTION: MessageType.TRANSACTION,
    topic_message_type.PRIORITY: MessageType.PRIORITY,
}


class OutgoingMessage(NamedTuple):
    """Message to store; ``message_type`` is the one by its properties, as topics name it."""

    body: bytes
    properties: dict[str, str]
    sys_flag: int
    born_timestamp: int
    message_type: str


def to_ms(time: Timestamp | Duration) -> int:
    """Return milliseconds."""
    return time.seconds * 1000 + time.nanos // 1_000_000


def to_duration(ms: int) -> Duration:
    """Return a duration of milliseconds."""
    return Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def to_timestamp(ms: int) -> Timestamp:
    """Return the time of milliseconds since the epoch."""
    return Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


# -- sent messages


def outgoing(message: Message, peer: str, now_ms: int, config: ProxyConfig) -> OutgoingMessage:
    """Return a client's message as it is to be stored; its topic is its producer group, as any producer may be asked.

    ``config`` has the limits.

    Raises:
        StatusError: Part of it is illegal, too long, or not supported.
    """
    system = message.system_properties
    _check_body(message.body, system, config)
    if system.HasField("lite_topic"):
        remark = "lite topics are not supported; send without lite_topic"
        raise StatusError(Code.UNSUPPORTED, remark)
    properties = _user_properties(message, config)
    properties[PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = _message_id(system.message_id)
    is_transaction = system.message_type == MessageType.TRANSACTION
    if is_transaction:
        properties[PROPERTY_TRANSACTION_PREPARED] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            recovery, limit_s = system.orphaned_transaction_recovery_duration, config.max_transaction_recovery_second
            seconds = _recovery_seconds(recovery, limit_s)
            properties[PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)
    if system.HasField("delivery_timestamp"):
        deliver_ms = _delivery_ms(system.delivery_timestamp, now_ms, config.max_delay_time_mills)
        properties[PROPERTY_TIMER_DELIVER_MS] = str(deliver_ms)
    if system.HasField("priority"):
        properties[PROPERTY_PRIORITY] = _priority(system.priority)
    properties[PROPERTY_PRODUCER_GROUP] = message.topic.name
    if system.message_group:
        properties[PROPERTY_SHARDING_KEY] = _message_group(system.message_group, config.max_message_group_size)
    if system.trace_context:
        trace_context = _text("trace context", system.trace_context, Code.ILLEGAL_MESSAGE_PROPERTY_KEY)
        properties[PROPERTY_TRACE_CONTEXT] = trace_context
    born_host = system.born_host if system.born_host.strip() else peer
    properties[PROPERTY_BORN_HOST] = _text("born host", born_host, Code.ILLEGAL_MESSAGE_PROPERTY_KEY)
    is_valid = system.HasField("born_timestamp") and 0 <= system.born_timestamp.seconds <= _LAST_SECOND
    born_ms = to_ms(system.born_timestamp) if is_valid else now_ms
    properties[PROPERTY_BORN_TIMESTAMP] = str(born_ms)
    sys_flag = COMPRESSED_FLAG if system.body_encoding == Encoding.GZIP else 0
    if is_transaction:
        sys_flag |= TRANSACTION_PREPARED_TYPE
    return OutgoingMessage(message.body, properties, sys_flag, born_ms, topic_message_type.type_of(properties))


def _check_body(body: bytes, system: SystemProperties, config: ProxyConfig) -> None:
    if not body and config.enable_message_body_empty_check:
        raise StatusError(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty; send at least one byte")
    if 0 < config.max_message_size < len(body):
        remark = (
            f"message body cannot exceed the max {config.max_message_size}: it has {len(body):,} bytes; split it, "
            "compress it, or raise maxMessageSize of the gRPC port and of the broker"
        )
        raise StatusError(Code.MESSAGE_BODY_TOO_LARGE, remark)
    digest = system.body_digest
    if digest.checksum and digest.checksum.upper() != checksum(body, digest.type):
        name = DigestType.Name(digest.type) if digest.type in DigestType.values() else str(digest.type)
        remark = (
            f"body digest {name} is {shown(digest.checksum)}, which is not that of the body; send the message again"
        )
        raise StatusError(Code.MESSAGE_CORRUPTED, remark)


def checksum(body: bytes, kind: int) -> str:
    """Return the digest of a body; empty for an unknown kind."""
    if kind == DigestType.CRC32:
        return f"{crc32(body):08X}"
    if kind == DigestType.MD5:
        return md5(body, usedforsecurity=False).hexdigest().upper()
    return sha1(body, usedforsecurity=False).hexdigest().upper() if kind == DigestType.SHA1 else ""


def _user_properties(message: Message, config: ProxyConfig) -> dict[str, str]:
    """Return what the user set: properties, TAGS and KEYS. A property without a value cannot be stored."""
    if (number := len(message.user_properties)) > config.user_property_max_num:
        remark = (
            f"too many user properties, max is {config.user_property_max_num}: there are {number:,}; put them into "
            "the body, or raise userPropertyMaxNum"
        )
        raise StatusError(Code.MESSAGE_PROPERTIES_TOO_LARGE, remark)
    properties, size = {}, 0
    for name, value in message.user_properties.items():
        if name in STRING_HASH_SET:
            remark = f"property is used by system: {name}; choose another name"
            raise StatusError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, remark)
        _text("the key of property", name, Code.ILLEGAL_MESSAGE_PROPERTY_KEY)
        if _CONTROL.search(value):
            remark = f"the value of property {shown(name)} cannot contain control character; encode it"
            raise StatusError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, remark)
        size += len(name.encode()) + len(value.encode())
        if value:
            properties[name] = value
    system = message.system_properties
    if system.tag:
        tag = properties[PROPERTY_TAGS] = _text("tag", system.tag, Code.ILLEGAL_MESSAGE_TAG)
        if "|" in tag:
            remark = f"tag cannot contain '|': {shown(tag)}; a message has one tag"
            raise StatusError(Code.ILLEGAL_MESSAGE_TAG, remark)
        size += len(tag.encode())
    keys = [_text("key", key, Code.ILLEGAL_MESSAGE_KEY) for key in system.keys if key]
    if keys:
        properties[PROPERTY_KEYS] = KEY_SEPARATOR.join(keys)
        size += sum(len(key.encode()) for key in keys)
    if size > config.max_user_property_size:
        remark = (
            f"the total size of user property is too large, max is {config.max_user_property_size}: properties, tag "
            f"and keys have {size:,} bytes; put them into the body, or raise maxUserPropertySize"
        )
        raise StatusError(Code.MESSAGE_PROPERTIES_TOO_LARGE, remark)
    return properties


def _text(what: str, text: str, code: Code) -> str:
    """Return a text that can be stored in properties."""
    if not text or text.isspace():
        raise StatusError(code, f"{what} cannot be empty or the char sequence of whitespace: it is {text[:64]!r}")
    if _CONTROL.search(text):
        raise StatusError(code, f"{what} cannot contain control character: {text[:64]!r}")
    return text


def _message_id(message_id: str) -> str:
    _text("message id", message_id, Code.ILLEGAL_MESSAGE_ID)
    if len(message_id) > _LONGEST_ID:
        remark = f"message id of {len(message_id):,} characters exceeds the limit of {_LONGEST_ID}; make a shorter one"
        raise StatusError(Code.ILLEGAL_MESSAGE_ID, remark)
    return message_id


def _message_group(group: str, limit: int) -> str:
    _text("message group", group, Code.ILLEGAL_MESSAGE_GROUP)
    if 0 < limit <= (size := len(group.encode())):
        remark = (
            f"message group exceed the max size {limit}: {shown(group)} has {size:,} bytes; choose one below {limit}, "
            "or raise maxMessageGroupSize"
        )
        raise StatusError(Code.ILLEGAL_MESSAGE_GROUP, remark)
    return group


def _priority(priority: int) -> str:
    if priority < 0:
        remark = f"the priority must be greater than or equal to 0: it is {priority}"
        raise StatusError(Code.BAD_REQUEST, remark)
    return str(priority)


def _delivery_ms(delivery: Timestamp, now_ms: int, limit_ms: int) -> int:
    deliver_ms = to_ms(delivery)
    if deliver_ms < 0 or 0 < limit_ms < deliver_ms - now_ms:
        remark = (
            f"the max delay time of message is too large, max is {limit_ms}: the delivery time is "
            f"{deliver_ms - now_ms:,} ms from now; choose one within that, or raise maxDelayTimeMills"
        )
        raise StatusError(Code.ILLEGAL_DELIVERY_TIME, remark)
    return deliver_ms


def _recovery_seconds(recovery: Duration, limit_s: int) -> int:
    if recovery.seconds < 0 or 0 < limit_s < recovery.seconds:
        remark = (
            f"the max transaction recovery time of message is too large, max is {limit_s}: it is "
            f"{recovery.seconds:,} s; choose a shorter one, or raise maxTransactionRecoverySecond"
        )
        raise StatusError(Code.BAD_REQUEST, remark)
    return recovery.seconds


# -- received messages


def incoming(record: MessageExt, topic: Resource, handle: str | None = None) -> Message:
    """Return a stored message for a client; with ``handle`` the client has popped it.

    ``topic`` is the name by which the client asked for it. The body stays as it is, compressed or not.
    """
    properties = record.properties
    system = SystemProperties(
        keys=record.keys,
        message_id=record.uniq_key or record.offset_msg_id,
        body_digest=Digest(type=DigestType.MD5, checksum=checksum(record.body, DigestType.MD5)),
        body_encoding=Encoding.GZIP if record.sys_flag & COMPRESSED_FLAG else Encoding.IDENTITY,
        message_type=MESSAGE_TYPES[topic_message_type.type_of(properties)],
        born_timestamp=to_timestamp(record.born_timestamp),
        born_host=properties.get(PROPERTY_BORN_HOST, "").strip() or host_text(record.born_host),
        store_timestamp=to_timestamp(record.store_timestamp),
        store_host=record.store_host_text,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=record.reconsume_times + 1,
        tag=record.tags,
        message_group=properties.get(PROPERTY_SHARDING_KEY),
        receipt_handle=handle,
        trace_context=properties.get(PROPERTY_TRACE_CONTEXT),
        priority=record.priority,
    )
    deliver_ms = properties.get(PROPERTY_TIMER_DELIVER_MS, "")
    if deliver_ms.isascii() and deliver_ms.isdigit() and len(deliver_ms) <= 15:
        system.delivery_timestamp.CopyFrom(to_timestamp(int(deliver_ms)))
    dlq_topic, dlq_id = (properties.get(each) for each in (PROPERTY_DLQ_ORIGIN_TOPIC, PROPERTY_DLQ_ORIGIN_MESSAGE_ID))
    if dlq_topic and dlq_id:
        system.dead_letter_queue.CopyFrom(DeadLetterQueue(topic=dlq_topic, message_id=dlq_id))
    users = {name: value for name, value in properties.items() if name not in STRING_HASH_SET}
    return Message(topic=topic, user_properties=users, system_properties=system, body=record.body)
