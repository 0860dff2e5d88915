"""Tables in a Spark session: filters, columns, views, and messages as they are stored. Without Spark: tests/unit."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from rocketbroker.analytics import Selection, create_views, messages, register, table
from rocketbroker.analytics.tables.table_reader import TABLES
from tests.support import golden_store
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.slow_store_reader import slow_rows
from tests.support.table_rows import table_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_store.unpack("kill9", tmp_path_factory.mktemp("kill9"))


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of a data frame with times in ms."""
    times = {name: f"unix_millis({name}) AS {name}" for name, kind in frame.dtypes if kind == "timestamp"}
    rows = frame.selectExpr(*(times.get(name, f"`{name}`") for name in frame.columns)).collect()
    return [{name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.asDict().items()}
            for row in rows]  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_each_table_has_the_same_rows_with_and_without_spark(spark: SparkSession, store: Path, name: str) -> None:
    frame = spark.read.format("rocketmq_store").option("table", name).load(f"broker-a={store}")
    assert frame.columns == TABLES[name].schema.names
    assert sorted(collected(frame), key=str) == sorted(table_rows(f"broker-a={store}", name), key=str)


CONDITIONS = (
    ("topic = 'StFill' AND queue_id IN (0, 1)", lambda row: row["topic"] == "StFill" and row["queue_id"] in {0, 1}),
    ("physical_offset >= 4000 AND physical_offset < 9000", lambda row: 4000 <= row["physical_offset"] < 9000),
    ("tags = 'TagT'", lambda row: row["tags"] == "TagT"),
    ("topic LIKE 'St%' AND tags = 'TagT'", lambda row: row["topic"][:2] == "St" and row["tags"] == "TagT"),
    ("topic = 'StFill' OR tags = 'TagT'", lambda row: row["topic"] == "StFill" or row["tags"] == "TagT"),
    ("true", lambda row: True),
)


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row["physical_offset"] for row in frame.collect())


def test_filters_of_one_frame_select_their_own_rows(spark: SparkSession, store: Path) -> None:
    columns = ["topic", "queue_id", "physical_offset", "tags", "store_timestamp"]
    rows = slow_rows(store / "commitlog")
    shared = messages(spark, store, columns)
    wanted = [[row["physical_offset"] for row in rows if holds(row)] for _, holds in CONDITIONS]
    for (condition, _), expected in zip(CONDITIONS, wanted, strict=True):
        assert expected, condition
        assert offsets(shared.where(condition)) == expected, condition


def test_filters_within_one_query_select_their_own_rows(spark: SparkSession, store: Path) -> None:
    columns = ["topic", "queue_id", "physical_offset", "tags", "store_timestamp"]
    rows = slow_rows(store / "commitlog")
    shared = messages(spark, store, columns)
    (one, holds_one), (other, holds_other) = CONDITIONS[0], CONDITIONS[2]
    united = shared.where(one).union(shared.where(other))
    wanted = [row["physical_offset"] for holds in (holds_one, holds_other) for row in rows if holds(row)]
    assert offsets(united) == sorted(wanted)
    shared.createOrReplaceTempView("shared_messages")
    counts = [f"(SELECT count(*) FROM shared_messages WHERE {condition})" for condition in (one, other)]
    counted = spark.sql(f"SELECT {', '.join(counts)}").collect()
    assert tuple(counted[0]) == (sum(map(holds_one, rows)), sum(map(holds_other, rows)))


def test_a_selection_belongs_to_its_data_frame(spark: SparkSession, store: Path) -> None:
    chosen = messages(
        spark, store, ["topic", "physical_offset"], Selection(topics={"StFill"}, physical_offsets=(0, 9000))
    )
    rows = slow_rows(store / "commitlog")
    wanted = [row["physical_offset"] for row in rows if row["topic"] == "StFill" and row["physical_offset"] < 9000]
    assert offsets(chosen) == wanted
    assert offsets(chosen.where("physical_offset > 7000")) == [offset for offset in wanted if offset > 7000]
    assert offsets(chosen) == wanted


def test_views_are_named_in_sql(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    CommitLogWriter(tmp_path / "b").append_many(5)
    (tmp_path / "b" / "config").mkdir()
    assert create_views(spark, [f"a={store}", f"b={tmp_path / 'b'}"], "mq_") == [f"mq_{name}" for name in TABLES]
    counted = spark.sql(
        "SELECT broker, count(*) AS messages FROM mq_messages GROUP BY broker ORDER BY broker"
    ).collect()
    assert [tuple(row) for row in counted] == [("a", len(slow_rows(store / "commitlog"))), ("b", 5)]
    joined = spark.sql(
        "SELECT count(*) AS entries FROM mq_consume_queue q JOIN mq_messages m USING (broker, physical_offset) "
        "WHERE q.topic = m.topic AND q.queue_offset = m.queue_offset AND q.batch_size = 1"
    ).first()
    assert joined is not None
    queued = [row for row in table_rows(store, "consume_queue") if row["batch_size"] == 1]
    assert joined["entries"] == len(queued) > 100


def test_a_table_of_a_catalog_has_no_options(spark: SparkSession, store: Path) -> None:
    refused = "Spark gives the options of CREATE TABLE to no Python source: write CREATE TEMPORARY VIEW"
    options = f"USING rocketmq_store OPTIONS (path '{store}')"
    spark.sql("CREATE DATABASE mq")
    try:
        with pytest.raises(AnalysisException, match=refused):
            spark.sql(f"CREATE TABLE mq.orders {options}")
        with pytest.raises(AnalysisException, match=refused):
            spark.catalog.createTable("mq.orders", path=str(store), source="rocketmq_store")
        # Spark asks the source nothing when columns are named.
        spark.sql(f"CREATE TABLE mq.orders (topic string) {options}")
        with pytest.raises(AnalysisException, match=rf"needs one or more stores; .* In SQL: {refused}"):
            spark.sql("SELECT * FROM mq.orders").collect()
        spark.sql("CREATE TABLE mq.stored USING rocketmq_store")
        spark.sql(f"CREATE VIEW mq.a AS SELECT topic FROM mq.stored WITH (`path` = '{store}')")
        spark.sql(f"CREATE TEMPORARY VIEW orders {options}")
        for name in ("mq.a", "orders"):
            assert spark.table(name).count() == len(slow_rows(store / "commitlog")), name
    finally:
        spark.catalog.dropTempView("orders")
        spark.sql("DROP DATABASE mq CASCADE")


@pytest.mark.parametrize("name", TABLES)
def test_describe_shows_the_comments_of_columns(spark: SparkSession, store: Path, name: str) -> None:
    create_views(spark, store, "of_")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW by_sql USING rocketmq_store OPTIONS (path '{store}', table '{name}')")
    for view in (f"of_{name}", "by_sql"):
        comments = {row["col_name"]: row["comment"] for row in spark.sql(f"DESCRIBE {view}").collect()}
        assert comments == {column.name: column.metadata[b"comment"].decode() for column in TABLES[name].schema}, view


@pytest.mark.parametrize(
    ("zone", "shown"), [("UTC", "2026-11-27 11:30:00.5"), ("Pacific/Kiritimati", "2026-11-28 01:30:00.5")]
)
def test_times_are_shown_in_the_zone_of_the_session(spark: SparkSession, tmp_path: Path, zone: str, shown: str) -> None:
    CommitLogWriter(tmp_path).append(store_timestamp=1_795_779_000_500)
    session = spark.newSession()
    register(session)
    session.conf.set("spark.sql.session.timeZone", zone)
    stored = messages(session, tmp_path, ["store_timestamp"])
    texts = ("string(store_timestamp)", "string(date(store_timestamp))")
    found = stored.selectExpr(*texts, "unix_millis(store_timestamp)")
    assert [tuple(row) for row in found.collect()] == [(shown, shown[:10], 1_795_779_000_500)]


def test_query_errors_reach_the_user(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    read = spark.read.format("rocketmq_store")
    with pytest.raises(AnalysisException, match="table 'queues' is unknown; use one of messages, consume_queue"):
        read.option("table", "queues").load(str(store))
    with pytest.raises(PySparkException, match=r"has no option 'topics'; its options are path, paths"):
        spark.read.format("rocketmq_store").option("topics", "T").load(str(store))
    with pytest.raises(PySparkException, match="is not the root of a RocketMQ store"):
        table(spark, tmp_path, "topics").collect()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text("{")
    with pytest.raises(PySparkException, match=r"topics.json is damaged: .*there is no topics.json.bak"):
        table(spark, tmp_path, "topics").collect()
