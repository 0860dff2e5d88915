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

A compaction is a change of the same kind: the state names the joined files in place of the small ones, which are
removed after it. Between the two a folder holds the messages of both, and lacks ``_SUCCESS``.

Two changes at once cannot both commit. In a local folder the second one finds it locked. Elsewhere each writes its id
into the state before it removes a file, and looks for it before each removal and before the commit: the later one takes
over, the earlier one fails. Object stores that pyarrow writes to have no conditional replacement, so a change that is
held up between such a look and the step after it is not found out.
"""

import errno
import fcntl
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
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
_ORDER: Final = ("broker", "physical_offset")
# Pieces of a file: after each the task looks how large the file is. A piece is a row group of Parquet.
_PIECES: Final = 8
# Rows of each small file in memory while they are joined, and bytes in memory of a row group of the joined file.
_ROWS_AT_ONCE: Final = 2000
_ROW_GROUP: Final = 16 << 20
# Files that are joined at once.
_MOST_OPEN: Final = 200
# Errors of a file system without locks of folders.
_NO_LOCKS: Final = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)


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


class Outcomes(NamedTuple):
    """Endings of the errors of a change: before its commit, at it, and after it."""

    before: str
    at: str
    after: str


_OF_EXPORT: Final = Outcomes(
    "it has nothing of this export: repeat it with --append",
    "it may have all of this export: repeat it with --append, which adds what is missing",
    f"it has all of this export, and the next --append writes {_SUCCESS}",
)
_OF_COMPACTION: Final = Outcomes(*["no message is lost: repeat it, since files that do not count may be there"] * 3)


class Compacted(NamedTuple):
    """Number of small files, of joined files, and their bytes before and after."""

    small: int
    joined: int
    bytes_before: int
    bytes_after: int


class Form(NamedTuple):
    """Suffix of the files, and the function that returns a writer of batches, a context manager, on a stream."""

    suffix: str
    writer: Callable[[pa.NativeFile, pa.Schema], Any]


class LinesWriter:
    """Gzip writer of the column ``line``."""

    def __init__(self, sink: pa.NativeFile, _schema: pa.Schema) -> None:
        self._sink = pa.CompressedOutputStream(sink, "gzip")

    def __enter__(self) -> "LinesWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._sink.close()

    def write(self, rows: pa.RecordBatch) -> None:
        self._sink.write("".join(f"{line}\n" for line in rows.column("line").to_pylist()).encode())


FORMS: Final = {
    "parquet": Form("parquet", partial(pq.ParquetWriter, compression="zstd", compression_level=3)),
    "jsonl": Form("json.gz", LinesWriter),
}


class ExportedFiles:
    """A folder of exports; ``place`` need not exist."""

    def __init__(self, place: StoreRoot) -> None:
        self._place = place
        self._fs, self._path = file_system(place)

    def state(self, hint: str = "export to a new target") -> ExportState | None:
        """Return the state, None without a folder or for an empty one; ``hint`` says what to do about an error.

        Raises:
            ConfigError: the folder is no export, or its state is not valid.
        """
        with unreachable(self._place):
            if self._fs.get_file_info(f"{self._path}/{_STATE}").type == fs.FileType.NotFound:
                listed = self._fs.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
                # A driver that died before its first state leaves nothing, or the state's other name.
                if {info.base_name for info in listed} <= {_NEW_STATE}:
                    return None
                raise ConfigError(f"{self._place.shown} exists already and is no export; {hint}")
            with self._fs.open_input_stream(f"{self._path}/{_STATE}") as stream:
                data = stream.read()
        try:
            return msgspec.json.decode(data, type=ExportState)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{self._place.shown}/{_STATE}: {error}; {hint}") from error

    def add(self, rows: DataFrame, state: ExportState, found: ExportState | None, file_size: int) -> int:
        """Write ``rows``, sorted by FOLDER, add their files to ``state`` and return the number of messages.

        ``found`` is the state that the folder has: ``state``, or None. A file ends at ``file_size`` bytes.

        Raises:
            StoreError: the files cannot be written, or another export writes; the text says what is there.
        """
        messages = 0

        def write(claim: ExportState) -> ExportState:
            nonlocal messages
            task = partial(write_files, self._place, state.form, tuple(state.folders), claim.writer, file_size)
            written = rows.mapInArrow(task, _WRITTEN).toArrow()
            messages = sum(written["messages"].to_pylist())
            found_ends = written.group_by("broker").aggregate([("end", "max")]).to_pylist()
            ends = state.ends | {each["broker"]: each["end_max"] for each in found_ends}
            files = [*state.files, *written["file"].unique().to_pylist()]
            return msgspec.structs.replace(claim, files=files, ends=ends)

        self._change(state, found, write, _OF_EXPORT)
        return messages

    def compact(self, file_size: int) -> Compacted:
        """Join the files of each folder that are smaller than half of ``file_size`` bytes, up to this size.

        Raises:
            ConfigError: there is no export.
            StoreError: a file cannot be read or written, or an export writes.
        """
        found = self.state(hint := "name the folder of an export")
        if found is None:
            raise ConfigError(f"{self._place.shown} has no export; {hint}")
        with unreachable(self._place):
            parts = self._parts(found.folders)
            is_done = self._fs.get_file_info(f"{self._path}/{_SUCCESS}").type != fs.FileType.NotFound
        # Files that count may have been removed, such as those of old days.
        sizes = {name: parts[name] for name in found.files if name in parts}
        groups = small_files(sizes, file_size)
        # Without _SUCCESS an export may be running, which a claim would end. Only a compaction that was committed, and
        # has not removed what it replaced, is completed.
        is_left = any(f"part-{found.writer}-joined-" in name for name in found.files)
        if not groups and (is_done or not is_left):
            return Compacted(0, 0, 0, 0)
        after = 0

        def write(claim: ExportState) -> ExportState:
            nonlocal after
            joined, replaced = dict[str, str](), set[str]()
            for number, group in enumerate(groups):
                stem = f"{group[0].rpartition('part-')[0]}part-{claim.writer}-joined-{number}"
                name = self._join_all(group, stem, claim.form)
                # Another change may have removed it: the sweep before the commit says so.
                after += self._fs.get_file_info(f"{self._path}/{name}").size or 0
                joined[group[0]] = name
                replaced.update(group[1:])
            files = [joined.get(name, name) for name in claim.files if name not in replaced]
            return msgspec.structs.replace(claim, files=files)

        self._change(found, found, write, _OF_COMPACTION)
        small = [name for group in groups for name in group]
        return Compacted(len(small), len(groups), sum(sizes[name] for name in small), after)

    def _join_all(self, names: Sequence[str], stem: str, form: str) -> str:
        """Join files to one and return its name, in rounds: all are open at once, each with rows in memory.

        The sweep before the commit removes the files of all rounds but the last.
        """
        for level in count():
            parts = [names[first : first + _MOST_OPEN] for first in range(0, len(names), _MOST_OPEN)]
            names = [f"{stem}-{level}-{number}.{FORMS[form].suffix}" for number in range(len(parts))]
            for part, target in zip(parts, names, strict=True):
                self._join(part, target, form)
            if len(names) == 1:
                break
        return names[0]

    def _join(self, names: Sequence[str], target: str, form: str) -> None:
        """Write the rows of files into one: those of Parquet in the order of the log, lines file by file."""
        with ExitStack() as opened:
            sink = opened.enter_context(self._fs.open_output_stream(f"{self._path}/{target}", None))
            if form == "jsonl":
                lines = opened.enter_context(pa.CompressedOutputStream(sink, "gzip"))
                for name in names:
                    with self._fs.open_input_stream(f"{self._path}/{name}") as stream:
                        shutil.copyfileobj(stream, lines)
            else:
                streams = [opened.enter_context(self._fs.open_input_file(f"{self._path}/{name}")) for name in names]
                files = [pq.ParquetFile(stream) for stream in streams]
                writer = opened.enter_context(FORMS[form].writer(sink, files[0].schema_arrow))
                for rows in merge_batches([file.iter_batches(_ROWS_AT_ONCE) for file in files]):
                    writer.write(rows.cast(files[0].schema_arrow))
        wanted, written = sum(self._count(name, form) for name in names), self._count(target, form)
        if written != wanted:
            raise StoreError(f"{self._place.shown}/{target} has {written:,} messages of {wanted:,}")

    def _count(self, name: str, form: str) -> int:
        """Return the number of messages in a file."""
        if form == "jsonl":
            with self._fs.open_input_stream(f"{self._path}/{name}") as stream:
                return sum(data.count(b"\n") for data in iter(lambda: stream.read(1 << 20), b""))
        with self._fs.open_input_file(f"{self._path}/{name}") as stream:
            return int(pq.read_metadata(stream).num_rows)

    def _change(
        self,
        state: ExportState,
        found: ExportState | None,
        write: Callable[[ExportState], ExportState],
        outcomes: Outcomes,
    ) -> None:
        """Claim the folder, write files and commit the state that names them.

        ``write`` gets the claim, ``state`` with a writer, and returns the next state.
        """
        claim = msgspec.structs.replace(state, writer=uuid.uuid4().hex)
        with ExitStack() as held:
            with self._failing(outcomes.before):
                if self._place.is_local:
                    self._fs.create_dir(self._path)
                    held.enter_context(self._locked())
            self._change_alone(claim, found, write, outcomes)

    def _change_alone(
        self,
        claim: ExportState,
        found: ExportState | None,
        write: Callable[[ExportState], ExportState],
        outcomes: Outcomes,
    ) -> None:
        with self._failing(outcomes.before):
            there = {*claim.files} & {*self._parts(claim.folders)} if claim.files else set[str]()
            self._check(found)
            self._save(claim)
            # A compaction may have committed between the last two lines, and be removing files that the claim names.
            # Its joined files are not in the claim, so sweeping now would remove the last copy of their messages.
            # Only it knows its state, and puts that back. Files that were missing before are those of old days.
            gone = there - {*self._parts(claim.folders)} if there else there
            if gone:
                raise self._conflict()
            self._sweep(claim)
            try:
                after = write(claim)
                self._sweep(claim, {*after.files} - {*claim.files})
                self._check(claim)
            except BaseException:
                # Without _SUCCESS: tasks may still write, and only the next change removes what they write.
                self._sweep_after_failure(claim)
                raise
        replaced, new = {*claim.files} - {*after.files}, {*after.files} - {*claim.files}
        # A power loss must not take the joined files, or the state that names them, once those before are removed.
        # From here on nothing is taken back: a replacement that fails may have been made.
        with self._failing(outcomes.at):
            if replaced:
                self._sync(*new, *{name.rpartition("/")[0] for name in new})
            self._save(after)
            self._sync("")
            # Another change may have claimed the folder since the check of the claim, and removed the files that the
            # claim does not name. Then only the claim names all messages, but for those of this change.
            if not new <= {*self._parts(after.folders)}:
                if self.state() == after:
                    self._save(claim)
                raise self._conflict()
        with self._failing(outcomes.after):
            if replaced:
                self._remove_replaced(after, replaced, new)
            self._check(after)
            self._write(_SUCCESS, b"")

    def _remove_replaced(self, after: ExportState, replaced: set[str], joined: set[str]) -> None:
        """Remove the files that a compaction has replaced by joined ones.

        Once one is removed, only ``after`` names all messages: a change that claimed the folder meanwhile named the
        replaced files, and loses the claim again, unless it has removed joined ones.
        """
        try:
            self._sweep(after)
            self._check(after)
        except StoreError:
            parts = {*self._parts(after.folders)}
            if joined <= parts and not replaced <= parts and self.state() != after:
                self._save(after)
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock a local folder against other changes; the system unlocks it when the process ends."""
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._conflict() from None
            except OSError as error:
                # Network file systems may have no locks; the checks of the state are left.
                if error.errno not in _NO_LOCKS:
                    raise
            yield
        finally:
            os.close(folder)

    @contextmanager
    def _failing(self, outcome: str) -> Iterator[None]:
        """Raise :class:`StoreError` with ``outcome`` where the place cannot be used in the block."""
        try:
            with unreachable(self._place):
                yield
        except StoreError as error:
            raise StoreError(f"{error}; {outcome}") from error

    def _check(self, expected: ExportState | None) -> None:
        """Raise :class:`StoreError` if another change has written its state since."""
        if self.state() != expected:
            raise self._conflict()

    def _conflict(self) -> StoreError:
        what = f"another export or compaction writes to {self._place.shown}"
        return StoreError(f"{what}; let one at a time write to it")

    def _save(self, state: ExportState) -> None:
        """Replace the state at once; ``_SUCCESS`` is missing until it is written again."""
        if self._fs.get_file_info(f"{self._path}/{_SUCCESS}").type != fs.FileType.NotFound:
            self._fs.delete_file(f"{self._path}/{_SUCCESS}")
        self._write(_NEW_STATE, msgspec.json.encode(state))
        self._sync(_NEW_STATE)
        self._fs.move(f"{self._path}/{_NEW_STATE}", f"{self._path}/{_STATE}")

    def _sync(self, *names: str) -> None:
        """Sync files or folders in the export's folder; an object store has them once they are written."""
        for name in names if self._place.is_local else ():
            opened = os.open(f"{self._path}/{name}", os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)

    def _write(self, name: str, data: bytes) -> None:
        with self._fs.open_output_stream(f"{self._path}/{name}") as stream:
            stream.write(data)

    def _sweep(self, claim: ExportState, written: Iterable[str] = ()) -> None:
        """Remove the files of exports but those of ``claim`` and ``written``; check that the latter are there.

        Removing many takes long, so the claim is checked before each.
        """
        self._check(claim)
        found, missing = {*self._parts(claim.folders)}, {*written}
        for name in found - missing - {*claim.files}:
            self._check(claim)
            self._fs.delete_file(f"{self._path}/{name}")
        missing -= found
        if missing:
            raise StoreError(f"{self._place.shown}/{min(missing)} was removed before the export was complete")

    def _sweep_after_failure(self, claim: ExportState) -> None:
        """Remove what the change wrote; log a failure, since that of the change itself is the one to report."""
        try:
            with unreachable(self._place):
                self._sweep(claim)
        except RocketBrokerError as error:
            logger.warning("export: files of the failed change remain until the next one removes them: %s", error)

    def _parts(self, folders: Iterable[str]) -> dict[str, int]:
        """Return the files in these folders that exports to this place wrote, not those of an export within it.

        Each has its size.
        """
        own = re.compile("".join(f"{re.escape(name)}=[^/]+/" for name in folders) + _FILE)
        listed = self._fs.get_file_info(fs.FileSelector(self._path, recursive=True))
        names = {info.path.removeprefix(self._path).lstrip("/"): info.size for info in listed}
        others = tuple(name.removesuffix(_STATE) for name in names if name.endswith(f"/{_STATE}"))
        return {name: size for name, size in names.items() if own.fullmatch(name) and not name.startswith(others)}


def write_files(
    place: StoreRoot,
    form: str,
    folders: tuple[str, ...],
    job: str,
    file_size: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task, sorted by FOLDER; yield files, brokers, their ends and counts.

    A file ends with its folder, or once it has ``file_size`` bytes: only the sink knows them, after compression.
    """
    sinks, path = file_system(place)
    task = TaskContext.get()
    assert task is not None
    current, names, sink = None, list[str](), None
    try:
        with ExitStack() as opened:
            for batch in batches:
                for folder, rows in by_folder(batch):
                    for piece in split_rows(rows, file_size // _PIECES):
                        if sink is None or folder != current or sink.tell() >= file_size:
                            opened.close()  # no more rows of that file follow
                            current = folder
                            parent = folder_name(folders, json.loads(folder))
                            name = f"{parent}part-{job}-{task.taskAttemptId()}-{len(names)}.{FORMS[form].suffix}"
                            if place.is_local:
                                sinks.create_dir(f"{path}/{parent}")
                            # The writer compresses: a stream that does so itself would tell bytes before compression.
                            sink = opened.enter_context(sinks.open_output_stream(f"{path}/{name}", None))
                            names.append(name)
                            writer = opened.enter_context(FORMS[form].writer(sink, piece.schema))
                        writer.write(piece)
                        yield _summary(name, piece)
    except BaseException:
        # Closing a stream completes its file, in an object store too. The driver may have swept before this point.
        for each in names:
            with suppress(OSError):
                sinks.delete_file(f"{path}/{each}")
        raise


def split_rows(rows: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Divide rows into parts of about this size in memory."""
    step = max(rows.num_rows * most_bytes // max(rows.nbytes, 1), 1)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def small_files(sizes: Mapping[str, int], file_size: int) -> list[list[str]]:
    """Return groups of files to join to at most ``file_size`` bytes: of one folder, each less than half of that.

    All groups of a folder but the last have more than half. A joined file may have less, since it compresses better; it
    is then joined again with later files.
    """
    groups, last = list[list[str]](), dict[str, tuple[list[str], int]]()
    for name, size in sizes.items():
        if size * 2 >= file_size:
            continue
        folder = name.rpartition("/")[0]
        group, total = last.get(folder, ([], file_size))
        if total + size > file_size:
            group, total = [], 0
            groups.append(group)
        group.append(name)
        last[folder] = group, total + size
    return [group for group in groups if len(group) > 1]


def merge_batches(files: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.Table]:
    """Merge the batches of files that are each in the order of the log; yield rows for a row group.

    Files may overlap, since an export spreads the rows of a folder over tasks. One batch of each is in memory. All rows
    up to the lowest of their last places can be sorted, as what the files still have lies behind it.
    """
    heads = {number: head for number, file in enumerate(files) if (head := _next(file)) is not None}
    waiting, size = list[pa.Table](), 0
    while heads:
        bound = min(_place(head, -1) for head in heads.values())
        parts = []
        for number, head in list(heads.items()):
            if _place(head, 0) > bound:
                continue
            taken = _count_up_to(head, bound)
            parts.append(head.slice(0, taken))
            rest = head.slice(taken) if taken < head.num_rows else _next(files[number])
            if rest is None:
                del heads[number]
            else:
                heads[number] = rest
        rows = pa.Table.from_batches(parts)
        waiting.append(rows.sort_by([(name, "ascending") for name in _ORDER]) if len(parts) > 1 else rows)
        size += waiting[-1].nbytes
        if size >= _ROW_GROUP:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _next(file: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Return the next batch that has rows."""
    return next((batch for batch in file if batch.num_rows), None)


def _place(rows: pa.RecordBatch, number: int) -> tuple[str, int]:
    """Return broker and physical offset of a row."""
    broker, offset = (rows.column(name)[number].as_py() for name in _ORDER)
    return broker, offset


def _count_up_to(rows: pa.RecordBatch, bound: tuple[str, int]) -> int:
    """Count the rows up to a place, of rows in this order."""
    broker, offset = (rows.column(name) for name in _ORDER)
    same = pc.and_(pc.equal(broker, bound[0]), pc.less_equal(offset, bound[1]))
    return int(pc.sum(pc.or_(pc.less(broker, bound[0]), same)).as_py())


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
