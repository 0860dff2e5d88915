"""The PySpark data source ``rocketmq_store``: tables of stores, which brokers may be using.

spark.read.format("rocketmq_store").load(store_dir)
spark.read.format("rocketmq_store").schema("topic string, queue_id int").load(store_dir)   # decodes these two only
spark.read.format("rocketmq_store").option("table", "topics").load("a=/data/a,b=/data/b")
spark.readStream.format("rocketmq_store").load(store_dir)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from rocketbroker.analytics.columns.arrow_columns import with_properties
from rocketbroker.analytics.columns.message_schema import known_names, rename_columns
from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.store_names import Stores, store_roots
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.split import plan_at_least
from rocketbroker.analytics.spark.queue_bounds import checked_bounds
from rocketbroker.analytics.spark.read_options import check_batch_options, check_stream_options
from rocketbroker.analytics.spark.source_options import (
    FactRows,
    SourceOptions,
    encode_selection,
    encode_stores,
    source_options,
    source_values,
    table_of,
)
from rocketbroker.analytics.spark.worker import Sent, ShortErrors, freeze_modules
from rocketbroker.analytics.sql.facts import FACTS
from rocketbroker.analytics.tables.table import check_selection, check_table_schema, chosen_stores, table_schema
from rocketbroker.analytics.tables.table_reader import DEFAULT_TABLE, TABLES, find_table
from rocketbroker.common.errors import ConfigError

if TYPE_CHECKING:
    from rocketbroker.analytics.spark.stream_reader import MessageStreamReader

FORMAT: Final = "rocketmq_store"


class RocketMQStore(Sent, DataSource):
    """The format; its options are those of ``source_options.OPTIONS``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Return all columns of the table."""
        with ShortErrors():
            wanted = table_of(self.options)
            found = spark_schema(wanted.schema, wanted.fields)
        freeze_modules()
        return found

    def reader(self, schema: StructType) -> "TableReader":
        """Return a reader of the columns of ``schema``."""
        with ShortErrors():
            check_batch_options(source_values(self.options))
            return TableReader(source_options(self.options), schema)

    def streamReader(self, schema: StructType) -> "MessageStreamReader":  # noqa: N802 - Spark's name
        """Return a reader that streams messages."""
        from rocketbroker.analytics.spark.stream_reader import MessageStreamReader

        with ShortErrors():
            check_stream_options(source_values(self.options))
            return MessageStreamReader(source_options(self.options), arrow_schema(schema))


@dataclass
class TablePartition(InputPartition):
    """Part of a broker's table that one task reads."""

    broker: str
    part: Any


class TableReader(Sent, DataSourceReader):
    """Reads a table with the columns and types of ``schema``.

    It has no ``pushFilters``. Spark keeps the reader that got the filters of one scan with the data frame, and gives it
    to its other scans: a union of two filters on one frame would count one side twice and lose the other. What limits a
    read is the option ``selection``, which is part of the plan.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        if options.fact is not None:
            self._schema = _read_for(options.fact, self._schema)
        check_table_schema(options.table, self._schema)
        for store in options.stores:
            check_selection(options.table, options.selection_of(store.broker))

    def partitions(self) -> list[InputPartition]:
        """Return the parts of the table, up to the current end of its stores."""
        options = self._options
        with ShortErrors():
            for which, bounds in (("starting", options.starts), ("ending", options.ends)):
                checked_bounds(which, bounds, options.stores, fail_on_data_loss=options.fail_on_data_loss)
            least, split_size = options.min_partitions, options.table_options.split_size
            parts = plan_at_least(least, self._plan, split_size, lambda each: int(each.part.high - each.part.low))
        freeze_modules()
        return list(parts)

    def _plan(self, split_size: int) -> list[TablePartition]:
        options = self._options
        settings = replace(options.table_options, split_size=split_size)
        return [
            TablePartition(store.broker, part)
            for store in chosen_stores(options.stores, options.selection)
            for part in options.table.plan([store], options.selection_of(store.broker), settings)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part; the worker logs damage."""
        if isinstance(partition, TablePartition):  # Spark asks with None when there are no partitions
            with ShortErrors(self._options.stores):
                yield from self._rows(partition)
        freeze_modules()

    def _rows(self, partition: TablePartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        rows = options.table.read(partition.part, known_names(self._schema), options.selection_of(partition.broker))
        chosen = (rename_columns(with_properties(batch, options.properties), self._schema) for batch in rows)
        return chosen if options.fact is None else FACTS[options.fact.name].each(chosen, **options.fact.options)


def _read_for(asked: FactRows, schema: pa.Schema) -> pa.Schema:
    """Return the columns of messages to read for a fact, whose rows have the columns of ``schema``."""
    fact = FACTS.get(asked.name)
    if fact is None:
        raise ConfigError(f"fact {asked.name!r} is unknown; use one of {', '.join(FACTS)}")
    if not schema.equals(fact.schema):
        raise ConfigError(f"the columns of fact {asked.name} are {', '.join(fact.schema.names)}")
    return with_times_in_ms(table_schema(find_table(DEFAULT_TABLE), asked.columns))


def with_times_in_ms(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with timestamps as ms since 1970."""
    return pa.schema([pa.field(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in schema])


def spark_schema(schema: pa.Schema, described: Mapping[str, pa.Field]) -> StructType:
    """Return an Arrow schema as Spark's, with the comments of columns in ``described``, which DESCRIBE shows."""
    columns = from_arrow_schema(schema)
    for column in columns:
        if (known := column.name.lower()) in described:
            column.metadata = {"comment": described[known].metadata[b"comment"].decode()}
    return columns


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return ``schema`` as the Arrow schema that batches of a source must have."""
    return to_arrow_schema(schema, timezone="UTC")


def messages(
    spark: SparkSession,
    stores: Stores,
    columns: Sequence[str] | None = None,
    selection: Selection = EVERYTHING,
    **options: str | int | bool,
) -> DataFrame:
    """Return the messages of ``stores`` that ``selection`` chooses; only ``columns`` are decoded. See :func:`table`."""
    return table(spark, stores, DEFAULT_TABLE, columns, selection, **options)


def table(
    spark: SparkSession,
    stores: Stores,
    name: str,
    columns: Sequence[str] | None = None,
    selection: Selection = EVERYTHING,
    **options: str | int | bool,
) -> DataFrame:
    """Return the rows of the table ``name`` of ``stores`` that ``selection`` chooses, with ``columns``, all if None.

    Spark does not inform a Python data source which columns a query uses: those named here are decoded, and a filter
    cannot use others. ``options`` are those of the format (``source_options.OPTIONS``).
    """
    schema, roots = table_schema(find_table(name), columns), store_roots(stores)
    return load(spark, roots, name, schema, selection=encode_selection(selection), **options)


def load(
    spark: SparkSession, stores: Sequence[StoreRoot], name: str, schema: pa.Schema, **options: str | int | bool
) -> DataFrame:
    """Return the table ``name`` with the columns and types of ``schema``."""
    reader = spark.read.format(FORMAT).schema(spark_schema(schema, find_table(name).fields)).option("table", name)
    return reader.options(stores=encode_stores(stores), **options).load()


def create_views(spark: SparkSession, stores: Stores, prefix: str = "") -> list[str]:
    """Create a temporary view of each table for SQL; return the names of the views."""
    names = {name: prefix + name for name in TABLES}
    for name, view in names.items():
        table(spark, stores, name).createOrReplaceTempView(view)
    return list(names.values())
