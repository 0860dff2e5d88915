"""Messages of gRPC as stored records, and back."""

import gzip
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("google.protobuf", reason="the extra grpc is not installed")

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from rocketbroker.codec.message.message_const import COMPRESSED_FLAG, STRING_HASH_SET
from rocketbroker.codec.message.message_decoder import decode_record, encode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.proxy.call_context import StatusError
from rocketbroker.proxy.message_conversion import (
    OutgoingMessage,
    incoming,
    outgoing,
    to_duration,
    to_ms,
    to_timestamp,
)
from rocketbroker.proxy.messaging_pb2 import (
    Code,
    Digest,
    DigestType,
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
)
from tests.support.proxy_calls import message

NOW = 1_795_255_000_000
PEER = "127.0.0.1:5000"
LIMITS = ProxyConfig()
ORDERS = Resource(name="Orders")


def stored(sent: OutgoingMessage, **fields: Any) -> MessageExt:
    """Return the record of a sent message, as a broker writes it."""
    values: dict[str, Any] = {"queue_offset": 7, "reconsume_times": 0, **fields}
    record = encode_record(
        3,
        0,
        values["queue_offset"],
        4096,
        sent.sys_flag,
        sent.born_timestamp,
        host_bytes("10.0.0.1", 5000),
        NOW + 5,
        host_bytes("10.0.0.2", 10911),
        values["reconsume_times"],
        0,
        sent.body,
        b"Orders",
        encode_properties(sent.properties),
    )
    return decode_record(record)


def round_trip(sent: Message, handle: str | None = None) -> Message:
    return incoming(stored(outgoing(sent, PEER, NOW, LIMITS)), ORDERS, handle)


CONTROLS = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)]))
texts = st.text(st.characters(exclude_characters=CONTROLS, exclude_categories=["Cs"]), min_size=1, max_size=20)
visible = texts.filter(lambda text: not text.isspace())
words = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    system = SystemProperties(
        message_id=draw(words),
        keys=draw(st.lists(words, max_size=3)),
        born_timestamp=to_timestamp(draw(st.integers(0, 2**41))),
        born_host=draw(words),
        body_encoding=draw(st.sampled_from([Encoding.IDENTITY, Encoding.GZIP])),
        message_type=draw(st.sampled_from([MessageType.NORMAL, MessageType.TRANSACTION])),
    )
    if draw(st.booleans()):
        system.tag = draw(words)
    if draw(st.booleans()):
        system.message_group = draw(words)
    if draw(st.booleans()):
        system.delivery_timestamp.CopyFrom(to_timestamp(draw(st.integers(0, NOW + 86_400_000))))
    if draw(st.booleans()):
        system.priority = draw(st.integers(0, 2**31 - 1))
    if draw(st.booleans()):
        system.trace_context = draw(visible)
    names = visible.filter(lambda name: name not in STRING_HASH_SET and name != "__SHARDINGKEY")
    users = draw(st.dictionaries(names, texts, max_size=4))
    return Message(
        topic=ORDERS, body=draw(st.binary(min_size=1, max_size=64)), user_properties=users, system_properties=system
    )


@given(messages())
def test_a_message_comes_back_as_it_was_sent(sent: Message):
    back = round_trip(sent, "handle")

    was, system = sent.system_properties, back.system_properties
    assert (back.topic, back.body) == (sent.topic, sent.body)
    added = {"__SHARDINGKEY", "TRACE_CONTEXT"}
    assert {name: value for name, value in back.user_properties.items() if name not in added} == {
        name: value for name, value in sent.user_properties.items() if name not in added
    }
    for field in ("message_id", "born_host", "body_encoding", "born_timestamp"):
        assert getattr(system, field) == getattr(was, field)
    assert list(system.keys) == list(was.keys)
    for field in ("tag", "message_group", "delivery_timestamp", "priority", "trace_context"):
        assert system.HasField(field) == was.HasField(field)
        assert getattr(system, field) == getattr(was, field)
    assert system.body_digest.checksum == hashlib.md5(sent.body, usedforsecurity=False).hexdigest().upper()
    assert system.receipt_handle == "handle"


@given(st.integers(0, 2**41))
def test_times_keep_their_milliseconds(ms: int):
    assert to_ms(to_timestamp(ms)) == ms
    assert to_ms(to_duration(ms)) == ms


def test_a_record_shows_where_it_is_and_how_often_it_was_delivered():
    sent = outgoing(message(), PEER, NOW, LIMITS)
    system = incoming(stored(sent, queue_offset=9, reconsume_times=2), ORDERS).system_properties

    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (3, 9, 3)
    assert system.store_host == "10.0.0.2:10911"
    assert to_ms(system.store_timestamp) == NOW + 5
    assert (system.born_host, to_ms(system.born_timestamp)) == (PEER, NOW)
    assert not system.HasField("receipt_handle")


@pytest.mark.parametrize("seconds", [-1, 2**62])
def test_a_message_born_at_no_time_is_born_now(seconds: int):
    sent = outgoing(message(born_timestamp=Timestamp(seconds=seconds)), PEER, NOW, LIMITS)

    assert (sent.born_timestamp, sent.properties["BORN_TIMESTAMP"]) == (NOW, str(NOW))


def test_a_record_of_another_client_is_shown_too():
    record = stored(OutgoingMessage(b"x", {"KEYS": "a  b", "TIMER_DELIVER_MS": "soon"}, 0, 5, "NORMAL"))
    system = incoming(record, ORDERS).system_properties

    assert system.message_id == record.offset_msg_id
    assert (list(system.keys), system.born_host) == (["a", "b"], "10.0.0.1:5000")
    assert system.message_type == MessageType.DELAY
    assert not system.HasField("delivery_timestamp")


def test_dead_letters_name_their_origin():
    record = stored(OutgoingMessage(b"x", {"DLQ_ORIGIN_TOPIC": "Orders", "DLQ_ORIGIN_MESSAGE_ID": "1"}, 0, 5, "NORMAL"))
    letter = incoming(record, ORDERS).system_properties.dead_letter_queue

    assert (letter.topic, letter.message_id) == ("Orders", "1")


def test_a_transaction_is_a_half_message():
    sent = outgoing(
        message(message_type=MessageType.TRANSACTION, orphaned_transaction_recovery_duration=Duration(seconds=30)),
        PEER,
        NOW,
        LIMITS,
    )

    assert (sent.message_type, sent.sys_flag) == ("TRANSACTION", 4)
    assert sent.properties.items() >= {
        ("TRAN_MSG", "true"),
        ("CHECK_IMMUNITY_TIME_IN_SECONDS", "30"),
        ("PGROUP", "Orders"),
    }


def test_a_compressed_body_stays_compressed():
    body = gzip.compress(b"text" * 100)
    sent = outgoing(message(body, body_encoding=Encoding.GZIP), PEER, NOW, LIMITS)

    assert (sent.body, sent.sys_flag) == (body, COMPRESSED_FLAG)


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        (DigestType.CRC32, "DBA80BB2"),
        (DigestType.MD5, "841A2D689AD86BD1611447453C22C6FC"),
        (DigestType.SHA1, "02083F4579E08A612425C0C1A17EE47ADD783B94"),
    ],
)
def test_a_digest_is_compared(kind: DigestType, digest: str):
    right = Digest(type=kind, checksum=digest.lower())
    wrong = Digest(type=kind, checksum="0" * len(digest))

    assert outgoing(message(b"body", body_digest=right), PEER, NOW, LIMITS).body == b"body"
    with pytest.raises(StatusError, match="not that of the body") as raised:
        outgoing(message(b"body", body_digest=wrong), PEER, NOW, LIMITS)
    assert raised.value.code == Code.MESSAGE_CORRUPTED


def test_a_property_without_a_value_is_left_out():
    sent = message()
    sent.user_properties["empty"] = ""

    assert "empty" not in outgoing(sent, PEER, NOW, LIMITS).properties


def with_properties(**properties: str) -> Message:
    sent = message()
    sent.user_properties.update(properties)
    return sent


WRONG = [
    (message(b""), Code.MESSAGE_BODY_EMPTY, "cannot be empty"),
    (message(bytes(5 * 1024 * 1024)), Code.MESSAGE_BODY_TOO_LARGE, "5,242,880 bytes"),
    (with_properties(**{f"p{n}": "x" for n in range(129)}), Code.MESSAGE_PROPERTIES_TOO_LARGE, "there are 129"),
    (with_properties(p="x" * 16384), Code.MESSAGE_PROPERTIES_TOO_LARGE, "16,385 bytes"),
    (with_properties(UNIQ_KEY="x"), Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "UNIQ_KEY"),
    (with_properties(**{"": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "key of property"),
    (with_properties(**{"a\x01": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "control character"),
    (with_properties(p="a\x02b"), Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "value of property p"),
    (message(tag=" "), Code.ILLEGAL_MESSAGE_TAG, "whitespace"),
    (message(tag="a|b"), Code.ILLEGAL_MESSAGE_TAG, "a message has one tag"),
    (message(tag="a\n"), Code.ILLEGAL_MESSAGE_TAG, "control character"),
    (message(keys=["\t"]), Code.ILLEGAL_MESSAGE_KEY, "whitespace"),
    (message(keys=["a\x7f"]), Code.ILLEGAL_MESSAGE_KEY, "control character"),
    (message(message_id=""), Code.ILLEGAL_MESSAGE_ID, "cannot be empty"),
    (message(message_id="a\x02b"), Code.ILLEGAL_MESSAGE_ID, "control character"),
    (message(message_id="1" * 256), Code.ILLEGAL_MESSAGE_ID, "256 characters"),
    (message(message_group=" "), Code.ILLEGAL_MESSAGE_GROUP, "whitespace"),
    (message(message_group="g" * 64), Code.ILLEGAL_MESSAGE_GROUP, "64 bytes"),
    (message(message_group="ü" * 32), Code.ILLEGAL_MESSAGE_GROUP, "64 bytes"),
    (message(trace_context="a\x01"), Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "trace context"),
    (message(born_host="a\x01"), Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "born host"),
    (message(delivery_timestamp=to_timestamp(NOW + 86_400_001)), Code.ILLEGAL_DELIVERY_TIME, "86,400,001 ms"),
    (message(delivery_timestamp=Timestamp(seconds=-5)), Code.ILLEGAL_DELIVERY_TIME, "maxDelayTimeMills"),
    (
        message(message_type=MessageType.TRANSACTION, orphaned_transaction_recovery_duration=Duration(seconds=3601)),
        Code.BAD_REQUEST,
        "3,601 s",
    ),
    (message(priority=-1), Code.BAD_REQUEST, "greater than or equal to 0: it is -1"),
    (message(lite_topic="lite"), Code.UNSUPPORTED, "lite_topic"),
]


@pytest.mark.parametrize(("sent", "code", "text"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_message_is_refused_with_the_reason(sent: Message, code: Code, text: str):
    with pytest.raises(StatusError) as raised:
        outgoing(sent, PEER, NOW, LIMITS)

    assert raised.value.code == code
    assert text in raised.value.message


def test_a_message_with_a_priority_is_of_that_type():
    sent = outgoing(message(priority=0), PEER, NOW, LIMITS)
    assert (sent.message_type, sent.properties["_SYS_MSG_PRIORITY_"]) == ("PRIORITY", "0")
    system = incoming(stored(sent), ORDERS).system_properties
    assert (system.message_type, system.priority) == (MessageType.PRIORITY, 0)
    assert not incoming(stored(outgoing(message(), PEER, NOW, LIMITS)), ORDERS).system_properties.HasField("priority")


def test_limits_are_allowed():
    later = to_timestamp(NOW + 86_400_000)
    sent = message(bytes(LIMITS.max_message_size), message_group="g" * 63, delivery_timestamp=later)
    sent.user_properties.update({f"{n:03}": "x" * 125 for n in range(128)})

    assert outgoing(sent, PEER, NOW, LIMITS).message_type == "DELAY"


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"max_message_size": 3}, Code.MESSAGE_BODY_TOO_LARGE),
        ({"user_property_max_num": 1}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"max_user_property_size": 3}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"max_message_group_size": 5}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"max_delay_time_mills": 999}, Code.ILLEGAL_DELIVERY_TIME),
        ({"max_transaction_recovery_second": 1}, Code.BAD_REQUEST),
    ],
)
def test_limits_are_settings(settings: dict[str, int], code: Code):
    sent = message(
        b"body",
        message_group="group",
        delivery_timestamp=to_timestamp(NOW + 1000),
        message_type=MessageType.TRANSACTION,
        orphaned_transaction_recovery_duration=Duration(seconds=2),
    )
    sent.user_properties.update({"a": "1", "b": "2"})
    assert outgoing(sent, PEER, NOW, LIMITS).body == b"body"
    with pytest.raises(StatusError) as raised:
        outgoing(sent, PEER, NOW, ProxyConfig.model_validate(settings))

    assert raised.value.code == code


def test_a_limit_of_0_is_none():
    names = ("max_message_size", "max_message_group_size", "max_delay_time_mills", "max_transaction_recovery_second")
    without = ProxyConfig.model_validate({**dict.fromkeys(names, 0), "enable_message_body_empty_check": False})
    sent = message(
        bytes(LIMITS.max_message_size + 1),
        message_group="g" * 100,
        delivery_timestamp=to_timestamp(NOW + 10 * 86_400_000),
        message_type=MessageType.TRANSACTION,
        orphaned_transaction_recovery_duration=Duration(seconds=100_000),
    )

    assert outgoing(sent, PEER, NOW, without).properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "100000"
    assert outgoing(message(b""), PEER, NOW, without).body == b""
