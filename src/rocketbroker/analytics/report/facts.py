"""Small tables that a report is made from, aggregates of messages or of a broker's state, summed in bounded memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

_TEXT: Final = pa.string()
_INT: Final = pa.int64()

#: Stored messages and their bytes by topic and minute; ``minute_ms`` is its start, ms since 1970.
TRAFFIC: Final = pa.schema([("topic", _TEXT), ("minute_ms", _INT), ("messages", _INT), ("bytes", _INT)])
#: Messages by topic and class of size (``value_classes``), with the class's total and greatest size in bytes.
SIZES: Final = pa.schema([("topic", _TEXT), ("size_class", _INT), ("messages", _INT), ("total", _INT), ("most", _INT)])
#: Messages by topic and key.
KEYS: Final = pa.schema([("topic", _TEXT), ("key", _TEXT), ("messages", _INT)])
#: Messages by queue, and the queue offset after its last message.
QUEUES: Final = pa.schema(
    [("broker", _TEXT), ("topic", _TEXT), ("queue_id", _INT), ("messages", _INT), ("bytes", _INT), ("end", _INT)]
)
#: Messages, except retries and dead letters, by topic and class of the ms from born to stored; class -1 means that
#: the producer's clock was ahead.
DELAYS: Final = pa.schema([("topic", _TEXT), ("delay_class", _INT), ("messages", _INT), ("most", _INT)])
#: Messages sent back by consumers, by group, attempt and class of the ms from born to stored again.
RETRIES: Final = pa.schema(
    [("group", _TEXT), ("attempt", _INT), ("delay_class", _INT), ("messages", _INT), ("most", _INT)]
)
#: Dead letters by group and original topic, with the store times of the first and the last.
DEAD_LETTERS: Final = pa.schema(
    [("group", _TEXT), ("origin", _TEXT), ("messages", _INT), ("first_ms", _INT), ("last_ms", _INT)]
)
#: Lag of groups: committed offset, end and their difference by queue.
LAG: Final = pa.schema(
    dict.fromkeys(("broker", "group", "topic"), _TEXT) | dict.fromkeys(("queue_id", "committed", "end", "lag"), _INT)
)
#: Ranges of the log without a readable message, or with an invalid body.
CORRUPT: Final = pa.schema(
    [("broker", _TEXT), ("path", _TEXT), ("position", _INT), ("length", _INT), ("reason", _TEXT)]
)


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The aggregates of one report; each table has the schema of the constant of its name."""

    stores: tuple[tuple[str, str], ...]  # broker and place of each store, for display
    asked: str  # the selection in words; empty for everything
    first_ms: int | None  # store time of the first message
    last_ms: int | None  # store time of the last message
    keys_missed: int  # upper bound of the messages missing in the count of any key
    traffic: pa.Table
    sizes: pa.Table
    keys: pa.Table
    queues: pa.Table
    delays: pa.Table
    retries: pa.Table
    dead_letters: pa.Table
    lag: pa.Table
    corrupt: pa.Table


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
