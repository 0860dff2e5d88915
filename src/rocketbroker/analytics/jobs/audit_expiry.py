"""Messages that are about to be removed by age before a group has consumed them."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.jobs.audit_findings import findings
from rocketbroker.codec.storefile.audit_rules import AuditRule

_HOUR_MS = 3_600_000


def audit_expiry(
    expected: DataFrame, offsets: DataFrame, states: DataFrame, now_ms: int, reserved_hours: int, within_hours: int
) -> DataFrame:
    """A finding for each group and queue with such messages (CleanCommitLogService, fileReservedTime).

    A file of the commit log is removed whole, that many hours after the last message was stored into it, and never the
    one that is written to. A broker that lacks disk space removes files earlier.

    Args:
        expected: messages of queues: ``broker``, ``topic``, ``queue_id``, ``queue_offset``, ``physical_offset``,
            ``store_timestamp`` (ms).
        offsets: the table ``consumer_offsets``.
        states: a row for each store (``audited_stores.state_frame``).
        now_ms: the time now.
        reserved_hours: fileReservedTime.
        within_hours: what is removed in so many hours counts.
    """
    placed = expected.join(F.broadcast(states.select("broker", "file_size", "last_file")), "broker")
    offset = F.col("physical_offset")
    placed = placed.withColumn("file", offset - F.pmod(offset, F.col("file_size")))
    closed = placed.where(F.col("file") < F.col("last_file"))
    files = closed.groupBy("broker", "file").agg(F.max("store_timestamp").alias("newest"))
    removed = F.col("newest") + reserved_hours * _HOUR_MS
    files = files.withColumn("removed", removed).where(F.col("removed") <= now_ms + within_hours * _HOUR_MS)
    going = closed.join(F.broadcast(files.select("broker", "file", "removed")), ["broker", "file"])
    groups = offsets.select("broker", "group_name", "topic", "queue_id", "consumer_offset")
    unread = going.join(F.broadcast(groups), ["broker", "topic", "queue_id"])
    unread = unread.where(F.col("queue_offset") >= F.coalesce("consumer_offset", F.lit(0)))
    counted = unread.groupBy("broker", "topic", "queue_id", "group_name", "consumer_offset").agg(
        F.count("*").alias("messages"),
        F.min("queue_offset").alias("queue_offset"),
        F.min("physical_offset").alias("physical_offset"),
        F.min("removed").alias("removed"),
    )
    detail = F.format_string(
        "group %s is at %d: %d messages from queue offset %d on are removed from %d (ms since 1970) on",
        "group_name",
        "consumer_offset",
        "messages",
        "queue_offset",
        "removed",
    )
    return findings(counted, AuditRule.UNCONSUMED_EXPIRING, detail)
