"""The messages of a transaction, compared with those that Apache RocketMQ 5.5.0 stored."""

import msgspec
import pytest

from rocketbroker.broker.message_copy import real_place
from rocketbroker.broker.transaction.transactional_message_util import (
    check_times,
    checked_copy,
    ended_offsets,
    immune_copy,
    immunity_ms,
    is_copy,
    is_transaction,
    op_message,
    real_message,
    to_half_message,
    transaction_key,
)
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import (
    MAX_SENT_PROPERTIES_LENGTH,
    decode_properties,
    encode_properties,
)
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner
from tests.support.golden_store import records
from tests.support.stores import V6_HOST, message

pytestmark = [
    pytest.mark.proves(
        "Transactions",
        "half messages, op messages and progress in RocketMQ's format: what begins under one broker is ended "
        "under the other",
    ),
]

STORE_HOST = host_bytes("127.0.0.1", 32911)
GOLDEN = [decode_record(data) for _, data in records("kill9")]
HALVES = [each for each in GOLDEN if each.topic == "RMQ_SYS_TRANS_HALF_TOPIC"]
OPS = [each for each in GOLDEN if each.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC"]
REALS = [each for each in GOLDEN if each.sys_flag & 12 == 8]
SENT = {"UNIQ_KEY": "0" * 32, "TRAN_MSG": "true", "PGROUP": "PG", "TAGS": "A"}


def fields(each: MessageExt | MessageExtBrokerInner) -> dict[str, object]:
    """Return the fields in which two messages must agree; Java's hash table decides the order of properties."""
    raw = each.properties_bytes if isinstance(each, MessageExt) else each.properties
    names = "topic queue_id body flag sys_flag born_timestamp born_host reconsume_times prepared_transaction_offset"
    return {name: getattr(each, name) for name in names.split()} | {"properties": decode_properties(raw)}


def with_properties(each: MessageExt, raw: bytes, **changes) -> MessageExt:
    return msgspec.structs.replace(each, properties_bytes=raw, _properties=None, **changes)


def sent(properties: dict[str, str] = SENT, **given) -> MessageExtBrokerInner:
    return message(b"b", "Real", 3, properties=properties, **given)


def test_the_recorded_store_has_all_kinds():
    assert (len(HALVES), len(OPS), len(REALS)) == (4, 2, 2)


@pytest.mark.parametrize("half", HALVES[:3], ids=lambda half: half.queue_offset)
def test_a_half_message_is_as_recorded(half: MessageExt):
    """Made of what its producer sent: the message with its real place and without what the broker added for it."""
    properties = half.properties | {}
    topic, queue_id = properties.pop("REAL_TOPIC"), int(properties.pop("REAL_QID"))
    del properties["__transactionId__"]
    made = message(
        half.body,
        topic,
        queue_id,
        properties=properties,
        sys_flag=4,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
    )
    assert is_transaction(made)
    to_half_message(made)
    assert fields(made) == fields(half)


def test_a_copy_is_as_recorded():
    assert HALVES[3].get_property("TRANSACTION_CHECK_TIMES") == "1"
    assert fields(checked_copy(HALVES[2], 1, STORE_HOST)) == fields(HALVES[3])
    assert [is_copy(half) for half in HALVES] == [False, False, False, True]
    assert [check_times(half) for half in HALVES] == [0, 0, 0, 1]
    assert transaction_key(HALVES[2]) == transaction_key(HALVES[3]) == transaction_key(REALS[1])


@pytest.mark.parametrize(("half", "real"), [(HALVES[0], REALS[0]), (HALVES[3], REALS[1])])
def test_a_real_message_is_as_recorded(half: MessageExt, real: MessageExt):
    place = real_place(half.properties_bytes)
    assert place is not None
    assert fields(real_message(half, place, STORE_HOST)) == fields(real)


@pytest.mark.parametrize(("op", "offsets"), [(OPS[0], [0, 1]), (OPS[1], [3])])
def test_an_op_message_is_as_recorded(op: MessageExt, offsets: list[int]):
    assert fields(op_message(offsets, op.born_timestamp, STORE_HOST)) == fields(op)
    assert ended_offsets(op) == offsets


def test_an_immune_copy_names_the_first_half_message():
    copy = immune_copy(HALVES[1], STORE_HOST)
    assert decode_properties(copy.properties) == HALVES[1].properties | {"TRAN_PREPARED_QUEUE_OFFSET": "1"}
    again = with_properties(HALVES[1], copy.properties, queue_offset=9)
    assert immune_copy(again, STORE_HOST).properties == copy.properties


def test_hosts_of_another_kind_have_their_flag():
    assert checked_copy(HALVES[0], 1, V6_HOST).sys_flag == 0x20
    assert op_message([1], 0, V6_HOST).sys_flag == 0x30


@pytest.mark.parametrize(
    ("properties", "reconsume_times", "expected"),
    [
        ({"TRAN_MSG": "true"}, 0, True),
        ({"TRAN_MSG": "TRUE"}, 3, True),
        ({"TRAN_MSG": "false"}, 0, False),
        ({"TRAN_MSG": "1"}, 0, False),
        ({}, 0, False),
        ({"TRAN_MSG": "true", "DELAY": "3"}, 1, False),
        ({"TRAN_MSG": "true", "DELAY": "0"}, 1, True),
    ],
)
def test_half_messages_are_recognized(properties: dict[str, str], reconsume_times: int, expected: bool):
    assert is_transaction(sent(properties, reconsume_times=reconsume_times)) is expected


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"UNIQ_KEY": "1", "TRAN_MSG": "true"}, "lacks the property PGROUP"),
        (SENT | {"DELAY": "1"}, "cannot be delayed"),
        (SENT | {"TIMER_DELIVER_MS": "1"}, "cannot be delayed"),
        (SENT | {"TIMER_DELAY_SEC": "1"}, "cannot be delayed"),
        (SENT | {"TIMER_DELAY_MS": "1"}, "cannot be delayed"),
    ],
)
def test_a_transaction_that_could_not_be_ended_or_checked_is_rejected(properties: dict[str, str], why: str):
    made = sent(properties)
    with pytest.raises(BrokerResponseError, match=why) as error:
        to_half_message(made)
    assert error.value.code == 13


def test_the_longest_properties_have_room_for_those_of_a_copy():
    made = sent(SENT | {"k": "v" * 31_400})
    to_half_message(made)
    room = MAX_SENT_PROPERTIES_LENGTH - len(made.properties)
    made = sent(SENT | {"k": "v" * (31_400 + room)})
    to_half_message(made)
    assert len(made.properties) == MAX_SENT_PROPERTIES_LENGTH
    half = with_properties(HALVES[0], made.properties, queue_offset=2**63 - 1)
    copy = with_properties(half, immune_copy(half, STORE_HOST).properties)
    assert len(checked_copy(copy, 2**63 - 1, STORE_HOST).properties) <= 32_767


@pytest.mark.parametrize(
    ("value", "expected"), [(None, None), ("30", 30_000), ("1", 6_000), ("x", 6_000), ("-5", 6_000), ("9" * 99, 6_000)]
)
def test_check_immunity(value: str | None, expected: int | None):
    raw = encode_properties({} if value is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": value})
    assert immunity_ms(with_properties(HALVES[0], raw), 6_000) == expected


@pytest.mark.parametrize(("tag", "body"), [("x", b"1,"), ("d", b"1,x,"), ("d", b"\xff")])
def test_a_message_that_is_not_an_op_message_ends_nothing(tag: str, body: bytes):
    op = with_properties(OPS[0], encode_properties({"TAGS": tag}), body=body)
    with pytest.raises(ValueError, match=r"tag|invalid|decode"):
        ended_offsets(op)
