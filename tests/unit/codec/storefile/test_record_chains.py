"""Many chains at once find the records that one chain finds."""

from pathlib import Path

import numpy as np
import pytest

from rocketbroker.codec.storefile.record_chains import chain_starts
from rocketbroker.common.file_window import FileWindow, measure
from tests.support.commit_log_writer import CommitLogWriter, overwrite


@pytest.fixture
def writer(tmp_path: Path) -> CommitLogWriter:
    writer = CommitLogWriter(tmp_path, file_size=1 << 18)
    writer.append_many(1_500)
    return writer


def test_many_chains_find_what_one_finds(writer: CommitLogWriter) -> None:
    path = writer.records[0][0]
    file = measure(0, path)
    with FileWindow(file) as window:
        window.load(0, 0)
        starts = chain_starts(window, file.data_end)
    expected = [position for each, position, _ in writer.records if each == path]
    assert len(starts) > len(expected) // 2
    assert np.array_equal(starts, expected[: len(starts)])


def test_they_find_nothing_where_a_record_is_damaged(writer: CommitLogWriter) -> None:
    path, position, _ = writer.records[300]
    overwrite(path, position + 28, b"?")
    with FileWindow(measure(0, path)) as window:
        window.load(0, 0)
        assert len(chain_starts(window, 1 << 18)) == 0
