"""Columns of records are what a loop over the same bytes finds."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocketbroker.codec.message.message_const import host_flags
from rocketbroker.codec.message.message_decoder import RECORD_HEADS, encode_record
from rocketbroker.codec.storefile.record_columns import Records, ScatteredRecords, chain_records
from rocketbroker.codec.storefile.store_file import LogExtent, LogWindow
from rocketbroker.common.errors import StoreError
from rocketbroker.common.local_file import LocalFile
from tests.support.commit_log_writer import V4_HOST, V6_HOST, CommitLogWriter, overwrite

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


def chain_starts(path: Path) -> list[int]:
    """Return the records that chains find in a file that begins at 0, and their end."""
    size = path.stat().st_size
    with LocalFile(path, lambda error: StoreError(str(error))) as source:
        window = LogWindow(source, LogExtent(0, size, size), size)
        window.load(0)
        chains = chain_records(window, size)
    return [] if chains is None else [*chains[0].starts.tolist(), chains[1]]


@pytest.fixture
def writer(tmp_path: Path) -> CommitLogWriter:
    writer = CommitLogWriter(tmp_path, file_size=1 << 18)
    writer.append_many(1_500)
    return writer


def test_many_chains_find_what_one_finds(writer: CommitLogWriter) -> None:
    path = writer.records[0][0]
    starts = chain_starts(path)
    expected = [position for each, position, _ in writer.records if each == path]
    assert len(starts) > len(expected) // 2
    assert starts == expected[: len(starts)]


DAMAGE = {
    "physicalOffset": (28, b"?"),
    "totalSize zero": (0, bytes(4)),
    "totalSize negative": (0, b"\xff\xff\xff\xff"),
    "totalSize one more": (3, b"+1"),
    "bodyLength": (84, b"\0\0\0\1"),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("number", [0, 1, 300, 600])
def test_they_find_what_lies_before_a_damaged_record(writer: CommitLogWriter, number: int, kind: str) -> None:
    path, position, size = writer.records[number]
    at, data = DAMAGE[kind]
    overwrite(path, position + at, bytes([(size & 0xFF) + 1 & 0xFF]) if data == b"+1" else data)
    starts = chain_starts(path)
    expected = [place for each, place, _ in writer.records[:number] if each == path]
    assert starts[:-1] == expected[: max(len(starts) - 1, 0)]
    assert len(starts) == 0 or starts[-1] <= position
    assert len(starts) > len(expected) // 2 or number < 300


def test_a_record_inside_a_body_starts_no_chain(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path, file_size=1 << 19)
    while writer.end < 400_000:
        forged_at = writer.end + 88
        writer.append(encode_record(0, 0, 0, forged_at, 0, 0, V4_HOST, 0, V4_HOST, 0, 0, b"", b"Forged", b"") * 2)
    path = writer.records[0][0]
    starts = chain_starts(path)
    assert set(starts) <= {position for _, position, _ in writer.records}


SIZE = 1 << 18


def columns(places: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    positions, sizes = np.array(places, np.int64).T
    return positions, sizes


@pytest.mark.parametrize("near", [0, 1_000])
@pytest.mark.parametrize("at_once", [1, 3_000, 1 << 20])
@pytest.mark.parametrize("memory", [None, np.full(5_000, 0xFF, np.uint8)])
def test_records_are_read_whatever_is_between_them(
    tmp_path: Path, near: int, at_once: int, memory: np.ndarray | None
) -> None:
    writer = CommitLogWriter(tmp_path, SIZE)
    writer.append_many(300)
    path = writer.records[0][0]
    positions, sizes = columns([(position, size) for _, position, size in writer.records[::3]])
    with LocalFile(path, lambda error: StoreError(str(error))) as source:
        reader = ScatteredRecords(source, 0, near, at_once)
        groups = reader.groups(positions, sizes)
        for group in groups:
            records, sound = reader.read(positions[group], sizes[group], memory)
            assert sound.all()
            assert records.physical_offset.tolist() == positions[group].tolist()
    assert np.concatenate(groups).tolist() == list(range(100))
    assert len(groups) == 1 if at_once > SIZE else len(groups) > 5


def test_bytes_without_a_record_of_that_size_are_distinguished(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path, 4096)
    for _ in range(3):
        writer.append()
    path, second, size = writer.records[1]
    positions, sizes = columns([(0, size), (second, size + 1), (second + 1, size), (second * 2, size), (4_000, 500)])
    with LocalFile(path, lambda error: StoreError(str(error))) as source:
        assert ScatteredRecords(source, 0, 0, 1 << 20).read(positions, sizes)[1].tolist() == [
            *(True, False, False, True, False)
        ]
        long = ScatteredRecords(source, 0, 0, 10).claimed(positions, sizes)
        assert long.tolist() == [True, False, False, True, False]
        assert ScatteredRecords(source, 0, 0, size + 1).claimed(positions[:4], sizes[:4]).all()
