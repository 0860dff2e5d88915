from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketbroker.broker.timer.slot_files import SLOT_FILE_MS, SlotFiles
from rocketbroker.broker.timer.timer_wheel import Slot, TimerWheel

START = 10 * SLOT_FILE_MS
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
