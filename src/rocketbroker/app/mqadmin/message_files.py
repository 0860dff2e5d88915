"""Files of exported messages: JSON lines and Parquet, written so that a killed export continues, and read in order.

A row has the form of ``exported_rows``, which ``mqanalytics export`` writes too.
"""

import fcntl
import gzip
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Protocol

import msgspec

from rocketbroker.analytics.jobs.exported_rows import row_in_json
from rocketbroker.app.command_line import INSTALL_ANALYTICS
from rocketbroker.app.terminal import say_json
from rocketbroker.common.errors import ConfigError, StoreError

#: Suffix of what an unfinished export has written.
PART: Final = ".part"
# A Parquet file is written at so many rows, or bytes of bodies.
_MOST_ROWS: Final = 50_000
_MOST_BYTES: Final = 64 << 20
_ROWS_AT_ONCE: Final = 1000
_PARQUET_PART: Final = re.compile(r"part-(?P<number>\d{5,})\.(?:parquet|(?P<draft>tmp))")


def lock(file: int, path: Path) -> None:
    """Lock an open file or folder for this process, until it is closed.

    Two runs that continue the same work would do it twice, and overwrite what the other one notes.

    Args:
        file: descriptor.
        path: its name, for the text of the error.

    Raises:
        ConfigError: another process has locked it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(f"{path} is in use by another run of mqadmin; wait until that ends") from error


class RowWriter(Protocol):
    """Target of an export.

    What was written up to a mark can be kept while all behind it is dropped, so that an export that was killed
    continues without a row missing, twice or in half.
    """

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take rows."""

    def mark(self, *, force: bool = False) -> int | None:
        """Return the mark behind all rows taken, None if some are not written yet; ``force`` writes them.

        Raises:
            OSError: they cannot be written.
        """

    def finish(self) -> None:
        """Put everything on disk and give the target its name."""

    def discard(self) -> None:
        """Close and remove a target that has no rows yet."""

    def close(self) -> None:
        """Close the files."""


class JsonLinesWriter:
    """JSON lines in ``<path>.part``, which gets its name at the end; a mark is its size.

    Args:
        path: the file.
        mark: mark to continue behind; None begins at the start.

    Raises:
        ConfigError: another run writes it; it exists already, or is shorter than the mark.
    """

    def __init__(self, path: Path, mark: int | None) -> None:
        self._path = path
        self._part = path.with_name(path.name + PART)
        self._is_whole = True
        try:
            self._file: IO[bytes] = self._part.open("xb" if mark is None else "r+b")
        except FileExistsError as error:
            raise _foreign(self._part) from error
        try:
            lock(self._file.fileno(), self._part)
            if mark is not None:
                self._continue_at(mark)
        except BaseException:
            self._file.close()
            raise

    def _continue_at(self, mark: int) -> None:
        size = self._file.seek(0, os.SEEK_END)
        if size < mark:
            raise _shortened(self._part, f"has {size:,} bytes of {mark:,}")
        self._file.truncate(mark)
        self._file.seek(mark)

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._is_whole = False
        self._file.write(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        self._is_whole = True

    def mark(self, *, force: bool = False) -> int | None:
        if not self._is_whole:
            return None  # a full disk took a part of the last rows: they are behind the last mark
        self._file.flush()
        # On disk before the state that counts these rows: a power loss must not leave a state ahead of them.
        os.fsync(self._file.fileno())
        return self._file.tell()

    def finish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._part.replace(self._path)
        self.close()

    def discard(self) -> None:
        self.close()
        self._part.unlink()

    def close(self) -> None:
        with suppress(OSError):  # a full disk: rows behind the last mark are read again
            self._file.close()


class ParquetWriter:
    """Parquet files in the folder ``<path>.part``, which gets its name at the end; a mark is the number of files.

    Args:
        path: the folder.
        mark: mark to continue behind; None begins at the start.

    Raises:
        ConfigError: pyarrow is not installed; another run writes the folder; it exists already, or lacks files before
            the mark.
    """

    def __init__(self, path: Path, mark: int | None) -> None:
        try:
            import pyarrow.parquet as pq

            from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA, TIME
        except ImportError as error:
            raise ConfigError(f"Parquet needs pyarrow, which is not installed; {INSTALL_ANALYTICS}") from error
        import pyarrow as pa

        self._pa, self._pq = pa, pq
        self._schema = pa.schema(
            [pa.field(each.name, pa.int64() if each.type == TIME else each.type) for each in MESSAGE_SCHEMA]
        )
        self._path = path
        self._part = path.with_name(path.name + PART)
        if mark is None:
            try:
                self._part.mkdir(parents=True)
            except FileExistsError as error:
                raise _foreign(self._part) from error
        self._folder = os.open(self._part, os.O_RDONLY | os.O_DIRECTORY)
        self._files = mark or 0
        self._rows: list[Mapping[str, Any]] = []
        self._bytes = 0
        try:
            lock(self._folder, self._part)
            self._drop_behind_the_mark()
        except BaseException:
            self.close()
            raise

    def _drop_behind_the_mark(self) -> None:
        names = {_part_name(number) for number in range(self._files)}
        missing = sorted(names - {each.name for each in self._part.iterdir()})
        if missing:
            raise _shortened(self._part, f"lacks {missing[0]}")
        for each in self._part.iterdir():
            found = _PARQUET_PART.fullmatch(each.name)
            if found is not None and (found["draft"] or int(found["number"]) >= self._files):
                each.unlink()

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows += rows
        self._bytes += sum(len(row["body"]) for row in rows)

    def mark(self, *, force: bool = False) -> int | None:
        if self._rows and (force or len(self._rows) >= _MOST_ROWS or self._bytes >= _MOST_BYTES):
            self._flush()
        return None if self._rows else self._files

    def _flush(self) -> None:
        rows = [{**row, "properties": list(row["properties"].items())} for row in self._rows]
        table = self._pa.Table.from_pylist(rows, schema=self._schema)
        target = self._part / _part_name(self._files)
        draft = target.with_suffix(".tmp")
        with draft.open("wb") as file:
            self._pq.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        os.fsync(self._folder)
        self._files += 1
        self._rows, self._bytes = [], 0

    def finish(self) -> None:
        self.mark(force=True)
        if not self._files:
            self._pq.write_table(self._schema.empty_table(), self._part / _part_name(0))
        self._part.replace(self._path)

    def discard(self) -> None:
        self.close()
        self._part.rmdir()

    def close(self) -> None:
        self._rows = []
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1


def _part_name(number: int) -> str:
    return f"part-{number:05}.parquet"


def _foreign(part: Path) -> ConfigError:
    return ConfigError(f"{part} exists, and no interrupted export belongs to it; remove it, or name another target")


def _shortened(part: Path, found: str) -> ConfigError:
    return ConfigError(
        f"{part} {found} that were written: it cannot be continued; remove it and {part.name}.state to begin again"
    )


class StreamWriter:
    """JSON lines to stdout, which cannot be continued."""

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            say_json(row)

    def mark(self, *, force: bool = False) -> int | None:
        sys.stdout.flush()
        return None

    def finish(self) -> None:
        sys.stdout.flush()

    def discard(self) -> None:
        """Leave stdout as it is."""

    def close(self) -> None:
        """Leave stdout open: it belongs to the process."""


def export_files(source: Path) -> list[Path]:
    """Return the files of an export, in order of their names: one file, or those of a folder and its folders.

    Raises:
        ConfigError: there is no such file or folder, or it has no file of an export.
    """
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise ConfigError(f"{source} does not exist; give a file or a folder of exported messages")
    found = sorted(path for path in source.rglob("*") if path.is_file() and _form_of(path))
    if not found:
        raise ConfigError(f"{source} has no file of exported messages (.jsonl, .json, .gz or .parquet)")
    return found


def _form_of(path: Path) -> str:
    """Return ``parquet`` or ``jsonl`` by the name of a file, empty for others."""
    if path.name.startswith((".", "_")):
        return ""
    if path.suffix == ".parquet":
        return "parquet"
    return "jsonl" if {".jsonl", ".json"} & set(path.suffixes) else ""


def rows_of(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a file; a line that is no JSON, such as one that was cut off, is a row without values.

    Raises:
        StoreError: the file cannot be read.
        ConfigError: it is Parquet, and pyarrow is not installed.
    """
    try:
        if _form_of(path) == "parquet":
            yield from _parquet_rows(path)
            return
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            yield from json_rows(lines)
    except (OSError, EOFError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def json_rows(lines: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of JSON lines, empty lines left out."""
    for line in lines:
        if not line.strip():
            continue
        try:
            value = msgspec.json.decode(line, type=dict[str, Any])
            yield row_in_json(value)
        except ValueError:  # includes msgspec.DecodeError and wrong base64
            yield {}


def _parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ConfigError(f"Parquet needs pyarrow, which is not installed; {INSTALL_ANALYTICS}") from error
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    yield {**row, "properties": dict(row.get("properties") or ())}
    except pa.ArrowException as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
