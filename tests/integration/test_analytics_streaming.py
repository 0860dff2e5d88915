"""Stores tailed into Parquet by Spark: each message once, over kills of query and broker and rolls of the log.

Without Spark: tests/unit/analytics/spark/test_stream_reader.py.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.commit_log_writer import CommitLogWriter
from tests.support.killed_stream import SOURCES, KilledStream
from tests.support.our_servers import OurServers
from tests.support.queued_store import QueuedStore
from tests.support.slow_store_reader import slow_rows
from tests.support.streaming_query import (
    COLUMNS,
    is_further,
    run_to_end,
    start_query,
    stopped,
    written_batches,
    written_rows,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]

LIMIT_S = 400  # a machine may have much else to do


def expected(commit_log: Path, broker: str) -> list[tuple[Any, ...]]:
    rows = [{"broker": broker, **row} for row in slow_rows(commit_log)]
    return sorted(tuple(row[name] for name in COLUMNS) for row in rows)


def finish(spark: SparkSession, store: Path, out: Path, checkpoint: Path, **options: Any) -> StreamingQuery:
    """Write what there is."""
    return run_to_end(lambda: start_query(spark, store, out, checkpoint, available_now=True, **options), LIMIT_S)


def test_each_message_comes_once_over_stops_of_the_query_and_rolls_of_the_log(spark: SparkSession, tmp_path: Path):
    writer = CommitLogWriter(tmp_path / "store", file_size=1 << 16)
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    for seed in range(3):
        writer.append_many(150, seed)
        options: dict[str, Any] = {"maxBytesPerTrigger": 40_000, "splitSize": 10_000}
        if seed == 1:  # one that is stopped wherever it is
            known = written_batches(out)
            with stopped(start_query(spark, writer.root, out, checkpoint, **options)) as query:
                wait_until(partial(is_further, out, known, query), "nothing was written", LIMIT_S)
        else:
            finish(spark, writer.root, out, checkpoint, **options)
    assert written_rows(spark, out) == expected(writer.directory, "store")
    assert len(list(writer.directory.iterdir())) > 1
    finish(spark, writer.root, out, checkpoint)
    assert written_rows(spark, out) == expected(writer.directory, "store")


def test_a_query_has_the_starts_and_limits_of_kafka_s_source(spark: SparkSession, tmp_path: Path):
    store = QueuedStore(tmp_path / "store", 100)
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    starts = {"store": {"Orders": {"0": 5, "1": -1}}}
    options: dict[str, Any] = {"subscribePattern": "Orders|New", "maxOffsetsPerTrigger": 60, "maxBytesPerTrigger": "1m"}
    options |= {"startingOffsets": json.dumps(starts), "minOffsetsPerTrigger": 10, "maxTriggerDelay": "1h"}
    with stopped(start_query(spark, store.root, out, checkpoint, **options)) as query:
        wait_until(partial(is_further, out, 0, query), "nothing was written", LIMIT_S)
    first = {("Orders", 0): 5, ("Orders", 1): store.end("Orders", 1)}
    store.append(50, ("Orders", "New"))
    finish(spark, store.root, out, checkpoint, minOffsetsPerTrigger=1000, subscribePattern="Orders|New")
    found = [(row["topic"], row["queue_id"], row["queue_offset"]) for row in store.rows]
    wanted = [each for each in found if each[0] in {"Orders", "New"} and each[2] >= first.get(each[:2], 0)]
    assert [row[1:4] for row in written_rows(spark, out)] == sorted(wanted)


def test_a_query_reports_its_progress(spark: SparkSession, tmp_path: Path):
    writer = CommitLogWriter(tmp_path / "store")
    writer.append_many(50)
    progress = finish(spark, writer.root, tmp_path / "out", tmp_path / "checkpoint").lastProgress
    assert progress is not None
    (source,) = progress["sources"]
    assert f'"offset":{writer.end}' in str(source["endOffset"]).replace(" ", "").replace("'", '"')


def test_files_removed_unread_end_the_query(spark: SparkSession, tmp_path: Path):
    writer = CommitLogWriter(tmp_path / "store", file_size=1 << 14)
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    writer.append_many(10)
    finish(spark, writer.root, out, checkpoint)
    before = written_rows(spark, out)
    writer.append_many(200, 2)
    for path in sorted(writer.directory.iterdir())[:2]:
        path.unlink()
    with pytest.raises(
        StreamingQueryException, match="were removed before they were read; set the option failOnDataLoss"
    ) as raised:
        finish(spark, writer.root, out, checkpoint)
    assert "start the query again" not in str(raised.value)
    finish(spark, writer.root, out, checkpoint, failOnDataLoss=False)
    assert written_rows(spark, out) == sorted(before + expected(writer.directory, "store"))


# Stops of a query on store files are tested above.
@pytest.mark.parametrize("source", [pytest.param(SOURCES[0], marks=pytest.mark.soak), SOURCES[1]])
def test_each_message_comes_once_through_kills_of_query_and_broker(
    spark: SparkSession, servers: OurServers, source: str
):
    stream = KilledStream(servers, source)
    stream.kill_both(rounds=1)
    stream.finish(spark)
    assert written_rows(spark, stream.out) == stream.expected()
    assert len(list(stream.commit_log.iterdir())) > 1
