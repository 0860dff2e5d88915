"""The folder of a store for tables."""

import shutil
from typing import Any

import pyarrow as pa
import pytest

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.message_reader import read_store
from rocketbroker.analytics.tables.table import Rows, check_table_schema, queues_folder, root_folder, table_schema
from rocketbroker.analytics.tables.table_reader import TABLES, find_table, read_table
from rocketbroker.common.errors import ConfigError, StoreError


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_each_table_begins_with_its_broker_and_tells_what_its_columns_hold(table):
    assert table.schema.names[0] == "broker"
    assert table.comment
    for column in table.schema:
        assert column.metadata[b"comment"]
        assert column.name.endswith("_timestamp") == pa.types.is_timestamp(column.type)
    # What is damaged has no time: the split that it lies in is chosen by those of the messages around it.
    by_planning = {"store_timestamp"} if table.name == "corrupt_ranges" else set()
    assert set(table.selects.values()) - by_planning <= set(table.schema.names)
    check_table_schema(table, table_schema(table, None))


def test_columns_are_given_in_the_order_asked_for_without_metadata():
    schema = table_schema(find_table("topics"), ["perm", "topic"])
    assert (schema.names, schema.field("perm").metadata) == (["perm", "topic"], None)


def test_names_may_be_in_any_case_and_stay_as_written(clean):
    table = find_table("topics")
    schema = table_schema(table, ["Topic", "PERM"])
    assert schema.names == ["Topic", "PERM"]
    check_table_schema(table, schema)
    found = list(read_table(clean, "topics", ["Topic", "PERM"]))
    assert {tuple(batch.schema.names) for batch in found} == {("Topic", "PERM")}
    values = [row for batch in found for row in map(tuple, map(dict.values, batch.to_pylist()))]
    assert values == [
        row
        for batch in read_table(clean, "topics", ["topic", "perm"])
        for row in map(tuple, map(dict.values, batch.to_pylist()))
    ]
    (batch, *_) = read_store(clean, ["Queue_Id", "topic"], selection=Selection(queue_ids={0}))
    assert batch.schema.names == ["Queue_Id", "topic"]
    assert set(batch.column("Queue_Id").to_pylist()) == {0}
    with pytest.raises(ConfigError, match=r"column Entry of index has type int32, not int64"):
        check_table_schema(find_table("index"), pa.schema([("Entry", pa.int64())]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["topic", "Topic"], "a column is named twice in topic, Topic"),
        (["topic", "size"], "table topics has no column 'size'; its columns are broker, topic, read_queue_nums"),
        (["topic", "perm", "topic"], "a column is named twice in topic, perm, topic"),
    ],
)
def test_wrong_columns_are_named(columns, message):
    with pytest.raises(ConfigError, match=message):
        table_schema(find_table("topics"), columns)


def test_times_may_be_asked_for_as_stored_but_numbers_not_as_times():
    table = find_table("index")
    check_table_schema(table, pa.schema([("store_timestamp", pa.int64())]))
    with pytest.raises(ConfigError, match=r"column entry of index has type int32, not int64"):
        check_table_schema(table, pa.schema([("entry", pa.int64())]))
    with pytest.raises(ConfigError, match=r"store_timestamp of index has type timestamp\[us, tz=UTC\] or int64, not"):
        check_table_schema(table, pa.schema([("store_timestamp", pa.string())]))


def test_the_column_that_messages_have_on_request_only():
    schema = table_schema(find_table("messages"), ["decompressed_body"])
    check_table_schema(find_table("messages"), schema)
    assert "decompressed_body" not in table_schema(find_table("messages"), None).names


def test_times_outside_the_years_that_can_be_shown_are_null():
    millis: list[Any] = [
        -62_135_596_800_001,
        -62_135_596_800_000,
        None,
        0,
        253_402_300_799_999,
        253_402_300_800_000,
        2**63 - 1,
    ]
    rows = Rows(len(millis), {"due_timestamp": lambda: pa.array(millis, pa.int64())})
    kind = pa.timestamp("us", tz="UTC")
    shown = rows.batch(pa.schema([("due_timestamp", kind)])).column(0)
    assert shown.cast(pa.int64()).to_pylist() == [None, millis[1] * 1000, None, 0, millis[4] * 1000, None, None]
    assert rows.batch(pa.schema([("due_timestamp", pa.int64())])).column(0).to_pylist() == millis


def test_a_column_is_made_once():
    made: list[int] = []

    def make() -> pa.Array:
        made.append(1)
        return pa.array([1], pa.int64())

    rows = Rows(1, {"size": make, "broker": "b"})
    rows.column("size")
    assert rows.batch(pa.schema([("broker", pa.string()), ("size", pa.int32())])).to_pylist() == [
        {"broker": "b", "size": 1}
    ]
    assert made == [1]


def test_an_unknown_table_is_named_with_those_there_are():
    with pytest.raises(ConfigError, match="table 'queue' is unknown; use one of messages, consume_queue"):
        find_table("queue")


def test_a_commit_log_directory_is_not_enough(tmp_path):
    with pytest.raises(StoreError, match="is not the root of a RocketMQ store: it contains none of commitlog, "):
        root_folder(StoreRoot("b", str(tmp_path)))


def test_incomplete_queues_are_reported(clean, tmp_path, caplog):
    root = StoreRoot("b", str(shutil.copytree(clean, tmp_path / "store")))
    assert queues_folder(root, "delayed").root == root
    assert caplog.messages == []
    (tmp_path / "store" / "abort").write_bytes(b"1")
    queues_folder(root, "delayed")
    (told,) = caplog.messages
    assert told.startswith(f"{root.uri} was not stopped cleanly: delayed lacks messages whose queue entries ")
