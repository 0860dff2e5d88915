"""Messages pulled from brokers by the Spark format ``rocketmq``, compared with those in the brokers' stores.

Without Spark: tests/unit/analytics/spark/test_pull_reader.py.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rocketbroker.analytics.spark.spark_progress import reason_of
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageQueue
from tests.support.our_servers import OurServers, make_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]

QUEUES = [MessageQueue("Orders", f"broker-{name}", number) for name in "ab" for number in range(2)]
PLACE = "broker string, queue_id int, queue_offset bigint"
Row = dict[str, Any]


def rows_of(frame: DataFrame) -> list[Row]:
    """Return the rows in the order of the logs."""
    found: list[Row] = frame.toArrow().to_pylist()
    return sorted(found, key=lambda row: (row["broker"], row.get("physical_offset", 0), row["queue_id"]))


class Loaded(NamedTuple):
    """Two brokers with messages, and those of the topic Orders in their stores as a client is given them."""

    namesrv: str
    stored: list[Row]

    def read(self, spark: SparkSession, schema: str = PLACE, **options: Any) -> DataFrame:
        options = {"namesrvAddr": self.namesrv, "subscribe": "Orders"} | options
        reader = spark.read.format("rocketmq").options(**options)
        return (reader.schema(schema) if schema else reader).load()

    def places(self, chosen: Callable[[Row], bool] = lambda _row: True) -> set[tuple[Any, ...]]:
        return {(row["broker"], row["queue_id"], row["queue_offset"]) for row in self.stored if chosen(row)}


async def send(namesrv: str) -> None:
    async with Producer("PG", namesrv) as producer:
        for number in range(200):
            text = f"body {number} " * (1000 if number % 9 == 0 else 1)  # long bodies are sent compressed
            message = Message(
                "Orders",
                text.encode(),
                tags=f"t{number % 3}",
                keys=f"k{number}",
                properties={"color": "red", "number": str(number)},
                flag=number,
            )
            await producer.send(message, QUEUES[number % 3])  # the fourth queue stays empty
            await producer.send(Message("Others", b"other"))


def as_delivered(row: Row) -> Row:
    is_compressed = row["sys_flag"] & 1
    return row | {
        "sys_flag": row["sys_flag"] & ~1,
        "body": zlib.decompress(row["body"]) if is_compressed else row["body"],
    }


@pytest.fixture(scope="module")
def loaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    servers = OurServers(tmp_path_factory.mktemp("source"))
    try:
        namesrv = servers.namesrv()
        brokers = {name: servers.broker(namesrv.address, brokerName=name) for name in ("broker-a", "broker-b")}
        for broker in brokers.values():
            for topic in ("Orders", "Others", "Empty"):
                make_topic(broker.address, namesrv.address, topic, 2)
        asyncio.run(send(namesrv.address))
        stores = ",".join(f"{name}={broker.store}" for name, broker in brokers.items())
        stored = rows_of(spark.read.format("rocketmq_store").load(stores).where("topic = 'Orders'"))
        assert any(row["sys_flag"] & 1 for row in stored)
        yield Loaded(namesrv.address, [as_delivered(row) for row in stored])
    finally:
        servers.close()


def test_a_batch_has_the_rows_of_the_stores(spark: SparkSession, loaded: Loaded) -> None:
    frame = loaded.read(spark, schema="", subscribe="Orders, Empty")
    found = rows_of(frame)
    assert len(found) == 200
    for row, stored in zip(found, loaded.stored, strict=True):
        assert row == stored
    assert frame.schema["body"].metadata["comment"] == "the body, decompressed; null if it cannot be decompressed"
    assert loaded.read(spark, subscribe="Empty").collect() == []


def test_bounds_limit_a_batch(spark: SparkSession, loaded: Loaded) -> None:
    def found(**options: Any) -> set[tuple[Any, ...]]:
        rows = [tuple(row) for row in loaded.read(spark, **options).collect()]
        assert len(set(rows)) == len(rows)
        return set(rows)

    one = ("broker-a", 0)
    of_one = {
        "startingOffsets": '{"broker-a": {"Orders": {"0": 7}}}',
        "endingOffsets": '{"broker-a": {"Orders": {"0": 9}}}',
    }
    assert found(**of_one) == loaded.places(
        lambda row: (row["broker"], row["queue_id"]) != one or 7 <= row["queue_offset"] < 9
    )
    times = sorted(row["store_timestamp"] for row in loaded.stored)
    since, before = times[50], times[150]
    in_ms = [round(each.timestamp() * 1000) for each in (since, before)]
    assert found(startingTimestamp=in_ms[0], endingTimestamp=in_ms[1]) == loaded.places(
        lambda row: since <= row["store_timestamp"] < before
    )
    assert found(startingTimestamp=in_ms[1] + 1_000_000) == set()


def test_options_of_a_batch(spark: SparkSession, loaded: Loaded) -> None:
    schema = f"{PLACE}, topic string, properties map<string,string>"
    frame = loaded.read(spark, schema, minPartitions=7, includeProperties="color,none")
    rows = frame.collect()
    assert frame.rdd.getNumPartitions() >= 7
    assert {tuple(row)[:3] for row in rows} == loaded.places()
    assert len(rows) == 200
    assert all(row["properties"] == {"color": "red"} for row in rows)
    by_pattern = spark.read.format("rocketmq").options(namesrvAddr=loaded.namesrv, subscribePattern=".*").load()
    assert {(row[0], row[1]) for row in by_pattern.groupBy("topic").count().collect()} == {
        ("Orders", 200),
        ("Others", 200),
    }


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"subscribe": "Orders,None"}, "no queue to read of topic None; create it, or correct its name or perm"),
        (
            {"startingOffsets": '{"broker-b": {"Orders": {"1": 9}}}'},
            "startingOffsets has 9 for queue 1 of Orders at broker-b",
        ),
    ],
)
def test_the_reason_of_an_error_is_shown(
    spark: SparkSession, loaded: Loaded, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(PySparkException) as refused:
        loaded.read(spark, **options).collect()
    assert reason in reason_of(refused.value)
