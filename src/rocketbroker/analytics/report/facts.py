"""Small tables that a report is made from, aggregates of messages or of a broker's state."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.sql.facts import GroupedSums

_TEXT: Final = pa.string()
_INT: Final = pa.int64()

#: Stored messages and their bytes by topic and minute; ``from_ms`` is its start, ms since 1970.
TRAFFIC: Final = pa.schema([("topic", _TEXT), ("from_ms", _INT), ("messages", _INT), ("bytes", _INT)])
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
