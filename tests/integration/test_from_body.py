"""Bodies parsed in a Spark session: of a store with bodies of each compression, and of made frames."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType

from rocketbroker.analytics import from_body, messages
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


def test_a_missing_jar_is_named(spark: SparkSession) -> None:
    # Before the jar is added: all sessions of a context share it.
    with pytest.raises(ConfigError, match=rf"--packages org.apache.spark:spark-avro_2\.13:{spark.version} "):
        from_body(bodies(spark), "avro", '"string"')


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


SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum State { NEW = 0; PAID = 1; }
message Order {
  message Line { string name = 1; uint64 cents = 2; }
  int64 id = 1;
  optional uint32 count = 2;
  State state = 3;
  repeated Line lines = 4;
  map<string, double> rates = 5;
  google.protobuf.Timestamp at = 6;
  bytes mark = 7;
  oneof payment { string card = 8; bool cash = 9; }
  repeated sint32 codes = 10;
  Line extra = 11;
}
message Tree { repeated Tree trees = 1; }
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The descriptor file of SHOP, as protoc makes it."""
    protoc = pytest.importorskip("grpc_tools.protoc")
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.proto").write_text(SHOP)
    well_known = Path(protoc.__file__).parent / "_proto"
    given = [f"-I{folder}", f"-I{well_known}", "--include_imports", f"--descriptor_set_out={folder}/shop.desc"]
    assert protoc.main(["protoc", *given, str(folder / "shop.proto")]) == 0
    return folder / "shop.desc"


def test_protobuf_is_parsed_by_a_descriptor_file(spark: SparkSession, shop: Path) -> None:
    from rocketbroker.analytics.spark.protobuf_bodies import message_class

    order = message_class(shop.read_bytes(), "shop.Order")
    full = order(id=-1, count=0, state=1, rates={"EUR": 1.5}, mark=b"\xff", cash=False, codes=[-1, 2])
    full.lines.add(name="Größe", cents=(1 << 64) - 1)
    full.lines.add()
    full.at.FromJsonString("2026-11-28T01:02:03.000004Z")
    # An unknown number of an enumeration, and a field that only a later version of the message has.
    later = order(id=7).SerializeToString() + b"\x18\x09" + b"\x98\x06\x01"
    given = (full.SerializeToString(), b"", later, b"\xff", None)
    found = from_body(bodies(spark, *given).coalesce(1), "protobuf", "Order", descFilePath=str(shop))
    assert found.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,count:bigint,state:string,lines:array<struct<name:string,cents:decimal(20,0)>>,"
        "rates:map<string,double>,at:timestamp,mark:binary,card:string,cash:boolean,codes:array<int>,"
        "extra:struct<name:string,cents:decimal(20,0)>>"
    )
    parsed = [value and value.asDict(recursive=True) for value in values(found)]
    empty: dict[str, Any] = {
        "id": 0,
        "count": None,
        "state": "NEW",
        "lines": [],
        "rates": {},
        "at": None,
        "mark": b"",
        "card": None,
    }
    empty |= {"cash": None, "codes": [], "extra": None}
    lines = [{"name": "Größe", "cents": (1 << 64) - 1}, {"name": "", "cents": 0}]
    at = found.select(F.unix_micros("value.at")).collect()[0][0]
    assert at == 1_795_827_723_000_004
    assert parsed == [
        empty | {"id": -1, "count": 0, "state": "PAID", "lines": lines, "rates": {"EUR": 1.5}, "mark": b"\xff"}
        | {"cash": False, "codes": [-1, 2], "at": parsed[0]["at"]},
        empty,
        empty | {"id": 7, "state": "9"},
        None,
        None,
    ]  # fmt: skip
    assert [row["id"] for row in found.where("value.id > 0").select("value.*").collect()] == [7]
    with pytest.raises(PySparkException, match="decompressed_body is not protobuf of the given schema"):
        from_body(bodies(spark, b"\xff"), "protobuf", "Order", mode="FAILFAST", descFilePath=str(shop)).collect()


def test_what_is_wrong_with_protobuf_is_named(spark: SparkSession, shop: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no descriptors")
    cases: tuple[tuple[str, dict[str, str], str], ...] = (
        ("Order", {}, "protobuf needs the option descFilePath; give descFilePath, a file that protoc"),
        ("Order", {"descFilePath": "x", "recursive.fields.max.depth": "2"}, "has no option recursive.fields.max.depth"),
        ("Order", {"descFilePath": "/none.desc"}, "descFilePath is '/none.desc', which cannot be used: .*No such file"),
        ("Order", {"descFilePath": f"{tmp_path}/text"}, "text', which cannot be used: "),
        ("Bill", {"descFilePath": str(shop)}, "there are 0 messages 'Bill'; name one of .*shop.Order, shop.Order.Line"),
        ("Tree", {"descFilePath": str(shop)}, "the message shop.Tree contains itself"),
    )
    for message, options, complaint in cases:
        with pytest.raises(ConfigError, match=complaint):
            from_body(bodies(spark), "protobuf", message, **options)


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
