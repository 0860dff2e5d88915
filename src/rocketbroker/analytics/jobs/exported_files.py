"""Files of an export, Parquet or JSON lines, at any place that pyarrow writes to.

``_export.json``                                        :class:`ExportState`
``_SUCCESS``                                            there while the folder has whole exports only
``store_day=2026-11-22/of_topic=orders/part-<job>-…``   a file of the job, an export

The state is the commit: an export is in it, or has no effect. Tasks write files under names that no other attempt
uses, and tell the driver. The driver removes all files of exports but those of finished attempts, replaces the state
and puts ``_SUCCESS`` back. So the state is that before or after the export, whenever the driver dies.

The next export first removes files of jobs that are not in the state. It could not go on beside them: readers would see
some messages twice. Nothing but the state is renamed, since a rename copies the file in an object store.
"""

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark import TaskContext
from pyspark.sql import DataFrame

from rocketbroker.analytics.files.store_files import file_system, unreachable
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.common.errors import ConfigError

#: Column with the values of the folders of a row, as JSON; rows are sorted by it.
FOLDER: Final = "folder"
_STATE: Final = "_export.json"
_SUCCESS: Final = "_SUCCESS"
_FILE: Final = re.compile(r"part-([0-9a-f]{32})-")
# Characters that Hive, and so Spark, escapes in the names of folders.
_ESCAPED: Final = re.compile(r'[\x00-\x1f"#%\'*/:=?\\\x7f{\[\]^]')
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_WRITTEN: Final = "file string, broker string, end bigint, messages bigint"


class ExportState(msgspec.Struct, frozen=True):
    """Form of the files, finished exports, and by broker the highest physical offset of their messages."""

    form: str
    folders: list[str]
    columns: list[str]
    jobs: list[str] = []
    ends: dict[str, int] = {}


class Form(NamedTuple):
    """Suffix of the files, and the function that returns a writer of batches, a context manager, on a stream."""

    suffix: str
    writer: Callable[[pa.NativeFile, pa.Schema], Any]


class LinesWriter:
    """Writer of the column ``line``."""

    def __init__(self, sink: pa.NativeFile, _schema: pa.Schema) -> None:
        self._sink = sink

    def __enter__(self) -> "LinesWriter":
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the stream to its owner."""

    def write(self, rows: pa.RecordBatch) -> None:
        self._sink.write("".join(f"{line}\n" for line in rows.column("line").to_pylist()).encode())


#: The stream of a ``.gz`` compresses.
FORMS: Final = {
    "parquet": Form("parquet", partial(pq.ParquetWriter, compression="zstd", compression_level=3)),
    "jsonl": Form("json.gz", LinesWriter),
}


class ExportedFiles:
    """A folder of exports; ``place`` need not exist."""

    def __init__(self, place: StoreRoot) -> None:
        self._place = place
        self._fs, self._path = file_system(place)

    def state(self) -> ExportState | None:
        """Return the state, None without a folder; raise :class:`ConfigError` for a folder that is no export."""
        with unreachable(self._place):
            if self._fs.get_file_info(self._path).type == fs.FileType.NotFound:
                return None
            if self._fs.get_file_info(f"{self._path}/{_STATE}").type == fs.FileType.NotFound:
                raise ConfigError(f"{self._place.shown} exists already and is no export; export to a new target")
            with self._fs.open_input_stream(f"{self._path}/{_STATE}") as stream:
                data = stream.read()
        try:
            return msgspec.json.decode(data, type=ExportState)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{self._place.shown}/{_STATE}: {error}; export to a new target") from error

    def add(self, rows: DataFrame, state: ExportState) -> int:
        """Write ``rows``, sorted by FOLDER, as one job and add it to the state; return the number of messages."""
        job = uuid.uuid4().hex
        task = partial(write_files, self._place, state.form, tuple(state.folders), job)
        with unreachable(self._place):
            if self._place.is_local:
                self._fs.create_dir(self._path)
            self._save(state)
            self._sweep(state.jobs)
            try:
                written = rows.mapInArrow(task, _WRITTEN).toArrow()
                self._sweep(state.jobs, {*written["file"].to_pylist()})
            except BaseException:
                self._sweep(state.jobs)
                if state.jobs:
                    self._write(_SUCCESS, b"")
                raise
            # From here on nothing is taken back: a replacement that fails may have been made.
            found = written.group_by("broker").aggregate([("end", "max")]).to_pylist()
            ends = state.ends | {each["broker"]: each["end_max"] for each in found}
            self._save(msgspec.structs.replace(state, jobs=[*state.jobs, job], ends=ends))
            self._write(_SUCCESS, b"")
        return sum(written["messages"].to_pylist())

    def _save(self, state: ExportState) -> None:
        """Replace the state at once; ``_SUCCESS`` is missing until it is written again."""
        if self._fs.get_file_info(f"{self._path}/{_SUCCESS}").type != fs.FileType.NotFound:
            self._fs.delete_file(f"{self._path}/{_SUCCESS}")
        self._write(f"{_STATE}.new", msgspec.json.encode(state))
        self._fs.move(f"{self._path}/{_STATE}.new", f"{self._path}/{_STATE}")

    def _write(self, name: str, data: bytes) -> None:
        with self._fs.open_output_stream(f"{self._path}/{name}") as stream:
            stream.write(data)

    def _sweep(self, jobs: Iterable[str], files: Iterable[str] = ()) -> None:
        """Remove the files of exports but ``files`` and those of ``jobs``."""
        finished, kept = set(jobs), set(files)
        for info in self._fs.get_file_info(fs.FileSelector(self._path, recursive=True)):
            name = info.path.removeprefix(self._path).lstrip("/")
            found = _FILE.match(info.base_name)
            if found and found[1] not in finished and name not in kept:
                self._fs.delete_file(info.path)


def write_files(
    place: StoreRoot, form: str, folders: tuple[str, ...], job: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task, sorted by FOLDER, one file a folder; yield files, brokers, their ends and counts."""
    sinks, path = file_system(place)
    task = TaskContext.get()
    assert task is not None
    current, number, name = None, -1, ""
    with ExitStack() as opened:
        for batch in batches:
            for folder, rows in by_folder(batch):
                if folder != current:
                    opened.close()  # no more rows of that folder follow
                    current, number = folder, number + 1
                    parent = folder_name(folders, json.loads(folder))
                    name = f"{parent}part-{job}-{task.taskAttemptId()}-{number}.{FORMS[form].suffix}"
                    if place.is_local:
                        sinks.create_dir(f"{path}/{parent}")
                    sink = opened.enter_context(sinks.open_output_stream(f"{path}/{name}"))
                    writer = opened.enter_context(FORMS[form].writer(sink, rows.schema))
                writer.write(rows)
                yield _summary(name, rows)


def by_folder(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split a batch that is sorted by FOLDER; yield the values of that column, and the rows without it."""
    runs, rows, start = pc.run_end_encode(batch.column(FOLDER)), batch.drop_columns([FOLDER]), 0
    for folder, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield folder, rows.slice(start, end - start)
        start = end


def folder_name(names: Iterable[str], values: Iterable[str | None]) -> str:
    """Return the relative path of a folder, with "/" at its end, as Spark names it."""
    escaped = (_ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value or _NO_VALUE) for value in values)
    return "".join(f"{name}={value}/" for name, value in zip(names, escaped, strict=True))


def _summary(name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    table = pa.Table.from_batches([rows.select(["broker", "physical_offset"])])
    counted = table.group_by("broker").aggregate([("physical_offset", "max"), ("physical_offset", "count")])
    columns = {"file": pa.array([name] * len(counted)), "broker": counted["broker"].combine_chunks()}
    columns |= {"end": counted["physical_offset_max"].combine_chunks()}
    return pa.RecordBatch.from_pydict(columns | {"messages": counted["physical_offset_count"].combine_chunks()})
