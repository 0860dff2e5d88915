"""Columns of records are what a loop over the same bytes finds."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from rocketbroker.codec.message.message_encoder import RECORD_HEADS, encode_record
from rocketbroker.codec.message.message_sys_flag import host_flags
from rocketbroker.codec.storefile.record_columns import Records
from tests.support.commit_log_writer import V4_HOST, V6_HOST

BASE = 7_000_000_000
NAMES = {
    "total_size": 0,
    "magic": 1,
    "body_crc": 2,
    "queue_id": 3,
    "flag": 4,
    "queue_offset": 5,
    "physical_offset": 6,
    "sys_flag": 7,
    "born_timestamp": 8,
    "store_timestamp": 10,
    "reconsume_times": 12,
    "prepared_transaction_offset": 13,
    "body_length": 14,
}


@pytest.fixture
def stretch() -> tuple[bytes, list[int]]:
    """Records of all kinds one after the other, and where they begin."""
    data, starts = b"", []
    for number, (born, stored, topic) in enumerate(product((V4_HOST, V6_HOST), (V4_HOST, V6_HOST), (b"T", b"t" * 200))):
        for more in range(number % 3 + 1):
            starts.append(len(data))
            data += encode_record(
                *(more, -number, 1 << 40 | number, BASE + len(data), host_flags(born, stored), 1_000 + number, born),
                *(2_000 + number, stored, number, -3, b"b" * number * more, topic, b"TAGS\x01x\x02" * more),
            )
    return data, starts


def records(data: bytes, starts: list[int], base: int = BASE) -> Records:
    return Records(base, np.frombuffer(data, np.uint8), np.array(starts, np.int64))


def heads(data: bytes, starts: list[int]) -> list[tuple[Any, ...]]:
    return [RECORD_HEADS[data[start + 39] >> 4 & 3].unpack_from(data, start) for start in starts]


def test_fields_are_those_of_each_record_whatever_its_hosts(stretch: tuple[bytes, list[int]]) -> None:
    data, starts = stretch
    found, expected = records(data, starts), heads(data, starts)
    for name, number in NAMES.items():
        values = found.field(name)
        assert values.tolist() == [head[number] for head in expected], name
        assert values.dtype.isnative


def test_variable_parts_lie_where_the_lengths_say(stretch: tuple[bytes, list[int]]) -> None:
    data, starts = stretch
    found = records(data, starts)
    ends = [*starts[1:], len(data)]
    assert (found.properties_at + found.properties_length).tolist() == ends
    topics = [data[at : at + length] for at, length in zip(found.topic_at, found.topic_length, strict=True)]
    assert set(topics) == {b"T", b"t" * 200}
    assert found.sound()


def test_a_record_is_sound_where_it_says_it_begins_only(stretch: tuple[bytes, list[int]]) -> None:
    data, starts = stretch
    assert not records(data, starts, BASE + 1).sound_each().any()
    offsets = np.array(starts) + BASE
    assert records(data, starts, 0).sound_each(offsets).all()


def test_what_the_data_do_not_hold_as_a_whole_is_not_sound(stretch: tuple[bytes, list[int]]) -> None:
    data, starts = stretch
    for end in range(starts[3] + 1, starts[4]):
        held = data[:end]
        assert records(held, starts[:4]).sound_each().tolist() == [True, True, True, False], end
    for end in range(2, starts[1]):
        assert not records(data[:end], [0]).sound()
