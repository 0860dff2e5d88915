"""Properties are found in records of every layout."""

from collections.abc import Sequence
from itertools import accumulate, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.message_const import host_flags
from rocketbroker.codec.message.message_decoder import encode_record, magic_code, topic_block
from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.property_slices import property_slices
from rocketbroker.codec.message.raw_records import (
    MANY,
    ExpectedRecord,
    PropertyBlocks,
    RecordCheck,
    property_values,
    record_properties,
    values_at,
)
from tests.support.stores import V4_HOST, V6_HOST

TOPIC = b"Topic"
LONG_TOPIC = b"T" * 200
BASE = 1 << 40


def record(
    number: int, at: int, topic: bytes = TOPIC, sys_flag: int = 0, properties: bytes = b"TAGS\x01a\x02"
) -> bytes:
    born, stored = (bytes(20 if sys_flag & bit else 8) for bit in (0x10, 0x20))
    return encode_record(3, 0, number, BASE + at, sys_flag, 1, born, 2, stored, 0, 0, b"%d" % number, topic, properties)


def check_of(topic: bytes = TOPIC) -> RecordCheck:
    return RecordCheck(3, magic_code(len(topic)), topic_block(topic))


def laid_out(topic: bytes = TOPIC, sys_flag: int = 0) -> tuple[bytearray, list[int], list[ExpectedRecord]]:
    data, starts, expected = bytearray(), [], list[ExpectedRecord]()
    for number in range(5):
        one = record(number, len(data), topic, sys_flag)
        starts.append(len(data))
        expected.append((number, BASE + len(data), len(one), 97))
        data += one
    return data, starts, expected


@pytest.mark.parametrize("topic", [TOPIC, LONG_TOPIC])
@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
def test_sound_records_are_sound(topic: bytes, sys_flag: int):
    data, starts, expected = laid_out(topic, sys_flag)
    check = check_of(topic)

    assert check.unsound(memoryview(data), starts, expected) == []
    assert [check.describe(memoryview(data), *place) for place in zip(starts, expected, strict=True)] == [""] * 5


@pytest.mark.parametrize(
    ("position", "says"),
    [
        (3, "totalSize is"),
        (7, "magic code is"),
        (11, "bodyCRC is"),
        (15, "queueId is 2, 3 is expected"),
        (27, "queueOffset is 3, 2 is expected"),
        (35, "physicalOffset is"),
        (39, ""),
        (84, "bodyLength is"),
        (87, "Length is"),
        (88, "bodyCRC is"),
        (89, "Length is"),
        (90, "its topic is 'Uopic'"),
        (96, "propertiesLength is"),
    ],
)
def test_a_changed_byte_is_found_and_named(position: int, says: str):
    data, starts, expected = laid_out()
    data[starts[2] + position] ^= 1
    check, view = check_of(), memoryview(data)

    wrong = check.unsound(view, starts, expected)

    assert wrong == ([2] if says else [])
    assert says in check.describe(view, starts[2], expected[2])


@pytest.mark.parametrize("length", [0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, 300])
def test_a_body_length_is_not_believed(length: int):
    data, starts, expected = laid_out()
    data[starts[4] + 84 : starts[4] + 88] = length.to_bytes(4, "big")

    assert check_of().unsound(memoryview(data), starts, expected) == [4]


@pytest.mark.parametrize("sys_flag", [0x10, 0x20, 0x30])
def test_a_small_record_that_claims_ipv6_hosts_is_read_no_further_than_it_goes(sys_flag: int):
    one = bytearray(record(0, 0, properties=b""))
    one[39] = sys_flag

    expected: Sequence[ExpectedRecord] = [(0, BASE, len(one), 0)]
    assert check_of().unsound(memoryview(one), [0], expected) == [0]


def test_nothing_written_is_called_so():
    data, starts, expected = laid_out()
    data[:] = bytes(len(data))
    check, view = check_of(), memoryview(data)

    assert check.unsound(view, starts, expected) == [0, 1, 2, 3, 4]
    assert check.describe(view, starts[1], expected[1]) == "it holds only zeros"


def test_sound_records_may_be_unwanted():
    data, starts, expected = laid_out()
    data[starts[1] + 88] ^= 1
    asked = []

    def is_wanted(one: ExpectedRecord, properties: bytes) -> bool:
        asked.append((one[0], properties))
        return one[0] != 3

    assert check_of().unsound(memoryview(data), starts, expected, is_wanted) == [1, 3]
    assert asked == [(number, b"TAGS\x01a\x02") for number in (0, 2, 3, 4)]


def test_the_least_size_is_that_of_an_empty_message():
    empty = encode_record(0, 0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, b"", TOPIC, b"")

    assert check_of().least_size == len(empty)


def test_a_head_is_known_without_the_rest():
    data, starts, expected = laid_out()
    check = check_of()
    heads = [bytes(data[start : start + 88]) for start in starts]

    assert all(check.is_head(head, one) for head, one in zip(heads, expected, strict=True))
    assert not check.is_head(heads[1], expected[2])
    assert not check.is_head(bytes(88), expected[0])


@pytest.mark.parametrize("topic", ["T", "t" * 127, "t" * 200])
@pytest.mark.parametrize("hosts", list(product([V4_HOST, V6_HOST], repeat=2)))
@pytest.mark.parametrize("times", [1, MANY])
@pytest.mark.parametrize("base", [0, 1 << 40])
def test_each_layout(topic: str, hosts: tuple[bytes, bytes], times: int, base: int):
    properties = [b"", b"a\x011\x02", b"a\x011\x02b\x01" + b"x" * 3000 + b"\x02"] * times
    # Among them some of the other layout.
    records = [
        record_record_properties(topic, hosts if n % 3 else (V4_HOST, V6_HOST), raw, n)
        for n, raw in enumerate(properties)
    ]
    places = list(accumulate(map(len, records), initial=base))[:-1]
    sizes = list(map(len, records))

    data = memoryview(b"".join(records))
    found = record_properties(data, places, sizes, len(topic_block(topic.encode())), base)

    assert found.raws() == properties
    assert len(found) == len(properties)
    some = record_properties(data, np.array(places)[:2], np.array(sizes)[:2], len(topic_block(topic.encode())), base)
    assert some.raws() == properties[:2]


@pytest.mark.parametrize("count", [0, 1, MANY, 100])
def test_properties_that_are_here_one_by_one(count: int):
    raws = [b"a\x01%d\x02" % number for number in range(count)]
    assert PropertyBlocks.of(raws).raws() == raws


def record_record_properties(topic: str, hosts: tuple[bytes, bytes], properties: bytes, number: int) -> bytes:
    return encode_record(
        0,
        0,
        number,
        0,
        host_flags(*hosts),
        1,
        hosts[0],
        2,
        hosts[1],
        0,
        0,
        b"b" * (number * 7),
        topic.encode(),
        properties,
    )


PIECES = st.lists(st.sampled_from([b"a", b"aa", b"b", b"\x01", b"\x02", b"1", b"22", b"\xff"]), max_size=12)
RAWS = st.lists(PIECES.map(b"".join), max_size=60)


def many_values(raws: list[bytes], names: list[bytes]) -> list[list[bytes]]:
    lengths = np.array([len(raw) for raw in raws], np.int64)
    # Some bytes before and behind, as in a record.
    data = memoryview(bytes(16) + b"".join(raws) + bytes(16))
    starts = 16 + np.cumsum(lengths) - lengths
    return [values_at(data, each) for each in property_slices(np.frombuffer(data, np.uint8), starts, lengths, *names)]


@given(RAWS)
def test_values_are_those_of_get_property(raws: list[bytes]):
    names = [b"a", b"b", b"aa"]
    expected = [[get_property(raw, name) or b"" for raw in raws] for name in names]

    assert property_values(PropertyBlocks.of(raws), names) == expected
    assert many_values(raws, names) == expected


@pytest.mark.parametrize("count", [1, 23, 500])
def test_values_of_all_messages(count: int):
    raws = [b"KEYS\x01k%d\x02a\x01%d\x02" % (number, number) for number in range(count)]
    expected = [[b"%d" % number for number in range(count)], [b""] * count]

    assert property_values(PropertyBlocks.of(raws), [b"a", b"x"]) == expected
    assert many_values(raws, [b"a", b"x"]) == expected


def test_values_of_many_lengths():
    raws = [b"a\x01%s\x02b\x01%s\x02" % (b"x" * number, b"y" * (number % 3)) for number in range(200)]
    expected = [[b"x" * number for number in range(200)], [b"y" * (number % 3) for number in range(200)]]

    assert many_values(raws, [b"a", b"b"]) == expected


def test_messages_without_properties():
    assert property_values(PropertyBlocks.of([b""] * 100), [b"a"]) == [[b""] * 100]
    assert property_values(PropertyBlocks.of([]), [b"a"]) == [[]]
    assert many_values([b""] * 100, [b"a"]) == [[b""] * 100]
