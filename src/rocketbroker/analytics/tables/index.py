"""The table ``index``: the entries of IndexFiles, by which messages are found by key, unique id and tag."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_files import StoreFolder, opened
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.tables.matching import chosen
from rocketbroker.analytics.tables.root_folder import root_folder
from rocketbroker.analytics.tables.table import BROKER, TIME, Rows, Table, TableOptions, constant, field, select_by
from rocketbroker.codec.storefile.index_file_layout import INDEX_HEADER_SIZE, INDEX_SIZE, decode_header
from rocketbroker.codec.storefile.index_image import IndexImage, read_entries
from rocketbroker.codec.storefile.store_file import StoreFile
from rocketbroker.common.errors import CodecError, StoreError

_FOLDER: Final = "index"
_AT_ONCE: Final = 1 << 18
# Attempts to read the newest file, and the pause between them: a broker may be writing it.
_TURNS: Final = 20
_TURN_SECONDS: Final = 0.05

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IndexPart:
    """Entries ``start`` to before ``stop`` of an index file.

    Attributes:
        store: the store.
        file: the file's name.
        slot_count: slots of the file.
        begin_timestamp: begin timestamp in the file's header, in ms.
        start: number of the first entry.
        stop: number after the last entry.
    """

    store: StoreRoot
    file: str
    slot_count: int
    begin_timestamp: int
    start: int
    stop: int


class IndexTable(Table):
    """One row per entry in use."""

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
        """Return the parts of each file; damage is logged and left out."""
        return [part for store in stores for part in _parts(root_folder(store), options)]

    def read(self, part: IndexPart, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a part in their order."""
        folder, path, start = root_folder(part.store), f"{_FOLDER}/{part.file}", part.start
        try:
            with opened(folder, path) as file:
                while start < part.stop and len(entries := _some(file, part, start)):
                    yield chosen(_rows(part, start, entries), self.selects, selection, schema)
                    start += len(entries)
        except StoreError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
        if start < part.stop:
            logger.warning("%s was cut or removed; entries from %d on are left out", folder.name_of(path), start)


def _some(file: StoreFile, part: IndexPart, start: int) -> NDArray[Any]:
    return read_entries(file, part.slot_count, start, min(start + _AT_ONCE, part.stop))


def damaged_index_files(store: StoreRoot, slot_count: int = 0) -> list[str]:
    """List the index files of ``store`` that cannot be read or were cut short, each with the reason.

    ``slot_count`` is ``maxHashSlotNum`` of the broker's settings, 0 to detect it in each file.
    """
    told = list[str]()
    for _ in _index_files(root_folder(store), slot_count, told.append):
        pass
    return told


def _parts(folder: StoreFolder, options: TableOptions) -> Iterator[IndexPart]:
    step = max(options.split_size // INDEX_SIZE, 1)
    for name, image in _index_files(folder, options.max_hash_slot_num, logger.warning):
        for start in range(1, image.used, step):
            stop = min(start + step, image.used)
            yield IndexPart(folder.root, name, image.slot_count, image.header.begin_timestamp, start, stop)


def _index_files(folder: StoreFolder, slot_count: int, tell: Callable[[str], None]) -> Iterator[tuple[str, IndexImage]]:
    """Yield the files with entries by name.

    Args:
        folder: the store.
        slot_count: slots of each file, 0 to detect it.
        tell: called with each fault.
    """
    # A damaged file that a broker moved aside has another kind of name.
    names = [name for name in folder.files(_FOLDER) if name.isascii() and name.isdigit()]
    newest = max(names, default="")
    for name in names:
        path = f"{_FOLDER}/{name}"
        try:
            image = _image(folder, path, slot_count, turns=_TURNS if name == newest else 1)
        except CodecError as error:
            tell(f"{folder.name_of(path)}: {error}; its entries are not read")
            continue
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                continue  # a broker has removed it
            raise
        if image is not None:
            lost = image.header.index_count - image.used
            if lost:
                tell(
                    f"{folder.name_of(path)}: the header counts {image.header.index_count - 1} entries, of which the "
                    f"{image.size} bytes of the file have {image.used - 1}; the others are left out"
                )
            yield name, image


def _image(folder: StoreFolder, path: str, slot_count: int, turns: int) -> IndexImage | None:
    """Open a file, with at most ``turns`` attempts; ``None`` if it has no entries.

    Raises:
        CodecError: it is not an index file, or its slots cannot be told from its entries.
        StoreError: it is gone or cannot be read.
    """
    header = decode_header(folder.read(path, 0, INDEX_HEADER_SIZE))
    for turn in range(turns) if header.index_count > 1 else ():
        try:
            return IndexImage(path, partial(opened, folder), slot_count)
        except CodecError as error:
            # A broker writes slots before the header that counts their entries: read again if one may be writing.
            if turn + 1 == turns or folder.read_if_there("abort") is None:
                raise CodecError(
                    f"{error}; the option maxHashSlotNum, with the number of the broker's settings, says how many "
                    "slots a sound file has"
                ) from error
        time.sleep(_TURN_SECONDS)
    return None


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
