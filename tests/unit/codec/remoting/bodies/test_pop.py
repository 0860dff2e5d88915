import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.pop import (
    MAX_BIT_SET,
    BatchAck,
    BatchAckMessageRequestBody,
    MessageQueueAssignment,
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from rocketbroker.common.errors import CodecError

# As BatchAckMessageRequestBody of 5.5.0 encodes it, with the bits 0, 9 and 31.
ENCODED = (
    b'{"acks":[{"b":"AQIAgA==","c":"g","it":60000,"pt":1700000000000,"q":3,"r":"1","rq":7,"so":100,"t":"t"}],'
    b'"brokerName":"broker-a"}'
)
LONG = {
    "consumerGroup": "g",
    "topic": "t",
    "retry": "1",
    "startOffset": 100,
    "queueId": 3,
    "reviveQueueId": 7,
    "popTime": 1700000000000,
    "invisibleTime": 60000,
    "bitSet": "AQIAgA==",
}


def batch_ack(bit_set: bytes, start_offset: int = 0) -> BatchAck:
    return BatchAck("g", "t", "0", start_offset, 0, 0, 1, 2, bit_set)


def test_a_batch_is_read_and_written_as_java_writes_it():
    body = BatchAckMessageRequestBody.decode(ENCODED)

    assert body.broker_name == "broker-a"
    assert body.acks == [BatchAck("g", "t", "1", 100, 3, 7, 1700000000000, 60000, b"\x01\x02\x00\x80")]
    assert list(body.acks[0].offsets()) == [100, 109, 131]
    assert body.encode() == ENCODED


def test_long_names_are_read_too():
    body = json.dumps({"brokerName": "broker-a", "acks": [LONG]}).encode()

    assert BatchAckMessageRequestBody.decode(body, most_values=100) == BatchAckMessageRequestBody.decode(ENCODED)


def test_long_and_short_names_can_be_mixed():
    mixed = {"c" if name == "consumerGroup" else name: value for name, value in LONG.items()}
    body = json.dumps({"brokerName": "broker-a", "acks": [mixed]}).encode()

    assert BatchAckMessageRequestBody.decode(body) == BatchAckMessageRequestBody.decode(ENCODED)


@pytest.mark.parametrize("name", LONG)
def test_a_missing_field_is_named(name: str):
    ack = {other: value for other, value in LONG.items() if other != name}

    with pytest.raises(CodecError, match="BatchAckMessageRequestBody: Object missing required field"):
        BatchAckMessageRequestBody.decode(json.dumps({"acks": [ack]}).encode())


@pytest.mark.parametrize("acks", [None, [], {}])
def test_a_body_without_acknowledgements_is_empty_or_rejected(acks: object):
    body = json.dumps({"acks": acks}).encode()
    if acks == {}:
        with pytest.raises(CodecError, match=r"Expected `array`, got `object`"):
            BatchAckMessageRequestBody.decode(body)
    else:
        assert BatchAckMessageRequestBody.decode(body).acks == []


def test_an_entry_that_is_no_object_is_rejected():
    with pytest.raises(CodecError, match=r"Expected `object`, got `int`"):
        BatchAckMessageRequestBody.decode(b'{"acks":[5]}')


def test_a_body_of_many_wrong_values_is_rejected_unread():
    body = json.dumps({"acks": [LONG] * 100}).encode()

    with pytest.raises(
        CodecError, match=r"^BatchAckMessageRequestBody: Object[^:]*may have 500 values, and this one has about 1,\d+$"
    ):
        BatchAckMessageRequestBody.decode(body, most_values=500)


BIT = st.integers(0, 8 * MAX_BIT_SET - 100)
# Some following each other, with others beside them or not.
RUNS = st.builds(lambda first, count: set(range(first, first + count)), BIT, st.integers(0, 40))


@given(st.sets(BIT, max_size=40) | RUNS | st.builds(set.union, RUNS, st.sets(BIT, max_size=1)), st.integers(0, 2**40))
def test_each_bit_is_an_offset(bits: set[int], start_offset: int):
    number = sum(1 << bit for bit in bits)
    ack = batch_ack(number.to_bytes((number.bit_length() + 7) // 8 + 1, "little"), start_offset)

    named = ack.offsets()
    assert list(named) == sorted(start_offset + bit for bit in bits)
    follow = bool(bits) and len(bits) == max(bits) - min(bits) + 1
    assert isinstance(named, range) == follow


def test_a_bit_set_beyond_the_limit_is_rejected():
    assert len(list(batch_ack(b"\xff" * MAX_BIT_SET).offsets())) == 1 << 16
    with pytest.raises(CodecError, match=r"bitSet of 8,193 bytes exceeds the limit of 8,192"):
        batch_ack(bytes(MAX_BIT_SET + 1)).offsets()


def test_a_bit_set_that_is_not_base64_is_rejected():
    ack = LONG | {"bitSet": "*"}

    with pytest.raises(CodecError, match="base64"):
        BatchAckMessageRequestBody.decode(json.dumps({"acks": [ack]}).encode())
    assert base64.b64decode(LONG["bitSet"]) == b"\x01\x02\x00\x80"  # type: ignore[arg-type]


def test_assignments_are_written_as_java_writes_them():
    body = QueryAssignmentResponseBody([MessageQueueAssignment(MessageQueue("t", "b", 1), MessageRequestMode.PULL)])

    assert body.encode() == (
        b'{"messageQueueAssignments":[{"messageQueue":{"brokerName":"b","queueId":1,"topic":"t"},"mode":"PULL"}]}'
    )
    assert QueryAssignmentResponseBody().encode() == b"{}"


def test_an_assignment_for_nobody_is_rejected():
    with pytest.raises(CodecError, match="clientId"):
        QueryAssignmentRequestBody.decode(b'{"topic":"t","consumerGroup":"g"}')
