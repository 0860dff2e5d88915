"""Files of an export, what is left when a driver stops anywhere; exports by Spark: test_export_and_replay.py."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext

from rocketbroker.analytics.files.store_files import file_system
from rocketbroker.analytics.files.store_root import place_of
from rocketbroker.analytics.jobs import exported_files
from rocketbroker.analytics.jobs.exported_files import FOLDER, ExportedFiles, ExportState, by_folder, folder_name
from rocketbroker.common.errors import ConfigError, StoreError

FOLDERS = ("store_day", "of_topic")


class Disk:
    """A file system whose call number ``failing`` fails, before or after it has its effect, or kills the driver."""

    def __init__(self, real: Any, failing: int, how: str) -> None:
        self._real, self._failing, self._how = real, failing, how
        self._calls = 0

    @property
    def has_failed(self) -> bool:
        return self._calls >= self._failing

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._calls += 1
            if self._calls == self._failing and self._how == "after":
                getattr(self._real, name)(*arguments)
            if self._calls == self._failing or (self._how == "killed" and self.has_failed):
                raise OSError("no such luck")
            return getattr(self._real, name)(*arguments)

        return call


class Rows:
    """The few calls of a data frame that an export makes, with a task for each half of the rows."""

    def __init__(self, offsets: list[int], during: Callable[[], object]) -> None:
        self._halves, self._during = (offsets[::2], offsets[1::2]), during

    def mapInArrow(self, task: Callable[..., Iterator[pa.RecordBatch]], _schema: str) -> "Rows":  # noqa: N802
        self._task = task
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802
        written = [each for half in self._halves for each in self._task(batches(half))]
        self._during()
        schema = pa.schema({"file": pa.string(), "broker": pa.string(), "end": pa.int64(), "messages": pa.int64()})
        return pa.Table.from_batches(written, schema)


def batches(offsets: list[int]) -> Iterable[pa.RecordBatch]:
    for topic in (0, 1):
        mine = [offset for offset in offsets if offset % 3 % 2 == topic]
        folder = [json.dumps(["2026-11-22", f"T{topic}"])] * len(mine)
        yield pa.RecordBatch.from_pydict({"broker": ["a"] * len(mine), "physical_offset": mine, FOLDER: folder})


def export(target: Path, until: int, during: Callable[[], object] = lambda: None) -> int:
    """Append the messages up to ``until``, as `mqanalytics export --append` does."""
    files = ExportedFiles(place_of(target))
    found = files.state()
    state = found or ExportState("parquet", list(FOLDERS), ["broker", "physical_offset"], [], {})
    rows = Rows(list(range(state.ends.get("a", -1) + 1, until)), during)
    return files.add(rows, state, found)  # type: ignore[arg-type]


def exported(target: Path) -> list[int]:
    """Return the messages that a reader of the folder finds."""
    files = target.glob("*/*/part-*")
    return sorted(offset for file in files for offset in pq.read_table(file)["physical_offset"].to_pylist())


def state(target: Path) -> ExportState | None:
    return ExportedFiles(place_of(target)).state()


@pytest.fixture(autouse=True)
def _attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = count()
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(taskAttemptId=lambda: next(numbers)))


@pytest.mark.parametrize("before", [0, 20])
@pytest.mark.parametrize("how", ["before", "after", "killed"])
def test_an_export_that_fails_anywhere_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, how: str
) -> None:
    said = set()
    for failing in count(1):
        target = tmp_path / str(failing)
        if before:
            export(target, before)
        there = state(target)
        disk = Disk(file_system(place_of(target))[0], failing, how)
        outcome = ""
        with monkeypatch.context() as patched:
            patched.setattr(exported_files, "file_system", lambda place, disk=disk: (disk, file_system(place)[1]))
            try:
                assert export(target, 50) == 50 - before
            except (OSError, StoreError) as error:
                outcome = str(error).rpartition("; ")[2]
        if not disk.has_failed:
            break
        # What the error says is true. One from outside of `add` says nothing: the folder was only looked at.
        now = state(target)
        ends = now.ends if now else {}
        if "it has nothing of this export" in outcome:
            assert (ends, now.files if now else []) == (there.ends if there else {}, there.files if there else [])
            assert not (target / "_SUCCESS").exists() or now == there
        elif "it has all of this export" in outcome:
            assert ends == {"a": 49}
        said.add(outcome.partition(":")[0])
        missing = 49 - ends.get("a", -1)
        assert export(target, 50) == missing
        assert exported(target) == list(range(50))
        assert (target / "_SUCCESS").exists()
    assert {"it has nothing of this export", "it may have all of this export"} <= said
    assert "it has all of this export, and the next --append writes _SUCCESS" in said
    assert failing > 20


def test_an_append_leaves_an_export_within_its_folder_alone(tmp_path: Path) -> None:
    export(tmp_path, 10)
    orders = tmp_path / "orders"
    export(orders, 20)
    # One without folders, in a folder that could be of the outer one, and files of others with alike names.
    inner = tmp_path / "store_day=1" / "of_topic=T"
    alike = [each / f"part-{'0' * 32}-0-0.parquet" for each in (inner, tmp_path, tmp_path / "notes")]
    for each in alike:
        each.parent.mkdir(parents=True, exist_ok=True)
        each.touch()
    shutil.copy(orders / "_export.json", inner)
    assert export(tmp_path, 30) == 20
    assert exported(orders) == list(range(20))
    assert all(each.exists() for each in alike)


def test_the_first_of_two_exports_at_once_fails_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    export(tmp_path, 10)
    with pytest.raises(StoreError, match=r"another export writes to .*; it has nothing of this export: repeat it with"):
        export(tmp_path, 30, during=lambda: export(tmp_path, 20))
    assert exported(tmp_path) == list(range(20))
    assert "files of the failed export remain until the next one removes them" in caplog.text
    assert export(tmp_path, 30) == 10
    assert exported(tmp_path) == list(range(30))


def test_an_export_fails_while_another_is_still_running(tmp_path: Path) -> None:
    def second_begins() -> None:
        # The second one sees the files of the first, removes them, and has not committed when the first one tries to.
        files = ExportedFiles(place_of(tmp_path))
        found = files.state()
        assert found is not None
        claim = ExportState(found.form, found.folders, found.columns, found.files, found.ends, "second")
        files._save(claim)
        files._sweep(claim)

    with pytest.raises(StoreError, match="another export writes"):
        export(tmp_path, 30, during=second_begins)
    assert state(tmp_path) is not None
    assert exported(tmp_path) == []
    assert export(tmp_path, 30) == 30


def test_a_written_file_that_is_gone_fails_the_export(tmp_path: Path) -> None:
    def remove() -> None:
        next(tmp_path.glob("*/*/part-*")).unlink()

    with pytest.raises(StoreError, match=r"part-.* was removed before the export was complete; it has nothing of this"):
        export(tmp_path, 30, during=remove)
    assert exported(tmp_path) == []
    assert export(tmp_path, 30) == 30
    # Files that count may be removed, such as those of old days.
    remove()
    assert export(tmp_path, 40) == 10


def test_a_file_of_a_late_attempt_is_removed_by_the_next_export(tmp_path: Path) -> None:
    export(tmp_path, 30)
    for file in tmp_path.glob("*/*/part-*"):
        shutil.copy(file, file.with_name(file.name.replace(".parquet", "9.parquet")))
    assert len(exported(tmp_path)) > 30

    def removed() -> None:
        assert not list(tmp_path.glob("*/*/part-*9.parquet"))

    assert export(tmp_path, 30, during=removed) == 0
    assert exported(tmp_path) == list(range(30))
    found = state(tmp_path)
    assert found is not None
    assert sorted(found.files) == sorted(str(each.relative_to(tmp_path)) for each in tmp_path.glob("*/*/part-*"))


def test_a_failed_attempt_removes_its_files(tmp_path: Path) -> None:
    def feed() -> Iterator[pa.RecordBatch]:
        yield from batches(list(range(20)))
        assert len(list(tmp_path.glob("*/*/part-*"))) == 2
        raise ValueError("no more rows")

    task = exported_files.write_files(place_of(tmp_path), "parquet", FOLDERS, "0" * 32, feed())
    with pytest.raises(ValueError, match="no more rows"):
        list(task)
    assert exported(tmp_path) == []


def test_folders_are_named_as_spark_names_them():
    assert folder_name((), ()) == ""
    values = ["2026-11-22", "%DLQ%g/..=\x01", "Thème", None]
    assert folder_name(("a", "b", "c", "d"), values) == (
        "a=2026-11-22/b=%25DLQ%25g%2F..%3D%01/c=Thème/d=__HIVE_DEFAULT_PARTITION__/"
    )


def test_a_batch_is_split_where_its_folder_changes():
    batch = pa.RecordBatch.from_pydict({"body": list(range(5)), FOLDER: ["a", "a", "b", "c", "c"]})
    parts = [(folder, rows.to_pydict()) for folder, rows in by_folder(batch)]
    assert parts == [("a", {"body": [0, 1]}), ("b", {"body": [2]}), ("c", {"body": [3, 4]})]
    assert list(by_folder(batch.slice(0, 0))) == []


def test_a_folder_of_another_program_and_a_damaged_state_are_refused(tmp_path: Path) -> None:
    files = ExportedFiles(place_of(tmp_path))
    assert files.state() is None
    (tmp_path / "_export.json.new").touch()
    assert files.state() is None
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(ConfigError, match="exists already and is no export; export to a new target"):
        files.state()
    (tmp_path / "_export.json").write_text('{"form": 1}')
    with pytest.raises(ConfigError, match=r"_export\.json: Expected `str`.*; export to a new target"):
        files.state()
    # Without names of files the next export would remove them all.
    (tmp_path / "_export.json").write_text('{"form": "jsonl", "folders": [], "columns": [], "ends": {}, "jobs": ["1"]}')
    with pytest.raises(ConfigError, match="missing required field `files`; export to a new target"):
        files.state()
