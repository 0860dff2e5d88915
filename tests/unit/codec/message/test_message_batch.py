"""Batches in one body: recorded, made up, cut and spoilt."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.message_batch import encode_batch, holds_more_than, split_batch, unwrap_batch
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.common.errors import CodecError
from tests.support import golden_store

# As the Go client sends two messages "b1" and "b2", without properties.
GO_BATCH = bytes.fromhex(
    "000000180000000000000000000000000000000262310000000000180000000000000000000000000000000262320000"
)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
batch = st.lists(st.tuples(int32, st.binary(max_size=40), st.binary(max_size=40)), min_size=1, max_size=5)


def test_a_batch_of_the_go_client() -> None:
    messages = list(split_batch(GO_BATCH).messages())
    assert messages == [(0, b"b1", b""), (0, b"b2", b"")]
    assert encode_batch(messages) == GO_BATCH


@given(batch)
def test_batches_round_trip(messages: list[tuple[int, bytes, bytes]]) -> None:
    body = encode_batch(messages)
    assert list(split_batch(body).messages()) == messages
    assert list(split_batch(memoryview(body)).messages()) == messages


@given(st.integers(0, 30), st.integers(0, 30), st.lists(int32, min_size=1, max_size=5), st.data())
def test_batches_of_messages_alike_round_trip_and_are_checked(
    body_length: int, properties_length: int, flags: list[int], data: st.DataObject
) -> None:
    messages = [(flag, bytes([n]) * body_length, bytes([n]) * properties_length) for n, flag in enumerate(flags)]
    body = encode_batch(messages)
    assert list(split_batch(body).messages()) == messages

    size = len(body) // len(flags)
    field = data.draw(st.sampled_from([0, 16, 20 + body_length]))
    spoilt = bytearray(body)
    spoilt[data.draw(st.integers(0, len(flags) - 1)) * size + field + 1] ^= 1
    with pytest.raises(CodecError, match=r"message \d of the batch, at byte \d+: "):
        split_batch(bytes(spoilt))


@given(
    st.lists(st.tuples(int32, st.binary(max_size=9), st.binary(max_size=9)), min_size=1, max_size=9), st.integers(1, 9)
)
def test_the_number_of_messages_is_known_without_splitting(messages: list[tuple[int, bytes, bytes]], most: int) -> None:
    body = encode_batch(messages)
    assert holds_more_than(body, most) == (len(messages) > most)
    assert not holds_more_than(memoryview(bytes(22 * 9) + body), most), "broken ones are left to those who split"


@pytest.mark.parametrize("length", [-1, 0, 21, 1 << 30])
def test_a_wrong_length_ends_the_count(length: int) -> None:
    assert not holds_more_than(struct.pack(">i18x", length) * 50, 20)


@given(batch)
def test_a_batch_cut_inside_a_message_is_rejected(messages: list[tuple[int, bytes, bytes]]) -> None:
    body = encode_batch(messages)
    ends = [len(encode_batch(messages[:count])) for count in range(1, len(messages) + 1)]
    for length in range(len(body)):
        if length not in ends:
            with pytest.raises(CodecError):
                split_batch(body[:length])


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_the_golden_inner_batch_unwraps(name: str) -> None:
    numbers = [n for n, want in enumerate(golden_store.manifest(name)["messages"]) if want["sysFlag"] & 0x80]
    assert len(numbers) == 1
    outer = decode_record(golden_store.records(name)[numbers[0]][1])
    inner = unwrap_batch(outer)
    assert len(inner) == int(outer.properties["INNER_NUM"]) == 3
    assert [m.queue_offset for m in inner] == [outer.queue_offset + n for n in range(3)]
    assert len({m.uniq_key for m in inner}) == 3
    assert {m.commit_log_offset for m in inner} == {outer.commit_log_offset}
    assert encode_batch((m.flag, m.body, m.properties_bytes) for m in inner) == outer.body


@pytest.mark.parametrize(
    ("at", "form", "value", "cause"),
    [
        (24, ">i", -1, "totalSize is -1"),
        (24, ">i", 21, "totalSize is 21"),
        (24, ">i", 0x7FFFFFFF, "24 bytes are left"),
        (40, ">i", -1, "bodyLength is -1"),
        (40, ">i", 3, "bodyLength is 3"),
        (40, ">i", 1, "propertiesLength is 12800 instead of 1"),
        (46, ">h", -1, "propertiesLength is -1 instead of 0"),
    ],
)
def test_lengths_that_do_not_add_up_are_named(at: int, form: str, value: int, cause: str) -> None:
    body = bytearray(GO_BATCH)
    struct.pack_into(form, body, at, value)
    with pytest.raises(CodecError, match="message 1 of the batch, at byte 24: ") as caught:
        split_batch(bytes(body))
    assert cause in str(caught.value)


def test_an_empty_batch_is_rejected() -> None:
    with pytest.raises(CodecError, match="batch body is empty"):
        split_batch(b"")


def test_properties_over_their_field_are_rejected() -> None:
    with pytest.raises(CodecError, match="at most 32767"):
        encode_batch([(0, b"", b"p" * 32768)])
