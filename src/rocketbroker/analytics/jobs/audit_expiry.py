"""Messages that are about to expire before a group has consumed them."""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.jobs.audit_findings import Kept, findings
from rocketbroker.analytics.jobs.audit_queues import queue_offset_behind
from rocketbroker.analytics.jobs.audited_stores import OfStore
from rocketbroker.codec.storefile.audit_rules import AuditRule

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class ExpiryFrames:
    """Tables that show which messages expire unread: messages, ``consume_queue`` and ``consumer_offsets``."""

    records: DataFrame
    entries: DataFrame
    offsets: DataFrame
    of: OfStore


def audit_expiry(frames: ExpiryFrames, now_ms: int, reserved_hours: int, within_hours: int, kept: Kept) -> DataFrame:
    """Return a finding for each group and queue with such messages (CleanCommitLogService, fileReservedTime).

    A commit-log file is removed as a whole, ``reserved_hours`` after its last message was stored; the active file is
    never removed. A broker that lacks disk space removes files earlier.
    """
    files = _closed(frames.records, frames.of).groupBy("broker", "file").agg(F.max("store_timestamp").alias("newest"))
    # Null where a damaged time or offset overflows: other rules report these.
    removed = F.try_add(F.col("newest"), F.lit(reserved_hours * _HOUR_MS))
    files = files.select("broker", "file", removed.alias("removed"))
    files = kept.keep_few(files.where(F.col("removed") <= now_ms + within_hours * _HOUR_MS))
    queue = ["broker", "topic", "queue_id"]
    groups = frames.offsets.select(*queue, "group_name", F.coalesce("consumer_offset", F.lit(0)).alias("at"))
    expiring = _closed(frames.entries, frames.of).join(F.broadcast(files), ["broker", "file"])
    # An entry of a BatchConsumeQueue covers several messages, and a group may be in the middle of them.
    unread = expiring.withColumn("behind", queue_offset_behind()).join(F.broadcast(groups), queue)
    unread = unread.where(F.col("behind") > F.col("at"))
    unread = unread.withColumn("queue_offset", F.greatest("queue_offset", "at"))
    counted = unread.groupBy(*queue, "group_name", "at").agg(
        F.sum(F.col("behind") - F.col("queue_offset")).alias("messages"),
        F.min("queue_offset").alias("queue_offset"),
        F.min("physical_offset").alias("physical_offset"),
        F.min("removed").alias("removed"),
    )
    text = "group %s is at %d: %d messages from queue offset %d on expire at %d (ms since 1970)"
    detail = F.format_string(text, "group_name", "at", "messages", "queue_offset", "removed")
    return findings(counted, AuditRule.UNCONSUMED_EXPIRING, detail)


def _closed(rows: DataFrame, of: OfStore) -> DataFrame:
    """Return the rows in files that are no longer written, with the ``file`` of each."""
    offset = F.col("physical_offset")
    placed = rows.withColumn("file", F.try_subtract(offset, F.pmod(offset, of.file_size())))
    return placed.where(F.col("file") < of.last_file())
