"""Table of stores: a schema, parts that are read independently, and batches of rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.columns.shown_times import FIRST_MS, LAST_MS
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.split import SPLIT_SIZE
from rocketbroker.common.errors import ConfigError

TIME: Final = pa.timestamp("us", tz="UTC")
TEXTS: Final = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Settings for reading tables.

    Attributes:
        split_size: bytes of the stores' files that one part covers, approximately.
        max_hash_slot_num: slots of an index file (``maxHashSlotNum``); 0 detects them in each file.
        check_crc: true if ``corrupt_ranges`` includes messages whose body does not match its checksum.
    """

    split_size: int = SPLIT_SIZE
    max_hash_slot_num: int = 0
    check_crc: bool = False


class Table(ABC):
    """A table, whose first column is ``broker``.

    Attributes:
        name: what users call it.
        comment: what a row is.
        schema: name, type and order of its columns; each field's metadata has a ``comment``.
        selects: criteria besides the broker: columns of ``Selection.columns``, with the table's own column for each, if
            it has one: ``corrupt_ranges`` are selected by time when they are planned.
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


def field(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    """Return a column with its meaning as metadata."""
    return pa.field(name, kind, metadata={"comment": comment})


def select_by(*columns: str, **renamed: str) -> Mapping[str, str]:
    """Return ``Table.selects`` for columns named as in ``messages``, and for renamed ones."""
    return {**{column: column for column in columns}, **renamed}


BROKER: Final = field("broker", pa.string(), "name given to the store, or that of its folder")


class Rows:
    """Rows by column; a column is made on first use.

    Args:
        count: number of rows.
        columns: makers of the columns; times (``*_timestamp``) as int64, ms since 1970.
    """

    def __init__(self, count: int, columns: Mapping[str, Callable[[], pa.Array]]) -> None:
        self.count = count
        self._columns = columns
        self._made: dict[str, pa.Array] = {}

    def column(self, name: str) -> pa.Array:
        """Return a column as it was made."""
        if name not in self._made:
            self._made[name] = self._columns[name]()
        return self._made[name]

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the columns and types of ``schema``."""
        return pa.RecordBatch.from_arrays([_typed(self.column(each.name), each) for each in schema], schema=schema)


def constant(value: Any, kind: pa.DataType, count: int) -> Callable[[], pa.Array]:
    """Return a maker of a column with the same value in each row."""
    return lambda: pa.repeat(pa.scalar(value, kind), count)


def _typed(values: pa.Array, wanted: pa.Field) -> pa.Array:
    if wanted.name.endswith("_timestamp") and pa.types.is_timestamp(wanted.type):
        return timestamps(values, wanted.type)
    return values if values.type == wanted.type else values.cast(wanted.type)


def timestamps(millis: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the times in ms since 1970 as timestamps, null outside the years 1 to 9999."""
    shown = pc.and_(pc.greater_equal(millis, FIRST_MS), pc.less_equal(millis, LAST_MS))
    return pc.multiply(pc.if_else(shown, millis, None), 1000).cast(kind)


def table_schema(table: Table, columns: Sequence[str] | None) -> pa.Schema:
    """Return ``columns`` of ``table`` in their order, all if None, without metadata, as readers return them.

    Raises:
        ConfigError: a column is unknown or repeated.
    """
    names = table.schema.names if columns is None else list(columns)
    _check_names(table, names)
    return pa.schema([table.fields[name].remove_metadata() for name in names])


def check_table_schema(table: Table, schema: pa.Schema) -> None:
    """Check a requested schema against the table's.

    Raises:
        ConfigError: a column is unknown or repeated, or not available in the requested type.
    """
    _check_names(table, schema.names)
    for each in schema:
        allowed = allowed_types(table.fields[each.name])
        if each.type not in allowed:
            wanted = " or ".join(map(str, allowed))
            raise ConfigError(f"column {each.name} of {table.name} is of type {wanted}, not {each.type}")


def allowed_types(column: pa.Field) -> list[pa.DataType]:
    """Return the types in which a column is available: times also as stored, in ms since 1970."""
    return [column.type, pa.int64()] if pa.types.is_timestamp(column.type) else [column.type]


def _check_names(table: Table, names: Sequence[str]) -> None:
    for name in names:
        if name not in table.fields:
            raise ConfigError(f"{table.name} have no column {name!r}; there are {', '.join(table.fields)}")
    if len(set(names)) != len(names):
        raise ConfigError(f"a column is named twice in {', '.join(names)}")
