"""The table ``index``: the entries of IndexFiles, by which messages are found by key, unique id and tag."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketbroker.analytics.selection import Selection
from rocketbroker.analytics.store_files import StoreFolder, opened
from rocketbroker.analytics.store_root import StoreRoot
from rocketbroker.analytics.tables.matching import chosen
from rocketbroker.analytics.tables.root_folder import root_folder
from rocketbroker.analytics.tables.table import BROKER, TIME, Rows, Table, TableOptions, constant, field, select_by
from rocketbroker.codec.storefile.dtypes import INDEX_ENTRY
from rocketbroker.codec.storefile.index_file_layout import (
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    MAX_HASH_SLOT_NUM,
    MAX_INDEX_NUM,
    IndexHeader,
    decode_header,
    entry_position,
    file_size,
)
from rocketbroker.codec.storefile.index_slot_count import find_slot_count
from rocketbroker.common.errors import CodecError, StoreError

_FOLDER: Final = "index"
_AT_ONCE: Final = 1 << 18
# So often, and so long after the other, a file is read in which a broker is writing just then.
_TURNS: Final = 20
_TURN_SECONDS: Final = 0.05


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
        """Parts of single files. :class:`StoreError` when slots of a file cannot be told from its entries."""
        return [part for store in stores for part in _parts(root_folder(store), options)]

    def read(self, part: IndexPart, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """The entries of a part in their order."""
        folder = root_folder(part.store)
        for start in range(part.start, part.stop, _AT_ONCE):
            length = (min(start + _AT_ONCE, part.stop) - start) * INDEX_SIZE
            data = folder.read(f"{_FOLDER}/{part.file}", part.entries_at + start * INDEX_SIZE, length)
            entries = np.frombuffer(data, INDEX_ENTRY, len(data) // INDEX_SIZE)
            yield chosen(_rows(part, start, entries), self.selects, selection, schema)


def _parts(folder: StoreFolder, options: TableOptions) -> Iterator[IndexPart]:
    step = max(options.split_size // INDEX_SIZE, 1)
    for name, size in folder.files(_FOLDER).items():
        if not (name.isascii() and name.isdigit()):
            continue  # a damaged file that a broker set aside
        header = _header(folder, name)
        if header.index_count <= 1:
            continue
        entries_at = entry_position(0, options.max_hash_slot_num or _slot_count(folder, name, size))
        stop = min(header.index_count, (size - entries_at) // INDEX_SIZE)
        for start in range(1, stop, step):
            yield IndexPart(folder.root, name, entries_at, header.begin_timestamp, start, min(start + step, stop))


def _header(folder: StoreFolder, name: str) -> IndexHeader:
    try:
        return decode_header(folder.read(f"{_FOLDER}/{name}", 0, INDEX_HEADER_SIZE))
    except CodecError as error:
        raise StoreError(f"{folder.name_of(f'{_FOLDER}/{name}')} is no index file: {error}") from error


def _slot_count(folder: StoreFolder, name: str, size: int) -> int:
    if size == file_size(MAX_HASH_SLOT_NUM, MAX_INDEX_NUM):
        return MAX_HASH_SLOT_NUM
    path = f"{_FOLDER}/{name}"
    for turn in range(_TURNS):
        try:
            with opened(folder, path, "index file") as file:
                return find_slot_count(decode_header(file.read_at(0, INDEX_HEADER_SIZE)), file.size, file.read_at)
        except CodecError as error:
            # A broker sets slots before the header that knows of their entries: where one may be at it, look anew.
            if turn + 1 == _TURNS or folder.read_if_there("abort") is None:
                raise StoreError(
                    f"{folder.name_of(path)}: {error}; the option maxHashSlotNum, with the number of the broker's "
                    "settings, says how many slots there are"
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
