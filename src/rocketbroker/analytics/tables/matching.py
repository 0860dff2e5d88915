"""Rows of a table that a ``Selection`` chooses, where the table has the columns for it."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.tables.table import Rows, Table
from rocketbroker.common.errors import ConfigError

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
