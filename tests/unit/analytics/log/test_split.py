"""Dividing a commit log."""

import pickle
from pathlib import Path

import pytest

from rocketbroker.analytics.columns.decode_report import DecodeReport, SkippedRange
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.common.errors import ConfigError
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


def test_a_missing_file_is_logged_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = CommitLogWriter(tmp_path, file_size=10_000)
    writer.append_many(80)
    (writer.directory / f"{10_000:020d}").unlink()
    report = DecodeReport()
    assert len(plan_splits(tmp_path, report=report)) == len({record[0] for record in writer.records}) - 1
    path = str(writer.records[0][0])
    assert report.ranges == [SkippedRange(tmp_path.name, path, 10_000, 10_000, "log-file-missing")]
    behind = "the 10000 bytes of the log after it are in no file and are not read"
    assert caplog.messages == [f"{path}: the file ends at position 10000; {behind}"]


def test_only_what_may_hold_selected_messages_is_planned(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path / "a", file_size=10_000).append_many(80)
    CommitLogWriter(tmp_path / "b", file_size=10_000).append_many(80)
    stores = [tmp_path / "a", tmp_path / "b"]
    middle = plan_splits(stores, 3_000, Selection(physical_offsets=(12_000, 13_000), brokers={"b"}))
    assert [(split.file.root.broker, split.file.base, split.low, split.high) for split in middle] == [
        ("b", 10_000, 2_000, 3_000)
    ]
    assert plan_splits(stores, 3_000, Selection(brokers={"c"})) == []
    assert plan_splits(stores, 3_000, Selection(topics=set())) == []
    with pytest.raises(ConfigError, match="splitSize: 0 bytes"):
        plan_splits(stores, 0)


def test_a_split_can_be_sent_to_another_process(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path).append()
    splits = plan_splits(tmp_path)
    assert pickle.loads(pickle.dumps(splits)) == splits
