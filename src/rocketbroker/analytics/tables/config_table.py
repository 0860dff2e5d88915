"""Base class of tables from a file of ``config/``: one part per store, few rows."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.tables.matching import chosen
from rocketbroker.analytics.tables.root_folder import root_folder
from rocketbroker.analytics.tables.table import Rows, Table, TableOptions


class ConfigTable(Table):
    """A table whose rows are in a file of ``config/``."""

    def plan(self, stores: Sequence[StoreRoot], selection: Selection, options: TableOptions) -> list[StoreRoot]:
        """Return the stores."""
        for store in stores:
            root_folder(store)  # reports a place that is not a store at once
        return list(stores)

    def read(self, part: StoreRoot, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a store in one batch.

        Raises:
            StoreError: neither the file nor its backup can be read.
        """
        listed = [{"broker": part.broker, **row} for row in self.rows(root_folder(part))]
        makers = {column.name: partial(_column, listed, column) for column in self.schema}
        if listed:
            yield chosen(Rows(len(listed), makers), self.selects, selection, schema)

    @abstractmethod
    def rows(self, folder: StoreFolder) -> Iterator[Mapping[str, Any]]:
        """Return the rows of a store by column, without ``broker``; a missing column is null."""


def _column(rows: list[dict[str, Any]], column: pa.Field) -> pa.Array:
    return pa.array([row.get(column.name) for row in rows], column.type)
