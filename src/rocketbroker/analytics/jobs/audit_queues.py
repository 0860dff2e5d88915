"""Check of the ConsumeQueues against the messages of the log, by the rules of ``audit/queue_audit.py``.

A message and an entry match if they agree in queue, queue offset and physical offset. Entries without their message
("astray") and messages without their entry ("waiting") make findings.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.jobs.audit_findings import Kept, findings
from rocketbroker.analytics.jobs.audited_stores import OfStore
from rocketbroker.analytics.jobs.damaged_ranges import DamagedRanges
from rocketbroker.codec.message.message_const import INNER_BATCH_FLAG
from rocketbroker.codec.message.topic_validator import LMQ_PREFIX
from rocketbroker.codec.storefile.audit_rules import AuditRule

_QUEUE: Final = ["broker", "topic", "queue_id"]
#: Columns that identify an entry in its queue.
PLACE: Final = [*_QUEUE, "queue_offset"]


@dataclass(frozen=True, slots=True)
class QueueFrames:
    """Tables that the queues are compared with."""

    records: DataFrame  # all messages: ``PLACE``, ``physical_offset``, ``sys_flag``
    expected: DataFrame  # messages that should have an entry, with its ``tags_code``; ``store_timestamp`` in ms
    entries: DataFrame  # the table ``consume_queue``
    damaged: DamagedRanges
    of: OfStore


def audit_queues(frames: QueueFrames, kept: Kept) -> list[DataFrame]:
    """Return findings about entries, messages and queue offsets."""
    entries = _entries(frames)
    heads = kept.keep_few(_heads(entries, frames.of))
    with_head = frames.expected.join(F.broadcast(heads), _QUEUE, "left")
    # A topic that was deleted and created again restarts at 0; its queue has the new messages only.
    of_old = (F.col("physical_offset") < F.coalesce("oldest", F.lit(-1))) & (
        F.col("queue_offset") >= F.col("first_entry")
    )
    queued = with_head.where(F.col("first_entry").isNotNull() & ~of_old).drop("first_entry", "last_entry", "oldest")
    is_message, is_entry = queued.withColumn("is_message", F.lit(True)), entries.withColumn("is_entry", F.lit(True))
    joined = kept.keep(is_message.join(is_entry, [*PLACE, "physical_offset"], "full"))
    settled = joined.where(F.col("is_message") & F.col("is_entry"))
    waiting = kept.keep_few(joined.where(F.col("is_entry").isNull()).select(*queued.columns))
    alone = joined.where(F.col("is_message").isNull()).select(*PLACE, "physical_offset")
    astray = kept.keep_few(_astray(alone, frames))
    return [
        _without_queue(with_head.where(F.col("first_entry").isNull())),
        _mismatches(settled, frames),
        _order(settled),
        _holes(entries, waiting, settled, frames),
        *_astray_findings(astray, waiting, frames),
        *_unqueued(waiting, astray, settled, frames),
    ]


def _entries(frames: QueueFrames) -> DataFrame:
    """Return the entries of queues in use, without LMQs, whose entries point to records of other topics."""
    kept = frames.entries.where(~F.col("topic").startswith(LMQ_PREFIX))
    return kept.select(
        *PLACE,
        "physical_offset",
        F.col("size").alias("entry_size"),
        F.col("tags_code").alias("entry_tags_code"),
        queue_offset_behind().alias("behind"),
    )


def queue_offset_behind() -> Column:
    """Return the queue offset after an entry, which may be a batch; null where a damaged one overflows."""
    found: Column = F.try_add(F.col("queue_offset"), F.greatest("batch_size", F.lit(0)))
    return found


def _heads(entries: DataFrame, of: OfStore) -> DataFrame:
    """Return the first and last queue offset of each queue, and its oldest message in the log."""
    there = F.col("physical_offset") >= of.log_begin()
    return entries.groupBy(*_QUEUE).agg(
        F.min("queue_offset").alias("first_entry"),
        F.max("queue_offset").alias("last_entry"),
        F.min(F.when(there, F.col("physical_offset"))).alias("oldest"),
    )


def queue_ends(entries: DataFrame) -> DataFrame:
    """Return ``broker``, ``topic``, ``queue_id`` and ``end``, the queue offset after the last entry."""
    return entries.groupBy(*_QUEUE).agg(F.max(queue_offset_behind()).alias("end"))


def _without_queue(messages: DataFrame) -> DataFrame:
    counted = messages.groupBy(*_QUEUE).agg(
        F.count("*").alias("messages"), F.min("physical_offset").alias("physical_offset")
    )
    detail = F.format_string(
        "%d messages of %s/%d, the first at %d in the CommitLog", "messages", "topic", "queue_id", "physical_offset"
    )
    return findings(counted, AuditRule.QUEUE_MISSING, detail)


def _not_known(of: OfStore) -> Column:
    """Return true if a row's message was not certainly on disk when the broker stopped."""
    found: Column = F.col("store_timestamp") > of.known_ms()
    return found


def _mismatches(settled: DataFrame, frames: QueueFrames) -> DataFrame:
    wrong = settled.where((F.col("entry_size") != F.col("size")) | (F.col("entry_tags_code") != F.col("tags_code")))
    detail = F.format_string(
        "the entry has size %d and tags code %d, but the record at offset %d has %d and %d",
        "entry_size",
        "entry_tags_code",
        "physical_offset",
        "size",
        "tags_code",
    )
    return findings(wrong, AuditRule.QUEUE_ENTRY_MISMATCH, detail, _not_known(frames.of))


def _order(settled: DataFrame) -> DataFrame:
    in_log = Window.partitionBy(*_QUEUE).orderBy("physical_offset")
    before = settled.withColumn("before", F.lag("queue_offset").over(in_log))
    wrong = before.where(F.col("queue_offset") <= F.col("before"))
    detail = F.format_string(
        "queue offset %d follows %d in the log, at offset %d", "queue_offset", "before", "physical_offset"
    )
    return findings(wrong, AuditRule.QUEUE_OFFSET_ORDER, detail)


def _holes(entries: DataFrame, waiting: DataFrame, settled: DataFrame, frames: QueueFrames) -> DataFrame:
    """Return runs of queue offsets between entries that neither an entry nor a message has."""
    is_entry = F.lit(True)
    there = entries.select(*PLACE, "behind", is_entry.alias("is_entry")).unionByName(
        waiting.select(*PLACE, F.try_add("queue_offset", F.lit(1)).alias("behind"), (~is_entry).alias("is_entry"))
    )
    places = there.groupBy(*PLACE).agg(F.max("is_entry").alias("is_entry"), F.max("behind").alias("behind"))
    queue = Window.partitionBy(*_QUEUE)
    number = F.when(F.col("is_entry"), F.col("queue_offset"))
    bounded = places.select("*", F.min(number).over(queue).alias("lowest"), F.max(number).over(queue).alias("highest"))
    between = bounded.where(F.col("queue_offset").between(F.col("lowest"), F.col("highest")))
    before = F.lag("behind").over(queue.orderBy("queue_offset"))
    gaps = between.withColumn("before", before).where(F.col("queue_offset") > F.col("before"))
    runs = gaps.select(*_QUEUE, F.col("before").alias("queue_offset"), (F.col("queue_offset") - 1).alias("last"))
    reached = settled.groupBy(*_QUEUE).agg(F.max("queue_offset").alias("reached"))
    runs = runs.join(reached, _QUEUE, "left")
    # After an unclean stop the queue may be ahead of a log whose end was cut.
    mended = frames.of.unclean() & (F.col("queue_offset") > F.coalesce("reached", F.lit(-1)))
    upto = F.when(F.col("last") > F.col("queue_offset"), F.format_string(" to %d", "last")).otherwise("")
    detail = F.concat(F.lit("neither message nor entry"), upto)
    return findings(runs, AuditRule.QUEUE_OFFSET_MISSING, detail, mended)


def _astray(entries: DataFrame, frames: QueueFrames) -> DataFrame:
    """Return entries without their message, except those whose target has expired or is damaged."""
    offset = F.col("physical_offset")
    left = entries.where((offset < 0) | (offset >= frames.of.log_begin()))
    left = left.where(~frames.damaged.column())
    there = frames.records.select(
        "broker",
        "physical_offset",
        F.format_string("%s/%d queue offset %d", "topic", "queue_id", "queue_offset").alias("there"),
        (F.col("sys_flag").bitwiseAND(INNER_BATCH_FLAG) != 0).alias("is_batch"),
    )
    found = left.join(there, ["broker", "physical_offset"], "left")
    # An inner batch has an entry in a BatchConsumeQueue, whose offsets count the messages in it.
    return found.where(~F.coalesce("is_batch", F.lit(False))).drop("is_batch")


def _astray_findings(astray: DataFrame, waiting: DataFrame, frames: QueueFrames) -> list[DataFrame]:
    newest = waiting.groupBy(*PLACE).agg(F.max("store_timestamp").alias("newest"))
    placed = astray.join(newest, PLACE, "left").withColumn("log_end", frames.of.log_end())
    is_beyond, is_record = F.col("physical_offset") >= F.col("log_end"), F.col("there").isNotNull()
    mended = frames.of.unclean() & (is_beyond | F.coalesce(F.col("newest") > frames.of.known_ms(), F.lit(False)))
    beyond = F.format_string("the entry leads to %d, but the log ends at %d", "physical_offset", "log_end")
    other = F.format_string("the record at %d is %s", "physical_offset", "there")
    nothing = F.format_string("no record begins at %d", "physical_offset")
    inside = placed.where(~is_beyond)
    return [
        findings(placed.where(is_beyond), AuditRule.QUEUE_ENTRY_BEYOND_LOG, beyond, mended),
        findings(inside.where(is_record), AuditRule.QUEUE_ENTRY_MISMATCH, other, mended),
        findings(inside.where(~is_record), AuditRule.QUEUE_ENTRY_UNREADABLE, nothing, mended),
    ]


def _unqueued(waiting: DataFrame, astray: DataFrame, settled: DataFrame, frames: QueueFrames) -> list[DataFrame]:
    """Return messages without an entry, except those whose entry already has a finding."""
    alone = waiting.join(astray.select(*PLACE), PLACE, "left_anti")
    alone = alone.join(astray.select("broker", "physical_offset"), ["broker", "physical_offset"], "left_anti")
    taken = settled.select(*PLACE).distinct().withColumn("is_taken", F.lit(True))
    alone, is_taken = alone.join(taken, PLACE, "left"), F.col("is_taken").isNotNull()
    repeated = F.format_string("the message at %d has the same queue offset", "physical_offset")
    missing = F.format_string("the message at %d", "physical_offset")
    return [
        findings(alone.where(is_taken), AuditRule.QUEUE_OFFSET_REPEATED, repeated),
        findings(alone.where(~is_taken), AuditRule.MESSAGE_NOT_QUEUED, missing, _not_known(frames.of)),
    ]
