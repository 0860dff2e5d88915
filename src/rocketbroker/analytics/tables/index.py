"""The table ``index``: entries of IndexFiles, which find messages by key, unique id and tag."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketbroker.analytics.columns.message_schema import TIME, field, message_fields
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_files import StoreFolder, opened
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.tables.table import BROKER, Rows, Table, TableOptions, chosen, root_folder, select_by
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
    """Entries ``start`` to before ``stop`` of an index file; ``begin_timestamp`` is that of its header, in ms."""

    store: StoreRoot
    file: str
    slot_count: int
    begin_timestamp: int
    start: int
    stop: int


class IndexTable(Table):
    """One row per entry in use."""

    name = "index"
    comment = "an entry of an IndexFile: the hash of a key, unique id or tag, and its message"
    schema = pa.schema(
        [
            BROKER,
            field("file", pa.string(), "name of the index file"),
            field("entry", pa.int32(), "number of the entry in the file, starting at 1"),
            field("key_hash", pa.int32(), "hash of topic#key, topic#unique id or topic#T#tag"),
            *message_fields("physical_offset"),
            field("store_timestamp", TIME, "when the message was stored, in whole seconds after the file's start"),
            field("previous_entry", pa.int32(), "number of the previous entry in the same slot, 0 for the first"),
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
                while start < part.stop and len(entries := _read(file, part, start)):
                    yield chosen(_rows(part, start, entries), self.selects, selection, schema)
                    start += len(entries)
        except StoreError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
        if start < part.stop:
            logger.warning("%s was truncated or removed; entries from %d on are left out", folder.name_of(path), start)


def _read(file: StoreFile, part: IndexPart, start: int) -> NDArray[Any]:
    return read_entries(file, part.slot_count, start, min(start + _AT_ONCE, part.stop))


def _parts(folder: StoreFolder, options: TableOptions) -> Iterator[IndexPart]:
    step = max(options.split_size // INDEX_SIZE, 1)
    for name, image in _index_files(folder, options.max_hash_slot_num):
        for start in range(1, image.used, step):
            stop = min(start + step, image.used)
            yield IndexPart(folder.root, name, image.slot_count, image.header.begin_timestamp, start, stop)


def _index_files(folder: StoreFolder, slot_count: int) -> Iterator[tuple[str, IndexImage]]:
    """Yield the files with entries by name, and log each fault; a ``slot_count`` of 0 detects it."""
    # A damaged file that a broker moved aside has another kind of name.
    names = [name for name in folder.files(_FOLDER) if name.isascii() and name.isdigit()]
    newest = max(names, default="")
    for name in names:
        path = f"{_FOLDER}/{name}"
        try:
            image = _image(folder, path, slot_count, turns=_TURNS if name == newest else 1)
        except CodecError as error:
            logger.warning("%s: %s; its entries are not read", folder.name_of(path), error)
            continue
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                continue  # a broker has removed it
            raise
        if image is not None:
            lost = image.header.index_count - image.used
            if lost:
                logger.warning(
                    "%s: the header counts %d entries, but the file of %d bytes has %d; the others are left out",
                    folder.name_of(path),
                    image.header.index_count - 1,
                    image.size,
                    image.used - 1,
                )
            yield name, image


def _image(folder: StoreFolder, path: str, slot_count: int, turns: int) -> IndexImage | None:
    """Open a file, with at most ``turns`` attempts; ``None`` if it has no entries.

    Raises:
        CodecError: it is not an index file, or its number of slots is unknown.
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
                    f"{error}; if the file is sound, set the option maxHashSlotNum to the broker's maxHashSlotNum"
                ) from error
        time.sleep(_TURN_SECONDS)
    return None


def _rows(part: IndexPart, start: int, entries: NDArray[Any]) -> Rows:
    columns = {
        "broker": part.store.broker,
        "file": part.file,
        "entry": np.arange(start, start + len(entries), dtype=np.int32),
        "key_hash": entries["key_hash"],
        "physical_offset": entries["phy_offset"],
        "store_timestamp": lambda: part.begin_timestamp + entries["time_diff"].astype(np.int64) * 1000,
        "previous_entry": entries["previous"],
    }
    return Rows(len(entries), columns)
