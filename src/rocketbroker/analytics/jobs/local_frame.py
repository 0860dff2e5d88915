"""Data frames from rows on the driver."""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


def local_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return ``rows`` as a data frame that Spark knows when it plans, so that joins with no rows are dropped."""
    # Spark 4.3 takes a batch without rows for the end of the data, and a table of several chunks may contain one.
    return spark.createDataFrame(rows.combine_chunks())
