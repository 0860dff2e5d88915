"""Data frames of the tables, by function calls instead of options of the format."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.store_root import StoreRoot, Stores, store_roots
from rocketbroker.analytics.spark.rocketmq_store import FORMAT
from rocketbroker.analytics.spark.source_options import encode_selection, encode_stores
from rocketbroker.analytics.tables.table import table_schema
from rocketbroker.analytics.tables.table_list import DEFAULT_TABLE, TABLES, find_table


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
    reader = spark.read.format(FORMAT).schema(from_arrow_schema(schema)).option("table", name)
    return reader.options(stores=encode_stores(stores), **options).load()


def create_views(spark: SparkSession, stores: Stores, prefix: str = "") -> list[str]:
    """Create a temporary view of each table for SQL; return the names of the views."""
    names = {name: prefix + name for name in TABLES}
    for name, view in names.items():
        table(spark, stores, name).createOrReplaceTempView(view)
    return list(names.values())
