"""Records by their offsets, from logs whose queues say what is not so."""

import random

import numpy as np
import pytest

from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.store_root import store_roots
from rocketbroker.analytics.tables import records_by_offset
from rocketbroker.analytics.tables.records_by_offset import RecordsByOffset
from tests.support.commit_log_writer import CommitLogWriter, overwrite


@pytest.fixture
def writer(tmp_path):
    made = CommitLogWriter(tmp_path, file_size=1 << 14)
    made.append_many(300)
    return made


def places(writer):
    """Physical offset and size of each record."""
    return [(int(path.name) + position, size) for path, position, size in writer.records]


def found(writer, wanted):
    """The numbers of what was found, in the order in which it was given, and the offsets that its records say."""
    (root,) = store_roots(writer.root)
    log = RecordsByOffset(open_folder(root))
    offsets, sizes = (np.array(column, np.int64) for column in zip(*wanted, strict=True))
    groups = list(log.groups(offsets, sizes))
    numbers = [number for _, taken in groups for number in taken.tolist()]
    said = [offset for records, _ in groups for offset in records.field("physical_offset").tolist()]
    assert said == [wanted[number][0] for number in numbers]
    return numbers


@pytest.mark.parametrize("at_once", [1, 5_000, 1 << 24])
@pytest.mark.parametrize("near", [0, 300, 1 << 16])
def test_any_choice_of_records_is_found(writer, monkeypatch, at_once, near):
    monkeypatch.setattr(records_by_offset, "_AT_ONCE", at_once)
    monkeypatch.setattr(records_by_offset, "_NEAR", near)
    everything = places(writer)
    chance = random.Random(1)
    for count in (1, 2, 40, 300):
        wanted = sorted(chance.sample(everything, count))
        assert found(writer, wanted) == list(range(count))


def test_bytes_that_are_not_a_record_are_left_out(writer):
    (first, size), (second, second_size), *_ = places(writer)
    end = writer.end
    wanted = [
        (first, size),
        (first, size),  # named twice
        (second, second_size + 1),
        (second + 1, second_size),
        (second, second_size),
        (-1, 100),
        (0, -5),
        (1 << 40, 100),
        (end, 100),
        (end - end % writer.file_size + writer.file_size - 50, 100),  # over the end of its file
        ((1 << 63) - 1, 0x7FFFFFFF),
    ]
    assert found(writer, wanted) == [0, 1, 4]


def test_a_size_that_would_take_much_memory_is_looked_at_first(writer, monkeypatch):
    monkeypatch.setattr(records_by_offset, "_AT_ONCE", 1_000)
    (first, size), *_ = places(writer)
    assert found(writer, [(first, 9_000), (first, size)]) == [1]


@pytest.mark.parametrize("at", [0, 4, 28, 84, 88])
def test_a_record_with_other_fields_or_lengths_is_left_out(writer, at):
    path, position, _ = writer.records[8]
    overwrite(path, position + at, b"\x7f\xff\xff\xf0")
    neighbours = places(writer)[7:10]
    expected = [0, 2] if at < 88 else None
    numbers = found(writer, neighbours)
    assert numbers == expected if expected is not None else {0, 2} <= set(numbers)


def test_an_empty_log_has_none(tmp_path):
    writer = CommitLogWriter(tmp_path)
    assert found(writer, [(0, 100)]) == []


def test_a_file_that_was_cut_short_lacks_its_records(writer):
    path, position, _ = writer.records[3]
    data = path.read_bytes()
    path.write_bytes(data[: position + 50])
    assert found(writer, places(writer)[:6]) == [0, 1, 2]
