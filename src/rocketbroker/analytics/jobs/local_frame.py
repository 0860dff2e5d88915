"""Data frames of rows that the driver has."""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


def local_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """``rows`` as a data frame that Spark knows when it plans: what is joined with no rows is left out of the plan."""
    # Spark 4.3 takes a batch without rows for the end of all, and a table of several parts may have one amid others.
    return spark.createDataFrame(rows.combine_chunks())
