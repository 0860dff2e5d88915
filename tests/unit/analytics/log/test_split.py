"""Parts of a log that a time range leaves unread."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketbroker.analytics import DecodeReport, Selection, read_store
from rocketbroker.analytics.columns.decode_report import DecodeReport as DecodeReportSplit
from rocketbroker.analytics.columns.decode_report import SkippedRange
from rocketbroker.analytics.columns.selection import Selection as SelectionSplit
from rocketbroker.analytics.files.commit_log_files import commit_log_files
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.split import CLOCK_MARGIN_MS, offsets_of_time, plan_splits
from rocketbroker.common.errors import ConfigError
from tests.support.commit_log_writer import CommitLogWriter, overwrite

START_MS = 1_795_255_000_000


def write(root: Path, time_of: Callable[[int], int], count: int = 4_000) -> CommitLogWriter:
    writer = CommitLogWriter(root, file_size=1 << 20)
    for number in range(count):
        writer.append(b"x" * 500, store_timestamp=START_MS + time_of(number))
    return writer


def selected(root: Path, since: int, until: int, *, exact: bool = False) -> list[int]:
    selection = Selection(START_MS + since, START_MS + until, exact=exact)
    return [
        (time // 1000 - START_MS)
        for batch in read_store(root, ["store_timestamp"], selection=selection)
        for time in batch.column(0).cast("int64").to_pylist()
    ]


def test_little_more_than_the_range_is_read(tmp_path: Path) -> None:
    write(tmp_path, lambda number: number * 1_000)
    assert selected(tmp_path, 2_000_000, 2_040_000) == list(range(2_000_000, 2_040_000, 1_000))
    splits = plan_splits(tmp_path, selection=Selection(START_MS + 2_000_000, START_MS + 2_040_000))
    assert len({split.file.base for split in splits}) == 1
    assert sum(split.high - split.low for split in splits) < 200_000


@pytest.mark.parametrize(("since", "until"), [(None, 5), (3_999_000, None), (-9, 1), (9_999_999, None), (None, -9)])
def test_open_and_outer_ranges(tmp_path: Path, since: int | None, until: int | None) -> None:
    write(tmp_path, lambda number: number * 1_000)
    since_ms, until_ms = (None if time is None else START_MS + time for time in (since, until))
    found = read_store(tmp_path, ["store_timestamp"], selection=Selection(since_ms, until_ms))
    expected = [
        time
        for time in range(0, 4_000_000, 1_000)
        if (since is None or time >= since) and (until is None or time < until)
    ]
    assert sum(batch.num_rows for batch in found) == len(expected)


def test_messages_that_are_a_little_out_of_order_are_found(tmp_path: Path) -> None:
    times = [number * 1_000 + (CLOCK_MARGIN_MS if number % 2 else 0) for number in range(4_000)]
    write(tmp_path, times.__getitem__)
    for since in range(1_500_000, 1_510_000, 500):
        expected = [time for time in times if since <= time < since + 3_000]
        assert selected(tmp_path, since, since + 3_000) == expected


def test_a_clock_set_back_within_the_margin_hides_no_message(tmp_path: Path) -> None:
    """Messages of a step back come behind later ones: as many as a second has, far more than a bound reads at once."""
    back = CLOCK_MARGIN_MS - 1
    times = [number if number < 2_000 else number - back for number in range(4_000)]
    write(tmp_path, times.__getitem__)
    for since in range(900, 2_200, 100):
        expected = [time for time in times if since <= time < since + 250]
        assert selected(tmp_path, since, since + 250) == expected


def test_a_clock_that_was_set_back_has_all_of_the_log_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    times = [number * 1_000 - (3_000_000 if number >= 2_000 else 0) for number in range(4_000)]
    write(tmp_path, times.__getitem__)
    assert selected(tmp_path, 500_000, 600_000) == [time for time in times if 500_000 <= time < 600_000]
    assert "store times go back by more than 1000 ms" in caplog.text


def test_exact_reads_all_whatever_the_clock_did_between(tmp_path: Path) -> None:
    times = [1_000_000 if number in {50, 3_950} else number for number in range(4_000)]
    write(tmp_path, times.__getitem__)
    assert selected(tmp_path, 900_000, 1_100_000, exact=True) == [1_000_000, 1_000_000]


def test_a_file_without_a_sound_record_has_all_of_the_log_read(tmp_path: Path) -> None:
    writer = write(tmp_path, lambda number: number * 1_000)
    second = sorted({path for path, _, _ in writer.records})[1]
    lost = sum(path == second for path, _, _ in writer.records)
    second.write_bytes(b"?" * (1 << 20))
    report = DecodeReport()
    rows = read_store(tmp_path, ["topic"], selection=Selection(until_ms=START_MS + 4_000_000), report=report)
    assert sum(batch.num_rows for batch in rows) == 4_000 - lost
    assert [(skipped.path, skipped.length) for skipped in report.broken] == [(str(second), 1 << 20)]


def test_damage_where_a_bound_is_looked_for_does_not_move_it(tmp_path: Path) -> None:
    writer = write(tmp_path, lambda number: number * 1_000)
    path, position, _ = writer.records[1_000]
    overwrite(path, position, b"?" * 100_000)
    lost = {
        number
        for number, (each, at, _) in enumerate(writer.records)
        if each == path and position - 600 < at < position + 100_000
    }
    expected = [time for time in range(900_000, 1_300_000, 1_000) if time // 1_000 not in lost]
    assert selected(tmp_path, 900_000, 1_300_000) == expected


def test_bounds_are_physical_offsets_around_the_range(tmp_path: Path) -> None:
    writer = write(tmp_path, lambda number: number * 1_000)
    files = commit_log_files(StoreRoot("b", str(tmp_path)))
    low, high = offsets_of_time(files, START_MS + 1_000_000, START_MS + 2_000_000)
    offsets = [int(path.name) + position for path, position, _ in writer.records]
    assert low <= offsets[1_000] < low + 200_000
    assert offsets[2_000] <= high < offsets[2_000] + 200_000
    assert offsets_of_time(files, None, None) == (0, (1 << 63) - 1)


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
    report = DecodeReportSplit()
    assert len(plan_splits(tmp_path, report=report)) == len({record[0] for record in writer.records}) - 1
    path = str(writer.records[0][0])
    assert report.ranges == [SkippedRange(tmp_path.name, path, 10_000, 10_000, "log-file-missing")]
    behind = "the 10000 bytes of the log after it are in no file and are not read"
    assert caplog.messages == [f"{path}: the file ends at position 10000; {behind}"]


def test_only_what_may_hold_selected_messages_is_planned(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path / "a", file_size=10_000).append_many(80)
    CommitLogWriter(tmp_path / "b", file_size=10_000).append_many(80)
    stores = [tmp_path / "a", tmp_path / "b"]
    middle = plan_splits(stores, 3_000, SelectionSplit(physical_offsets=(12_000, 13_000), brokers={"b"}))
    assert [(split.file.root.broker, split.file.base, split.low, split.high) for split in middle] == [
        ("b", 10_000, 2_000, 3_000)
    ]
    assert plan_splits(stores, 3_000, SelectionSplit(brokers={"c"})) == []
    assert plan_splits(stores, 3_000, SelectionSplit(topics=set())) == []
    with pytest.raises(ConfigError, match="splitSize: 0 bytes"):
        plan_splits(stores, 0)


def test_a_split_can_be_sent_to_another_process(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path).append()
    splits = plan_splits(tmp_path)
    assert pickle.loads(pickle.dumps(splits)) == splits
