"""Data frames from rows on the driver."""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


def local_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return ``rows`` as a data frame that Spark knows at planning, so that it drops joins without rows."""
    # Spark 4.3 reads a batch without rows as the end of the data, and a table of several chunks may contain one.
    return spark.createDataFrame(rows.combine_chunks())
