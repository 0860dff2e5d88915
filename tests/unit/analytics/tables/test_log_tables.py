import shutil

import pytest

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.tables.table import TableOptions
from tests.support.commit_log_writer import CommitLogWriter, overwrite
from tests.support.table_rows import named, table_rows


def test_a_sound_store_has_none(recorded):
    assert table_rows(named(recorded), "corrupt_ranges", options=TableOptions(check_crc=True)) == []


@pytest.fixture
def writer(tmp_path):
    made = CommitLogWriter(tmp_path, file_size=1 << 14)
    made.append_many(200)
    return made


@pytest.mark.parametrize("split_size", [700, 5_000, 1 << 26])
def test_each_range_is_a_row_however_split(writer, split_size):
    records = writer.records
    broken = [records[number] for number in (5, 6, 40, 90)]
    for path, position, _ in broken:
        overwrite(path, position + 4, b"????")
    rows = table_rows(named(writer.root), "corrupt_ranges", options=TableOptions(split_size))
    ranges = [(*broken[0][:2], broken[0][2] + broken[1][2]), *broken[2:]]
    assert [(row["file"], row["position"], row["length"]) for row in rows] == [
        (str(path), position, size) for path, position, size in ranges
    ]
    assert [row["physical_offset"] for row in rows] == [int(path.name) + position for path, position, _ in ranges]
    assert {(row["broker"], row["kind"], row["reason"]) for row in rows} == {("broker-a", "broken", "record-magic")}
    chosen = table_rows(named(writer.root), "corrupt_ranges", Selection(physical_offsets=(0, 1 << 12)))
    assert chosen == [row for row in rows if row["physical_offset"] < 1 << 12]


def test_a_torn_end_a_missing_file_and_wrong_bodies_are_rows(writer):
    path, position, size = writer.records[-1]
    overwrite(path, position + size - 1, b"\0")
    body_path, body_position, _ = next(each for each in writer.records[3:] if each[2] > 200)
    overwrite(body_path, body_position + 100, b"????????")
    files = sorted(writer.directory.iterdir())
    files[1].unlink()
    plain = table_rows(named(writer.root), "corrupt_ranges")
    assert sorted(row["kind"] for row in plain) == ["missing", "unfinished"]
    missing = next(row for row in plain if row["kind"] == "missing")
    assert (missing["file"], missing["position"], missing["length"]) == (str(files[0]), 1 << 14, 1 << 14)
    unfinished = next(row for row in plain if row["kind"] == "unfinished")
    assert (unfinished["file"], unfinished["position"]) == (str(path), position)
    checked = table_rows(named(writer.root), "corrupt_ranges", options=TableOptions(check_crc=True))
    (wrong,) = [row for row in checked if row not in plain]
    assert (wrong["kind"], wrong["reason"], wrong["position"]) == ("wrong_body", "record-crc", body_position)


def test_a_time_chooses_where_to_look(tmp_path):
    writer = CommitLogWriter(tmp_path, file_size=1 << 16)
    for number in range(2_000):
        writer.append(b"%d" % number * 20, store_timestamp=1_795_255_000_000 + number * 10_000)
    for number in (100, 1_900):
        path, position, _ = writer.records[number]
        overwrite(path, position + 4, b"????")
    early, late = table_rows(named(tmp_path), "corrupt_ranges")
    middle = 1_795_255_000_000 + 1_000 * 10_000
    assert table_rows(named(tmp_path), "corrupt_ranges", Selection(since_ms=middle)) == [late]
    assert table_rows(named(tmp_path), "corrupt_ranges", Selection(until_ms=middle)) == [early]


def test_the_commit_log_directory_by_itself_is_enough(writer, tmp_path):
    elsewhere = shutil.copytree(writer.directory, tmp_path / "disk2" / "log")
    overwrite(elsewhere / ("0" * 20), writer.records[2][1] + 4, b"????")
    (row,) = table_rows(elsewhere, "corrupt_ranges")
    assert row["position"] == writer.records[2][1]
