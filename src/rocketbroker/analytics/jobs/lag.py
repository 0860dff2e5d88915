"""Lag of consumer groups at each snapshot of their offsets."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.jobs.columns import as_time, millis
from rocketbroker.common.errors import ConfigError

#: Levels at which lag is aggregated, with the columns that identify a row.
LEVELS: Final = {
    "queue": ("broker", "group_name", "topic", "queue_id"),
    "topic": ("group_name", "topic"),
    "group": ("group_name",),
}


def lag(snapshots: DataFrame, messages: DataFrame, by: str = "queue") -> DataFrame:
    """Return the number of messages that groups had not consumed, and the age of the oldest.

    Args:
        snapshots: the columns of ``snapshots.SCHEMA``.
        messages: ``broker``, ``topic``, ``queue_id``, ``queue_offset`` and ``store_timestamp``.
        by: ``queue``, ``topic`` (over its queues and brokers) or ``group``.

    Returns:
        ``time``, the columns of ``LEVELS[by]``, for ``queue`` also ``consumer_offset`` and ``max_offset``; ``lag`` in
        messages, including expired ones, as in RocketMQ; and ``behind_ms``, the age at that time of the oldest message
        not consumed. It is 0 without a lag, and null if no record begins with that message, since it expired or is
        inside a batch of a BatchCQ topic. For several queues it is the longest known age. Queues that the store did
        not have are left out.
    """
    if by not in LEVELS:
        raise ConfigError(f"lag by {by!r} is unknown; use one of {', '.join(LEVELS)}")
    queue = ["broker", "topic", "queue_id"]
    known = snapshots.where(F.col("max_offset").isNotNull())
    next_ones = messages.select(
        *queue,
        F.col("queue_offset").alias("consumer_offset"),
        millis(messages, "store_timestamp").alias("stored"),
    )
    # No broadcast hint: Spark broadcasts a small side anyway, and the snapshots of a month are large.
    wanted = known.select(*queue, "consumer_offset").distinct()
    # A topic that was deleted and created again has two messages of one offset; the newer one counts.
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
