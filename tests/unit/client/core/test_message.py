"""Messages that may be sent, and the properties they get."""

from typing import Any

import pytest

from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.client.core.message import Message, MessageType, check_group, check_message


def test_the_fields_become_properties():
    message = Message("T", b"x", tags="TagA", keys=("k1", "k2"), properties={"color": "red"}, delay_time_level=3)
    assert message.all_properties() == {
        "color": "red",
        "KEYS": "k1 k2",
        "WAIT": "true",
        "TAGS": "TagA",
        "DELAY": "3",
    }


def test_a_bare_message_has_only_wait():
    assert Message("T", b"x", wait_store_msg_ok=False).all_properties() == {"WAIT": "false"}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message("", b"x"), "blank"),
        (Message("a/../b", b"x"), "illegal characters"),
        (Message("T" * 128, b"x"), "longer than topic max length"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "forbidden"),
        (Message("T", b""), "body is empty"),
        (Message("T", b"x" * 101), r"body of 101 bytes exceeds maxMessageSize \(100\)"),
        (Message("T", b"x", properties={"UNIQ_KEY": "1"}), "'UNIQ_KEY' is kept"),
        (
            Message("T", b"x", delay_time_ms=1, delay_time_level=2),
            "delay_time_level and delay_time_ms; give one of them",
        ),
        (Message("T", b"x", priority=1, delay_time_level=2), "the priority 1, which the broker would drop"),
        (Message("T", b"x", priority=0, sharding_key="a"), "the priority 0, which the broker would drop"),
        (Message("T", b"x", properties={"a": 5}), "property 'a' is 5; give text, such as '5'"),  # type: ignore[dict-item]
    ],
)
def test_a_message_that_may_not_be_sent_is_named(message: Message, text: str):
    with pytest.raises(InvalidMessageError, match=text):
        check_message(message, max_message_size=100)


def test_a_group_has_rules_too():
    check_group("CG_ok-1")
    with pytest.raises(InvalidMessageError, match="illegal characters"):
        check_group("a b")


@pytest.mark.parametrize(
    ("message", "properties", "kind"),
    [
        (Message("T", b"x", delay_time_ms=1500), {"TIMER_DELAY_MS": "1500"}, MessageType.DELAY),
        (Message("T", b"x", deliver_time_ms=99), {"TIMER_DELIVER_MS": "99"}, MessageType.DELAY),
        (Message("T", b"x", delay_time_level=3), {"DELAY": "3"}, MessageType.DELAY),
        (Message("T", b"x", sharding_key="a"), {"__SHARDINGKEY": "a"}, MessageType.ORDER),
        (Message("T", b"x"), {}, MessageType.NORMAL),
        (Message("T", b"x", priority=0), {"_SYS_MSG_PRIORITY_": "0"}, MessageType.NORMAL),
        (Message("T", b"x", priority=2**31 - 1), {"_SYS_MSG_PRIORITY_": "2147483647"}, MessageType.NORMAL),
    ],
)
def test_the_type_follows_from_the_fields(message: Message, properties: dict[str, str], kind: MessageType):
    check_message(message)
    assert (message.all_properties(), message.msg_type) == ({"WAIT": "true"} | properties, kind)


def test_an_unknown_field_is_rejected_with_the_nearest_one():
    with pytest.raises(InvalidMessageError, match=r"Message has no argument tag; did you mean tags\?"):
        Message("T", b"x", tag="a")  # type: ignore[call-arg]
    with pytest.raises(InvalidMessageError, match="Message has no argument zzz; there are topic, body, tags"):
        Message("T", b"x", zzz="a")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"body": "text"}, r"body is 'text'; give bytes, such as b\"text\" or text.encode\(\)"),
        ({"body": None}, "body is None; give bytes"),
        ({"topic": 7}, "topic is 7; give text"),
        ({"tags": ["a", "b"]}, r"tags is \['a', 'b'\]; give text, or None"),
        ({"keys": 7}, "keys is 7; give text, or a list, or None"),
        ({"keys": ["a", 7]}, r"keys is \['a', 7\]; give text, or in this list, give text"),
        ({"keys": b"a"}, "keys is b'a'; give text"),
        ({"sharding_key": 7}, "sharding_key is 7; give text"),
        ({"properties": ["a"]}, r"properties is \['a'\]; give a mapping"),
        ({"flag": "5"}, "flag is '5'; give a whole number from -2147483648 to 2147483647, 5 without quotes"),
        ({"flag": 2**31}, "flag is 2147483648; give a whole number"),
        ({"flag": True}, "flag is True; give a whole number"),
        ({"wait_store_msg_ok": "false"}, "wait_store_msg_ok is 'false'; give True or False"),
        ({"delay_time_ms": -1}, "delay_time_ms is -1; give a whole number from 0"),
        ({"delay_time_ms": 0.5}, "delay_time_ms is 0.5; give a whole number from 0"),
        ({"delay_time_level": "3"}, "delay_time_level is '3'; give a whole number from 0, 3 without quotes"),
        ({"priority": -1}, "priority is -1; give a whole number from 0 to 2147483647"),
        ({"priority": 2**31}, "priority is 2147483648; give a whole number"),
        ({"priority": "3"}, "priority is '3'; give a whole number"),
        ({"deliver_time_ms": -1}, "deliver_time_ms is -1; give a whole number from 0"),
    ],
)
def test_a_field_that_is_not_allowed_is_named_when_the_message_is_made(fields: dict[str, Any], text: str):
    with pytest.raises(InvalidMessageError, match=text):
        Message(**{"topic": "T", "body": b"x"} | fields)


@pytest.mark.parametrize("keys", [("k1", "k2"), ["k1", "k2"], "k1 k2"])
def test_keys_may_be_a_list(keys: Any):
    assert Message("T", b"x", keys=keys).all_properties()["KEYS"] == "k1 k2"


@pytest.mark.parametrize("body", [bytearray(b"x"), memoryview(b"x")])
def test_a_body_may_be_any_buffer(body: Any):
    check_message(Message("T", body, delay_time_level=1))
