"""Files of an export, what is left when a driver stops anywhere; exports by Spark: test_export_and_replay.py."""

import gzip
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext

from rocketbroker.analytics.files.store_files import file_system
from rocketbroker.analytics.files.store_root import place_of
from rocketbroker.analytics.jobs import exported_files
from rocketbroker.analytics.jobs.exported_files import (
    FOLDER,
    Compacted,
    ExportedFiles,
    ExportState,
    by_folder,
    folder_name,
    merge_batches,
    small_files,
)
from rocketbroker.common.errors import ConfigError, StoreError

FOLDERS = ("store_day", "of_topic")
SIZE = 128 << 20


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
        self.halves: list[Iterable[pa.RecordBatch]] = [batches(half) for half in (offsets[::2], offsets[1::2])]
        self._during = during

    def mapInArrow(self, task: Callable[..., Iterator[pa.RecordBatch]], _schema: str) -> "Rows":  # noqa: N802
        self._task = task
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802
        written = [each for half in self.halves for each in self._task(half)]
        self._during()
        schema = pa.schema({"file": pa.string(), "broker": pa.string(), "end": pa.int64(), "messages": pa.int64()})
        return pa.Table.from_batches(written, schema)


def batches(offsets: list[int]) -> Iterator[pa.RecordBatch]:
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
    return files.add(rows, state, found, SIZE)  # type: ignore[arg-type]


def exported(target: Path) -> list[int]:
    """Return the messages that a reader of the folder finds."""
    return sorted(offset for file in target.glob("*/*/part-*") for offset in offsets_in(file))


def offsets_in(file: Path) -> list[int]:
    found: list[int] = pq.ParquetFile(file).read(["physical_offset"])[0].to_pylist()
    return found


def state(target: Path) -> ExportState | None:
    return ExportedFiles(place_of(target)).state()


@pytest.fixture(autouse=True)
def _attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = count()
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(taskAttemptId=lambda: next(numbers)))


@pytest.fixture
def two_exports(tmp_path: Path) -> Path:
    """A folder with the five files of two exports; tests change copies of it."""
    folder = tmp_path / "two-exports"
    for until in (2, 5):
        export(folder, until)
    assert len([*folder.glob("*/*/part-*")]) == 5
    return folder


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("how", ["before", "after", "killed"])
def test_a_compaction_that_fails_anywhere_loses_and_repeats_no_message(
    tmp_path: Path, two_exports: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    for failing in count(1):
        target = shutil.copytree(two_exports, tmp_path / str(failing))
        disk = Disk(file_system(place_of(target))[0], failing, how)
        with monkeypatch.context() as patched:
            patched.setattr(exported_files, "file_system", lambda place, disk=disk: (disk, file_system(place)[1]))
            with suppress(OSError, StoreError):
                assert ExportedFiles(place_of(target)).compact(SIZE)[:2] == (5, 2)
        if not disk.has_failed:
            break
        # What the state names is whole, and only with _SUCCESS is it all that there is.
        assert named(target) == list(range(5))
        assert not (target / "_SUCCESS").exists() or exported(target) == list(range(5))
        if failing % 2:
            assert export(target, 8) == 3
        else:
            ExportedFiles(place_of(target)).compact(SIZE)
            assert len([*target.glob("*/*/part-*")]) == 2
        assert exported(target) == list(range(8 if failing % 2 else 5))
        assert (target / "_SUCCESS").exists()
    assert failing > 20


def named(target: Path) -> list[int]:
    """Return the messages of the files that count."""
    found = state(target)
    assert found is not None
    return sorted(offset for name in found.files for offset in offsets_in(target / name))


def test_joined_files_have_the_order_of_the_log_and_only_the_last_is_joined_again(tmp_path: Path) -> None:
    for until in (20, 30, 50):
        export(tmp_path, until)
    before = sum(file.stat().st_size for file in tmp_path.glob("*/*/part-*"))
    files = ExportedFiles(place_of(tmp_path))
    done = files.compact(SIZE)
    after = list(tmp_path.glob("*/*/part-*"))
    assert done == Compacted(12, 2, before, sum(file.stat().st_size for file in after))
    for file in after:
        offsets = pq.read_table(file)["physical_offset"].to_pylist()
        assert offsets == sorted(offsets)
    assert files.compact(SIZE) == Compacted(0, 0, 0, 0)
    assert list(tmp_path.glob("*/*/part-*")) == after
    # A file of an old day was removed, and the others are joined with those of the next export.
    after[0].unlink()
    left = pq.read_table(after[1]).num_rows
    export(tmp_path, 60)
    assert files.compact(SIZE)[:2] == (5, 2)
    assert len(exported(tmp_path)) == left + 10
    with pytest.raises(ConfigError, match="new has no export"):
        ExportedFiles(place_of(tmp_path / "new")).compact(SIZE)


def test_lines_are_joined(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(6)]
    for number in range(0, 6, 2):
        files = ExportedFiles(place_of(tmp_path))
        found = files.state()
        batch = pa.record_batch(
            {
                "broker": ["a", "a"],
                "physical_offset": [number, number + 1],
                "line": lines[number : number + 2],
                FOLDER: ["[]", "[]"],
            }
        )
        rows = Rows([], lambda: None)
        rows.halves = [[batch]]
        files.add(rows, found or ExportState("jsonl", [], [], [], {}), found, SIZE)  # type: ignore[arg-type]
    assert files.compact(SIZE)[:2] == (3, 1)
    (joined,) = tmp_path.glob("part-*")
    assert gzip.decompress(joined.read_bytes()).decode().splitlines() == lines


def test_files_are_as_large_as_wanted_after_compression(tmp_path: Path) -> None:
    random = Random(1)

    def bodies(folder: str, count: int) -> pa.RecordBatch:
        # They shrink to less than half.
        columns = {"broker": ["a"] * count, "physical_offset": list(range(count))}
        columns["body"] = [random.randbytes(4_000) + bytes(6_000) for _ in range(count)]
        return pa.RecordBatch.from_pydict(columns | {FOLDER: [json.dumps([folder, "T"])] * count})

    size = 1 << 20
    batches = [bodies("1", 1000), bodies("2", 1000), bodies("3", 10)]
    place = place_of(tmp_path)
    counted = list(exported_files.write_files(place, "parquet", FOLDERS, "0" * 32, size, batches))
    assert sum(sum(each["messages"].to_pylist()) for each in counted) == 2010
    for day in ("1", "2"):
        files = sorted(tmp_path.glob(f"store_day={day}/*/part-*"), key=lambda file: int(file.stem.split("-")[-1]))
        assert len(files) == 4
        assert all(size <= file.stat().st_size < size * 1.2 for file in files[:-1])
    assert len(list(tmp_path.glob("store_day=3/*/part-*"))) == 1


def test_small_files_of_a_folder_are_joined_up_to_the_size() -> None:
    sizes = {"a/1": 40, "b/1": 49, "a/2": 50, "a/3": 45, "a/4": 49, "b/2": 1, "a/5": 49, "c/1": 1}
    assert small_files(sizes, 100) == [["a/1", "a/3"], ["b/1", "b/2"], ["a/4", "a/5"]]


def test_files_whose_ranges_overlap_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported_files, "_ROW_GROUP", 200)
    random = Random(2)
    places = sorted((broker, offset) for broker in ("a", "b", "ü") for offset in random.sample(range(1000), 100))
    files: list[list[tuple[str, int]]] = [[] for _ in range(5)]
    for place in places:
        random.choice(files[:4]).append(place)
    files[4] = [("b", 5000 + number) for number in range(10)]  # behind all others of its broker

    def read(rows: list[tuple[str, int]]) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(rows), 7):
            some = rows[first : first + 7]
            yield pa.record_batch({"broker": [row[0] for row in some], "physical_offset": [row[1] for row in some]})

    tables = list(merge_batches([read(rows) for rows in files]))
    assert len(tables) > 5
    found = [(row["broker"], row["physical_offset"]) for table in tables for row in table.to_pylist()]
    assert found == sorted(places + files[4])


def test_the_rows_after_an_empty_batch_are_merged() -> None:
    rows = pa.record_batch({"broker": ["a"] * 3, "physical_offset": [1, 2, 3]})
    files = [[rows.slice(0, 0), rows.slice(0, 1), rows.slice(1, 0), rows.slice(1)], [rows.slice(0, 0)]]
    (table,) = merge_batches([iter(file) for file in files])
    assert table["physical_offset"].to_pylist() == [1, 2, 3]


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


@pytest.fixture
def unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders without locks, as in an object store."""
    monkeypatch.setattr(ExportedFiles, "_locked", lambda _: nullcontext())


@pytest.mark.usefixtures("unlocked")
def test_the_first_of_two_exports_at_once_fails_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    export(tmp_path, 10)
    with pytest.raises(
        StoreError, match=r"another export or compaction writes to .*; it has nothing of this export: repeat it with"
    ):
        export(tmp_path, 30, during=lambda: export(tmp_path, 20))
    assert exported(tmp_path) == list(range(20))
    assert "files of the failed change remain until the next one removes them" in caplog.text
    assert export(tmp_path, 30) == 10
    assert exported(tmp_path) == list(range(30))


@pytest.mark.usefixtures("unlocked")
def test_an_export_fails_while_another_is_still_running(tmp_path: Path) -> None:
    def second_begins() -> None:
        # The second one sees the files of the first, removes them, and has not committed when the first one tries to.
        files = ExportedFiles(place_of(tmp_path))
        found = files.state()
        assert found is not None
        claim = ExportState(found.form, found.folders, found.columns, found.files, found.ends, "second")
        files._save(claim)
        files._sweep(claim)

    with pytest.raises(StoreError, match="another export or compaction writes"):
        export(tmp_path, 30, during=second_begins)
    assert state(tmp_path) is not None
    assert exported(tmp_path) == []
    assert export(tmp_path, 30) == 30


class Interleaved:
    """A file system that calls ``meanwhile`` before call number ``at``."""

    def __init__(self, real: Any, at: int, meanwhile: Callable[[], object]) -> None:
        self._real, self._at, self._meanwhile = real, at, meanwhile
        self.calls = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls == self._at:
                self._meanwhile()
            return getattr(self._real, name)(*arguments)

        return call


def compact(target: Path) -> Compacted:
    return ExportedFiles(place_of(target)).compact(SIZE)


def interleaved(target: Path, at: int, first: Callable[[], object], second: Callable[[], object]) -> bool:
    """Run ``first``, and ``second`` before a call of it; return false if it has not that many calls."""
    files = Interleaved(file_system(place_of(target))[0], at, second)
    opened = iter([files])
    with pytest.MonkeyPatch.context() as patched:
        real = file_system
        patched.setattr(
            exported_files, "file_system", lambda place: (next(opened, None) or real(place)[0], real(place)[1])
        )
        with suppress(StoreError):
            first()
    return files.calls >= at


@pytest.mark.long
@pytest.mark.parametrize("second", ["export", "compact"])
@pytest.mark.parametrize("first", ["export", "compact"])
def test_of_two_changes_of_a_local_folder_at_once_one_fails_and_nothing_is_lost(
    tmp_path: Path, two_exports: Path, first: str, second: str
) -> None:
    outcomes = set()
    for at in count(1):
        target = shutil.copytree(two_exports, tmp_path / str(at))
        changes: dict[str, Callable[[], object]] = {
            "export": lambda target=target: export(target, 8),  # type: ignore[misc]
            "compact": lambda target=target: compact(target),  # type: ignore[misc]
        }

        def meanwhile(change: Callable[[], object] = changes[second]) -> None:
            try:
                change()
                outcomes.add("")
            except StoreError as error:
                outcomes.add(str(error).partition(" writes")[0])

        if not interleaved(target, at, changes[first], meanwhile):
            break
        found = state(target)
        assert found is not None
        assert exported(target) == named(target) == list(range(found.ends["a"] + 1))
        assert (target / "_SUCCESS").exists()
        export(target, 8)
        assert exported(target) == list(range(8))
    assert outcomes == {"", "another export or compaction"}
    assert at > 20


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize("removed", [1, 5])
def test_a_compaction_that_has_removed_files_takes_its_state_back(tmp_path: Path, removed: int) -> None:
    for until in (20, 30):
        export(tmp_path, until)
    found = state(tmp_path)
    assert found is not None
    late, files, left = msgspec.structs.replace(found, writer="late"), ExportedFiles(place_of(tmp_path)), [removed]

    def delete(path: str) -> None:
        real.delete_file(path)
        if "part-" in path:
            left[0] -= 1
            if not left[0]:  # a claim by one that looked at the state before the compaction
                ExportedFiles(place_of(tmp_path))._save(late)

    real = files._fs
    files._fs = SimpleNamespace(**{name: getattr(real, name) for name in dir(real) if name[0] != "_"})
    files._fs.delete_file = delete
    with pytest.raises(StoreError, match=r"another export or compaction writes.*no message is lost"):
        files.compact(SIZE)
    assert named(tmp_path) == list(range(30))
    assert not (tmp_path / "_SUCCESS").exists()
    assert export(tmp_path, 40) == 10
    assert exported(tmp_path) == list(range(40))


@pytest.mark.usefixtures("unlocked")
def test_a_change_whose_files_a_compaction_removed_removes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for until in (20, 30):
        export(tmp_path, until)
    save = ExportedFiles._save

    def late(files: ExportedFiles, claim: ExportState) -> None:
        monkeypatch.setattr(ExportedFiles, "_save", save)
        compact(tmp_path)
        save(files, claim)

    monkeypatch.setattr(ExportedFiles, "_save", late)
    with pytest.raises(StoreError, match="another export or compaction writes"):
        export(tmp_path, 40)
    assert exported(tmp_path) == list(range(30))


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize("change", [compact, lambda target: export(target, 35)])
def test_a_change_whose_files_an_export_removed_takes_its_commit_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    for until in (20, 30):
        export(tmp_path, until)
    save, saved = ExportedFiles._save, count()

    def late(files: ExportedFiles, new: ExportState) -> None:
        if next(saved) == 1:  # the commit
            monkeypatch.setattr(ExportedFiles, "_save", save)
            export(tmp_path, 40)
        save(files, new)

    monkeypatch.setattr(ExportedFiles, "_save", late)
    with pytest.raises(StoreError, match=r"another export or compaction writes.*repeat it"):
        change(tmp_path)
    assert named(tmp_path) == list(range(30))
    assert not (tmp_path / "_SUCCESS").exists()
    assert export(tmp_path, 40) == 10
    assert exported(tmp_path) == list(range(40))


@pytest.mark.usefixtures("unlocked")
def test_success_is_not_written_once_another_change_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, saved = ExportedFiles._save, count()

    def then_another(files: ExportedFiles, state: ExportState) -> None:
        save(files, state)
        if next(saved) == 1:
            save(files, msgspec.structs.replace(state, writer="another"))

    monkeypatch.setattr(ExportedFiles, "_save", then_another)
    with pytest.raises(StoreError, match=r"another export or compaction writes.*it has all of this export"):
        export(tmp_path, 20)
    assert not (tmp_path / "_SUCCESS").exists()


def test_a_compaction_with_nothing_to_join_leaves_a_running_export_alone(tmp_path: Path) -> None:
    export(tmp_path, 20)
    compact(tmp_path)
    assert export(tmp_path, 30, during=lambda: compact(tmp_path)) == 10
    assert exported(tmp_path) == list(range(30))


def test_a_joined_file_that_lacks_messages_replaces_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for until in (20, 30):
        export(tmp_path, until)
    merge = merge_batches
    monkeypatch.setattr(exported_files, "merge_batches", lambda files: (table.slice(1) for table in merge(files)))
    with pytest.raises(StoreError, match=r"-joined-.* has \d+ messages of \d+; no message is lost"):
        compact(tmp_path)
    assert exported(tmp_path) == named(tmp_path) == list(range(30))


def test_joined_files_and_their_state_are_synced_before_any_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for until in (20, 30):
        export(tmp_path, until)
    small, synced = {*tmp_path.glob("*/*/part-*")}, list[str]()

    def sync(files: ExportedFiles, *names: str) -> None:
        assert all(each.exists() for each in small)
        synced.extend(names)
        real(files, *names)

    real = ExportedFiles._sync
    monkeypatch.setattr(ExportedFiles, "_sync", sync)
    compact(tmp_path)
    joined = {str(each.relative_to(tmp_path)) for each in tmp_path.glob("*/*/part-*")}
    folders = {name.rpartition("/")[0] for name in joined}
    assert synced[0] == "_export.json.new"  # of the claim
    assert {*synced[1:-2]} == joined | folders
    assert synced[-2:] == ["_export.json.new", ""]


def test_many_files_are_joined_in_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported_files, "_MOST_OPEN", 2)
    for until in range(6, 31, 6):
        export(tmp_path, until)
    assert compact(tmp_path)[:2] == (20, 2)
    assert exported(tmp_path) == list(range(30))
    assert len(list(tmp_path.glob("*/*/part-*"))) == 2


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

    task = exported_files.write_files(place_of(tmp_path), "parquet", FOLDERS, "0" * 32, SIZE, feed())
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
