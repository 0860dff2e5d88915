"""Table of stores: a schema, parts that are read independently, and batches of the selected rows."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.columns.arrow_columns import number_array
from rocketbroker.analytics.columns.message_schema import FIRST_MS, LAST_MS, field, select_fields
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_files import StoreFolder, open_folder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.queue_proof import has_all_queues
from rocketbroker.analytics.log.split import SPLIT_SIZE
from rocketbroker.common.errors import ConfigError, StoreError


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Settings for reading tables."""

    split_size: int = SPLIT_SIZE  # approximate bytes of the stores' files in one part
    max_hash_slot_num: int = 0  # slots of an index file (``maxHashSlotNum``); 0 detects them in each file
    check_crc: bool = False  # true to include messages with a wrong checksum in ``corrupt_ranges``


class Table(ABC):
    """A table, whose first column is ``broker``.

    Attributes:
        name: its name for users.
        comment: the meaning of a row.
        schema: name, type and order of its columns; each field's metadata has a ``comment``.
        selects: criteria besides the broker: columns of ``Selection.columns``, with the table's own column for each.
            ``corrupt_ranges`` has none for the time: planning selects by it.
    """

    name: ClassVar[str]
    comment: ClassVar[str]
    schema: ClassVar[pa.Schema]
    selects: ClassVar[Mapping[str, str]]

    @property
    def fields(self) -> Mapping[str, pa.Field]:
        """All columns by name, including those that exist only on request."""
        return {column.name: column for column in self.schema}

    @abstractmethod
    def plan(self, stores: Sequence[StoreRoot], selection: Selection, options: TableOptions) -> list[Any]:
        """Return picklable parts that together contain the current rows of ``stores``, and possibly others.

        Raises:
            StoreError: a place is not a store, or cannot be read.
        """

    @abstractmethod
    def read(self, part: Any, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Return the rows of a part that ``selection`` chooses, with the columns and types of ``schema``.

        Raises:
            StoreError: a file is gone, or cannot be read.
        """


def select_by(*columns: str, **renamed: str) -> Mapping[str, str]:
    """Return ``Table.selects`` for columns named as in ``messages``, and for renamed ones."""
    return {**{column: column for column in columns}, **renamed}


BROKER: Final = field("broker", pa.string(), "name given to the store, else the name of its folder")


class Rows:
    """Rows by column; a column is made on first use.

    Args:
        count: number of rows.
        columns: an array, a list, one value for all rows, or a function that returns one of these. Times
            (``*_timestamp``) are int64, ms since 1970.
    """

    def __init__(self, count: int, columns: Mapping[str, Any]) -> None:
        self.count = count
        self._columns = columns
        self._made: dict[str, pa.Array] = {}

    def column(self, name: str) -> pa.Array:
        """Return a column in its original type."""
        if name not in self._made:
            self._made[name] = self._array(self._columns[name])
        return self._made[name]

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the columns and types of ``schema``."""
        return pa.RecordBatch.from_arrays([_typed(self.column(each.name), each) for each in schema], schema=schema)

    def _array(self, values: Any) -> pa.Array:
        if callable(values):
            return self._array(values())
        if isinstance(values, pa.Array):
            return values
        if isinstance(values, np.ndarray):
            return number_array(values)
        return pa.array(values) if isinstance(values, list) else pa.repeat(values, self.count)


def _typed(values: pa.Array, wanted: pa.Field) -> pa.Array:
    """Return values in the requested type; a timestamp is null outside the years 1 to 9999."""
    if wanted.name.endswith("_timestamp") and pa.types.is_timestamp(wanted.type):
        shown = pc.and_(pc.greater_equal(values, FIRST_MS), pc.less_equal(values, LAST_MS))
        values = pc.multiply(pc.if_else(shown, values, None), 1000)
    return values if values.type == wanted.type else values.cast(wanted.type)


def table_schema(table: Table, columns: Sequence[str] | None) -> pa.Schema:
    """Return ``columns`` of ``table`` in their order, all if None, as readers return them (``select_fields``)."""
    return select_fields(columns, table.name, table.fields, table.schema)


def check_table_schema(table: Table, schema: pa.Schema) -> None:
    """Raise :class:`ConfigError` if a column is unknown, repeated or not available in the requested type."""
    check_columns(table.name, table.fields, schema)


def check_columns(table: str, fields: Mapping[str, pa.Field], schema: pa.Schema) -> None:
    """Raise :class:`ConfigError` as ``check_table_schema`` for a table with these columns."""
    select_fields(schema.names, table, fields)
    for each in schema:
        allowed = allowed_types(fields[each.name.lower()])
        if each.type not in allowed:
            wanted = " or ".join(map(str, allowed))
            raise ConfigError(f"column {each.name} of {table} has type {wanted}, not {each.type}")


def allowed_types(column: pa.Field) -> list[pa.DataType]:
    """Return the types in which a column is available: times also as stored, in ms since 1970."""
    return [column.type, pa.int64()] if pa.types.is_timestamp(column.type) else [column.type]


# Readable names of the columns that a selection depends on.
_MEANINGS: Final = {"store_timestamp": "time", "queue_id": "queue", "tags": "tag", "keys": "key", "uniq_key": "key"}


def check_selection(table: Table, selection: Selection) -> None:
    """Raise :class:`ConfigError` if a table does not support a selection: it would return unselected rows."""
    possible = {"broker", *table.selects}
    for column in selection.columns:
        if column not in possible:
            named = ", ".join(dict.fromkeys(_meaning(each) for each in sorted(possible)))
            raise ConfigError(f"table {table.name} does not support selection by {_meaning(column)}, only by {named}")


def _meaning(column: str) -> str:
    return _MEANINGS.get(column, column.replace("_", " "))


def chosen_stores(stores: Sequence[StoreRoot], selection: Selection) -> list[StoreRoot]:
    """Return the stores of the selected brokers."""
    return [store for store in stores if selection.brokers is None or store.broker in selection.brokers]


def chosen(rows: Rows, selects: Mapping[str, str], selection: Selection, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows that ``selection`` chooses, with the columns of ``schema``; ``selects`` is that of ``Table``."""
    batch = rows.batch(schema)
    if not selection.columns:
        return batch
    columns = {name: rows.column(selects.get(name, name)) for name in selection.columns}
    return batch.filter(selection.arrow_mask(pa.RecordBatch.from_pydict(columns)))


# A folder with one of these is a store's root.
_PARTS: Final = ("commitlog", "consumequeue", "config", "index")

logger = logging.getLogger(__name__)


def root_folder(root: StoreRoot) -> StoreFolder:
    """Return the folder of a store's root; raise :class:`StoreError` if it is not one."""
    folder = open_folder(root)
    if not any(folder.is_folder(part) for part in _PARTS):
        raise StoreError(
            f"{root.shown} is not the root of a RocketMQ store: it contains none of {', '.join(_PARTS)}; only the "
            "tables messages and corrupt_ranges can be read from a commit-log directory alone"
        )
    return folder


def queues_folder(root: StoreRoot, table: str) -> StoreFolder:
    """Return the folder for ``table``, which is read through queues; warn if entries may be missing."""
    folder = root_folder(root)
    if not has_all_queues(folder):
        logger.warning(
            "%s was not stopped cleanly: %s lacks messages whose queue entries did not reach the disk; "
            "select their topics in the table messages to find them",
            root.shown,
            table,
        )
    return folder
