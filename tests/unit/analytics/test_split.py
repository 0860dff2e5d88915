"""Dividing a commit log."""

from pathlib import Path

import pytest

from rocketbroker.analytics.split import plan_splits
from tests.support.commit_log_writer import CommitLogWriter


def test_splits_cover_what_is_written_and_no_more(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path, file_size=10_000).append_many(60)
    splits = plan_splits(tmp_path, 3_000)
    for base in {split.file.base for split in splits}:
        mine = [split for split in splits if split.file.base == base]
        assert [split.low for split in mine] == [0, *(split.high for split in mine[:-1])]
        assert mine[-1].high == mine[-1].file.data_end
    assert {split.file.base for split in splits if split.last} == {max(split.file.base for split in splits)}


def test_a_file_made_ahead_is_not_read(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path, file_size=10_000)
    writer.append()
    (writer.directory / f"{10_000:020d}").write_bytes(bytes(10_000))
    assert [(split.file.base, split.last) for split in plan_splits(tmp_path)] == [(0, True)]


def test_a_missing_file_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = CommitLogWriter(tmp_path, file_size=10_000)
    writer.append_many(80)
    (writer.directory / f"{10_000:020d}").unlink()
    assert len(plan_splits(tmp_path)) == len({record[0] for record in writer.records}) - 1
    (message,) = caplog.messages
    assert "ends at offset 10000" in message
    assert "begins at 20000: what was between them is not read" in message
