"""Rows of a table as a test compares them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.store_names import Stores, store_roots
from rocketbroker.analytics.tables.table import TableOptions, check_selection, chosen_stores
from rocketbroker.analytics.tables.table_reader import find_table


def in_ms(name: str, columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the schema of a table with times as they are stored, in ms."""
    fields = [each for each in find_table(name).schema if columns is None or each.name in columns]
    return pa.schema([(each.name, pa.int64() if pa.types.is_timestamp(each.type) else each.type) for each in fields])


def table_rows(
    stores: Stores,
    name: str,
    selection: Selection = EVERYTHING,
    options: TableOptions = TableOptions(),  # noqa: B008 - frozen
) -> list[dict[str, Any]]:
    """Return all rows, part by part, with times in ms, and maps as dicts."""
    table, schema = find_table(name), in_ms(name)
    check_selection(table, selection)
    parts = table.plan(chosen_stores(store_roots(stores), selection), selection, options)
    batches = [batch for part in parts for batch in table.read(part, schema, selection)]
    assert all(batch.schema.equals(schema) for batch in batches)
    maps = [each.name for each in schema if pa.types.is_map(each.type)]
    rows = pa.Table.from_batches(batches, schema).to_pylist()
    return [row | {each: dict(row[each]) for each in maps if row[each] is not None} for row in rows]


def named(root: Path) -> str:
    """Return a store by the name of broker-a."""
    return f"broker-a={root}"
