"""Messages on their way to the wire."""

import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.client.core.message import MAX_MESSAGE_SIZE, Message
from rocketbroker.client.producer.outgoing import Compression, CompressionType, prepare_batches, prepare_message
from rocketbroker.codec.message.compression import decompress
from rocketbroker.codec.message.message_batch import split_batch
from rocketbroker.codec.message.message_const import COMPRESSED_FLAG
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.message_properties import decode_properties
from rocketbroker.codec.remoting.frame import decode_frame, encode_frame
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import CodecError

COMPRESSION = Compression(4096)
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
    outgoing = prepare_message(message, "ID", COMPRESSION)
    body = zlib.decompress(outgoing.body) if outgoing.sys_flag else outgoing.body
    assert (body, outgoing.flag, outgoing.unique_ids) == (message.body, message.flag, "ID")
    assert decode_properties(outgoing.properties.encode()) == {**message.all_properties(), "UNIQ_KEY": "ID"}
    assert len(outgoing.body) <= len(message.body)


@given(st.lists(MESSAGES, min_size=1, max_size=5))
def test_a_batch_keeps_all_they_have(messages: list[Message]):
    ids = iter(map(str, range(100)))
    (outgoing,) = prepare_batches(messages, lambda: next(ids), MAX_MESSAGE_SIZE)
    parts = split_batch(outgoing.body)
    assert [(flag, body) for flag, body, _ in parts.messages()] == [
        (message.flag, message.body) for message in messages
    ]
    unique = [decode_properties(properties)["UNIQ_KEY"] for properties in parts.properties]
    assert outgoing.unique_ids.split(",") == unique == [str(index) for index in range(len(messages))]


@given(MESSAGES)
def test_the_request_survives_the_wire(message: Message):
    queue = MessageQueue("T", "broker-a", 3)
    command = prepare_message(message, "ID", COMPRESSION).request("PG", queue, 123, 4)
    sent = decode_frame(memoryview(encode_frame(command))[4:])
    assert (sent.code, sent.language) == (RequestCode.SEND_MESSAGE_V2, "PYTHON")
    assert (sent.header["a"], sent.header["b"], sent.header["e"], sent.header["g"]) == ("PG", "T", "3", "123")
    assert sent.header["h"] == str(message.flag)
    assert decode_properties(sent.header["i"].encode())["UNIQ_KEY"] == "ID"


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a": "b\x02"}, {"a": ""}, {"a": "x" * 33_000}])
def test_properties_that_no_record_can_hold_are_rejected(properties: dict[str, str]):
    with pytest.raises(CodecError):
        prepare_message(Message("T", b"x", properties=properties), "ID", COMPRESSION)


@pytest.mark.parametrize("kind", CompressionType)
def test_a_long_body_is_compressed_as_chosen(kind: CompressionType):
    body = b"text " * 1000
    outgoing = prepare_message(Message("T", body), "ID", Compression(5000, kind, 3))
    assert (outgoing.sys_flag, len(outgoing.body) < 200) == (COMPRESSED_FLAG | kind, True)
    assert decompress(outgoing.body, outgoing.sys_flag) == body
    assert prepare_message(Message("T", body), "ID", Compression(5001, kind)).sys_flag == 0


@given(st.lists(MESSAGES, min_size=1, max_size=8), st.integers(6500, 20_000))
def test_batches_are_as_few_as_fit(messages: list[Message], max_size: int):
    ids = iter(map(str, range(100)))
    batches = prepare_batches(messages, lambda: next(ids), max_size)
    assert [message for batch in batches for message in batch.messages] == messages
    sizes = [len(batch.body) for batch in batches]
    assert max(sizes) <= max_size
    for batch, following in itertools.pairwise(batches):
        first = prepare_batches(following.messages[:1], lambda: "99", max_size)[0]
        assert len(batch.body) + len(first.body) > max_size - 2  # an id may have one digit more


def test_a_message_that_no_batch_can_hold_is_named():
    with pytest.raises(InvalidMessageError, match=r"over the limit of 1,000 .*send it alone"):
        prepare_batches([Message("T", b"x" * 990)], lambda: "ID", 1000)


def test_a_message_of_just_the_limit_fits_a_batch():
    message = Message("T", b"x" * 1000)
    size = len(prepare_batches([message], lambda: "1", 1 << 20)[0].body)
    assert len(prepare_batches([message], lambda: "1", size)) == 1
    with pytest.raises(InvalidMessageError, match=f"over the limit of {size - 1:,}"):
        prepare_batches([message], lambda: "1", size - 1)
