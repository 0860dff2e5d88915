"""Bodies parsed in a Spark session: of a store with bodies of each compression, and of made frames."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType

from rocketbroker.analytics import from_body, messages
from rocketbroker.analytics.spark import from_body as module
from rocketbroker.codec.message.compression import compress
from rocketbroker.codec.message.message_const import (
    COMPRESSED_FLAG,
    COMPRESSION_LZ4_TYPE,
    COMPRESSION_ZLIB_TYPE,
    COMPRESSION_ZSTD_TYPE,
)
from rocketbroker.common.errors import ConfigError
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.java_toolchain import spark_avro_jar
from tests.support.streaming_query import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ORDER = "id int, city string"
KINDS = (COMPRESSION_ZLIB_TYPE, COMPRESSION_LZ4_TYPE, COMPRESSION_ZSTD_TYPE)
# Offset 3 is plain, 4 and 5 are no orders, 6 cannot be decompressed.
UNFIT = (4, 5, 6)
PARSED = {**{number: (number, "Łódź") for number in range(3)}, 3: (3, None), **dict.fromkeys(UNFIT)}
SCHEMA = "topic string, queue_id int, queue_offset bigint, decompressed_body binary"
LIMIT_S = 250


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    writer = CommitLogWriter(tmp_path_factory.mktemp("bodies") / "store")
    for number, kind in enumerate(KINDS):
        body = json.dumps({"id": number, "city": "Łódź"}).encode()
        writer.append(compress(body, kind=kind), sys_flag=COMPRESSED_FLAG | kind, queue_offset=number)
    for number, body in enumerate((b'{"id": 3}', b'{"id": "three", "city": "Oslo"}', b"\xff"), 3):
        writer.append(body, queue_offset=number)
    writer.append(b"no zlib", sys_flag=COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE, queue_offset=6)
    return writer.root


def orders(spark: SparkSession, store: Path) -> DataFrame:
    return messages(spark, store, ["topic", "queue_id", "queue_offset", "decompressed_body"])


def bodies(spark: SparkSession, *given: Any) -> DataFrame:
    return spark.createDataFrame([(each,) for each in given], "decompressed_body binary")


def values(frame: DataFrame) -> list[Any]:
    return [row["value"] for row in frame.select("value").collect()]


@pytest.mark.parametrize("schema", [ORDER, StructType().add("id", IntegerType()).add("city", StringType())])
def test_json_is_parsed_and_rows_that_do_not_fit_are_kept(
    spark: SparkSession, store: Path, schema: str | StructType
) -> None:
    found = from_body(orders(spark, store), "json", schema)
    assert found.schema["value"].dataType.simpleString() == "struct<id:int,city:string>"
    rows = {row["queue_offset"]: row["value"] for row in found.collect()}
    assert {number: value and tuple(value) for number, value in rows.items()} == PARSED
    unfit = found.where("value IS NULL").select("queue_offset", "decompressed_body").collect()
    assert [tuple(row) for row in unfit] == [(4, b'{"id": "three", "city": "Oslo"}'), (5, b"\xff"), (6, None)]
    assert [row["city"] for row in found.where("value.id < 3").select("value.*").collect()] == ["Łódź"] * 3


@pytest.mark.parametrize(
    ("number", "complaint"),
    [
        (4, "decompressed_body of topic Topic, queue_id 0, queue_offset 4 is not json of the given schema"),
        (6, "decompressed_body of topic Topic, queue_id 0, queue_offset 6 cannot be decompressed"),
    ],
)
def test_fail_fast_names_the_message(spark: SparkSession, store: Path, number: int, complaint: str) -> None:
    found = from_body(orders(spark, store), "json", ORDER, mode="FAILFAST")
    assert len(values(found.where("queue_offset < 4"))) == 4
    with pytest.raises(PySparkException, match=complaint):
        found.where(f"queue_offset = {number}").collect()


def test_bodies_of_a_stream_are_parsed(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    stream = spark.readStream.format("rocketmq_store").schema(SCHEMA).load(str(store))

    def start(mode: str) -> StreamingQuery:
        writer = from_body(stream, "json", ORDER, mode=mode).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / f"{mode}-checkpoint"))
        return writer.trigger(availableNow=True).start(str(tmp_path / mode))

    run_to_end(lambda: start("PERMISSIVE"), LIMIT_S)
    written = spark.read.parquet(str(tmp_path / "PERMISSIVE")).collect()
    found = {row["queue_offset"]: row["value"] for row in written}
    assert {number: value and tuple(value) for number, value in found.items()} == PARSED
    with pytest.raises(
        StreamingQueryException, match=r"decompressed_body of topic Topic, queue_id 0, queue_offset \d is"
    ):
        run_to_end(lambda: start("FAILFAST"), LIMIT_S)


def test_options_are_those_of_spark(spark: SparkSession) -> None:
    frame = bodies(spark, b"{'at': '27.11.2026'}")
    assert values(from_body(frame, "json", "at date")) == [None]
    (found,) = values(from_body(frame, "json", "at date", dateFormat="dd.MM.yyyy"))
    assert found["at"].isoformat() == "2026-11-27"


def test_text_is_utf8(spark: SparkSession, store: Path) -> None:
    frame = bodies(spark, "Łódź".encode(), b"", b"\xff", None)
    assert values(from_body(frame, "text")) == ["Łódź", "", None, None]
    with pytest.raises(PySparkException, match=r"decompressed_body is not text .* mode PERMISSIVE gives a null value"):
        from_body(frame, "text", mode="FAILFAST").collect()
    other = messages(spark, store, ["body", "queue_offset"]).where("queue_offset = 3")
    assert values(from_body(other, "text", column="body")) == ['{"id": 3}']


@pytest.mark.java
def test_avro_is_parsed_by_the_jar_of_spark(spark: SparkSession) -> None:
    session = spark.newSession()
    session.sql(f"ADD JAR '{spark_avro_jar()}'")
    town = {"type": "record", "name": "Town", "fields": [{"name": "name", "type": "string"}]}
    fields = [{"name": "id", "type": ["null", "long"]}, {"name": "to", "type": town}]
    order = {"type": "record", "name": "Order", "fields": fields}
    schema = json.dumps(order)
    record = "named_struct('id', id, 'to', named_struct('name', 'Oslo'))"
    made = session.sql(f"SELECT {record} AS o FROM VALUES (1L), (null) t(id)")
    fitting = made.select(to_avro("o", schema).alias("decompressed_body"))
    frame = fitting.union(bodies(session, b"\x09"))
    first, second, unfit = values(from_body(frame, "avro", schema))
    assert (first.asDict(recursive=True), second.asDict(recursive=True), unfit) == (
        {"id": 1, "to": {"name": "Oslo"}},
        {"id": None, "to": {"name": "Oslo"}},
        None,
    )
    later = json.dumps({**order, "fields": [*fields, {"name": "no", "type": "int", "default": 7}]})
    assert [each["no"] for each in values(from_body(fitting, "avro", schema, avroSchema=later))] == [7, 7]
    with pytest.raises(PySparkException, match="decompressed_body is not avro of the given schema"):
        from_body(frame, "avro", schema, mode="FAILFAST").collect()


def test_a_missing_jar_is_named(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=rf"--packages org.apache.spark:spark-protobuf_2\.13:{spark.version} "):
        from_body(bodies(spark), "protobuf", "shop.Order")


def test_a_protobuf_message_of_nulls_does_not_fit_unless_it_is_empty(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jar is on no registry for this Spark: its function is replaced by that of JSON, with the same nulls."""
    calls = []

    def parse(body: Column, message: str, descriptor: str | None, options: dict[str, str]) -> Column:
        calls.append((message, descriptor, options))
        return F.coalesce(F.from_json(body.cast("string"), ORDER), F.expr("named_struct('id', null, 'city', null)"))

    monkeypatch.setattr(module, "from_protobuf", parse)
    frame = bodies(spark, b'{"id": 1}', b"", b"?")
    found = values(
        from_body(frame, "protobuf", "shop.Order", descFilePath="/x.desc", **{"emit.default.values": "true"})
    )
    assert [value and tuple(value) for value in found] == [(1, None), (None, None), None]
    assert calls == [("shop.Order", "/x.desc", {"emit.default.values": "true", "mode": "PERMISSIVE"})]


def test_wrong_arguments_are_named(spark: SparkSession, store: Path) -> None:
    frame = bodies(spark)
    stored = messages(spark, store, ["topic", "body", "sys_flag"])
    texts = frame.select(F.lit("").alias("decompressed_body"))
    cases: tuple[tuple[DataFrame, str, Any, dict[str, str], str], ...] = (
        (frame, "xml", None, {}, "form 'xml' is unknown; use one of json, text, avro, protobuf"),
        (
            frame,
            "json",
            ORDER,
            {"mode": "DROPMALFORMED"},
            "mode 'DROPMALFORMED' is unknown; use PERMISSIVE or FAILFAST",
        ),
        (frame, "json", None, {}, "json needs a schema"),
        (frame, "text", ORDER, {}, "text takes no schema"),
        (frame, "json", "array<int>", {}, "the schema of json is 'array<int>'; give a struct"),
        (frame, "json", ArrayType(IntegerType()), {}, "the schema of json is ArrayType"),
        (frame, "avro", StructType(), {}, "the schema of avro is a text, not StructType"),
        (frame, "avro", "{", {}, "the schema of avro is no JSON: Expecting property name"),
        (stored, "json", ORDER, {}, "no column decompressed_body; name it among .* or name another column"),
        (stored, "json", ORDER, {"column": "value"}, "no column value; its columns are topic, body, sys_flag"),
        (texts, "json", ORDER, {}, "decompressed_body is string; bodies are binary"),
        (from_body(frame, "text"), "json", ORDER, {}, "has a column value already; rename it"),
    )
    for given, form, schema, options, complaint in cases:
        with pytest.raises(ConfigError, match=complaint):
            from_body(given, form, schema, **options)
