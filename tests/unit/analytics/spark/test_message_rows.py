from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketbroker.analytics.spark.message_rows import (
    SINK_COLUMNS,
    MessageRow,
    RowError,
    check_columns,
    message_rows,
)
from rocketbroker.client.core.errors import InvalidMessageError, TopicRouteError
from rocketbroker.client.core.message import Message
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.errors import ConfigError

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("body", pa.binary()),
        ("keys", pa.list_(pa.string())),
        ("tags", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("flag", pa.int32()),
        ("delay_time_level", pa.int32()),
        ("delay_time_ms", pa.int64()),
        ("deliver_time_ms", pa.timestamp("us", tz="Etc/UTC")),
        ("sharding_key", pa.string()),
        ("queue_id", pa.int32()),
        ("broker", pa.string()),
    ]
)
QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(3 if broker == "a" else 2)]


def rows(*given: dict[str, Any], topic: str | None = None, schema: pa.Schema = SCHEMA) -> list[MessageRow]:
    batch = pa.RecordBatch.from_pylist([{"topic": "T", "body": b"x", **row} for row in given], schema)
    return list(message_rows(batch, topic, "w:3", 7))


_TEXT = StringType()
_NUMBERS = (ByteType(), ShortType(), IntegerType(), LongType())
_KINDS: tuple[DataType, ...] = (
    _TEXT,
    *_NUMBERS,
    BinaryType(),
    TimestampType(),
    ArrayType(_TEXT),
    MapType(_TEXT, _TEXT),
)
KINDS = {kind.simpleString(): kind for kind in _KINDS}


def spark_columns(**columns: str) -> StructType:
    return StructType([StructField(name, KINDS[kind]) for name, kind in columns.items()])


def test_each_column_becomes_its_field():
    (row,) = rows(
        {"keys": ["k1", "k2"], "tags": "t", "properties": [("colour", "red")], "flag": 9, "sharding_key": "s"}
    )
    properties = {"colour": "red", "SPARK_MESSAGE_ID": "w:3:7"}
    assert row.message == Message("T", b"x", "t", ("k1", "k2"), properties, 9, sharding_key="s")
    assert (row.number, row.order_key) == (7, ("T", "s"))
    delays = ({"delay_time_level": 3}, {"delay_time_ms": 10}, {"deliver_time_ms": datetime(2030, 1, 1, tzinfo=UTC)})
    found = [row.message for row in rows(*delays)]
    assert [message.delay_time_level for message in found] == [3, 0, 0]
    assert [message.delay_time_ms for message in found] == [0, 10, 0]
    assert [message.deliver_time_ms for message in found] == [0, 0, 1_893_456_000_000]


def test_text_and_numbers_of_other_types_are_taken_as_well():
    schema = pa.schema(
        [("topic", pa.string()), ("body", pa.string()), ("keys", pa.string()), ("deliver_time_ms", pa.int64())]
    )
    (row,) = rows({"body": "größer", "keys": "k", "deliver_time_ms": 5}, schema=schema)
    assert (row.message.body, row.message.keys, row.message.deliver_time_ms) == ("größer".encode(), "k", 5)


def test_columns_may_be_in_any_case():
    check_columns(spark_columns(Topic="string", BODY="binary", Keys="string"), None)
    schema = pa.schema([("Topic", pa.string()), ("BODY", pa.binary()), ("Keys", pa.string())])
    batch = pa.RecordBatch.from_pylist([{"Topic": "T", "BODY": b"x", "Keys": "k"}], schema)
    (row,) = message_rows(batch, None, "w:3", 7)
    assert (row.message.topic, row.message.body, row.message.keys) == ("T", b"x", "k")
    (row,) = message_rows(batch, "U", "w:3", 7)
    assert row.message.topic == "U"
    with pytest.raises(ConfigError, match="a column is named twice in topic, body, Topic; drop or rename one"):
        check_columns(spark_columns(topic="string", body="binary", Topic="string"), None)


def test_null_is_not_given():
    (row,) = rows({})
    assert row.message == Message("T", b"x", properties={"SPARK_MESSAGE_ID": "w:3:7"})
    assert (row.queue, row.order_key) == (None, None)


def test_ids_follow_the_rows():
    assert [row.message.properties["SPARK_MESSAGE_ID"] for row in rows({}, {}, {})] == ["w:3:7", "w:3:8", "w:3:9"]
    (again,) = rows({"properties": [("SPARK_MESSAGE_ID", "of another write"), ("colour", "red")]})
    assert again.message.properties == {"SPARK_MESSAGE_ID": "w:3:7", "colour": "red"}


def test_the_option_topic_is_that_of_all_rows():
    assert [row.message.topic for row in rows({"topic": "U"}, {"topic": None}, topic="V")] == ["V", "V"]


def test_a_queue_is_chosen_by_its_number_and_if_necessary_its_broker():
    row, other, keyed = rows({"queue_id": 2}, {"queue_id": 1, "broker": "b"}, {"queue_id": 2, "sharding_key": "s"})
    assert row.queue is not None
    assert row.queue(QUEUES, row.message) == QUEUES[2]
    assert other.queue is not None
    assert other.queue(QUEUES, other.message) == QUEUES[4]
    assert row.order_key == keyed.order_key == ("T", 2)


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        (
            {"queue_id": 1},
            InvalidMessageError,
            "queue 1 of topic T is at several brokers; set column broker as well. Its queues are a:0, a:1",
        ),
        ({"queue_id": 2, "broker": "b"}, TopicRouteError, "b:2 of topic T does not exist. Its queues are a:0"),
        ({"queue_id": 3}, TopicRouteError, "queue 3 of topic T does not exist"),
    ],
)
def test_a_queue_that_is_none_or_several_is_an_error(fields: dict[str, Any], kind: type[Exception], message: str):
    (row,) = rows(fields)
    assert row.queue is not None
    with pytest.raises(kind, match=message):
        row.queue(QUEUES, row.message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"topic": None}, r"row 8 of the partition \(topic null\): topic is null; filter such rows, or fill it"),
        ({"body": None}, r"row 8 of the partition \(topic T\): body is null"),
        ({"body": b""}, r"row 8 of the partition \(topic T\): the message body is empty; give at least one byte"),
        ({"topic": "a b"}, r"\(topic a b\): .*illegal characters"),
        ({"delay_time_ms": -1}, "delay_time_ms is -1; give a whole number from 0"),
        ({"delay_time_level": -1}, "delay_time_level is -1; give a whole number from 0"),
        ({"queue_id": -1}, "queue_id is -1; give a whole number from 0"),
        ({"delay_time_ms": 1, "delay_time_level": 1}, "the message has delay_time_level and delay_time_ms; give one"),
        ({"properties": [("KEYS", "k")]}, "the property 'KEYS' is kept for RocketMQ itself"),
        ({"properties": [("colour", None)]}, "the property 'colour' is None; give text"),
        ({"keys": ["k", None]}, "in this list, give text"),
        ({"broker": "a"}, "broker is a and queue_id is null; give both, or queue_id alone"),
    ],
)
def test_a_row_that_is_no_message_is_named(fields: dict[str, Any], message: str):
    with pytest.raises(RowError, match=message):
        rows({}, fields)


def test_columns_of_every_type_are_taken():
    for name, kinds in SINK_COLUMNS.items():
        for kind in kinds:
            check_columns(spark_columns(**{"topic": "string", "body": "binary", "queue_id": "int", name: kind}), None)
    check_columns(spark_columns(body="string"), "T")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": "int"}, "column value is unknown; .*: topic string, body binary or string, keys"),
        ({"body": "array<string>"}, "column body is of type array<string>; cast it to binary or string"),
        ({"flag": "bigint"}, "column flag is of type bigint; cast it to int or smallint or tinyint"),
        ({"topic": "string"}, "column body is missing; the columns of a message are topic string"),
        ({"body": "binary"}, "column topic is missing; add it, or give the option topic"),
        ({"topic": "string", "body": "binary", "broker": "string"}, "column broker needs column queue_id; add it, or"),
    ],
)
def test_columns_that_no_message_has_are_named(columns: dict[str, str], message: str):
    with pytest.raises(ConfigError, match=message):
        check_columns(spark_columns(**columns), None)
