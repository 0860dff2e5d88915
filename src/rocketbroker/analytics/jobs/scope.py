"""The tables of some stores as jobs are given them: only what is selected, only the columns that are needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.spark.rocketmq_store import FORMAT
from rocketbroker.analytics.spark.source_options import encode_selection, encode_stores
from rocketbroker.analytics.tables.table import table_schema
from rocketbroker.analytics.tables.table_list import DEFAULT_TABLE, find_table


class NotRead(NamedTuple):
    """Parts of commit logs that could not be read: no sound record, a missing file, or an unfinished end."""

    ranges: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Scope:
    """Stores and selection of a job; times in its tables are ms since 1970.

    Attributes:
        spark: the session.
        stores: the stores.
        selection: of their messages; brokers, topics and times are regarded.
    """

    spark: SparkSession
    stores: tuple[StoreRoot, ...]
    selection: Selection

    def messages(self, columns: Sequence[str] | None = None) -> DataFrame:
        """Return the selected messages with ``columns``, all of ``MESSAGE_SCHEMA`` if None."""
        return self.table(DEFAULT_TABLE, columns, selection=encode_selection(self.selection))

    def table(self, name: str, columns: Sequence[str] | None = None, **options: str) -> DataFrame:
        """Another table of the stores, whole but for what ``options`` of the format say."""
        fields = table_schema(find_table(name), columns)
        schema = pa.schema([pa.field(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in fields])
        reader = self.spark.read.format(FORMAT).schema(from_arrow_schema(schema)).option("table", name)
        return reader.options(stores=encode_stores(self.stores), **options).load()

    def not_read(self) -> NotRead:
        """Count what could not be read in the selected times, of whatever topic it was."""
        times = Selection(
            since_ms=self.selection.since_ms,
            until_ms=self.selection.until_ms,
            brokers=self.selection.brokers,
            exact=self.selection.exact,
        )
        ranges = self.table("corrupt_ranges", ["length"], selection=encode_selection(times))
        (row,) = ranges.agg(F.count(F.lit(1)), F.coalesce(F.sum("length"), F.lit(0))).collect()
        return NotRead(*row)


def selected(messages: DataFrame, selection: Selection) -> DataFrame:
    """Return the messages of a selection by brokers, topics and times, of any data frame; ``store_timestamp`` in ms."""
    for condition in _conditions(selection):
        messages = messages.where(condition)
    return messages


def _conditions(selection: Selection) -> list[Column]:
    stored = F.col("store_timestamp")
    found: list[Column] = []
    if selection.since_ms is not None:
        found.append(stored >= selection.since_ms)
    if selection.until_ms is not None:
        found.append(stored < selection.until_ms)
    for name, values in (("broker", selection.brokers), ("topic", selection.topics)):
        if values is not None:
            found.append(F.col(name).isin(*sorted(values)))
    return found
