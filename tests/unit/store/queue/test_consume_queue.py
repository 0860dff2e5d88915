import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.codec.storefile.consume_queue_layout import ENTRY, FILLER_ENTRY
from rocketbroker.common import open_files
from rocketbroker.common.errors import StoreError, StoreFullError
from rocketbroker.common.open_files import MappingLimit
from rocketbroker.store.logfile import mapped_file
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.queue.consume_queue import ConsumeQueue
from tests.support.damage import overwrite
from tests.support.stores import open_below

FILE = 200  # ten entries


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[ConsumeQueue]:
    made = ConsumeQueue("Topic", 3, tmp_path / "Topic" / "3", FILE)
    yield made
    made.queue.close()


def put(queue: ConsumeQueue, *offsets: int) -> None:
    """Enter messages of 100 bytes each, at offset 1000 + 100 n of the log."""
    for offset in offsets:
        queue.put(offset, 1000 + 100 * offset, 100, offset * 7)


def entries(queue: ConsumeQueue) -> list[int]:
    """Queue offsets of what readers find, by what was put."""
    found = []
    at = queue.min_offset
    while at < queue.max_offset:
        part = list(queue.entries(at, 100))
        assert part
        for physical_offset, size, tags_code in part:
            assert (physical_offset, size, tags_code) == (1000 + 100 * at, 100, at * 7)
            found.append(at)
            at += 1
    return found


def reloaded(queue: ConsumeQueue) -> ConsumeQueue:
    again = ConsumeQueue(queue.topic, queue.queue_id, queue.queue.directory, FILE)
    again.load()
    return again


def file_bytes(queue: ConsumeQueue, number: int) -> bytes:
    return (queue.queue.directory / f"{number * FILE:020d}").read_bytes()


def test_a_queue_is_made_with_its_first_message(queue: ConsumeQueue):
    assert not queue.queue.directory.exists()
    assert (queue.min_offset, queue.max_offset) == (0, 0)

    put(queue, 0)

    assert file_bytes(queue, 0) == ENTRY.pack(1000, 100, 0) + bytes(FILE - 20)
    assert queue.dirty


def test_it_rolls_to_the_next_file(queue: ConsumeQueue):
    put(queue, *range(25))

    assert [len(file_bytes(queue, number)) for number in range(3)] == [FILE] * 3
    assert file_bytes(queue, 1)[:20] == ENTRY.pack(2000, 100, 70)
    assert entries(queue) == list(range(25))


@pytest.mark.parametrize("before", [0, 3, 9, 10])
@pytest.mark.parametrize("count", [1, 7, 25])
def test_a_run_is_what_its_messages_are_one_by_one(queue: ConsumeQueue, before: int, count: int):
    put(queue, *range(before))
    numbers = range(before, before + count)

    queue.put_entries(before, b"".join(ENTRY.pack(1000 + 100 * n, 100, 7 * n) for n in numbers))

    assert entries(queue) == list(range(before + count))
    assert queue.dirty
    put(queue, before + count)
    again = reloaded(queue)
    assert entries(again) == list(range(before + count + 1))
    again.queue.close()


def test_a_run_without_room_shows_none_of_its_messages_and_comes_again(queue: ConsumeQueue, monkeypatch):
    put(queue, *range(8))
    run = b"".join(ENTRY.pack(1000 + 100 * n, 100, 7 * n) for n in (8, 9, 10))

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(StoreFullError):
            queue.put_entries(8, run)
    assert entries(queue) == list(range(8))

    queue.put_entries(8, run)

    assert entries(queue) == list(range(11))


def test_entries_end_with_the_file_and_with_the_queue(queue: ConsumeQueue):
    put(queue, *range(15))

    assert len(list(queue.entries(7, 100))) == 3
    assert len(list(queue.entries(7, 2))) == 2
    assert len(list(queue.entries(12, 100))) == 3
    assert list(queue.entries(15, 5)) == []
    assert list(queue.entries(500, 5)) == []


def test_one_entry_is_found_within_the_bounds_only(queue: ConsumeQueue):
    put(queue, *range(3))

    assert queue.entry(2) == (1200, 100, 14)
    assert queue.entry(3) is None
    assert queue.entry(-1) is None


def test_a_queue_that_begins_in_the_middle_has_fillers_before_it(queue: ConsumeQueue):
    put(queue, 34, 35)

    assert [path.name for path in queue.queue.directory.iterdir()] == [f"{600:020d}"]
    assert file_bytes(queue, 3)[:80] == FILLER_ENTRY * 4
    assert (queue.min_offset, queue.max_offset) == (34, 36)
    assert entries(queue) == [34, 35]
    assert queue.entry(33) is None
    again = reloaded(queue)
    assert (again.min_offset, again.max_offset, again.next_offset) == (34, 36, 36)
    assert entries(again) == [34, 35]
    again.queue.close()


@pytest.mark.parametrize("count", [1, 9, 10, 11, 20, 25])
def test_loading_finds_the_end(queue: ConsumeQueue, count: int):
    put(queue, *range(count))

    again = reloaded(queue)

    assert (again.min_offset, again.max_offset, again.next_offset) == (0, count, count)
    assert entries(again) == list(range(count))
    put(again, count)
    assert entries(again) == list(range(count + 1))
    again.queue.close()


def test_an_empty_last_file_does_not_end_the_log(queue: ConsumeQueue):
    put(queue, *range(10))
    queue.queue.create_next()

    again = reloaded(queue)

    assert again.max_offset == 10
    put(again, 10)
    assert entries(again) == list(range(11))
    again.queue.close()


@pytest.mark.parametrize("begin", [0, 3, 9])
def test_a_queue_that_lost_its_first_file_restarts_where_its_first_message_is(queue: ConsumeQueue, begin: int):
    put(queue, *range(25))
    queue.queue.close()
    first, *_ = sorted(queue.queue.directory.iterdir())
    first.unlink()
    again = ConsumeQueue("Topic", 3, queue.queue.directory, FILE)
    again.load()
    assert again.min_offset == 10
    again.cut(again.position_of(1000))
    put(again, *range(begin, 12))
    assert entries(again) == list(range(begin, 12))
    assert len(again.queue.files) == 2
    again.queue.close()


def test_a_queue_that_begins_with_a_file_in_the_middle_has_its_first_message_there(queue: ConsumeQueue):
    put(queue, 20, 21)
    assert entries(queue) == [20, 21]


def test_loading_refuses_files_of_another_size(queue: ConsumeQueue):
    put(queue, 0)

    with pytest.raises(StoreError, match=f"has {FILE} bytes"):
        ConsumeQueue("Topic", 3, queue.queue.directory, FILE * 2).load()


@pytest.mark.parametrize(("physical", "left"), [(1000, 0), (1099, 1), (1500, 5), (2000, 10), (2100, 11), (9999, 25)])
def test_truncating_forgets_what_lies_after_the_log(queue: ConsumeQueue, physical: int, left: int):
    put(queue, *range(25))

    queue.cut(queue.position_of(physical))

    assert (queue.max_offset, queue.next_offset) == (left, left)
    assert entries(queue) == list(range(left))
    again = reloaded(queue)
    assert again.max_offset == left
    again.queue.close()
    put(queue, *range(left, 27))
    assert entries(queue) == list(range(27))


@pytest.mark.parametrize("queue_offset", [0, 3, 12])
def test_a_cut_is_to_be_synced(queue: ConsumeQueue, queue_offset: int):
    """Else the entries come back after a power loss, and lead to what was stored since."""
    put(queue, *range(15))
    queue.dirty = False
    queue.cut(queue_offset)
    assert queue.dirty


def test_an_entry_before_a_position_is_found_after_it(queue: ConsumeQueue):
    put(queue, *range(10))

    assert queue.has_before(1000 + 700, 6)
    assert not queue.has_before(1000 + 700, 7)
    assert not queue.has_before(9999, 10)


def test_truncating_stops_at_the_first_entry(queue: ConsumeQueue):
    put(queue, 14, 15)

    queue.cut(queue.position_of(0))

    assert (queue.min_offset, queue.max_offset, queue.next_offset) == (14, 14, 14)
    put(queue, 14)
    assert entries(queue) == [14]


@pytest.mark.parametrize(("physical", "first"), [(0, 0), (1000, 0), (1001, 1), (1999, 10), (2000, 10), (99_999, 25)])
def test_the_first_offset_follows_the_first_message_of_the_log(queue: ConsumeQueue, physical: int, first: int):
    put(queue, *range(25))

    queue.correct_min_offset(physical)

    assert queue.min_offset == first
    assert queue.max_offset == 25


def test_a_damaged_entry_takes_no_sound_one_out_of_service(queue: ConsumeQueue):
    put(queue, *range(25))
    file = queue.queue.find(12 * 20)
    assert file is not None
    overwrite(file, 12 * 20 - file.file_from_offset, ENTRY.pack(-1, 0, 0))

    queue.correct_min_offset(0)

    assert (queue.min_offset, queue.max_offset) == (0, 25)


@pytest.mark.parametrize(("physical", "first"), [(0, 0), (1000, 0), (1001, 1), (1999, 10), (2000, 10), (99_999, 25)])
def test_where_the_queue_would_begin_is_found_without_moving_it(queue: ConsumeQueue, physical: int, first: int):
    put(queue, *range(25))

    assert queue.first_offset_from(physical) == first
    assert queue.min_offset == 0


@pytest.mark.parametrize("entry", [(0, 0, 0), (-1, 100, 0)])
@pytest.mark.parametrize("damaged", [[12], [11, 12, 13], [20, 21, 22, 23, 24], [0]])
def test_a_damaged_entry_makes_no_other_message_unreadable(
    queue: ConsumeQueue, entry: tuple[int, int, int], damaged: list[int]
):
    put(queue, *range(25))
    for number in damaged:
        file = queue.queue.find(number * 20)
        assert file is not None
        overwrite(file, number * 20 - file.file_from_offset, ENTRY.pack(*entry))

    for first in range(1, 10):
        assert queue.first_offset_from(1000 + first * 100) <= first
    assert queue.first_offset_from(1000 + 900) == 9


def test_fillers_lie_before_every_message(queue: ConsumeQueue):
    put(queue, 13, 14)
    queue.min_offset = 0

    assert queue.first_offset_from(1) == 13


def test_a_file_may_go_once_the_queue_begins_after_it(queue: ConsumeQueue):
    put(queue, *range(25))
    assert queue.first_file_without_messages() is None

    queue.min_offset = 9
    assert queue.first_file_without_messages() is None
    queue.min_offset = 10
    assert queue.first_file_without_messages() is queue.queue.files[0]
    queue.queue.take_out(queue.queue.files[0])
    queue.min_offset = 25
    queue.queue.take_out(queue.queue.files[0])
    assert len(queue.queue.files) == 1
    assert queue.first_file_without_messages() is None


def test_a_full_disk_leaves_the_queue_as_it_was(queue: ConsumeQueue, monkeypatch):
    put(queue, *range(10))

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", refuse)
        for _ in range(3):
            with pytest.raises(StoreFullError):
                put(queue, 10)
        assert queue.max_offset == 10
        assert entries(queue) == list(range(10))

    put(queue, 10)
    assert entries(queue) == list(range(11))


def test_only_the_queue_of_delayed_messages_bears_delivery_times(tmp_path: Path):
    assert ConsumeQueue("SCHEDULE_TOPIC_XXXX", 0, tmp_path, FILE).schedule
    assert not ConsumeQueue("Topic", 0, tmp_path, FILE).schedule


def test_no_file_of_a_queue_keeps_a_descriptor(queue: ConsumeQueue, tmp_path: Path):
    put(queue, *range(35))
    for file in queue.queue.files:
        file.flush()
    again = reloaded(queue)

    assert len(queue.queue.files) == 4
    assert again.first_offset_from(1000 + 100 * 25) == 25
    assert open_below(tmp_path) == []
    again.queue.close()


def test_a_queue_is_read_on_without_descriptors(queue: ConsumeQueue, monkeypatch):
    put(queue, *range(12))
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", too_many_open)
        assert entries(queue) == list(range(12))
        put(queue, *range(12, 20))
        with pytest.raises(StoreError, match="Too many open files"):
            put(queue, 20)
    put(queue, 20)

    assert entries(queue) == list(range(21))


def too_many_open(*_: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_files_that_were_made_for_messages_that_never_came_are_no_gap(queue: ConsumeQueue):
    put(queue, *range(8))
    queue.next_offset = 8
    queue.make_room(33)
    assert (len(queue.queue.files), queue.room_end) == (4, 40)

    again = reloaded(queue)

    assert (again.min_offset, again.max_offset, again.next_offset) == (0, 8, 8)
    put(again, *range(8, 15))
    assert entries(again) == list(range(15))
    assert [file.wrote for file in again.queue.files] == [200, 100, 0, 0]
    again.queue.close()


def test_the_last_file_with_entries_stays_although_an_empty_one_follows(queue: ConsumeQueue):
    put(queue, *range(10))
    queue.next_offset = 10
    queue.make_room(11)
    queue.min_offset = 10

    assert queue.first_file_without_messages() is None
    put(queue, 10)
    assert queue.first_file_without_messages() is queue.queue.files[0]


def test_room_begins_where_a_queue_does(queue: ConsumeQueue):
    queue.max_offset = queue.next_offset = 13

    queue.make_room(14)

    assert queue.room_end == 20
    put(queue, 13)
    assert entries(queue) == [13]


def test_a_queue_without_a_mapping_is_rejected_and_the_log_is_not(queue: ConsumeQueue, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(open_files, "max_map_count", lambda: 4)
    monkeypatch.setattr(open_files, "mapped_count", lambda: 3)
    monkeypatch.setattr(mapped_file, "MAPPINGS", MappingLimit())

    with pytest.raises(StoreError, match=r"3 files are mapped.*4 mappings \(vm\.max_map_count\)"):
        queue.make_room(1)

    assert not queue.queue.directory.exists()
    MappedFile(tmp_path / f"{0:020d}", 4096).close()
    monkeypatch.setattr(open_files, "max_map_count", lambda: 65_530)
    queue.make_room(1)
    assert queue.room_end == 10
