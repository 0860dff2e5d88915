"""Records by their offsets, from logs whose queues say what is not so."""

import random
from pathlib import Path

import numpy as np
import pytest

from rocketbroker.analytics.files import commit_log_files
from rocketbroker.analytics.files.store_files import open_folder
from rocketbroker.analytics.files.store_names import store_roots
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log import queue_proof
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.analytics.tables import queued_messages
from rocketbroker.analytics.tables.queued_messages import EVERYWHERE, RecordsByOffset, logged_entries, queued_to
from tests.support.commit_log_writer import CommitLogWriter, overwrite
from tests.support.consume_queue_writer import write_queues
from tests.support.slow_store_reader import slow_rows


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
    monkeypatch.setattr(queued_messages, "_AT_ONCE", at_once)
    monkeypatch.setattr(queued_messages, "_NEAR", near)
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
    monkeypatch.setattr(queued_messages, "_AT_ONCE", 1_000)
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


QUEUES = 4
COUNT = 80


@pytest.fixture
def root(tmp_path: Path) -> StoreRoot:
    """A store that was not stopped in order, the queues of which have all of its log."""
    writer = CommitLogWriter(tmp_path)
    for number in range(COUNT):
        writer.append(bytes(200), b"%DLQ%g", queue_id=number % QUEUES, queue_offset=number // QUEUES)
    write_queues(tmp_path, slow_rows(writer.directory))
    (tmp_path / "abort").write_bytes(b"1")
    return StoreRoot("b", str(tmp_path))


def test_no_queue_is_relied_on_where_there_are_more_than_are_gone_through(
    root: StoreRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, folder = slow_rows(Path(root.uri, "commitlog")), open_folder(root)
    monkeypatch.setattr(queue_proof, "_MOST_LOCAL", QUEUES)
    assert queued_to(folder) == rows[-1]["physical_offset"] + rows[-1]["size"]
    monkeypatch.setattr(queue_proof, "_MOST_LOCAL", QUEUES - 1)
    monkeypatch.setattr(queue_proof, "shown_to", lambda *given: pytest.fail("all queues are read"))
    assert queued_to(folder) == 0
    Path(root.uri, "abort").unlink()
    assert queued_to(folder) == EVERYWHERE


def test_the_log_is_gone_through_in_the_windows_of_a_walk(root: StoreRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log_files, "_LOCAL_WINDOW_SIZE", 3_000)
    (split,) = plan_splits([root])
    found = list(logged_entries(split, "%DLQ%"))
    assert sum(map(len, found)) == COUNT
    assert len(found) > 5 * QUEUES
