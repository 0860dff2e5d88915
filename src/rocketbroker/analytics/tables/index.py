"""The table ``index``: the entries of IndexFiles, by which messages are found by key, unique id and tag."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_files import StoreFolder, opened
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.tables.matching import chosen
from rocketbroker.analytics.tables.root_folder import root_folder
from rocketbroker.analytics.tables.table import BROKER, TIME, Rows, Table, TableOptions, constant, field, select_by
from rocketbroker.codec.storefile.dtypes import INDEX_ENTRY
from rocketbroker.codec.storefile.index_file_layout import (
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    MAX_HASH_SLOT_NUM,
    MAX_INDEX_NUM,
    decode_header,
    entry_position,
    file_size,
)
from rocketbroker.codec.storefile.index_slot_count import find_slot_count
from rocketbroker.common.errors import CodecError, StoreError

_FOLDER: Final = "index"
_AT_ONCE: Final = 1 << 18
# So often, and so long after the other, the newest file is read: a broker may be writing in it just then.
_TURNS: Final = 20
_TURN_SECONDS: Final = 0.05

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IndexPart:
    """Entries ``start`` to before ``stop`` of an index file.

    Attributes:
        store: the store.
        file: the file's name.
        entries_at: where entry 0 stands.
        begin_timestamp: of the file's header, in ms.
        start: number of the first entry.
        stop: number behind the last one.
    """

    store: StoreRoot
    file: str
    entries_at: int
    begin_timestamp: int
    start: int
    stop: int


class IndexTable(Table):
    """A row for each entry that is in use."""

    name = "index"
    comment = "an entry of an IndexFile: a key, unique id or tag of a message, by its hash"
    schema = pa.schema(
        [
            BROKER,
            field("file", pa.string(), "name of the index file"),
            field("entry", pa.int32(), "number of the entry in the file, from 1 on"),
            field("key_hash", pa.int32(), "hash of topic#key, topic#unique id or topic#T#tag"),
            field("physical_offset", pa.int64(), "byte offset of the record in the commit log"),
            field("store_timestamp", TIME, "when the message was stored, in whole seconds from the file's begin"),
            field("previous_entry", pa.int32(), "number of the entry before it with the same slot, 0 if none"),
        ]
    )
    selects = select_by("store_timestamp", "physical_offset")

    def plan(self, stores: Sequence[StoreRoot], selection: Selection, options: TableOptions) -> list[IndexPart]:
        """Parts of single files. What is damaged is left out, and told in the log."""
        return [part for store in stores for part in _parts(root_folder(store), options)]

    def read(self, part: IndexPart, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """The entries of a part in their order."""
        folder = root_folder(part.store)
        for start in range(part.start, part.stop, _AT_ONCE):
            length = (min(start + _AT_ONCE, part.stop) - start) * INDEX_SIZE
            data = folder.read_if_there(f"{_FOLDER}/{part.file}", part.entries_at + start * INDEX_SIZE, length) or b""
            entries = np.frombuffer(data, INDEX_ENTRY, len(data) // INDEX_SIZE)
            if len(data) < length:
                path = folder.name_of(f"{_FOLDER}/{part.file}")
                logger.warning("%s was cut or removed; entries from %d on are left out", path, start + len(entries))
            yield chosen(_rows(part, start, entries), self.selects, selection, schema)


def damaged_index_files(store: StoreRoot, slot_count: int = 0) -> list[str]:
    """What of the index files of ``store`` cannot be read, or is not all there, each with the file's name.

    ``slot_count`` is ``maxHashSlotNum`` of the broker's settings, 0 to have it found out from each file.
    """
    told = list[str]()
    for _ in _index_files(root_folder(store), slot_count, told.append):
        pass
    return told


class _IndexFile(NamedTuple):
    """An index file; the numbers of its entries go from 1 to before ``stop``."""

    name: str
    entries_at: int
    begin_timestamp: int
    stop: int


def _parts(folder: StoreFolder, options: TableOptions) -> Iterator[IndexPart]:
    step = max(options.split_size // INDEX_SIZE, 1)
    for file in _index_files(folder, options.max_hash_slot_num, logger.warning):
        for start in range(1, file.stop, step):
            stop = min(start + step, file.stop)
            yield IndexPart(folder.root, file.name, file.entries_at, file.begin_timestamp, start, stop)


def _index_files(folder: StoreFolder, slot_count: int, tell: Callable[[str], None]) -> Iterator[_IndexFile]:
    """The files with entries, by name.

    Args:
        folder: the store.
        slot_count: slots of each, 0 to find it out.
        tell: takes what is damaged.
    """
    # Others are called as damaged files are that a broker set aside.
    files = {name: size for name, size in folder.files(_FOLDER).items() if name.isascii() and name.isdigit()}
    newest = max(files, default="")
    for name, size in files.items():
        try:
            file = _index_file(folder, name, size, slot_count, turns=_TURNS if name == newest else 1)
        except CodecError as error:
            tell(f"{folder.name_of(f'{_FOLDER}/{name}')}: {error}; none of its entries is read")
            continue
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                continue  # a broker has removed it
            raise
        if file is not None:
            yield _as_far_as_it_is(file, folder, size, tell)


def _as_far_as_it_is(file: _IndexFile, folder: StoreFolder, size: int, tell: Callable[[str], None]) -> _IndexFile:
    room = max((size - file.entries_at) // INDEX_SIZE, 1)
    if room >= file.stop:
        return file
    tell(
        f"{folder.name_of(f'{_FOLDER}/{file.name}')}: the header tells of {file.stop - 1} entries, of which the "
        f"{size} bytes of the file have {room - 1}; the others are left out"
    )
    return file._replace(stop=room)


def _index_file(folder: StoreFolder, name: str, size: int, slot_count: int, turns: int) -> _IndexFile | None:
    """A file as its header tells; ``None`` if it has no entries. It is read ``turns`` times at the most.

    Raises:
        CodecError: it is no index file, or its slots cannot be told from its entries.
        StoreError: it is gone, or cannot be read.
    """
    header = decode_header(folder.read(f"{_FOLDER}/{name}", 0, INDEX_HEADER_SIZE))
    if header.index_count <= 1:
        return None
    entries_at = entry_position(0, slot_count or _slot_count(folder, name, size, turns))
    return _IndexFile(name, entries_at, header.begin_timestamp, header.index_count)


def _slot_count(folder: StoreFolder, name: str, size: int, turns: int) -> int:
    if size == file_size(MAX_HASH_SLOT_NUM, MAX_INDEX_NUM):
        return MAX_HASH_SLOT_NUM
    for turn in range(turns):
        try:
            with opened(folder, f"{_FOLDER}/{name}") as file:
                return find_slot_count(decode_header(file.read_at(0, INDEX_HEADER_SIZE)), size, file.read_at)
        except CodecError as error:
            # A broker sets slots before the header that knows of their entries: where one may be at it, look anew.
            if turn + 1 == turns or folder.read_if_there("abort") is None:
                raise CodecError(
                    f"{error}; the option maxHashSlotNum, with the number of the broker's settings, says how many "
                    "slots a sound file has"
                ) from error
        time.sleep(_TURN_SECONDS)
    raise AssertionError("the last turn returns or raises")


def _rows(part: IndexPart, start: int, entries: NDArray[Any]) -> Rows:
    count = len(entries)
    return Rows(
        count,
        {
            "broker": constant(part.store.broker, pa.string(), count),
            "file": constant(part.file, pa.string(), count),
            "entry": lambda: pa.array(np.arange(start, start + count, dtype=np.int32)),
            "key_hash": lambda: pa.array(entries["key_hash"].astype(np.int32)),
            "physical_offset": lambda: pa.array(entries["phy_offset"].astype(np.int64)),
            "store_timestamp": lambda: pa.array(part.begin_timestamp + entries["time_diff"].astype(np.int64) * 1000),
            "previous_entry": lambda: pa.array(entries["previous"].astype(np.int32)),
        },
    )
