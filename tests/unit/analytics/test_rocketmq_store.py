"""The data source by itself, without a Spark session."""

from pathlib import Path

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from rocketbroker.analytics.rocketmq_store import RocketMQStore
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.commit_log_writer import CommitLogWriter

PRUNED = StructType(
    [StructField("queue_id", IntegerType()), StructField("store_timestamp", LongType(), nullable=False)]
)


def test_partitions_together_deliver_every_message_in_the_schema_asked_for(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path).append_many(100)
    reader = RocketMQStore({"path": str(tmp_path), "splitSize": "5000"}).reader(PRUNED)
    partitions = reader.partitions()
    assert len(partitions) > 4
    rows = [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
    assert [row["queue_id"] for row in rows] == [number % 4 for number in range(100)]
    assert {row["store_timestamp"] for row in rows} == {1_795_255_162_876}


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({}, PRUNED, "reads one store directory: name it in load"),
        ({"path": "x", "splitSize": "0"}, PRUNED, "splitSize is '0'; a number of bytes above 0 is expected"),
        ({"path": "x", "splitSize": "1m"}, PRUNED, "splitSize is '1m'"),
        (
            {"path": "x"},
            StructType([StructField("offset", LongType())]),
            "no column 'offset'; there are broker, topic, ",
        ),
        (
            {"path": "x"},
            StructType([StructField("born_timestamp", StringType())]),
            r"born_timestamp is of type timestamp\[us, tz=UTC\] or int64, not string",
        ),
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
