from types import SimpleNamespace

import pytest

from rocketbroker.broker.timer.timer_progress import TimerProgress
from rocketbroker.common.errors import CodecError


@pytest.fixture
def log():
    return SimpleNamespace(max_offset=100, flushed_offset=0)


@pytest.fixture
def submitted():
    return []


@pytest.fixture
def progress(tmp_path, log, submitted):
    return TimerProgress(tmp_path / "timerProgress.json", log, lambda table: submitted.append(table.encode()))


def test_it_is_written_when_the_copies_are_on_disk(progress, log, submitted):
    progress.deliver(1000, 5)
    progress.flush()
    assert submitted == []
    assert progress.is_behind
    log.flushed_offset = 100
    progress.flush()
    progress.flush()
    (written,) = submitted
    assert progress.parse(written).delivered == [(1000, 5)]


def test_what_the_slot_files_hold_is_written_at_once(progress, submitted):
    progress.took_in(7, {600_000: 3})
    progress.flush()
    file = progress.parse(submitted[0])
    assert (file.queue_offset, file.slot_entries, file.delivered) == (7, {600_000: 3}, [])


def test_it_continues_from_a_file(tmp_path, progress, log, submitted):
    progress.begin([(2000, 7), (1000, 9)], 8, 1000, 172_800_000)
    progress.took_in(7, {})
    progress.flush()
    progress.path.write_bytes(submitted[0])
    again = TimerProgress(progress.path, log)
    assert again.load()
    assert again.delivered == again.durable == ((2000, 7), (1000, 8)), "nothing is delivered behind the queue's end"
    assert (again.file.queue_offset, again.file.precision_ms, again.file.roll_window_ms) == (7, 1000, 172_800_000)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"slotEntries":[]}', b'{"slotEntries":{"x":1}}', b"[]"])
def test_a_name_that_is_not_a_file_name_is_rejected(progress, data):
    with pytest.raises(CodecError):
        progress.parse(data)
