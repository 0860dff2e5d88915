"""A stretch of a commit-log file in memory."""

from pathlib import Path

import pytest

from rocketbroker.analytics.files.commit_log_files import LogFile
from rocketbroker.analytics.files.log_window import LogWindow
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.common.errors import StoreError

DATA = bytes(range(256)) * 4


@pytest.fixture
def file(tmp_path: Path) -> LogFile:
    (tmp_path / "log").write_bytes(DATA)
    return LogFile(StoreRoot("b", str(tmp_path)), "log", 0, len(DATA), len(DATA))


def test_what_is_loaded_ends_with_the_window_the_limit_or_the_file(file: LogFile) -> None:
    with LogWindow(file, 100, 150) as window:
        for position, least, end in ((0, 0, 100), (100, 0, 150), (100, 70, 170), (140, 500, 640), (1_000, 99, 1_024)):
            window.load(position, least)
            assert (window.start, window.end) == (position, end)
            assert window.array().tobytes() == DATA[position:end]


def test_bytes_inside_and_outside_of_the_window(file: LogFile) -> None:
    with LogWindow(file, 100) as window:
        window.load(50, 0)
        for position, length in ((50, 100), (49, 10), (140, 20), (1_020, 10), (1_024, 5), (2_000, 5)):
            assert window.at(position, length) == DATA[position : position + length]


def test_a_window_is_loaded_into_the_same_memory(file: LogFile) -> None:
    with LogWindow(file, 100) as window:
        window.load(0, 0)
        first = window.array()
        window.load(200, 0)
        assert first.tobytes() == DATA[200:300]


def test_a_file_that_is_gone_is_named(file: LogFile) -> None:
    Path(file.path).unlink()
    with pytest.raises(StoreError, match=f"cannot read the commit-log file {file.path}: No such file"), LogWindow(file):
        pass


def test_nothing_is_read_without_opening(file: LogFile) -> None:
    with pytest.raises(StoreError, match="is not open"):
        LogWindow(file).load(0, 0)
