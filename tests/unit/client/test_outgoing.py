"""Messages on their way to the wire."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.client.message import Message
from rocketbroker.client.outgoing import prepare_batch, prepare_message
from rocketbroker.codec.message.message_batch import split_batch
from rocketbroker.codec.message.message_properties import decode_properties
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.frame import decode_frame, encode_frame
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import CodecError

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=20)
MESSAGES = st.builds(
    Message,
    topic=st.just("T"),
    body=st.binary(min_size=1, max_size=6000),
    tags=st.none() | TEXT,
    keys=st.none() | TEXT,
    properties=st.dictionaries(TEXT.map(lambda name: f"my-{name}"), TEXT, max_size=5),
    flag=st.integers(-(2**31), 2**31 - 1),
)


@given(MESSAGES)
def test_a_message_keeps_all_it_has(message: Message):
    outgoing = prepare_message(message, "ID", 4096)
    body = zlib.decompress(outgoing.body) if outgoing.sys_flag else outgoing.body
    assert (body, outgoing.flag, outgoing.unique_ids) == (message.body, message.flag, "ID")
    assert decode_properties(outgoing.properties.encode()) == {**message.all_properties(), "UNIQ_KEY": "ID"}
    assert len(outgoing.body) <= len(message.body)


@given(st.lists(MESSAGES, min_size=1, max_size=5))
def test_a_batch_keeps_all_they_have(messages: list[Message]):
    ids = iter(map(str, range(100)))
    outgoing = prepare_batch(messages, lambda: next(ids))
    parts = split_batch(outgoing.body)
    assert [(flag, body) for flag, body, _ in parts.messages()] == [
        (message.flag, message.body) for message in messages
    ]
    unique = [decode_properties(properties)["UNIQ_KEY"] for properties in parts.properties]
    assert outgoing.unique_ids.split(",") == unique == [str(index) for index in range(len(messages))]


@given(MESSAGES)
def test_the_request_survives_the_wire(message: Message):
    queue = MessageQueue("T", "broker-a", 3)
    command = prepare_message(message, "ID", 4096).request("PG", queue, 123, 4)
    sent = decode_frame(memoryview(encode_frame(command))[4:])
    assert (sent.code, sent.language) == (RequestCode.SEND_MESSAGE_V2, "PYTHON")
    assert (sent.header["a"], sent.header["b"], sent.header["e"], sent.header["g"]) == ("PG", "T", "3", "123")
    assert sent.header["h"] == str(message.flag)
    assert decode_properties(sent.header["i"].encode())["UNIQ_KEY"] == "ID"


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a": "b\x02"}, {"a": ""}, {"a": "x" * 33_000}])
def test_properties_that_no_record_can_hold_are_refused(properties: dict[str, str]):
    with pytest.raises(CodecError):
        prepare_message(Message("T", b"x", properties=properties), "ID", 4096)
