"""Questions, their replies, and replies that nobody waits for."""

import zlib

import msgspec
import pytest

from rocketbroker.client.errors import InvalidMessageError
from rocketbroker.client.request_reply import (
    PendingReplies,
    question_properties,
    reply_message,
    reply_properties,
    reply_topic,
)
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.remoting.headers.message import ReplyMessageRequestHeader


def reply_to(correlation_id: str, body: bytes = b"yes", sys_flag: int = 0) -> MessageExt:
    header = ReplyMessageRequestHeader(
        "PG",
        "DefaultCluster_REPLY_TOPIC",
        "TBW102",
        4,
        1,
        sys_flag,
        1000,
        7,
        "/192.0.2.7:1234",
        "[2001:db8::1]:10911",
        2000,
        encode_properties({"CORRELATION_ID": correlation_id}).decode(),
    )
    return reply_message(header, body)


async def test_a_reply_goes_to_its_question_once():
    replies = PendingReplies()
    first, reply = replies.open()
    second, other = replies.open()
    assert first != second
    assert replies.take(reply_to(first))
    assert (await reply).body == b"yes"
    assert not replies.take(reply_to(first))
    replies.close(second)
    assert not replies.take(reply_to(second))
    assert not other.done()


def test_a_pushed_reply_has_all_fields():
    reply = reply_to("1", zlib.compress(b"yes" * 100), 0x301)
    assert (reply.body, reply.queue_id, reply.flag) == (b"yes" * 100, 1, 7)
    assert (reply.born_timestamp, reply.store_timestamp) == (1000, 2000)
    assert (reply.born_host_text, reply.store_host_text) == ("192.0.2.7:1234", "[2001:db8::1]:10911")


def test_a_reply_names_what_the_question_asked():
    properties = question_properties("1", "192.0.2.7@1", 2.5) | {"CLUSTER": "DefaultCluster", "color": "red"}
    question = msgspec.structs.replace(reply_to("1"), properties_bytes=encode_properties(properties))
    assert reply_topic(question) == "DefaultCluster_REPLY_TOPIC"
    assert reply_properties(question) == {
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "1",
        "REPLY_TO_CLIENT": "192.0.2.7@1",
        "TTL": "2500",
    }


def test_a_message_that_asks_nothing_is_rejected():
    with pytest.raises(InvalidMessageError, match="asks for no reply: it has no property CLUSTER"):
        reply_topic(reply_to("1"))
