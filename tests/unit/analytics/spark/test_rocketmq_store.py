import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.log.message_reader import read_store
from rocketbroker.analytics.spark.rocketmq_store import RocketMQStore, spark_schema
from rocketbroker.analytics.spark.source_options import FactRows, encode_selection
from rocketbroker.analytics.sql.facts import FACTS, Fact, grouped
from rocketbroker.analytics.tables.table import table_schema
from rocketbroker.analytics.tables.table_reader import TABLES, find_table
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.commit_log_writer import CommitLogWriter

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


def test_columns_are_resolved_in_any_case_and_keep_their_spelling(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path).append_many(100)
    schema = StructType([StructField("Queue_ID", IntegerType()), StructField("TOPIC", StringType())])
    source = RocketMQStore({"path": str(tmp_path), "selection": encode_selection(Selection(queue_ids={1}))})
    rows = rows_of(source.reader(schema))
    assert [row["Queue_ID"] for row in rows] == [1] * 25
    assert {*rows[0]} == {"Queue_ID", "TOPIC"}
    stream = source.streamReader(schema)
    start = stream.initialOffset()
    (part,) = stream.partitions(start, stream.latestOffset(start, stream.getDefaultReadLimit()))
    assert [row for batch in stream.read(part) for row in batch.to_pylist()] == rows
    wanted = table_schema(find_table("messages"), ["Topic"])
    assert spark_schema(wanted, find_table("messages").fields)["Topic"].metadata["comment"].startswith("topic under")


@pytest.mark.parametrize("name", TABLES)
def test_each_table_has_its_schema(name: str) -> None:
    schema = RocketMQStore({"table": name}).schema()
    assert schema.names == TABLES[name].schema.names
    assert all(column.metadata["comment"] for column in schema)


@pytest.mark.parametrize("fact", FACTS.values(), ids=FACTS)
def test_a_fact_has_the_rows_of_the_messages_that_are_selected(tmp_path: Path, fact: Fact) -> None:
    CommitLogWriter(tmp_path).append_many(100)
    asked = {"path": str(tmp_path), "splitSize": "5000", "fact": FactRows(fact.name, fact.reads, {}).encode()}
    selection = Selection(queue_ids={1, 2})
    reader = RocketMQStore(asked | {"selection": encode_selection(selection)}).reader(from_arrow_schema(fact.schema))
    assert len(reader.partitions()) > 4
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    whole = pa.Table.from_batches(read_store(tmp_path, fact.reads, selection=selection)).combine_chunks()
    expected = grouped(fact.rows_of(whole.to_batches()[0]), fact.schema, fact.how)
    assert as_rows(grouped(pa.Table.from_batches(batches, fact.schema), fact.schema, fact.how)) == as_rows(expected)


def as_rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def test_wrong_facts_are_named(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path).append_many(1)
    for name, columns, message in (
        ("speed", ("topic",), "fact 'speed' is unknown; use one of traffic, sizes"),
        ("sizes", ("topic",), "the columns of fact sizes are broker, topic, size, messages"),
    ):
        source = RocketMQStore({"path": str(tmp_path), "fact": FactRows(name, columns, {}).encode()})
        with pytest.raises(ConfigError, match=message):
            source.reader(PRUNED)
        with pytest.raises(ConfigError, match=r"fact cannot be streamed; read it with spark\.read"):
            source.streamReader(PRUNED)


def test_a_batch_has_no_options_of_streams(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it is for readStream"):
        RocketMQStore({"path": str(tmp_path), "maxBytesPerTrigger": "1m"}).reader(PRUNED)


def test_a_stream_has_no_options_of_batches(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="endingTimestamp is '1': a stream has no end"):
        RocketMQStore({"path": str(tmp_path), "endingTimestamp": "1"}).streamReader(PRUNED)


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
