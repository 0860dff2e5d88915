"""Check of index entries against the keys of the messages, by the rules of ``audit/index_audit.py``.

Slots, chains and headers of index files are not checked here: they determine how entries are found, not their content.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.jobs.audit_findings import Kept, findings
from rocketbroker.analytics.jobs.audited_stores import OfStore
from rocketbroker.analytics.jobs.damaged_ranges import DamagedRanges
from rocketbroker.codec.message.columns import index_key_hash_many
from rocketbroker.codec.message.message_properties import split_keys
from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.index_file_layout import build_key, build_tag_key

_KEYS: Final = (
    "broker string, topic string, physical_offset bigint, store_timestamp bigint, key_hash int, is_required boolean"
)
_SECOND_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class IndexFrames:
    """Tables that the index is compared with; times are in ms.

    ``messages`` have ``is_dispatched`` besides their columns. Messages before the ``mark`` of a ``broker`` and
    ``topic`` in ``deleted`` were deleted with their topic.
    """

    messages: DataFrame
    entries: DataFrame
    damaged: DamagedRanges
    of: OfStore
    deleted: DataFrame


def audit_index(frames: IndexFrames, kept: Kept) -> list[DataFrame]:
    """Return findings on wrong entries and keys without one. A store without entries has its index disabled."""
    keys = frames.messages.select(
        "broker", "topic", "physical_offset", "store_timestamp", "uniq_key", "keys", "tags", "is_dispatched"
    ).mapInArrow(_hashed, _KEYS)
    keys = kept.keep(keys)
    entries = kept.keep(_judged(frames, keys))
    bad = kept.keep_few(entries.where(~F.col("is_good")).drop("is_good").where(~frames.damaged.column()))
    return [*_bad_entries(bad, frames), _missing(entries.where("is_good"), bad, keys, frames)]


def _hashed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a row for each key of each message: of its unique id, its KEYS and its tags."""
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in ("topic", "uniq_key", "keys", "tags")}
        key_prefixes = {topic: java_hash(build_key(topic, "")) for topic in set(columns["topic"])}
        tag_prefixes = {topic: java_hash(build_tag_key(topic, "")) for topic in set(columns["topic"])}
        texts, prefixes, of_tags, counts = list[bytes](), list[int](), list[bool](), list[int]()
        for topic, unique, keys, tags in zip(*columns.values(), strict=True):
            parts = [*([unique.encode()] if unique else []), *split_keys((keys or "").encode())]
            found = [*parts, *([tags.encode()] if tags else [])]
            texts += found
            prefixes += [key_prefixes[topic]] * len(parts) + [tag_prefixes[topic]] * (len(found) - len(parts))
            of_tags += [False] * len(parts) + [True] * (len(found) - len(parts))
            counts.append(len(found))
        rows = np.repeat(np.arange(batch.num_rows), counts)
        taken = batch.select(["broker", "topic", "physical_offset", "store_timestamp", "is_dispatched"]).take(
            pa.array(rows)
        )
        is_dispatched = taken.column("is_dispatched").to_numpy(zero_copy_only=False).astype(np.bool_)
        required = is_dispatched & ~np.array(of_tags, np.bool_)
        hashes = index_key_hash_many(texts, prefixes) if texts else np.empty(0, np.int32)
        arrays = [*taken.columns[:4], pa.array(hashes, pa.int32()), pa.array(required)]
        yield pa.RecordBatch.from_arrays(arrays, names=[*taken.schema.names[:4], "key_hash", "is_required"])


def _judged(frames: IndexFrames, keys: DataFrame) -> DataFrame:
    """Return the entries whose target still exists, with ``is_good``: true if that message has their key."""
    per_file = frames.entries.groupBy("broker", "file").agg(
        F.min("store_timestamp").alias("file_begin"), F.max("store_timestamp").alias("file_end")
    )
    entries = frames.entries.join(F.broadcast(per_file), ["broker", "file"])
    offset = F.col("physical_offset")
    there = entries.where((offset < 0) | (offset >= frames.of.log_begin()))
    stored = keys.groupBy("broker", "physical_offset", "key_hash").agg(F.max("store_timestamp").alias("stored"))
    found = there.join(stored, ["broker", "physical_offset", "key_hash"], "left")
    second, time = F.col("store_timestamp"), F.col("stored")
    # timeDiff counts whole seconds from the file's start, and is never below 0.
    fits = (time >= second) & (F.try_subtract(time, second) < _SECOND_MS)
    fits = fits | ((time < second) & (second == F.col("file_begin")))
    return found.withColumn("is_good", F.coalesce(fits, F.lit(False)))


def _bad_entries(bad: DataFrame, frames: IndexFrames) -> list[DataFrame]:
    there = frames.messages.select("broker", "physical_offset", F.lit(True).alias("is_record")).distinct()
    bad = bad.join(there, ["broker", "physical_offset"], "left")
    mended = F.col("file_end") > frames.of.index_known_ms()
    beyond = frames.of.unclean() & (F.col("physical_offset") >= frames.of.log_end())
    is_record = F.col("is_record").isNotNull()
    text = "%s entry %d: the record at %d has no key with hash %d, or another store time"
    mismatch = F.format_string(text, "file", "entry", "physical_offset", "key_hash")
    unreadable = F.format_string("%s entry %d: no record begins at %d", "file", "entry", "physical_offset")
    return [
        findings(bad.where(is_record), AuditRule.INDEX_ENTRY_MISMATCH, mismatch, mended),
        findings(bad.where(~is_record), AuditRule.INDEX_ENTRY_UNREADABLE, unreadable, mended | beyond),
    ]


def _missing(good: DataFrame, bad: DataFrame, keys: DataFrame, frames: IndexFrames) -> DataFrame:
    """Return the keys without an entry, except those already reported by an entry with a wrong target."""
    files = good.groupBy("broker", "file").agg(
        F.min("physical_offset").alias("low"), F.max("physical_offset").alias("high")
    )
    bounds = files.groupBy("broker").agg(
        F.min("low").alias("index_begin"),
        F.max("high").alias("index_end"),
        F.collect_list(F.struct("low", "high")).alias("files"),
    )
    required = keys.where("is_required")
    entry = ["broker", "physical_offset", "key_hash"]
    left = required.join(frames.entries.select(*entry), entry, "left_anti")
    left = left.join(F.broadcast(frames.deleted), ["broker", "topic"], "left")
    left = left.where(F.col("physical_offset") >= F.coalesce("mark", F.lit(0)))
    left = left.join(bad.select("broker", "physical_offset"), ["broker", "physical_offset"], "left_anti")
    left = left.join(bad.select("broker", "key_hash"), ["broker", "key_hash"], "left_anti")
    left = left.join(F.broadcast(bounds), "broker").where(F.col("physical_offset") > F.col("index_begin"))
    offset = F.col("physical_offset")
    inside = F.exists("files", lambda file: offset.between(file["low"], file["high"]))
    # RocketMQ with messageIndexSafe=false removes the last file after a crash, and does not rebuild it.
    between = ~inside & (offset < F.col("index_end"))
    why = F.when(between, " (between two index files, as messageIndexSafe=false leaves it after a crash)").otherwise("")
    detail = F.concat(F.format_string("a key of the message at %d of the CommitLog", "physical_offset"), why)
    mended = between | (F.col("store_timestamp") > frames.of.index_known_ms())
    return findings(left, AuditRule.INDEX_MISSING_KEY, detail, mended)
