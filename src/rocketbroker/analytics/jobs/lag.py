"""Lag of consumer groups at each snapshot of their offsets."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.jobs.columns import as_time, millis
from rocketbroker.common.errors import ConfigError

#: What lag is added up by, and the columns that tell rows apart then.
LEVELS: Final = {
    "queue": ("broker", "group_name", "topic", "queue_id"),
    "topic": ("group_name", "topic"),
    "group": ("group_name",),
}


def lag(snapshots: DataFrame, messages: DataFrame, by: str = "queue") -> DataFrame:
    """Return the messages that groups had still to consume, and how long the oldest of them had waited.

    Args:
        snapshots: with the columns of ``snapshots.SCHEMA``.
        messages: with ``broker``, ``topic``, ``queue_id``, ``queue_offset`` and ``store_timestamp``.
        by: ``queue``, ``topic`` (over its queues and brokers) or ``group``.

    Returns:
        ``time``, the columns of ``LEVELS[by]``, with ``queue`` also ``consumer_offset`` and ``max_offset``; ``lag`` in
        messages, those among them that were removed by age before, as RocketMQ counts it; and ``behind_ms``, the age
        at that time of the oldest message to be consumed: 0 without a lag, null when no record of the store begins with
        that message, since it was removed or lies within a batch of a BatchCQ topic (of several queues, the longest
        that is known). Offsets of queues that the store did not have are left out.

    Raises:
        ConfigError: ``by`` is none of these.
    """
    if by not in LEVELS:
        raise ConfigError(f"lag is added up by {', '.join(LEVELS)}, not by {by!r}")
    queue = ["broker", "topic", "queue_id"]
    known = snapshots.where(F.col("max_offset").isNotNull())
    next_ones = messages.select(
        *queue,
        F.col("queue_offset").alias("consumer_offset"),
        millis(messages, "store_timestamp").alias("stored"),
    )
    # No hint to broadcast: Spark does so where a side is small, and snapshots of a month are not.
    wanted = known.select(*queue, "consumer_offset").distinct()
    # A deleted topic that was made again has two messages of one offset; the newer one is meant.
    found = next_ones.join(wanted, [*queue, "consumer_offset"], "left_semi")
    found = found.groupBy(*queue, "consumer_offset").agg(F.max("stored").alias("stored"))
    waiting = F.greatest(F.col("max_offset") - F.col("consumer_offset"), F.lit(0))
    waited = F.greatest(F.try_subtract("time_ms", "stored"), F.lit(0))
    rows = known.join(found, [*queue, "consumer_offset"], "left").select(
        as_time(F.col("time_ms")).alias("time"),
        *LEVELS["queue"],
        "consumer_offset",
        "max_offset",
        waiting.alias("lag"),
        F.when(waiting == 0, F.lit(0)).when(F.col("stored").isNotNull(), waited).alias("behind_ms"),
    )
    if by == "queue":
        return rows
    return rows.groupBy("time", *LEVELS[by]).agg(F.sum("lag").alias("lag"), F.max("behind_ms").alias("behind_ms"))
