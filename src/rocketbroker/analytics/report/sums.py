"""Grouped sums over many batches, in bounded memory."""

from collections.abc import Mapping
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

# Rows are grouped with the others once at least this many, and as many as there are groups, are pending.
_PENDING: Final = 200_000

How = Literal["sum", "min", "max"]


class GroupedSums:
    """Adds tables up by their columns ``by``.

    Args:
        schema: schema of the result, the columns of ``by`` first.
        how: aggregation of each other column.
    """

    def __init__(self, schema: pa.Schema, how: Mapping[str, How]) -> None:
        self._schema = schema
        self._how = how
        self._by = [name for name in schema.names if name not in how]
        self._parts: list[pa.Table] = []
        self._pending = 0
        self._groups = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows; columns as in the schema, in any order."""
        if rows.num_rows:
            grouped = self._grouped(rows)
            self._parts.append(grouped)
            self._pending += grouped.num_rows
        if self._pending > max(_PENDING, self._groups):
            self._compact()

    def result(self) -> pa.Table:
        """Return the sums of all that was added, sorted by the columns of ``by``."""
        self._compact()
        return self._parts[0].sort_by([(name, "ascending") for name in self._by])

    def rows(self) -> int:
        """Count the groups."""
        self._compact()
        return int(self._parts[0].num_rows)

    def keep(self, mask: pa.Array) -> None:
        """Drop the groups, in the order of ``peek``, for which ``mask`` is false."""
        self._parts = [self._parts[0].filter(mask)]
        self._groups = self._parts[0].num_rows

    def peek(self) -> pa.Table:
        """Return the sums so far, unsorted."""
        self._compact()
        return self._parts[0]

    def _compact(self) -> None:
        whole = pa.concat_tables(self._parts) if self._parts else self._schema.empty_table()
        self._parts = [self._grouped(whole) if len(self._parts) != 1 else whole]
        self._pending, self._groups = 0, self._parts[0].num_rows

    def _grouped(self, rows: pa.Table) -> pa.Table:
        grouped = rows.group_by(self._by).aggregate([(name, how) for name, how in self._how.items()])
        renamed = [
            grouped.column(f"{name}_{self._how[name]}" if name in self._how else name) for name in self._schema.names
        ]
        return pa.table(renamed, names=self._schema.names).cast(self._schema)


class TopKeys:
    """Counts of the most frequent of any number of keys, in bounded memory.

    Args:
        schema: schema of the result, whose last column is the count ``messages``.
        most: most keys to keep; above it the rarest are dropped, and ``missed`` bounds the error.
    """

    def __init__(self, schema: pa.Schema, most: int) -> None:
        self._sums = GroupedSums(schema, {"messages": "sum"})
        self._most = most
        self._added = 0
        #: Most messages by which the count of any key may be too low.
        self.missed = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows; columns as in the schema."""
        self._sums.add(rows)
        self._added += rows.num_rows
        if self._added > self._most and self._sums.rows() > self._most:
            counts = self._sums.peek().column("messages")
            # A key dropped now may have been dropped before: its losses add up.
            limit = pc.quantile(counts, 0.5, interpolation="higher")[0].as_py()
            self._sums.keep(pc.greater(counts, limit))
            self.missed += limit
            self._added = self._sums.rows()

    def result(self, most: int) -> pa.Table:
        """Return the ``most`` most frequent keys, those with the highest counts first."""
        found = self._sums.result()
        return found.sort_by([("messages", "descending"), *((name, "ascending") for name in found.column_names[:-1])])[
            :most
        ]
