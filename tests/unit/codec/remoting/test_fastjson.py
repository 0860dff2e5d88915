"""fastjson's dialect: what it writes is read, and written again."""

import enum
import json
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.fastjson import ObjectKey, dumps, loads
from rocketbroker.common.errors import CodecError

# Bodies as a broker answered them: GET_CONSUME_STATS, GET_BROKER_CLUSTER_INFO.
CONSUME_STATS = (
    b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"GoldenTopic"}:'
    b'{"brokerOffset":13,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0},'
    b'{"brokerName":"broker-a","queueId":2,"topic":"GoldenTopic"}:'
    b'{"brokerOffset":19,"consumerOffset":8,"lastTimestamp":1795254124101,"pullOffset":8}}}'
)
CLUSTER_INFO = (
    b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:30911"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
leaf = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    text,
    st.floats(allow_nan=False, allow_infinity=False),
)
object_key = st.dictionaries(text, st.one_of(st.integers(-9, 9), text), max_size=3).map(
    lambda fields: ObjectKey(fields.items())
)
key = st.one_of(text, st.integers(-(1 << 63), (1 << 63) - 1), object_key)
value = st.recursive(
    leaf, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(key, inner, max_size=4)), max_leaves=12
)


def without_none(found: object) -> object:
    """``found`` as it comes back: entries that are None are not written."""
    if isinstance(found, dict):
        return {key: without_none(item) for key, item in found.items() if item is not None}
    return [without_none(item) for item in found] if isinstance(found, list) else found


@given(value)
def test_values_round_trip(found: object) -> None:
    assert loads(dumps(found)) == without_none(found)
    assert loads(dumps(found, indent="\t")) == without_none(found)


@pytest.mark.parametrize("body", [CONSUME_STATS, CLUSTER_INFO])
def test_recorded_bodies_come_back_byte_for_byte(body: bytes) -> None:
    assert dumps(loads(body)) == body
    assert loads(body + b"\n") == loads(memoryview(body))


@pytest.mark.parametrize("body", [CONSUME_STATS, CLUSTER_INFO])
def test_a_body_cut_at_any_byte_is_rejected(body: bytes) -> None:
    for length in range(len(body)):
        with pytest.raises(CodecError):
            loads(body[:length])


@given(st.one_of(st.text(st.sampled_from('{}[]:,"\\ 01a-.eE\n'), max_size=30).map(str.encode), st.binary(max_size=30)))
def test_anything_else_is_one_typed_error(data: bytes) -> None:
    try:
        found = loads(data)
    except CodecError:
        return
    dumps(found)


@given(value)
def test_standard_json_is_read_as_json_reads_it(found: object) -> None:
    standard = json.dumps(json.loads(msgspec.json.encode(json.loads(json.dumps(found, default=str, skipkeys=True)))))
    assert loads(standard.encode()) == json.loads(standard)


def test_keys_keep_their_kind() -> None:
    assert loads(b'{0:"a",-1:"b","2":"c"}') == {0: "a", -1: "b", "2": "c"}
    found = loads(b'{{"b":[1,{"x":2}],"a":null}:1}')
    (only,) = found
    assert only == ObjectKey([("b", (1, ObjectKey([("x", 2)]))), ("a", None)])
    assert only.as_dict()["b"][0] == 1


def test_object_keys_made_here_are_sorted_as_java_sorts_them() -> None:
    mq = ObjectKey.of(topic="T", brokerName="b", queueId=0)
    assert dumps({mq: 1}) == b'{{"brokerName":"b","queueId":0,"topic":"T"}:1}'
    assert loads(dumps({mq: 1})) == {mq: 1}


def test_structs_enums_and_none() -> None:
    class Model(enum.Enum):
        CLUSTERING = 1

    class Row(msgspec.Struct, frozen=True, rename="camel"):
        topic_name: str
        model: Model
        absent: None = None

    row = Row("T", Model.CLUSTERING)
    assert dumps([row, {row: None}]) == b'[{"model":"CLUSTERING","topicName":"T"},{}]'
    assert dumps({row: 1}) == b'{{"model":"CLUSTERING","topicName":"T"}:1}'
    assert dumps([None, True, 1]) == b"[null,true,1]"


def test_control_characters_are_escaped_and_text_is_not() -> None:
    assert dumps('a\x01\x02"\\\n\té/') == b'"a\\u0001\\u0002\\"\\\\\\n\\t' + "é/".encode() + b'"'
    assert loads(rb'{0:"\u0001\u00e9\ud83d\ude00\/"}') == {0: "\x01é\N{GRINNING FACE}/"}


def test_pretty_form_is_that_of_the_config_files() -> None:
    assert dumps({"a": {}, "b": [], "c": [1, 2], "d": ["x"], "e": {1: 2}}, indent="\t").decode() == (
        '{\n\t"a":{},\n\t"b":[],\n\t"c":[1,2],\n\t"d":[\n\t\t"x"\n\t],\n\t"e":{\n\t\t1:2\n\t}\n}'
    )


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0.0, "0.0"),
        (-1.5, "-1.5"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.23456789e10, "1.23456789E10"),
        (float("nan"), "null"),
        (float("-inf"), "null"),
    ],
)
def test_doubles_look_as_in_java(number: float, shown: str) -> None:
    assert dumps(number) == shown.encode()


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "at character 0: expected a value"),
        (b"{0}", "expected : instead of '}'"),
        (b"{0:1,}", "expected a key instead of '}'"),
        (b"{0:1 2", "expected , or }"),
        (b"{true:1}", "expected a key instead of 'true'"),
        (b"[1,]x", "expected a value instead of ']'"),
        (b"{0:1}}", "expected the end"),
        (b'{0:"abc', "at character 3"),
        (b'{0:"\\x"}', "string cannot be read"),
        (b'{0:"\xff"}', "JSON is not UTF-8"),
        (b"{0:" + b"9" * 50 + b"}", "expected , or }"),
    ],
)
def test_errors_say_where_and_what(data: bytes, cause: str) -> None:
    with pytest.raises(CodecError) as caught:
        loads(data)
    assert cause in str(caught.value)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b"{0:", b"{{"])
def test_depth_is_bounded(opening: bytes) -> None:
    with pytest.raises(CodecError, match="nested deeper than 128"):
        loads(opening * 100_000)


def test_size_is_bounded() -> None:
    with pytest.raises(CodecError, match="JSON of 11 bytes exceeds the limit of 10"):
        loads(b'"123456789"', max_size=10)
    assert fastjson.MAX_SIZE == 16 << 20


def test_bytes_are_written_in_base64() -> None:
    assert dumps({"a": b"\x01\x02\xfb"}) == b'{"a":"AQL7"}'


def test_a_value_without_a_json_form_is_named() -> None:
    with pytest.raises(CodecError, match="complex has no form in JSON"):
        dumps({"a": 1j})
    with pytest.raises(CodecError, match="bool cannot be the key"):
        dumps({True: 1})


class Count(int):
    """A number of a type of its own, as a request code is."""


class Name(str):
    """A text of a type of its own."""

    __slots__ = ()


class Rate(float):
    """A double of a type of its own."""


def test_types_derived_from_plain_ones_and_read_only_maps_are_written_alike() -> None:
    value = MappingProxyType({Name("n"): Name('"'), Count(5): Count(7), "r": Rate(1), "nothing": None})

    assert dumps(value) == b'{"n":"\\"",5:7,"r":1.0}'
    assert dumps({"n": value}, indent="\t") == b'{\n\t"n":{\n\t\t"n":"\\"",\n\t\t5:7,\n\t\t"r":1.0\n\t}\n}'
