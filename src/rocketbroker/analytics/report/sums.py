"""Grouped sums over many batches, in bounded memory."""

from collections.abc import Mapping
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

# Rows are grouped with the others once at least this many, and as many as there are groups, are pending.
_PENDING: Final = 200_000

How = Literal["sum", "min", "max"]


class GroupedSums:
    """Aggregates of tables, grouped by the columns of ``schema`` that ``how`` does not aggregate."""

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
        """Return the aggregates, sorted by group."""
        return self.peek().sort_by([(name, "ascending") for name in self._by])

    def keep(self, mask: pa.Array) -> None:
        """Drop the groups, in the order of ``peek``, for which ``mask`` is false."""
        self._parts = [self._parts[0].filter(mask)]
        self._groups = self._parts[0].num_rows

    def peek(self) -> pa.Table:
        """Return the aggregates so far, unsorted."""
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
    """Counts of the most frequent keys, in bounded memory; above ``most`` keys the rarest are dropped."""

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
        if self._added > self._most and (found := self._sums.peek()).num_rows > self._most:
            counts = found.column("messages")
            # A key dropped now may have been dropped before: its losses add up.
            limit = pc.quantile(counts, 0.5, interpolation="higher")[0].as_py()
            self._sums.keep(pc.greater(counts, limit))
            self.missed += limit
            self._added = self._sums.peek().num_rows

    def result(self, most: int) -> pa.Table:
        """Return the ``most`` most frequent keys, those with the highest counts first."""
        found = self._sums.peek()
        order = [("messages", "descending"), *((name, "ascending") for name in found.column_names[:-1])]
        return found.sort_by(order)[:most]
