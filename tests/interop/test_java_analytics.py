"""Messages given to official Java consumers equal those read from the store's files, also while a broker runs."""

import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from rocketbroker.analytics import DecodeReport, Selection, read_store, read_table
from rocketbroker.analytics.columns.selection import EVERYTHING
from rocketbroker.analytics.log import queue_plan
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.analytics.spark.message_rows import MESSAGE_ID
from rocketbroker.analytics.spark.message_writer import MessageWriter
from rocketbroker.analytics.spark.rocketmq import RocketMQ
from rocketbroker.analytics.spark.sink_options import sink_options
from tests.support.checkpointed_query import through_json
from tests.support.java import Java
from tests.support.java_lines import Got, got, sent
from tests.support.java_process import JavaServer
from tests.support.our_servers import OurServers, make_topic
from tests.support.sink_task import SinkTask

pytestmark = [pytest.mark.java, pytest.mark.timeout(400)]

QUEUES = 4
TOPIC = "Analytics"
# The log and its queues roll several times.
SIZES: dict[str, str | int] = {"mappedFileSizeCommitLog": 1 << 18, "mappedFileSizeConsumeQueue": 6_000}
COLUMNS = (
    "topic",
    "queue_id",
    "queue_offset",
    "uniq_key",
    "reconsume_times",
    "tags",
    "keys",
    "flag",
    "born_timestamp",
    "store_timestamp",
    "body",
    "sys_flag",
    "properties",
)


def rows_of_topic(
    store: Path, report: DecodeReport | None = None, selection: Selection = EVERYTHING
) -> list[dict[str, Any]]:
    """Return the topic's messages as the files hold them, in the order of the log."""
    batches = read_store(str(store), COLUMNS, report=report, selection=selection)
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [row | {"properties": dict(row["properties"])} for row in rows if row["topic"] == TOPIC]


def as_consumer_sees(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row by the fields of ``Got``, bodies unpacked as a client does."""
    body = zlib.decompress(row["body"]) if row["sys_flag"] & 1 else row["body"]
    properties = row["properties"]
    return (
        int(properties["n"]),
        row["queue_id"],
        row["queue_offset"],
        row["uniq_key"],
        row["reconsume_times"],
        row["tags"],
        row["keys"],
        zlib.crc32(body),
        properties["text"],
        row["flag"],
        round(row["born_timestamp"].timestamp() * 1000),
        round(row["store_timestamp"].timestamp() * 1000),
        row["topic"],
    )


def as_row_says(message: Got) -> tuple[Any, ...]:
    """All that a consumer was given, but for when."""
    return tuple(value for name, value in zip(Got._fields, message, strict=True) if name != "received")


def check_equal(rows: Iterable[dict[str, Any]], messages: Iterable[Got]) -> None:
    assert sorted(map(as_consumer_sees, rows)) == sorted(map(as_row_says, messages))


def start_apache(java: Java, namesrv: str, store: Path) -> JavaServer:
    return java.broker(namesrv, store, **SIZES)


@pytest.mark.parametrize("broker", ["ours", pytest.param("apache", marks=pytest.mark.soak)])
def test_pull_and_push_consumers_get_the_messages_in_the_files(
    java: Java, our_servers: OurServers, tmp_path: Path, broker: str
):
    store, namesrv = tmp_path / "store", our_servers.namesrv().address
    server = our_servers.broker(namesrv, store, **SIZES) if broker == "ours" else start_apache(java, namesrv, store)
    make_topic(server.address, namesrv, TOPIC, QUEUES)
    produced = java.run("Produce", f"namesrv={namesrv}", f"topic={TOPIC}", "plan=sync:700:4,batch:200:1,async:300:2")
    assert produced.returncode == 0, produced.stdout[-2000:] + produced.stderr
    count = len(sent(produced.stdout))

    pulled = java.run("Pull", f"namesrv={namesrv}", f"topic={TOPIC}", "group=CG_Pull", "suspend=1000")
    pushed = java.run("Push", f"namesrv={namesrv}", f"topic={TOPIC}", "group=CG_Push", f"stopAfter={count}")
    assert (pulled.returncode, pushed.returncode) == (0, 0), pulled.stderr + pushed.stderr

    report = DecodeReport()
    rows = rows_of_topic(store, report)
    assert len(rows) == count == 1200
    assert any(row["sys_flag"] & 1 for row in rows), "some bodies are compressed"
    check_equal(rows, got(pulled.stdout))
    check_equal(rows, got(pushed.stdout))
    assert report.broken == report.unfinished == []
    assert len(list((store / "commitlog").iterdir())) > 2


def pulled(namesrv: str, **options: str) -> list[dict[str, Any]]:
    """Return the topic's messages as the Spark format gives them, by queue."""
    source = RocketMQ({"namesrvAddr": namesrv, "subscribe": TOPIC, **options})
    reader = source.reader(source.schema())
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return [row | {"properties": dict(row["properties"])} for row in rows]


def test_pulls_from_apache_give_the_rows_of_its_store(java: Java, our_servers: OurServers, tmp_path: Path):
    store, namesrv = tmp_path / "store", our_servers.namesrv().address
    server = start_apache(java, namesrv, store)
    make_topic(server.address, namesrv, TOPIC, QUEUES)
    plan = "plan=sync:300:4,batch:100:1,async:100:2"
    produced = java.run("Produce", f"namesrv={namesrv}", f"topic={TOPIC}", plan)
    assert produced.returncode == 0, produced.stdout[-2000:] + produced.stderr
    batches = read_store(f"broker-a={store}", selection=Selection(topics={TOPIC}))
    stored = [row | {"properties": dict(row["properties"])} for batch in batches for row in batch.to_pylist()]
    for row in stored:
        row["body"] = zlib.decompress(row["body"]) if row["sys_flag"] & 1 else row["body"]
        row["sys_flag"] &= ~1
    stored.sort(key=lambda row: (row["queue_id"], row["queue_offset"]))
    assert len(stored) == len(sent(produced.stdout)) == 500
    assert pulled(namesrv) == stored
    assert sorted(pulled(namesrv, minPartitions="9"), key=lambda row: (row["queue_id"], row["queue_offset"])) == stored

    times = sorted({round(row["store_timestamp"].timestamp() * 1000) for row in stored})
    since, before = times[len(times) // 3], times[len(times) // 3 * 2]
    assert pulled(namesrv, startingTimestamp=str(since), endingTimestamp=str(before)) == [
        row for row in stored if since <= round(row["store_timestamp"].timestamp() * 1000) < before
    ]
    assert pulled(namesrv, endingTimestamp=str(times[-1] + 1)) == stored
    assert pulled(namesrv, startingTimestamp=str(times[-1] + 1)) == []


def test_rows_sent_to_apache_are_those_that_its_consumers_and_our_streams_get(
    java: Java, our_servers: OurServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store, namesrv = tmp_path / "store", our_servers.namesrv().address
    server = start_apache(java, namesrv, store)
    make_topic(server.address, namesrv, TOPIC, QUEUES)
    monkeypatch.setattr(TaskContext, "get", SinkTask)
    count = 400
    sent_rows: dict[str, list[Any]] = {
        "body": [b"%d " % n * (n % 7 + 1) for n in range(count)],
        "keys": [[f"k{n}", "all"] for n in range(count)],
        "tags": [f"t{n % 3}" for n in range(count)],
        "properties": [{"n": str(n), "text": f"Größe {n}"} for n in range(count)],
        "flag": [n % 5 for n in range(count)],
        "sharding_key": [f"s{n % 6}" if n % 4 else None for n in range(count)],
        "queue_id": [None if n % 4 else 2 for n in range(count)],
    }
    schema = pa.schema({
        "body": pa.binary(), "keys": pa.list_(pa.string()), "tags": pa.string(),
        "properties": pa.map_(pa.string(), pa.string()), "flag": pa.int32(), "sharding_key": pa.string(),
        "queue_id": pa.int32(),
    })  # fmt: skip
    batches = pa.table(sent_rows, schema=schema).to_batches(max_chunksize=count // 5)
    writer = MessageWriter(sink_options({"namesrvAddr": namesrv, "topic": TOPIC}))
    source = RocketMQ({"namesrvAddr": namesrv, "subscribe": TOPIC, "maxOffsetsPerTrigger": str(count // 6)})
    streamed: list[dict[str, Any]] = []
    progress = None
    for part, triggers in ((batches[:3], 4), (batches[3:], 3)):
        writer.write(iter(part))
        # As Spark starts a query: nothing is left of the one before but the progress in the checkpoint.
        reader = source.streamReader(source.schema())
        progress = progress or through_json(reader.initialOffset())
        while (end := through_json(reader.latestOffset(progress, reader.getDefaultReadLimit()))) != progress:
            found = [batch for each in reader.partitions(progress, end) for batch in reader.read(each)]
            streamed += [row for batch in found for row in batch.to_pylist()]
            progress, triggers = end, triggers - 1  # noqa: PLW2901
        reader.stop()
        assert triggers == 0

    consumed = java.run("Pull", f"namesrv={namesrv}", f"topic={TOPIC}", "group=CG_Pull", "suspend=1000")
    assert consumed.returncode == 0, consumed.stdout[-2000:] + consumed.stderr
    stored = sorted(rows_of_topic(store), key=lambda row: int(row["properties"]["n"]))
    check_equal(stored, got(consumed.stdout))
    names = ("body", "keys", "tags", "flag")
    expected = [
        (body, " ".join(keys), tags, flag)
        for body, keys, tags, flag in zip(*(sent_rows[name] for name in names), strict=True)
    ]
    assert [tuple(row[name] for name in names) for row in stored] == expected
    for key in {*sent_rows["sharding_key"]} - {None}:
        queue = [row for row in stored if row["properties"].get("__SHARDINGKEY") == key]
        assert len({row["queue_id"] for row in queue}) == 1
        offsets = [row["queue_offset"] for row in queue]
        assert offsets == sorted(offsets)
    assert {row["queue_id"] for row in stored[::4]} == {2}
    ids = [row["properties"][MESSAGE_ID].rpartition(":")[2] for row in stored]
    assert ids == [*map(str, range(count // 5 * 3)), *map(str, range(count // 5 * 2))]
    streamed.sort(key=lambda row: int(dict(row["properties"])["n"]))
    same = ("queue_id", "queue_offset", "body", "keys", "flag", "uniq_key")
    assert [[row[name] for name in same] for row in streamed] == [[row[name] for name in same] for row in stored]


def test_reading_during_writes_gives_the_messages_that_consumers_get(
    java: Java, our_servers: OurServers, tmp_path: Path
):
    store, namesrv = tmp_path / "store", our_servers.namesrv().address
    server = our_servers.broker(namesrv, store, **SIZES)
    make_topic(server.address, namesrv, TOPIC, QUEUES)
    count = 6_000
    consumer = java.start("Push", f"namesrv={namesrv}", f"topic={TOPIC}", "group=CG_Live", f"stopAfter={count}")
    consumer.wait_for("STARTED")
    producer = java.start(
        "Produce", f"namesrv={namesrv}", f"topic={TOPIC}", f"plan=sync:{count // 2}:4,batch:{count // 2}:2"
    )
    seen: list[list[dict[str, Any]]] = []
    while producer.process.poll() is None:
        acknowledged = len(sent(producer.text()))
        report = DecodeReport()
        seen.append(rows_of_topic(store, report))
        assert len(seen[-1]) >= acknowledged, "what the producer knows of is there"
        assert report.broken == []
    assert producer.wait() == 0, producer.text()[-2000:]
    assert consumer.wait(120) == 0, consumer.text()[-2000:]

    messages = got(consumer.text())
    final = rows_of_topic(store)
    assert len(final) == count
    check_equal(final, messages)
    for rows in seen:
        assert rows == final[: len(rows)], "each reading gave a beginning of the log"
    assert len({len(rows) for rows in seen}) > 2, "several states were seen"
    assert our_servers.errors() == []


@pytest.mark.parametrize("broker", ["ours", pytest.param("apache", marks=pytest.mark.soak)])
def test_a_range_of_one_queue_equals_a_pull_of_it(
    java: Java, our_servers: OurServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: str
):
    # The end of a log is walked, since it may not be in the queues yet; this log is less than that.
    monkeypatch.setattr(queue_plan, "_DISPATCH_MARGIN", 1 << 12)
    store, namesrv = tmp_path / "store", our_servers.namesrv().address
    server = our_servers.broker(namesrv, store, **SIZES) if broker == "ours" else start_apache(java, namesrv, store)
    make_topic(server.address, namesrv, TOPIC, QUEUES)
    plan = f"plan=selector:{QUEUES * 350}:1"  # as many in each queue
    produced = java.run("Produce", f"namesrv={namesrv}", f"topic={TOPIC}", plan)
    assert produced.returncode == 0, produced.stdout[-2000:] + produced.stderr

    for queue, low, high in ((0, 0, 350), (2, 280, 320)):  # the second lies in two files of the queue
        where = [f"queue={queue}", f"from={low}", f"to={high}"]
        pulled = java.run("PullQueue", f"namesrv={namesrv}", f"topic={TOPIC}", "group=CG_Queue", *where)
        assert pulled.returncode == 0, pulled.stdout[-2000:] + pulled.stderr
        chosen = Selection(topics={TOPIC}, queue_ids={queue}, queue_offsets=(low, high))
        assert any(split.entries for split in plan_splits(str(store), selection=chosen)), "the queue is followed"
        rows = rows_of_topic(store, selection=chosen)
        assert [(row["queue_id"], row["queue_offset"]) for row in rows] == [(queue, n) for n in range(low, high)]
        check_equal(rows, got(pulled.stdout))
        assert rows == rows_of_topic(store, selection=replace(chosen, exact=True))
        entries = pa.Table.from_batches(read_table(str(store), "consume_queue", ["queue_offset"], chosen))
        assert entries["queue_offset"].to_pylist() == list(range(low, high))
