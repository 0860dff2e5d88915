"""Settings that a worker makes once for its whole process; called in a process of its own."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.spark.rocketmq_store import RocketMQStore
from rocketbroker.analytics.spark.source_options import encode_selection
from rocketbroker.analytics.tables.table_reader import TABLES
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.commit_log_writer import CommitLogWriter

CODE = (
    "import gc; from rocketbroker.analytics.spark.rocketmq_store import settle; settle(); print(gc.get_freeze_count())"
)


@pytest.mark.parametrize(("reused", "passed_over"), [("1", True), ("", False)])
def test_only_a_worker_that_is_used_again_has_its_modules_skipped(reused: str, *, passed_over: bool) -> None:
    environment = os.environ | {"SPARK_REUSE_WORKER": reused}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert (int(done.stdout) > 0) is passed_over


PRUNED = StructType(
    [StructField("queue_id", IntegerType()), StructField("store_timestamp", LongType(), nullable=False)]
)


def rows_of(reader):
    partitions = [pickle.loads(pickle.dumps(partition)) for partition in reader.partitions()]
    return [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]


def test_partitions_together_deliver_every_message_in_the_schema_asked_for(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path).append_many(100)
    reader = RocketMQStore({"path": str(tmp_path), "splitSize": "5000"}).reader(PRUNED)
    assert len(reader.partitions()) > 4
    rows = rows_of(reader)
    assert [row["queue_id"] for row in rows] == [number % 4 for number in range(100)]
    assert {row["store_timestamp"] for row in rows} == {1_795_255_162_876}


def test_several_stores_are_one_table_with_their_brokers(tmp_path: Path) -> None:
    for name in ("one", "two"):
        CommitLogWriter(tmp_path / name).append_many(3)
    schema = StructType([StructField("broker", StringType())])
    reader = RocketMQStore({"path": f"a={tmp_path / 'one'},{tmp_path / 'two'}"}).reader(schema)
    assert [row["broker"] for row in rows_of(reader)] == ["a"] * 3 + ["two"] * 3


@pytest.mark.parametrize("name", TABLES)
def test_each_table_has_its_schema(name: str) -> None:
    schema = RocketMQStore({"table": name}).schema()
    assert schema.names == TABLES[name].schema.names
    assert all(column.metadata["comment"] for column in schema)


def test_a_batch_has_no_options_of_streams(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it is for readStream"):
        RocketMQStore({"path": str(tmp_path), "maxBytesPerTrigger": "1m"}).reader(PRUNED)


def test_a_selection_of_brokers_leaves_other_stores_unread(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path / "one").append_many(3)
    schema = StructType([StructField("broker", StringType())])
    places = {"path": f"a={tmp_path / 'one'},b={tmp_path / 'none'}"}
    reader = RocketMQStore(places | {"selection": encode_selection(Selection(brokers={"a"}))}).reader(schema)
    assert len(rows_of(reader)) == 3


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({}, PRUNED, "needs one or more stores; name them in load"),
        ({"path": "x", "splitSize": "0"}, PRUNED, "splitSize is '0'; give a number above 0"),
        (
            {"path": "x"},
            StructType([StructField("offset", LongType())]),
            "no column 'offset'; its columns are broker, topic, ",
        ),
        (
            {"path": "x"},
            StructType([StructField("born_timestamp", StringType())]),
            r"born_timestamp of messages has type timestamp\[us, tz=UTC\] or int64, not string",
        ),
        ({"path": "x", "table": "topics"}, PRUNED, "table topics has no column 'queue_id'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], schema: StructType, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RocketMQStore(options).reader(schema)


def test_a_missing_store_is_an_error_of_planning(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        RocketMQStore({"path": str(tmp_path / "none")}).reader(PRUNED).partitions()


def test_a_file_deleted_after_planning_is_an_error_that_names_it(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path)
    writer.append()
    reader = RocketMQStore({"path": str(tmp_path)}).reader(PRUNED)
    (partition,) = reader.partitions()
    writer.records[0][0].unlink()
    with pytest.raises(StoreError, match=f"cannot read the commit-log file {writer.records[0][0]}: No such file"):
        list(reader.read(partition))


def test_a_stream_reads_the_columns_asked_for(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path).append_many(10)
    reader = RocketMQStore({"path": str(tmp_path)}).streamReader(PRUNED)
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    batches = list(reader.read(part))
    assert {tuple(batch.schema.names) for batch in batches} == {("queue_id", "store_timestamp")}
    assert sum(batch.num_rows for batch in batches) == 10
