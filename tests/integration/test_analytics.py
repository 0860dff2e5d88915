"""The data source and the count in a Spark session; what needs none is tested in tests/unit/analytics."""

import json
import os
import shutil
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException, SparkRuntimeException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rocketbroker.analytics import TopicQueueCount, count_messages, register, spark_session
from rocketbroker.app.mqanalytics.cli import app
from rocketbroker.common.errors import StoreError
from tests.support import golden_store
from tests.support.commit_log_writer import CommitLogWriter, overwrite
from tests.support.job_frames import SMALL_SESSION
from tests.support.queued_store import QueuedStore
from tests.support.slow_store_reader import slow_rows
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_store.unpack("clean", tmp_path_factory.mktemp("clean"))


def expected_counts(commit_log: Path) -> list[TopicQueueCount]:
    counts = Counter((row["topic"], row["queue_id"]) for row in slow_rows(commit_log))
    return sorted(TopicQueueCount(*key, messages) for key, messages in counts.items())


@pytest.mark.usefixtures("no_session")
def test_a_session_ends_with_its_java_process_and_leaves_the_text_of_an_error(store: Path) -> None:
    interrupt_handler = signal.getsignal(signal.SIGINT)
    with (  # noqa: PT012 - the error leaves the session
        pytest.raises(SparkRuntimeException) as raised,
        spark_session("tests", SMALL_SESSION) as session,
    ):
        java = session.sparkContext._gateway.proc  # type: ignore[union-attr]  # there while a session is
        register(session)
        assert count_messages(store, session) == expected_counts(store / "commitlog")
        session.sql("SELECT raise_error('wrong')").collect()
    assert raised.value.__notes__ == ["[USER_RAISED_EXCEPTION] wrong SQLSTATE: P0001"]
    assert java.poll() is not None, "the Java process outlived its session"
    assert signal.getsignal(signal.SIGINT) is interrupt_handler


def test_every_column_of_every_row_equals_a_plain_loop(spark: SparkSession, store: Path) -> None:
    messages = spark.read.format("rocketmq_store").option("splitSize", "10000").load(str(store))
    times = {name: f"unix_millis({name}) AS {name}" for name in ("store_timestamp", "born_timestamp")}
    selected = messages.selectExpr(*(times.get(name, name) for name in messages.columns))
    rows = sorted((row.asDict() for row in selected.collect()), key=lambda row: row["physical_offset"])
    expected = slow_rows(store / "commitlog")
    assert rows == expected
    assert messages.columns == list(expected[0])


def test_a_batch_has_the_options_of_kafka_s_source(spark: SparkSession, tmp_path: Path) -> None:
    store = QueuedStore(tmp_path / "store", 200)
    options = {
        "subscribe": "Orders,Refunds",
        "startingOffsets": '{"store": {"Orders": {"0": 3}}}',
        "endingTimestamp": str(store.rows[150]["store_timestamp"]),
        "minPartitions": "7",
        "includeProperties": "TAGS",
    }
    messages = spark.read.format("rocketmq_store").options(**options).load(str(store.root))
    assert messages.rdd.getNumPartitions() >= 7
    rows = messages.select("topic", "queue_id", "queue_offset", "properties").collect()
    assert {tuple(row.properties.items()) for row in rows} == {(("TAGS", "t"),)}
    assert sorted(row[:3] for row in rows) == sorted(
        (row["topic"], row["queue_id"], row["queue_offset"])
        for row in store.rows[:150]
        if row["topic"] == "Refunds" or (row["topic"] == "Orders" and (row["queue_id"] or row["queue_offset"] >= 3))
    )
    with pytest.raises(AnalysisException, match="has 999 for queue 0 of Orders at store, where offsets are 0 to"):
        spark.read.format("rocketmq_store").option("endingOffsets", '{"store": {"Orders": {"0": 999}}}').load(
            str(store.root)
        ).count()


def test_a_schema_chooses_columns_and_their_order(spark: SparkSession, store: Path) -> None:
    schema = "size int, store_timestamp bigint, topic string"
    messages = spark.read.format("rocketmq_store").schema(schema).load(str(store / "commitlog"))
    expected = [(row["size"], row["store_timestamp"], row["topic"]) for row in slow_rows(store / "commitlog")]
    assert sorted(map(tuple, messages.collect())) == sorted(expected)


def test_query_errors_reach_the_user(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="table messages has no column 'offset'; its columns are broker, topic"):
        spark.read.format("rocketmq_store").schema("offset int").load(str(store)).collect()
    with pytest.raises(AnalysisException, match="has no commit log; name a store directory") as caught:
        spark.read.format("rocketmq_store").load(str(tmp_path)).collect()
    # The line that helps is not buried under a stack.
    assert len(str(caught.value).strip().splitlines()) <= 8
    with pytest.raises(StoreError, match="does not exist"):
        count_messages(tmp_path / "none", spark)


def test_counts_are_those_of_a_plain_loop(spark: SparkSession, store: Path) -> None:
    told: list[tuple[int, int]] = []
    assert count_messages(store, spark, progress=lambda *done: told.append(done)) == expected_counts(
        store / "commitlog"
    )
    assert all(0 <= done <= total for done, total in told)
    assert told
    assert told[-1][0] == told[-1][1] > 0


def test_a_file_that_shrinks_within_a_session_is_named_at_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path / "store")
    writer.append_many(50)
    planned = spark.read.format("rocketmq_store").schema("size int").load(str(writer.root)).rdd
    assert planned.getNumPartitions() == 1
    path, position, _ = writer.records[20]
    os.truncate(path, position)
    text = f"{path} became shorter while it was read, {position} bytes instead of {writer.file_size}; restore it, or "
    with pytest.raises(PythonException) as raised:
        planned.count()
    assert text + "read the store again as it is now" in str(raised.value)
    assert spark.read.format("rocketmq_store").load(str(writer.root)).count() == 20


def test_a_folder_may_have_any_name(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    odd = shutil.copytree(store, tmp_path / "x=a,b")
    assert count_messages(odd, spark) == expected_counts(store / "commitlog")
    printed = CliRunner().invoke(app, ["count", str(odd), "--json"])
    assert json.loads(printed.stdout)["messages"] == sum(count.messages for count in expected_counts(odd / "commitlog"))


def test_a_store_without_messages_has_no_counts(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert count_messages(tmp_path, spark) == []


@pytest.mark.parametrize("engine", ["auto", "local", "spark"])
def test_mqanalytics_prints_a_table_or_json(spark: SparkSession, store: Path, tmp_path: Path, engine: str) -> None:
    counts = expected_counts(store / "commitlog")
    total = sum(count.messages for count in counts)
    printed = CliRunner().invoke(app, ["count", str(store), "--json", "--engine", engine])
    assert printed.exit_code == 0
    assert json.loads(printed.stdout) == {
        "messages": total,
        "queues": [{"topic": c.topic, "queueId": c.queue_id, "messages": c.messages} for c in counts],
        "notRead": {"ranges": 0, "bytes": 0},
    }
    table = CliRunner().invoke(app, ["count", str(store), "--engine", engine])
    assert table.exit_code == 0
    assert f" StFill {'':51}│     0 │      130 │" in table.stdout
    assert table.stdout.splitlines()[-3].split() == ["│", "all", "│", "│", str(total), "│"]
    assert table.stdout.splitlines()[-1] == f"{len(counts)} queues; everything was read"
    missing = CliRunner().invoke(app, ["count", str(tmp_path / "none")])
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr.startswith(f"mqanalytics: {tmp_path}/none does not exist; name a store directory")
    assert CliRunner().invoke(app, ["count"]).exit_code == 2


def test_damage_is_skipped_and_named_on_stderr(
    spark: SparkSession, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = shutil.copytree(store, tmp_path / "broken")
    message = golden_store.manifest("clean")["messages"][20]
    overwrite(broken / "commitlog" / ("0" * 20), message["phyOffset"] + 4, b"????")
    counts = count_messages(broken, spark)
    assert sum(count.messages for count in counts) == len(golden_store.manifest("clean")["messages"]) - 1
    said: list[str] = []

    def is_reported() -> bool:
        said.append(capsys.readouterr().err)
        return "skipped" in "".join(said)

    wait_until(is_reported, "the skipped range is named")
    assert f"no readable record in {message['size']} bytes from position {message['phyOffset']}; skipped" in "".join(
        said
    )
    said_by = {}
    for engine in ("local", "spark"):
        table = CliRunner().invoke(app, ["count", str(broken), "--engine", engine])
        assert table.stdout.splitlines()[-1].endswith(f"; 1 range, {message['size']:,} bytes not read")
        printed = CliRunner().invoke(app, ["count", str(broken), "--json", "--engine", engine])
        said_by[engine] = json.loads(printed.stdout)
        assert said_by[engine]["notRead"] == {"ranges": 1, "bytes": message["size"]}
    assert said_by["local"] == said_by["spark"]


def test_a_file_removed_during_a_query_is_named_in_its_error(spark: SparkSession, tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path, file_size=1 << 13)
    writer.append_many(100)
    paths = sorted({path for path, _, _ in writer.records})
    rows = spark.read.format("rocketmq_store").schema("size int").load(str(tmp_path)).rdd
    assert rows.getNumPartitions() == len(paths)  # planned by now
    paths[1].unlink()
    with pytest.raises(PythonException, match=f"{paths[1]}: No such file or directory .a broker deletes old files"):
        rows.collect()


def test_a_store_is_counted_while_it_is_written(spark: SparkSession, tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path, file_size=1 << 16)
    writer.append_many(100)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            writer.append_many(10)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        before = len(writer.records)
        counted = sum(count.messages for count in count_messages(tmp_path, spark))
        after = len(writer.records)
    finally:
        stop.set()
        thread.join()
    assert before <= counted <= after + 1  # a record may be whole before the writer has noted it
    assert count_messages(tmp_path, spark) == expected_counts(writer.directory)
