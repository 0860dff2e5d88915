from pathlib import Path

import pytest

from rocketbroker.common.errors import StoreError
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.log_read import LogRead, file_of
from tests.support.stores import open_log

SIZE = 4096


@pytest.fixture
def log(tmp_path: Path):
    """Three files, each byte of which is the number of its file."""
    with open_log(tmp_path / "commitlog", SIZE) as found:
        for number in range(3):
            file = found.queue.create_next()
            file.ensure_allocated(SIZE)
            file.write(0, SIZE, bytes([number]) * SIZE)
        yield found


def test_ranges_are_read_back_to_back(log: CommitLog):
    read = LogRead(log, [(10, 3), (SIZE + 10, 2), (20, 1)])

    assert read.read() == b"\0\0\0\1\1\0"


def test_a_range_may_continue_in_the_next_file(log: CommitLog):
    assert LogRead(log, [(SIZE - 2, 4), (2 * SIZE - 1, 2)]).read() == b"\0\0\1\1\1\2"


def test_zeros_stand_for_a_file_that_was_removed(log: CommitLog):
    log.queue.files.pop(0)

    assert LogRead(log, [(10, 3), (SIZE, 2)]).read() == b"\0\0\0\1\1"
    assert file_of(log, 10) is None


def test_a_file_that_is_removed_meanwhile_is_read_all_the_same(log: CommitLog):
    read = LogRead(log, [(SIZE + 10, 3)])
    log.queue.files.pop(1).remove()

    assert read.read() == b"\1\1\1"


def test_a_log_that_is_closed_is_an_error(log: CommitLog):
    files, log.queue.files = log.queue.files, []
    with pytest.raises(StoreError, match="closed"):
        LogRead(log, [(10, 3)])
    log.queue.files = files


def test_a_disk_that_cannot_be_read_is_named(log: CommitLog, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_arguments: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.preadv", refuse)
    read = LogRead(log, [(10, 3)])

    with pytest.raises(StoreError, match=r"cannot read .*00000000000000000000 at 10: Input/output error"):
        read.read()
