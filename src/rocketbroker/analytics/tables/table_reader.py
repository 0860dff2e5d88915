"""Reader of any table without Spark."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.store_root import Stores, store_roots
from rocketbroker.analytics.tables.matching import check_selection, chosen_stores
from rocketbroker.analytics.tables.table import TableOptions, table_schema
from rocketbroker.analytics.tables.table_list import DEFAULT_TABLE, find_table

# One split per file: a walk from a file's start never has to search for the start of a record.
_WHOLE_FILES: Final = TableOptions(split_size=1 << 62)


def read_table(
    stores: Stores,
    name: str = DEFAULT_TABLE,
    columns: Sequence[str] | None = None,
    selection: Selection = EVERYTHING,
    options: TableOptions = _WHOLE_FILES,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of the table ``name``, store by store, as batches with ``columns``, all if None.

    A broker may be writing to the stores: rows present at the time of the call are returned. Damage is logged and left
    out.

    Raises:
        ConfigError: the table or a column is unknown, or the table does not support ``selection``.
        StoreError: a place is not a store, or a file cannot be read; the latter may be raised during iteration.
    """
    table = find_table(name)
    schema = table_schema(table, columns)
    check_selection(table, selection)
    parts = table.plan(chosen_stores(store_roots(stores), selection), selection, options)
    return (batch for part in parts for batch in table.read(part, schema, selection))
