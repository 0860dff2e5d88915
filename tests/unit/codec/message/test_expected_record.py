from collections.abc import Sequence

import pytest

from rocketbroker.codec.message.expected_record import ExpectedRecord, RecordCheck
from rocketbroker.codec.message.message_encoder import encode_record, magic_code, topic_block

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
