"""Sizes of messages."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.jobs.columns import percentile_columns
from rocketbroker.analytics.jobs.job_list import PERCENTILES


def sizes(messages: DataFrame, percentiles: Sequence[float] = PERCENTILES) -> DataFrame:
    """Return the distribution of sizes in each topic, in bytes of whole records.

    Args:
        messages: ``broker``, ``topic`` and ``size``.
        percentiles: exact percentiles to compute, 0 to 100.

    Returns:
        ``broker``, ``topic``, ``messages``, ``bytes``, ``least``, ``mean``, ``p50`` and so on, ``greatest``.
    """
    size = F.col("size")
    return messages.groupBy("broker", "topic").agg(
        F.count("*").alias("messages"),
        F.sum(size).alias("bytes"),
        F.min(size).alias("least"),
        F.avg(size).alias("mean"),
        *percentile_columns(size, percentiles),
        F.max(size).alias("greatest"),
    )
