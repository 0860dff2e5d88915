import errno
from array import array
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketbroker.broker.timer.timer_wheel import SLOT_FILE_MS, Slot, SlotFiles, TimerWheel, file_of
from rocketbroker.codec.storefile.timer_slot_columns import parted_by_slot
from rocketbroker.common.file_system import LocalFileSystem

START = 10 * SLOT_FILE_MS


class RefusingDisk(LocalFileSystem):
    """Refuses a given number of syncs, after it has written."""

    refuses = 0

    def sync(self, fd):
        if self.refuses:
            self.refuses -= 1
            raise OSError(errno.EIO, "no")
        super().sync(fd)


def fields(*entries):
    return array("q", [each for slot_ms, offset in entries for each in (slot_ms, offset, 1)])


def offsets(files, start):
    return {slot: list(messages) for slot, (messages, _) in parted_by_slot(files.read(start), array("q"), ()).items()}


def test_the_file_of_a_slot():
    assert [file_of(START + ms) for ms in (0, SLOT_FILE_MS - 1000, SLOT_FILE_MS)] == [
        START,
        START,
        START + SLOT_FILE_MS,
    ]


def test_entries_are_appended_and_read_again(tmp_path):
    files = SlotFiles(tmp_path / "timerslots")
    assert files.read(START) == b""
    files.append_all({START: fields((START, 1), (START + 1000, 2))}, ())
    files.append_all({START: fields((START, 5)), START + SLOT_FILE_MS: fields((START + SLOT_FILE_MS, 6))}, ())
    assert offsets(files, START) == {START: [1, 5], START + 1000: [2]}
    assert files.counts() == {START: 3, START + SLOT_FILE_MS: 1}
    assert (files.first_queue_offset(0), files.first_queue_offset(START + 1)) == (1, 6)
    again = SlotFiles(tmp_path / "timerslots")
    assert again.load(files.counts()) == []
    assert (again.counts(), again.starts) == (files.counts(), files.starts)
    assert offsets(again, START) == offsets(files, START)


def test_delivered_messages_are_not_written(tmp_path):
    files = SlotFiles(tmp_path)
    files.append_all({START: fields((START, 1), (START, 9)), 0: fields((0, 2))}, ((START + 1, 5),))
    assert files.counts() == {START: 1}
    assert [path.name for path in tmp_path.iterdir()] == [f"{START:020d}"]


def test_a_cancel_is_written_though_what_was_before_it_in_its_slot_is_delivered(tmp_path):
    files = SlotFiles(tmp_path)
    files.append_all({START: array("q", [START, 1, 1, START, 2, 4])}, ((START + 1, 3),))
    assert parted_by_slot(files.read(START), array("q"), ()) == {START: (array("q"), array("q", [2]))}


def test_a_failed_write_is_repeated_in_its_place(tmp_path):
    disk = RefusingDisk()
    files = SlotFiles(tmp_path, disk)
    files.append_all({START: fields((START, 1))}, ())
    disk.refuses = 1
    waiting = {START: fields((START, 2)), 0: fields((0, 3))}
    with pytest.raises(OSError, match="no"):
        files.append_all(waiting, ())
    assert waiting.keys() == {START, 0}
    assert files.counts() == {START: 1}
    files.append_all(waiting, ())
    assert waiting == {}
    assert offsets(files, START) == {START: [1, 2]}


def test_files_that_are_done_are_retired_and_then_removed(tmp_path):
    files = SlotFiles(tmp_path)
    files.append_all({START: fields((START, 1)), START + SLOT_FILE_MS: fields((START + SLOT_FILE_MS, 2))}, ())
    assert files.retire(((START + SLOT_FILE_MS - 1, 9),)) == set(), "its last slots are to come"
    done = files.retire(((START + SLOT_FILE_MS, 9),))
    assert done == {START}
    assert files.counts() == {START + SLOT_FILE_MS: 1}
    files.append_all({START: fields((START, 7))}, ())
    files.remove(done)
    assert offsets(files, START) == {START: [7]}, "created again since"
    files.remove(files.retire(((START + SLOT_FILE_MS, 9),)))
    assert [path.name for path in tmp_path.iterdir()] == [f"{START + SLOT_FILE_MS:020d}"]


def test_files_that_nobody_counts_are_removed_at_a_start(tmp_path):
    files = SlotFiles(tmp_path)
    files.append_all({START: fields((START, 1))}, ())
    (tmp_path / "notes.txt").write_text("mine")
    assert SlotFiles(tmp_path).load({}) == []
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_wiped_folder_has_none(tmp_path):
    files = SlotFiles(tmp_path)
    files.append_all({START: fields((START, 1))}, ())
    files.wipe()
    assert (files.counts(), list(tmp_path.iterdir())) == ({}, [])


NEXT = START + SLOT_FILE_MS


@pytest.fixture
def files(tmp_path):
    return SlotFiles(tmp_path)


@pytest.fixture
def wheel(files):
    with ThreadPoolExecutor(1) as thread:
        yield TimerWheel(files, thread)


def write(wheel, files):
    files.append_all(wheel.begin_write(), ())
    wheel.end_write()


async def test_slots_come_from_files_and_from_what_is_in_none_yet(wheel, files):
    wheel.add(START, 1, is_delete=False)
    wheel.add(START + 1000, 2, is_delete=False)
    write(wheel, files)
    wheel.add(START, 3, is_delete=False)
    wheel.add(START, 4, is_delete=True)
    wheel.add(NEXT, 5, is_delete=False)
    assert (wheel.first_slot_ms, wheel.next_file, wheel.count(), wheel.unwritten_count) == (None, START, 5, 3)
    await wheel.load_next(((START + 1, 2),))
    assert (wheel.first_slot_ms, wheel.next_file) == (START, NEXT)
    slot = wheel.slot(START)
    assert (list(slot.messages), list(slot.deletes)) == ([3], [4]), "1 is delivered"
    wheel.remove_first()
    assert list(wheel.slot(START + 1000).messages) == [2]


async def test_what_comes_for_a_file_in_memory_goes_there(wheel, files):
    wheel.add(NEXT, 1, is_delete=False)
    await wheel.load_next(())
    wheel.add(NEXT + 1000, 2, is_delete=False)
    wheel.add(START, 3, is_delete=False)
    assert (wheel.first_slot_ms, wheel.next_file, wheel.count()) == (START, None, 3)
    write(wheel, files)
    assert files.counts() == {START: 1, NEXT: 2}
    assert (wheel.unwritten_count, wheel.count()) == (0, 3)


async def test_what_could_not_be_written_stays_before_what_came_meanwhile(wheel, files):
    wheel.add(START, 1, is_delete=False)
    wheel.add(NEXT, 2, is_delete=False)
    entries = wheel.begin_write()
    wheel.add(START, 3, is_delete=False)
    assert (wheel.unwritten_count, wheel.first_queue_offset) == (1, 1)
    del entries[NEXT]  # written
    wheel.end_write()
    assert wheel.unwritten_count == 2
    write(wheel, files)
    await wheel.load_next(())
    assert list(wheel.slot(START).messages) == [1, 3]


async def test_the_lowest_offset_that_waits(wheel, files):
    def lowest():
        return wheel.first_queue_offset

    assert lowest() is None
    wheel.add(NEXT, 4, is_delete=False)
    wheel.add(START, 6, is_delete=False)
    assert lowest() == 4
    write(wheel, files)
    assert lowest() == 4
    await wheel.load_next(())
    wheel.slot(START).deliver_to(7)
    assert lowest() == 4
    await wheel.load_next(())
    wheel.slot(NEXT).deliver_to(5)
    assert lowest() is None


def test_a_slot_is_delivered_up_to_an_offset():
    slot = Slot()
    slot.messages.extend([3, 5, 9])
    for queue_offset, done in ((3, 0), (4, 1), (9, 2), (2, 2), (10, 3)):
        slot.deliver_to(queue_offset)
        assert slot.done == done


def test_waiting_messages_count_by_the_time_left(tmp_path):
    with ThreadPoolExecutor(1) as thread:
        wheel = TimerWheel(SlotFiles(tmp_path), thread)
        wheel._loaded_to = START + SLOT_FILE_MS
        for ms, offset in ((0, 1), (3000, 2), (50_000, 3), (2 * SLOT_FILE_MS, 4)):
            wheel.add(START + ms, offset, is_delete=False)

        assert wheel.due(START - 1) == 0
        assert wheel.due(START + 3000) == 2
        # The last one is in a file that is not in memory.
        assert wheel.due_within(START, (5, 60, 3600)) == [2, 1, 1]
        assert wheel.due_within(START, (5, 60)) == [2, 1]
        assert wheel.count() == 4
