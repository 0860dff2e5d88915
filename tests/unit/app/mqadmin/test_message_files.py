"""Files of exported messages: a target that is continued behind a mark, and rows that are read back."""

import gzip
import json
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rocketbroker.analytics.jobs.exported_rows import exported_row
from rocketbroker.app.mqadmin.message_files import JsonLinesWriter, ParquetWriter, RowWriter, export_files, rows_of
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.stored_message import stored

Make = Callable[[Path, int | None], RowWriter]


def row(number: int) -> dict[str, Any]:
    return exported_row(stored(b"body %d" % number, properties={"TAGS": "A"}, queue_offset=number), "broker-a")


@pytest.mark.parametrize("make", [JsonLinesWriter, ParquetWriter])
def test_rows_behind_the_mark_are_dropped_when_it_is_continued(tmp_path: Path, make: Make):
    target = tmp_path / ("t.parquet" if make is ParquetWriter else "t.jsonl")
    killed = make(target, None)
    killed.write([row(0), row(1)])
    mark = killed.mark(force=True)
    killed.write([row(2)])
    killed.mark(force=True)
    killed.close()
    assert not target.exists()
    writer = make(target, mark)
    writer.write([row(2), row(3)])
    writer.finish()
    writer.close()
    found = [each for path in export_files(target) for each in rows_of(path)]
    assert [each["queue_offset"] for each in found] == [0, 1, 2, 3]
    assert found[1] == row(1)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def write_and_mark(writer: RowWriter, rows: list[dict[str, Any]]) -> None:
    writer.write(rows)
    writer.mark(force=True)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let each write behind so many bytes fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("make", [JsonLinesWriter, ParquetWriter])
def test_rows_that_a_full_disk_took_in_part_are_behind_the_mark(tmp_path: Path, make: Make):
    target = tmp_path / ("t.parquet" if make is ParquetWriter else "t.jsonl")
    rows = [exported_row(stored(os.urandom(9000), queue_offset=number), "broker-a") for number in range(3)]
    writer = make(target, None)
    writer.write(rows[:1])
    mark = writer.mark(force=True)
    with files_of_at_most(20_000):
        with pytest.raises(OSError, match="File too large"):
            write_and_mark(writer, rows[1:])
        with suppress(OSError):
            assert writer.mark(force=True) is None
        writer.close()
    resumed = make(target, mark)
    resumed.write(rows[1:])
    resumed.finish()
    resumed.close()
    found = [each for path in export_files(target) for each in rows_of(path)]
    assert [each["body"] for each in found] == [each["body"] for each in rows]


@pytest.mark.parametrize("make", [JsonLinesWriter, ParquetWriter])
def test_a_discarded_target_leaves_nothing(tmp_path: Path, make: Make):
    make(tmp_path / "t", None).discard()
    assert list(tmp_path.iterdir()) == []


def test_a_parquet_file_is_written_when_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rocketbroker.app.mqadmin.message_files._MOST_ROWS", 2)
    writer = ParquetWriter(tmp_path / "t", None)
    writer.write([row(0)])
    assert writer.mark() is None
    writer.write([row(1)])
    assert writer.mark() == 1
    writer.finish()
    (file,) = export_files(tmp_path / "t")
    assert pq.read_metadata(file).num_rows == 2


def test_an_empty_export_has_a_file_with_the_columns(tmp_path: Path):
    writer = ParquetWriter(tmp_path / "t", None)
    writer.finish()
    (file,) = export_files(tmp_path / "t")
    assert list(rows_of(file)) == []
    assert pq.read_schema(file).names == list(row(0))


def test_lines_of_other_kinds_are_rows_without_values(tmp_path: Path):
    file = tmp_path / "t.jsonl.gz"
    lines = [b"{half", b"", b"[1]", json.dumps({"topic": "T", "body": "no base64!"}).encode(), b'{"topic": "T"}']
    file.write_bytes(gzip.compress(b"\n".join(lines)))
    assert list(rows_of(file)) == [{}, {}, {}, {"topic": "T", "body": b""}]


def test_unreadable_sources_are_named(tmp_path: Path):
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(b'{"topic": "T"}\n' * 100)[:-20])
    with pytest.raises(StoreError, match=r"cut\.jsonl\.gz cannot be read"):
        list(rows_of(cut))
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"no parquet")
    with pytest.raises(StoreError, match=r"broken\.parquet cannot be read"):
        list(rows_of(broken))
    with pytest.raises(ConfigError, match="does not exist"):
        export_files(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no file of exported messages"):
        export_files(tmp_path / "empty")


@pytest.mark.parametrize("make", [JsonLinesWriter, ParquetWriter])
def test_what_another_export_or_nobody_knows_of_is_not_touched(tmp_path: Path, make: Make):
    target = tmp_path / "t"
    first = make(target, None)
    with pytest.raises(ConfigError, match="no interrupted export belongs to it"):
        make(target, None)
    first.write([row(0)])
    mark = first.mark(force=True)
    with pytest.raises(ConfigError, match="in use by another run"):
        make(target, mark)
    first.close()
    make(target, mark).close()


def test_a_shortened_part_is_not_continued(tmp_path: Path):
    writer = JsonLinesWriter(tmp_path / "t", None)
    writer.write([row(0), row(1)])
    mark = writer.mark()
    assert mark is not None
    writer.close()
    part = tmp_path / "t.part"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=rf"has {mark - 1:,} bytes of {mark:,}"):
        JsonLinesWriter(tmp_path / "t", mark)
    assert part.stat().st_size == mark - 1


def test_a_folder_that_lacks_a_file_is_not_continued_and_keeps_foreign_files(tmp_path: Path):
    writer = ParquetWriter(tmp_path / "t", None)
    for number in range(3):
        writer.write([row(number)])
        writer.mark(force=True)
    writer.close()
    part = tmp_path / "t.part"
    (part / "notes.txt").write_text("mine")
    (part / "part-00003.tmp").write_bytes(b"cut")
    ParquetWriter(tmp_path / "t", 2).close()
    assert sorted(path.name for path in part.iterdir()) == ["notes.txt", "part-00000.parquet", "part-00001.parquet"]
    (part / "part-00000.parquet").unlink()
    with pytest.raises(ConfigError, match=r"lacks part-00000\.parquet"):
        ParquetWriter(tmp_path / "t", 2)
