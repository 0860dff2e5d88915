"""Consistency check of stores: the log, the queues, the index and the consumer offsets.

The rules and their names are those of ``mqstore check``, which checks one local store, file by file. This audit checks
any number of stores, local or remote, by joins, so that many machines can share the work. Only ``mqstore check`` checks
slots and chains of index files (``AuditRule.tools``), and the part of a torn log that the next start would truncate.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.jobs.audit_expiry import ExpiryFrames, audit_expiry
from rocketbroker.analytics.jobs.audit_findings import Kept, as_findings, findings, together
from rocketbroker.analytics.jobs.audit_index import IndexFrames, audit_index
from rocketbroker.analytics.jobs.audit_queues import PLACE, QueueFrames, audit_queues, queue_ends
from rocketbroker.analytics.jobs.audited_stores import AuditedStore, OfStore, damage_frame, deleted_frame, offsets_frame
from rocketbroker.analytics.jobs.damaged_ranges import DamagedRanges
from rocketbroker.analytics.jobs.scope import millis
from rocketbroker.codec.message.message_const import (
    INNER_BATCH_FLAG,
    PROPERTY_DELAY_TIME_LEVEL,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    deliver_timestamp,
    level_of,
)
from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.storefile.audit_rules import AuditRule, Severity

#: Columns of messages that an audit reads.
MESSAGE_COLUMNS: Final = (*PLACE, "physical_offset", "store_timestamp", "sys_flag", "size", "uniq_key", "keys", "tags")
_EXPECTED: Final = (
    "broker string, topic string, queue_id int, queue_offset bigint, physical_offset bigint, store_timestamp bigint,"
    " size int, tags_code bigint"
)


@dataclass(frozen=True, slots=True)
class AuditTables:
    """Tables that an audit compares, each whole.

    ``messages`` have ``MESSAGE_COLUMNS``; ``scheduled`` are ``broker``, ``physical_offset`` and ``properties`` of the
    messages in SCHEDULE_TOPIC_XXXX. ``corrupt_ranges`` is used several times: pass the result of ``Kept.keep_few``.
    """

    messages: DataFrame
    scheduled: DataFrame
    consume_queue: DataFrame
    index: DataFrame
    corrupt_ranges: DataFrame


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Settings of an audit."""

    now_ms: int
    delay_levels: dict[int, int]  # ms by level (``delay_levels.parse_delay_levels``)
    reserved_hours: int = 72  # fileReservedTime
    within_hours: int = 24  # messages that expire within this time are reported
    max_hash_slot_num: int = 0  # slots of an index file, 0 to detect them in each file


def audit(tables: AuditTables, stores: list[AuditedStore], options: AuditOptions, kept: Kept) -> DataFrame:
    """Return all findings, with the columns ``audit_findings.COLUMNS``.

    If a broker removed log files during the audit, there are findings about their content
    (``audited_stores.begins_moved`` and ``audit_findings.but_for_removed``).

    ``tables`` must be complete: messages left out by a selection would be reported as lost. Release ``kept`` after the
    findings are collected.
    """
    spark = tables.messages.sparkSession
    deleted, offsets = deleted_frame(spark, stores), offsets_frame(spark, stores)
    messages = tables.messages.withColumn("store_timestamp", millis(tables.messages, "store_timestamp"))
    messages, queue = kept.keep(messages), kept.keep(tables.consume_queue)
    ranges = tables.corrupt_ranges
    kind = F.col("sys_flag").bitwiseAND(TRANSACTION_ROLLBACK_TYPE)
    is_final = (kind != TRANSACTION_PREPARED_TYPE) & (kind != TRANSACTION_ROLLBACK_TYPE)
    is_single = F.col("sys_flag").bitwiseAND(INNER_BATCH_FLAG) == 0
    indexed = messages.withColumn("is_dispatched", is_final & is_single)
    unreadable = ranges.where(F.col("kind").isin("broken", "missing")).select(
        "broker", F.col("physical_offset").alias("low"), (F.col("physical_offset") + F.col("length")).alias("high")
    )
    damaged = DamagedRanges(unreadable.toArrow())
    log_end = F.max(F.col("physical_offset") + F.col("size")).alias("log_end")
    ends = messages.groupBy("broker").agg(log_end, F.max("store_timestamp").alias("newest")).collect()
    of = OfStore(stores, {row["broker"]: row["log_end"] for row in ends})
    newest = {row["broker"]: row["newest"] for row in ends}
    expected = kept.keep(_expected(indexed.where("is_dispatched"), tables.scheduled, deleted, options))
    queues = QueueFrames(messages, expected, queue, damaged, of)
    entries = kept.keep(tables.index.withColumn("store_timestamp", millis(tables.index, "store_timestamp")))
    index = IndexFrames(indexed, entries, damaged, of, deleted)
    hours = options.reserved_hours, options.within_hours
    return together(
        [
            _log_findings(ranges),
            *audit_queues(queues, kept),
            *audit_index(index, kept),
            as_findings(damage_frame(spark, stores, newest)),
            _offsets_beyond(offsets, queue, of),
            audit_expiry(ExpiryFrames(messages, queue, offsets, of), options.now_ms, *hours, kept),
        ]
    )


def _expected(dispatched: DataFrame, scheduled: DataFrame, deleted: DataFrame, options: AuditOptions) -> DataFrame:
    """Return the messages that should have a queue entry, with the expected tags code."""
    kept = dispatched.join(F.broadcast(deleted), ["broker", "topic"], "left")
    kept = kept.where(F.col("physical_offset") >= F.coalesce("mark", F.lit(0)))
    level = F.element_at("properties", PROPERTY_DELAY_TIME_LEVEL).alias("level")
    levels = scheduled.select("broker", "physical_offset", level)
    is_scheduled = F.col("topic") == RMQ_SYS_SCHEDULE_TOPIC
    names = ["broker", "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "size", "tags"]
    plain = kept.where(~is_scheduled).select(*names, F.lit(None).cast("string").alias("level"))
    delayed = kept.where(is_scheduled).join(levels, ["broker", "physical_offset"], "left").select(*names, "level")
    both = plain.unionByName(delayed)
    return both.mapInArrow(partial(_with_tags_code, delay_levels=options.delay_levels), _EXPECTED)


def _with_tags_code(batches: Iterator[pa.RecordBatch], delay_levels: dict[int, int]) -> Iterator[pa.RecordBatch]:
    """Yield ``tags_code`` in place of ``tags`` and ``level``: the hash of the tags, or the due time if delayed."""
    for batch in batches:
        tags = batch.column("tags").dictionary_encode()
        codes = np.array([*map(tags_code, tags.dictionary.to_pylist()), 0], np.int64)
        numbers = tags.indices.fill_null(len(codes) - 1).to_numpy()
        found = codes[numbers]
        topics = batch.column("topic").to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(topics == RMQ_SYS_SCHEDULE_TOPIC).tolist():
            level = level_of((batch.column("level")[row].as_py() or "").encode())
            found[row] = deliver_timestamp(delay_levels, level, batch.column("store_timestamp")[row].as_py())
        kept = batch.drop_columns(["tags", "level"])
        yield kept.append_column("tags_code", pa.array(found))


def _log_findings(ranges: DataFrame) -> DataFrame:
    """Return a finding for each range, whose reason is the broken rule."""
    warnings = [rule.value for rule in AuditRule if rule.severity is Severity.WARNING]
    is_warning = F.col("reason").isin(*warnings)
    severity = F.when(is_warning, Severity.WARNING.value).otherwise(Severity.ERROR.value)
    detail = F.format_string("%s, %d bytes from position %d on", "file", "length", "position")
    return as_findings(ranges, rule=F.col("reason"), severity=severity, detail=detail)


def _offsets_beyond(offsets: DataFrame, entries: DataFrame, of: OfStore) -> DataFrame:
    ends = queue_ends(entries)
    joined = offsets.join(F.broadcast(ends), ["broker", "topic", "queue_id"])
    wrong = joined.where(F.col("consumer_offset") > F.col("end"))
    text = "group %s is at %d of %s/%d, but the queue ends at %d"
    detail = F.format_string(text, "group_name", "consumer_offset", "topic", "queue_id", "end")
    return findings(wrong, AuditRule.CONSUMER_OFFSET_BEYOND_QUEUE, detail, of.unclean())
