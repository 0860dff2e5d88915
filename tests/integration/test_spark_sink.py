"""Data frames and streams written to brokers by the Spark format ``rocketmq``."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from rocketbroker.analytics.spark.message_rows import MESSAGE_ID, RowError
from rocketbroker.analytics.spark.message_writer import MessageStreamWriter, MessageWriter
from rocketbroker.analytics.spark.rocketmq import RocketMQ
from rocketbroker.analytics.spark.sink_options import sink_options
from rocketbroker.client.core.message import SendResult
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.testing import RocketMQServer
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.our_servers import ROOT
from tests.support.streaming_query import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

LIMIT_S = 300
SCHEMA = (
    "topic string, body string, keys array<string>, tags string, properties map<string,string>, flag int,"
    " delay_time_level int, delay_time_ms bigint, deliver_time_ms timestamp, sharding_key string, queue_id int,"
    " broker string"
)


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    """The shared session, which knows the format."""
    spark.dataSource.register(RocketMQ)
    return spark


@pytest.fixture(scope="module")
def server() -> Iterator[RocketMQServer]:
    with RocketMQServer(brokers=2) as server:
        yield server


@pytest.fixture
def mq(server: RocketMQServer) -> RocketMQServer:
    server.reset()
    return server


def write(frame: DataFrame, mq: RocketMQServer, **options: Any) -> None:
    frame.write.format("rocketmq").options(namesrvAddr=mq.namesrv_addr, **options).mode("append").save()


def frame_of(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame([{"topic": "T", "body": "x", **row} for row in rows], SCHEMA).coalesce(1)


def ids(messages: list[MessageExt]) -> list[str]:
    return [message.properties[MESSAGE_ID] for message in messages]


def test_a_data_frame_is_sent_with_every_field(spark: SparkSession, mq: RocketMQServer) -> None:
    fields = {"keys": ["k1", "k2"], "tags": "t", "properties": {"colour": "red"}, "flag": 9}
    write(frame_of(spark, {"body": "größer", **fields}, {"topic": "U"}), mq)
    (message,) = mq.messages("T")
    assert (message.body.decode(), message.tags, message.flag) == ("größer", "t", 9)
    assert (message.properties["KEYS"], message.properties["colour"]) == ("k1 k2", "red")
    (other,) = mq.messages("U")
    job, _, place = message.properties[MESSAGE_ID].partition(":")
    assert place == "0:0"
    assert other.properties[MESSAGE_ID] == f"{job}:0:1"


def test_delayed_rows_arrive_at_their_time(spark: SparkSession, mq: RocketMQServer) -> None:
    later = frame_of(
        spark,
        {"body": "level 5", "delay_time_level": 5},
        {"body": "after 10 s", "delay_time_ms": 10_000},
        {"body": "after an hour"},
    ).selectExpr("*", f"if(body = 'after an hour', timestamp_millis({mq.clock.time_ms() + 3_600_000}), null) as at")
    write(later.drop("deliver_time_ms").withColumnRenamed("at", "deliver_time_ms"), mq)
    mq.assert_messages("T", [])
    mq.clock.advance(12)
    mq.wait_until(lambda: mq.assert_messages("T", [b"after 10 s"]))
    mq.clock.advance(60)
    mq.wait_until(lambda: mq.assert_messages("T", [b"after 10 s", b"level 5"]))
    mq.clock.advance(3600)
    mq.wait_until(lambda: mq.assert_messages("T", [b"after 10 s", b"level 5", b"after an hour"]))


def test_rows_of_a_key_or_queue_keep_their_order(spark: SparkSession, mq: RocketMQServer) -> None:
    rows: list[dict[str, Any]] = [{"body": f"{number:03}", "sharding_key": f"k{number % 3}"} for number in range(150)]
    rows += [{"body": f"{number:03}", "queue_id": number % 2, "broker": "broker-b"} for number in range(150, 200)]
    write(frame_of(spark, *rows), mq)
    by_key: dict[str, list[MessageExt]] = {}
    for message in mq.messages("T"):
        key = message.properties.get("__SHARDINGKEY", f"queue {message.queue_id}")
        by_key.setdefault(key, []).append(message)
    assert set(by_key) == {"k0", "k1", "k2", "queue 0", "queue 1"}
    for number, key in enumerate(("k0", "k1", "k2")):
        assert [int(message.body) for message in by_key[key]] == list(range(number, 150, 3))
        assert len({(message.store_host, message.queue_id) for message in by_key[key]}) == 1
    assert [int(message.body) for message in by_key["queue 1"]] == list(range(151, 200, 2))
    assert mq.broker_addr not in {message.store_host_text for message in by_key["queue 1"]}, (
        "they went to the second broker"
    )


def test_two_partitions_have_ids_of_their_own_and_a_lost_answer_repeats_one(
    spark: SparkSession, mq: RocketMQServer
) -> None:
    mq.faults.cut_connections()
    write(spark.range(40).selectExpr("string(id) as body").repartition(2), mq, topic="T")
    found = ids(mq.messages("T"))
    (job,) = {each.partition(":")[0] for each in found}
    assert len(found) > 40, "what was stored before the cut was sent again"
    counts = [sum(f"{job}:{partition}:{row}" in found for row in range(40)) for partition in (0, 1)]
    assert len(set(found)) == sum(counts) == 40
    assert min(counts) > 0


def test_what_cannot_be_written_is_named(spark: SparkSession, mq: RocketMQServer) -> None:
    good = frame_of(spark, {})
    with pytest.raises(
        AnalysisException, match=r"column value is unknown; .* topic string, body binary or string, keys"
    ):
        write(good.selectExpr("*", "1 as value"), mq)
    with pytest.raises(AnalysisException, match="column flag is of type string; cast it to int"):
        write(good.selectExpr("topic", "body", "'1' as flag"), mq)
    with pytest.raises(AnalysisException, match=r'messages cannot be overwritten; use mode\("append"\)'):
        good.write.format("rocketmq").options(namesrvAddr=mq.namesrv_addr).mode("overwrite").save()
    with pytest.raises(
        PySparkException, match=r"row 1 of the partition \(topic T\): the message body is empty"
    ) as raised:
        write(frame_of(spark, {}, {"body": ""}), mq)
    assert "has sent 1 messages before it failed" in str(raised.value)
    assert len(mq.messages("T")) == 1


def test_a_stream_that_fails_sends_the_batch_again_with_the_same_ids(
    spark: SparkSession, mq: RocketMQServer, tmp_path: Path
) -> None:
    def add(first: int) -> None:
        rows = [{"body": f"{number:02}", "sharding_key": "k"} for number in range(first, first + 20)]
        frame_of(spark, *rows).select("body", "sharding_key").write.mode("append").parquet(str(tmp_path / "rows"))

    def run() -> None:
        stream = spark.readStream.schema("body string, sharding_key string").parquet(str(tmp_path / "rows"))
        writer = stream.writeStream.format("rocketmq").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.options(namesrvAddr=mq.namesrv_addr, topic="T").queryName("orders").trigger(availableNow=True)
        assert run_to_end(writer.start, LIMIT_S).name == "orders"

    add(0)
    mq.faults.delay_answers(0, times=7)
    mq.faults.answer(ResponseCode.NO_PERMISSION, times=None)
    with pytest.raises(StreamingQueryException, match=r"row 7 of the partition \(topic T\)") as raised:
        run()
    assert "has sent 7 messages before it failed; if Spark runs it again, they are sent again" in str(raised.value)
    mq.faults.clear()
    run()
    add(20)
    run()

    stored = mq.messages("T")
    assert [int(message.body) for message in stored] == [*range(7), *range(40)]
    assert ids(stored)[:7] == ids(stored)[7:14]
    kept = {message.properties[MESSAGE_ID]: message.body for message in stored}
    assert [int(body) for body in kept.values()] == list(range(40)), (
        "repeats are dropped by their ids, and nothing else"
    )
    found = deduplicated(spark, mq)
    assert sorted(int(bytes(row.body)) for row in found.collect()) == list(range(40))
    query = ids(stored)[0].partition(":")[0]
    assert list(kept) == [f"{query}:{batch}:0:{row}" for batch in (0, 1) for row in range(20)]


def deduplicated(spark: SparkSession, mq: RocketMQServer) -> DataFrame:
    """Return the messages of T without their copies, by the recipe of the manual."""
    page = (ROOT / "docs" / "reference" / "spark-brokers.md").read_text()
    (recipe,) = re.findall(r"```python\n(by_id = .*?)```", page, re.DOTALL)
    messages = spark.read.format("rocketmq").options(namesrvAddr=mq.namesrv_addr, subscribe="T").load()
    names: dict[str, Any] = {"messages": messages}
    exec(recipe, names)
    found: DataFrame = names["found"]
    return found


def test_a_secret_is_in_no_plan_and_no_checkpoint(
    spark: SparkSession, mq: RocketMQServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = {"accessKey": "the-user", "secretKey": "geheim-7"}
    access = {"namesrvAddr": mq.namesrv_addr, **keys}
    write(frame_of(spark, {}), mq, **keys)
    read = spark.read.format("rocketmq").options(**access, subscribe="T").load()
    assert read.count() == 1
    read.explain(extended=True)
    stream = spark.readStream.format("rocketmq").options(**access, subscribe="T").load().select("body")
    writer = stream.writeStream.format("rocketmq").options(**access, topic="U")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query = run_to_end(writer.start, LIMIT_S)
    query.explain(extended=True)
    print(query.lastProgress)
    assert len(mq.messages("U")) == 1
    with pytest.raises(PySparkException) as raised:
        write(frame_of(spark, {"body": ""}), mq, **keys)
    said = "".join(capfd.readouterr()) + str(raised.value)
    said += "".join(
        file.read_text() for file in (tmp_path / "checkpoint").rglob("*") if file.suffix != ".crc" and file.is_file()
    )
    assert "rocketmq" in said
    assert "geheim-7" not in said
    assert "the-user" not in said


def test_names_of_options_may_be_in_any_case(spark: SparkSession, mq: RocketMQServer, tmp_path: Path) -> None:
    def named(how: Any, **options: str) -> Any:
        """Give each option to a reader or writer, in upper case."""
        return how.format("rocketmq").options(**{name.upper(): text for name, text in options.items()})

    address = {"namesrvAddr": mq.namesrv_addr}
    named(frame_of(spark, {"body": "x"}).drop("topic").write, **address, topic="T").mode("append").save()
    assert named(spark.read, **address, subscribe="T").load().count() == 1
    stream = named(spark.readStream, **address, subscribe="T", maxOffsetsPerTrigger="1").load().select("body")

    def start() -> Any:
        writer = named(stream.writeStream, **address, topic="U", checkpointLocation=str(tmp_path / "checkpoint"))
        return writer.queryName("Copy").trigger(availableNow=True).start()

    run_to_end(start, LIMIT_S)
    assert [message.body for message in mq.messages("U")] == [b"x"]
    # Of two names that differ in case only, Spark passes on the last.
    given = f"NAMESRVADDR '{mq.namesrv_addr}', subscribe 'None', SUBSCRIBE 'U'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW copied USING rocketmq OPTIONS ({given})")
    assert spark.table("copied").count() == 1
    writer = CommitLogWriter(tmp_path / "store")
    writer.append()
    given = f"PATH '{writer.root}', SUBSCRIBE 'Topic', STARTINGOFFSETS 'earliest'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW stored USING rocketmq_store OPTIONS ({given})")
    assert spark.table("stored").count() == 1


def test_a_stream_in_complete_mode_is_refused(spark: SparkSession, mq: RocketMQServer, tmp_path: Path) -> None:
    counts = spark.readStream.format("rate").load().selectExpr("string(value) as body").groupBy("body").count()
    writer = counts.select("body").writeStream.format("rocketmq").outputMode("complete")
    writer = writer.options(namesrvAddr=mq.namesrv_addr, topic="T", checkpointLocation=str(tmp_path))
    with pytest.raises(StreamingQueryException, match=r'cannot be overwritten; use outputMode\("append"\)'):
        run_to_end(writer.trigger(availableNow=True).start, LIMIT_S)


class SecondAttempt:
    """Context of the second attempt of a task of a micro-batch."""

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 2

    def attemptNumber(self) -> int:  # noqa: N802 - Spark's name
        return 1

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - Spark's name
        return {"sql.streaming.queryId": "q", "streaming.sql.batchId": "5"}[name]


def test_a_task_that_runs_again_sends_the_same_ids_and_says_so(
    mq: RocketMQServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(TaskContext, "get", SecondAttempt)
    options = sink_options({"namesrvAddr": mq.namesrv_addr, "topic": "T", "producerGroup": "writers"})
    writers = MessageWriter(options), MessageStreamWriter(options)
    for writer in (*writers, *writers):
        assert writer.write(iter([pa.record_batch({"body": [b"a", b"b"]})])).count == 2
    sent = ids(mq.messages("T"))
    assert sorted(sent[:4]) == sorted(sent[4:])
    assert {"q:5:2:0", "q:5:2:1"} < set(sent)
    assert len(set(sent)) == 4
    assert "rocketmq sink: attempt 1 of q:5:2 sends again, with the same ids, what" in caplog.text


def test_rows_outlast_a_restart_of_the_broker(mq: RocketMQServer, monkeypatch: pytest.MonkeyPatch) -> None:
    has_failed = threading.Event()

    class WatchedProducer(Producer):
        async def send(self, *args: Any, **options: Any) -> SendResult:
            try:
                return await super().send(*args, **options)
            except RocketBrokerError:
                has_failed.set()
                raise

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        mq.stop_broker()
        yield batch(2)
        assert has_failed.wait(60)
        mq.start_broker()

    def batch(first: int) -> pa.RecordBatch:
        bodies = [str(first), str(first + 1)]
        return pa.record_batch({"body": bodies, "queue_id": [0, 0], "broker": ["broker-a", "broker-b"]})

    monkeypatch.setattr(TaskContext, "get", SecondAttempt)
    monkeypatch.setattr("rocketbroker.analytics.spark.message_writer.Producer", WatchedProducer)
    writer = MessageWriter(sink_options({"namesrvAddr": mq.namesrv_addr, "topic": "T"}))
    writer.write(iter([batch(4)]))  # creates the topic at both brokers
    assert writer.write(batches()).count == 4
    assert {message.body for message in mq.messages("T")} == {b"%d" % number for number in range(6)}


def test_a_message_without_its_copy_at_a_slave_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", SecondAttempt)
    with RocketMQServer({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "50"}) as mq:
        options = sink_options({"namesrvAddr": mq.namesrv_addr, "topic": "T", "retryTimes": "1"})
        with pytest.raises(RowError, match=r"row 0 .* stored the message, but answered FLUSH_SLAVE_TIMEOUT: it may"):
            MessageStreamWriter(options).write(iter([pa.record_batch({"body": [b"a"]})]))
        assert ids(mq.messages("T")) == ["q:5:2:0"] * 2
