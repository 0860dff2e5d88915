import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.java_types import Int, Long
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.remoting_serializable import (
    DataVersion,
    GroupList,
    KVTable,
    RemotingSerializable,
    TopicList,
    body_from,
    decode_body,
)
from rocketbroker.common.errors import CodecError

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
LONG = st.integers(-(2**63), 2**63 - 1)
QUEUES = st.builds(MessageQueue, TEXT, TEXT, st.integers(-(2**31), 2**31 - 1))


class Inner(RemotingSerializable):
    broker_offset: Long = 0
    name: str | None = None


class Body(RemotingSerializable):
    topic: str
    put_tps: float = 0.0
    order: bool = False
    by_id: dict[Int, str] = msgspec.field(default_factory=dict)
    by_name: dict[str, Inner] = msgspec.field(default_factory=dict)
    by_queue: dict[MessageQueue, Long] = msgspec.field(default_factory=dict)
    names: list[str] = msgspec.field(default_factory=list)
    note: str | None = None


bodies = st.builds(
    Body,
    TEXT,
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.dictionaries(st.integers(-(2**31), 2**31 - 1), TEXT, max_size=4),
    st.dictionaries(TEXT, st.builds(Inner, LONG, st.none() | TEXT), max_size=4),
    st.dictionaries(QUEUES, LONG, max_size=4),
    st.lists(TEXT, max_size=4),
    st.none() | TEXT,
)


@given(bodies)
def test_a_body_survives_its_encoding(body: Body):
    assert Body.decode(body.encode()) == body


def test_fields_come_by_alphabet_and_nulls_are_left_out():
    body = Body("T", by_id={1: "a", 0: "b"}, by_name={"n": Inner(5)}, by_queue={MessageQueue("T", "b", 2): 7})

    assert body.encode() == (
        b'{"byId":{1:"a",0:"b"},"byName":{"n":{"brokerOffset":5}},'
        b'"byQueue":{{"brokerName":"b","queueId":2,"topic":"T"}:7},'
        b'"names":[],"order":false,"putTps":0.0,"topic":"T"}'
    )


@pytest.mark.parametrize("data", [b'{"byId":{"0":"x"},"topic":"T"}', b'{"byId":{0:"x"},"topic":"T"}\n'])
def test_integer_keys_are_read_with_quotes_and_without(data: bytes):
    assert Body.decode(data) == Body("T", by_id={0: "x"})


def test_nulls_mean_defaults_and_numbers_may_be_texts():
    inner = b'{"a":{"brokerOffset":"9","name":null},"b":null}'
    data = b'{"topic":"T","names":null,"putTps":"1.5","order":"1","byName":%b}' % inner

    assert Body.decode(data) == Body("T", 1.5, True, by_name={"a": Inner(9)})


def test_unknown_fields_are_skipped_and_any_buffer_will_do():
    data = b'{"extra":[{}],"topic":"T"}'

    assert Body.decode(memoryview(data)) == Body.decode(bytearray(data)) == Body("T")


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "JSON at character 0"),
        (b"\xff", "JSON is not UTF-8"),
        (b"null", "Body: Expected `object`, got `null`"),
        (b"{}", "Body: Object missing required field `topic`"),
        (b'{"topic":["T"]}', "Body: Expected `str`, got `array` - at `$.topic`"),
        (b'{"topic":"T","names":{}}', "Body: Expected `array`, got `object` - at `$.names`"),
        (b'{"topic":"T","byName":{"n":{"brokerOffset":9223372036854775808}}}', "Expected `int` <= 9223372036854775807"),
        (b'{"topic":"T","byQueue":{"q":1}}', "Expected `object`, got `str` - at `key` in `$.byQueue`"),
        (b'{"topic":"T","byQueue":{{"topic":"T"}:1}}', "MessageQueue: Object missing required field `brokerName`"),
        (b'{"topic":"T"} {}', "JSON at character 13: expected the end"),
    ],
)
def test_the_fault_is_named(data: bytes, cause: str):
    with pytest.raises(CodecError) as caught:
        Body.decode(data)

    assert cause in str(caught.value)


@pytest.mark.parametrize("depth", [100, 500, 900, 5_000, 200_000])
@pytest.mark.parametrize("field", [b"x", b"names"])
def test_nesting_without_end_is_rejected_or_skipped(depth: int, field: bytes):
    data = b'{"topic":"T","%b":%b%b}' % (field, b"[" * depth, b"]" * depth)

    try:
        body = Body.decode(data)
    except CodecError as error:
        refused = str(error)
        assert "deep" in refused or "Expected `str`" in refused
    else:
        assert field == b"x"
        assert body == Body("T")


@given(st.binary(max_size=100))
def test_noise_is_rejected(noise: bytes):
    with pytest.raises(CodecError):
        Body.decode(noise)


def test_other_shapes_than_structs_decode_as_well():
    assert decode_body(b'{"T@G":{0:4}}', dict[str, dict[int, int]]) == {"T@G": {0: 4}}
    assert body_from(fastjson.loads(b'{"topic":"T"}'), Body) == Body("T")


def test_queues_sort_as_in_java():
    queues = [
        MessageQueue("U", "a", 0),
        MessageQueue("T", "b", 0),
        MessageQueue("T", "a", 2),
        MessageQueue("T", "a", 1),
    ]

    assert [(queue.topic, queue.broker_name, queue.queue_id) for queue in sorted(queues)] == [
        ("T", "a", 1),
        ("T", "a", 2),
        ("T", "b", 0),
        ("U", "a", 0),
    ]


def test_a_change_counts_and_takes_the_time():
    version = DataVersion(1_000, 7, 3)

    version.next_version(2_000)
    assert version == DataVersion(2_000, 8, 0)
    version.next_version(3_000, 5)
    assert version == DataVersion(3_000, 9, 5)


def test_a_copy_is_independent():
    version = DataVersion(1, 2, 3)

    copied = version.copy()
    version.next_version(9)

    assert copied == DataVersion(1, 2, 3)
    assert version != copied


def test_its_json_is_that_of_the_answer_to_get_broker_config():
    assert DataVersion(1795255766137, 1).encode() == b'{"counter":1,"stateVersion":0,"timestamp":1795255766137}'


def test_values_are_texts_whatever_they_look_like():
    table = KVTable({"msgPutTotalTodayNow": "0", "scheduleMessageOffset_1": "6,6"})

    assert table.encode() == b'{"table":{"msgPutTotalTodayNow":"0","scheduleMessageOffset_1":"6,6"}}'
    assert KVTable.decode(table.encode()) == table


def test_a_list_of_topics_names_the_broker_only_where_one_gave_it():
    assert TopicList(["T"]).encode() == b'{"topicList":["T"]}'
    assert TopicList(["T"], "127.0.0.1:1").encode() == b'{"brokerAddr":"127.0.0.1:1","topicList":["T"]}'


def test_a_list_of_groups():
    assert GroupList.decode(b'{"groupList":["G"]}') == GroupList(["G"])
