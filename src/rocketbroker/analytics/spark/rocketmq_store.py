"""The PySpark data source ``rocketmq_store``: tables of stores, which brokers may be using.

spark.read.format("rocketmq_store").load(store_dir)
spark.read.format("rocketmq_store").schema("topic string, queue_id int").load(store_dir)   # decodes these two only
spark.read.format("rocketmq_store").option("table", "topics").load("a=/data/a,b=/data/b")
spark.readStream.format("rocketmq_store").load(store_dir)
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from rocketbroker.analytics.spark.filter_pushdown import push_filters
from rocketbroker.analytics.spark.source_options import SourceOptions, source_options, table_of
from rocketbroker.analytics.spark.spark_worker import ShortErrors, settle
from rocketbroker.analytics.tables.matching import check_selection, chosen_stores
from rocketbroker.analytics.tables.table import check_table_schema

if TYPE_CHECKING:
    from rocketbroker.analytics.spark.stream_reader import MessageStreamReader

FORMAT: Final = "rocketmq_store"
#: Without it Spark rejects a source that can apply filters itself; it is off by default.
PUSHDOWN_SETTING: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Register the format with ``spark``, and enable filter pushdown.

    This is necessary if Spark's Python does not find ``pyspark_rocketbroker``, and for the option ``filterPushdown``.
    It also saves the second that PySpark takes to search for formats.
    """
    spark.conf.set(PUSHDOWN_SETTING, "true")
    spark.dataSource.register(RocketMQStore)


class RocketMQStore(DataSource):
    """The format; its options are those of ``source_options.OPTIONS``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Return all columns of the table."""
        with ShortErrors():
            found = from_arrow_schema(table_of(self.options).schema)
        settle()
        return found

    def reader(self, schema: StructType) -> "TableReader":
        """Return a reader of the columns of ``schema``."""
        with ShortErrors():
            options = source_options(self.options)
            return (FilteredTableReader if options.filter_pushdown else TableReader)(options, schema)

    def streamReader(self, schema: StructType) -> "MessageStreamReader":  # noqa: N802 - Spark's name
        """Return a reader that streams messages."""
        from rocketbroker.analytics.spark.stream_reader import MessageStreamReader

        with ShortErrors():
            return MessageStreamReader(source_options(self.options), arrow_schema(schema))


@dataclass
class TablePartition(InputPartition):
    """Part of a table that one task reads."""

    part: Any


class TableReader(DataSourceReader):
    """Reads a table with the columns and types of ``schema``."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._selection = options.selection
        check_table_schema(options.table, self._schema)
        check_selection(options.table, options.selection)

    def partitions(self) -> list[InputPartition]:
        """Return the parts of the table, up to the current end of its stores."""
        options = self._options
        with ShortErrors():
            stores = chosen_stores(options.stores, self._selection)
            parts = options.table.plan(stores, self._selection, options.table_options)
        settle()
        return [TablePartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part; the worker logs damage."""
        if isinstance(partition, TablePartition):  # Spark asks with None when there are no partitions
            with ShortErrors():
                yield from self._options.table.read(partition.part, self._schema, self._selection)
        settle()


class FilteredTableReader(TableReader):
    """A table reader that applies filters itself.

    It is a separate class, since Spark rejects such a reader if its setting is off, and used on request only: Spark 4.3
    keeps the filters that one query of a data frame pushed down, and applies them to a later query without filters.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow the selection by the filters; return those that Spark must still apply."""
        self._selection, left = push_filters(filters, self._options.table, self._schema, self._selection)
        return left


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return ``schema`` as the Arrow schema that batches of a source must have."""
    return to_arrow_schema(schema, timezone="UTC")
