"""Files of an export, Parquet or JSON lines, at any place that pyarrow writes to.

``_export.json``                                        :class:`ExportState`
``_SUCCESS``                                            there from the end of an export until the next one begins
``store_day=2026-11-22/of_topic=orders/part-<job>-…``   a file of the job, an export

The state is the commit: it names the files that count. Tasks write files under names that no other attempt uses, and
tell the driver. The driver removes all other files of exports, replaces the state and puts ``_SUCCESS`` back. So the
state is that before or after the export, whenever the driver dies.

A task may outlive its export: a killed or interrupted driver, or a speculative attempt, leaves tasks that still write.
Readers see such a file until the next export removes it; no state names it. Nothing but the state is renamed, since a
rename copies the file in an object store.

Two exports at once cannot both commit. Each writes its id into the state before it removes a file, and looks for it
before each removal and before the commit: the later one takes over, the earlier one fails. Object stores that pyarrow
writes to have no conditional replacement, so two that take these steps in the same milliseconds are not found out.
"""

import json
import logging
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
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
from rocketbroker.common.errors import ConfigError, RocketBrokerError, StoreError

logger = logging.getLogger(__name__)

#: Column with the values of the folders of a row, as JSON; rows are sorted by it.
FOLDER: Final = "folder"
_STATE: Final = "_export.json"
_NEW_STATE: Final = "_export.json.new"
_SUCCESS: Final = "_SUCCESS"
_FILE: Final = r"part-[0-9a-f]{32}-[^/]+"
# Characters that Hive, and so Spark, escapes in the names of folders.
_ESCAPED: Final = re.compile(r'[\x00-\x1f"#%\'*/:=?\\\x7f{\[\]^]')
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_WRITTEN: Final = "file string, broker string, end bigint, messages bigint"


class ExportState(msgspec.Struct, frozen=True):
    """Layout, names of the files that count, and by broker the highest physical offset in them.

    ``writer`` is the export that wrote this state, as it began or as it ended.
    """

    form: str
    folders: list[str]
    columns: list[str]
    files: list[str]
    ends: dict[str, int]
    writer: str = ""


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
        """Return the state, None without a folder or for an empty one.

        Raises:
            ConfigError: the folder is no export, or its state is not valid.
        """
        with unreachable(self._place):
            if self._fs.get_file_info(f"{self._path}/{_STATE}").type == fs.FileType.NotFound:
                listed = self._fs.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
                # A driver that died before its first state leaves nothing, or the state's other name.
                if {info.base_name for info in listed} <= {_NEW_STATE}:
                    return None
                raise ConfigError(f"{self._place.shown} exists already and is no export; export to a new target")
            with self._fs.open_input_stream(f"{self._path}/{_STATE}") as stream:
                data = stream.read()
        try:
            return msgspec.json.decode(data, type=ExportState)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{self._place.shown}/{_STATE}: {error}; export to a new target") from error

    def add(self, rows: DataFrame, state: ExportState, found: ExportState | None) -> int:
        """Write ``rows``, sorted by FOLDER, add their files to ``state`` and return the number of messages.

        ``found`` is the state that the folder has: ``state``, or None.

        Raises:
            StoreError: the files cannot be written, or another export writes; the text says what is there.
        """
        claim = msgspec.structs.replace(state, writer=uuid.uuid4().hex)
        task = partial(write_files, self._place, state.form, tuple(state.folders), claim.writer)
        with self._failing("it has nothing of this export: repeat it with --append"):
            if self._place.is_local:
                self._fs.create_dir(self._path)
            self._check(found)
            self._save(claim)
            self._sweep(claim)
            try:
                written = rows.mapInArrow(task, _WRITTEN).toArrow()
                files = written["file"].unique().to_pylist()
                self._sweep(claim, files)
                self._check(claim)
            except BaseException:
                # Without _SUCCESS: tasks may still write, and only the next export removes what they write.
                self._sweep_after_failure(claim)
                raise
        found_ends = written.group_by("broker").aggregate([("end", "max")]).to_pylist()
        ends = state.ends | {each["broker"]: each["end_max"] for each in found_ends}
        # From here on nothing is taken back: a replacement that fails may have been made.
        with self._failing("it may have all of this export: repeat it with --append, which adds what is missing"):
            self._save(msgspec.structs.replace(claim, files=[*state.files, *files], ends=ends))
        with self._failing(f"it has all of this export, and the next --append writes {_SUCCESS}"):
            self._write(_SUCCESS, b"")
        return sum(written["messages"].to_pylist())

    @contextmanager
    def _failing(self, outcome: str) -> Iterator[None]:
        """Raise :class:`StoreError` with ``outcome`` where the place cannot be used in the block."""
        try:
            with unreachable(self._place):
                yield
        except StoreError as error:
            raise StoreError(f"{error}; {outcome}") from error

    def _check(self, expected: ExportState | None) -> None:
        """Raise :class:`StoreError` if another export has written its state since."""
        if self.state() != expected:
            raise StoreError(f"another export writes to {self._place.shown}; let one at a time write to it")

    def _save(self, state: ExportState) -> None:
        """Replace the state at once; ``_SUCCESS`` is missing until it is written again."""
        if self._fs.get_file_info(f"{self._path}/{_SUCCESS}").type != fs.FileType.NotFound:
            self._fs.delete_file(f"{self._path}/{_SUCCESS}")
        self._write(_NEW_STATE, msgspec.json.encode(state))
        self._fs.move(f"{self._path}/{_NEW_STATE}", f"{self._path}/{_STATE}")

    def _write(self, name: str, data: bytes) -> None:
        with self._fs.open_output_stream(f"{self._path}/{name}") as stream:
            stream.write(data)

    def _sweep(self, claim: ExportState, written: Iterable[str] = ()) -> None:
        """Remove the files of exports but those of ``claim`` and ``written``; check that the latter are there."""
        self._check(claim)
        found, missing = self._parts(claim.folders), {*written}
        for name in found - missing - {*claim.files}:
            self._fs.delete_file(f"{self._path}/{name}")
        missing -= found
        if missing:
            raise StoreError(f"{self._place.shown}/{min(missing)} was removed before the export was complete")

    def _sweep_after_failure(self, claim: ExportState) -> None:
        """Remove what the export wrote; log a failure, since that of the export itself is the one to report."""
        try:
            with unreachable(self._place):
                self._sweep(claim)
        except RocketBrokerError as error:
            logger.warning("export: files of the failed export remain until the next one removes them: %s", error)

    def _parts(self, folders: Iterable[str]) -> set[str]:
        """Return the files in these folders that exports to this place wrote, not those of an export within it."""
        own = re.compile("".join(f"{re.escape(name)}=[^/]+/" for name in folders) + _FILE)
        listed = self._fs.get_file_info(fs.FileSelector(self._path, recursive=True))
        names = [info.path.removeprefix(self._path).lstrip("/") for info in listed]
        others = tuple(name.removesuffix(_STATE) for name in names if name.endswith(f"/{_STATE}"))
        return {name for name in names if own.fullmatch(name) and not name.startswith(others)}


def write_files(
    place: StoreRoot, form: str, folders: tuple[str, ...], job: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task, sorted by FOLDER, one file a folder; yield files, brokers, their ends and counts."""
    sinks, path = file_system(place)
    task = TaskContext.get()
    assert task is not None
    current, names = None, list[str]()
    try:
        with ExitStack() as opened:
            for batch in batches:
                for folder, rows in by_folder(batch):
                    if folder != current:
                        opened.close()  # no more rows of that folder follow
                        current = folder
                        parent = folder_name(folders, json.loads(folder))
                        name = f"{parent}part-{job}-{task.taskAttemptId()}-{len(names)}.{FORMS[form].suffix}"
                        if place.is_local:
                            sinks.create_dir(f"{path}/{parent}")
                        sink = opened.enter_context(sinks.open_output_stream(f"{path}/{name}"))
                        names.append(name)
                        writer = opened.enter_context(FORMS[form].writer(sink, rows.schema))
                    writer.write(rows)
                    yield _summary(name, rows)
    except BaseException:
        # Closing a stream completes its file, in an object store too. The driver may have swept before this point.
        for each in names:
            with suppress(OSError):
                sinks.delete_file(f"{path}/{each}")
        raise


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
