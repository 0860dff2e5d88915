"""Tables of stores for a job: the selected rows and the columns it needs, with times as timestamps or ms since 1970."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's conventional name
from pyspark.sql.types import LongType

from rocketbroker.analytics.columns.decode_report import NotRead
from rocketbroker.analytics.columns.message_schema import FIRST_MS, LAST_MS
from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.spark.rocketmq_store import load, with_times_in_ms
from rocketbroker.analytics.spark.source_options import FactRows, encode_selection
from rocketbroker.analytics.spark.spark_progress import described
from rocketbroker.analytics.sql.facts import Fact
from rocketbroker.analytics.tables.table import table_schema
from rocketbroker.analytics.tables.table_reader import DEFAULT_TABLE, find_table


def millis(frame: DataFrame, name: str) -> Column:
    """Return the column ``name``, a timestamp or a number, in ms since 1970."""
    is_number = isinstance(frame.schema[name].dataType, LongType)
    return F.col(name) if is_number else F.unix_millis(name)


def as_time(time_ms: Column) -> Column:
    """Return the milliseconds since 1970 as a timestamp, null outside the years 1 to 9999."""
    return F.when(time_ms.between(FIRST_MS, LAST_MS), F.timestamp_millis(time_ms))


def _after(physical_offset: int | None) -> Selection:
    # A bound above every int64 leaves the range open.
    return EVERYTHING if physical_offset is None else Selection(physical_offsets=(physical_offset + 1, 1 << 63))


@dataclass(frozen=True, slots=True)
class Scope:
    """Stores and selection of a job, by brokers, topics and times; times in its tables are ms since 1970."""

    spark: SparkSession
    stores: tuple[StoreRoot, ...]
    selection: Selection

    def messages(self, columns: Sequence[str] | None = None) -> DataFrame:
        """Return the selected messages with ``columns``, all of ``MESSAGE_SCHEMA`` if None."""
        return self.table(DEFAULT_TABLE, columns, selection=encode_selection(self.selection))

    def messages_beyond(self, ends: Mapping[str, int]) -> DataFrame:
        """Return the selected messages after the physical offset of each broker in ``ends``, without reading others."""
        parts = [
            replace(self, stores=(store,), selection=self.selection.and_(_after(ends.get(store.broker))))
            for store in self.stores
        ]
        return functools.reduce(DataFrame.union, (part.messages() for part in parts))

    def table(self, name: str, columns: Sequence[str] | None = None, **options: str) -> DataFrame:
        """Return a whole table of the stores, unless ``options`` of the format restrict it."""
        schema = with_times_in_ms(table_schema(find_table(name), columns))
        return load(self.spark, self.stores, name, schema, **options)

    def fact_rows(self, fact: Fact, columns: Sequence[str], **options: int) -> DataFrame:
        """Return the rows of ``fact`` from ``columns`` of the selected messages, grouped by batch where it is read.

        Messages then do not become rows of Spark, which costs more than to decode them.
        """
        asked = FactRows(fact.name, tuple(columns), options)
        given = {"selection": encode_selection(self.selection), "fact": asked.encode()}
        return load(self.spark, self.stores, DEFAULT_TABLE, fact.schema, **given)

    def not_read(self) -> NotRead:
        """Count the unreadable parts in the selected times; their topics are unknown."""
        ranges = self.table("corrupt_ranges", ["length"], selection=encode_selection(self.selection.times))
        with described(self.spark, "Look for unreadable ranges of the log"):
            (row,) = ranges.agg(F.count(F.lit(1)), F.coalesce(F.sum("length"), F.lit(0))).collect()
        return NotRead(*row)


def selected(messages: DataFrame, selection: Selection) -> DataFrame:
    """Select messages of any data frame by brokers, topics and times; ``store_timestamp`` is in ms."""
    stored = F.col("store_timestamp")
    if selection.since_ms is not None:
        messages = messages.where(stored >= selection.since_ms)
    if selection.until_ms is not None:
        messages = messages.where(stored < selection.until_ms)
    for name, values in (("broker", selection.brokers), ("topic", selection.topics)):
        if values is not None:
            messages = messages.where(F.col(name).isin(*sorted(values)))
    return messages
