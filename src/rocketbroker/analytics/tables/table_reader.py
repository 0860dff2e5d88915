"""All tables by name, and a reader of any of them without Spark."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from rocketbroker.analytics.columns.message_schema import known_names, rename_columns
from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.store_names import Stores, store_roots
from rocketbroker.analytics.tables.config_tables import ConsumerOffsetsTable, SubscriptionGroupsTable, TopicsTable
from rocketbroker.analytics.tables.consume_queue import ConsumeQueueTable
from rocketbroker.analytics.tables.dead_letters import DeadLettersTable
from rocketbroker.analytics.tables.delayed import DelayedTable
from rocketbroker.analytics.tables.index import IndexTable
from rocketbroker.analytics.tables.log_tables import CorruptRangesTable, MessagesTable
from rocketbroker.analytics.tables.table import Table, TableOptions, check_selection, chosen_stores, table_schema
from rocketbroker.common.errors import ConfigError

# One split per file: a walk from a file's start never has to search for the start of a record.
_WHOLE_FILES: Final = TableOptions(split_size=1 << 62)
#: Default table.
DEFAULT_TABLE: Final = MessagesTable.name

TABLES: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        MessagesTable(),
        ConsumeQueueTable(),
        IndexTable(),
        TopicsTable(),
        SubscriptionGroupsTable(),
        ConsumerOffsetsTable(),
        DelayedTable(),
        DeadLettersTable(),
        CorruptRangesTable(),
    )
}


def find_table(name: str) -> Table:
    """Return the table called ``name``; raise :class:`ConfigError` if it is unknown."""
    if name not in TABLES:
        raise ConfigError(f"table {name!r} is unknown; use one of {', '.join(TABLES)}")
    return TABLES[name]


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
    known = known_names(schema)
    return (rename_columns(batch, schema) for part in parts for batch in table.read(part, known, selection))
