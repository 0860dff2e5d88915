"""With and without Spark against a plain loop over struct, row by row, on stores with all sorts of messages."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rocketbroker.analytics import DecodeReport, read_store, register, spark_session
from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from tests.support.mixed_store import MixedStore
from tests.support.shared_session import SharedSession
from tests.support.store_damage import Damage, RecordPlace, damage, is_sound, places, slow_rows_of, tear

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

QUICK = 10_000
SOAK = 5_000_000
BROKER = "mixed"


class Made(NamedTuple):
    """A store, sound and damaged, and what was put into it."""

    sound: Path
    damaged: Path
    records: list[RecordPlace]
    damages: list[Damage]
    torn: RecordPlace
    counts: Counter[tuple[str, int]]


def make(folder: Path, messages: int, file_size: int) -> Made:
    sound, damaged = folder / "sound", folder / "damaged"
    made = MixedStore(sound, messages, mapped_file_size_commit_log=file_size).make()
    records = list(places(sound / "commitlog"))
    shutil.copytree(sound, damaged)
    damages = damage(damaged / "commitlog", records, seed=7)
    return Made(sound, damaged, records, damages, tear(damaged / "commitlog", records), made.counts)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("mixed"), QUICK, 1 << 20)


@pytest.fixture(scope="module")
def own_session(shared_session: SharedSession) -> Iterator[SparkSession]:
    """One of its own: with Spark's settings for many rows, and memory for them."""
    shared_session.close()
    with spark_session("mixed store", {"spark.driver.memory": "4g"}) as session:
        register(session)
        yield session


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Rows as the slow reader gives them: times in ms, properties as a dict."""
    for batch in batches:
        for row in pa.Table.from_batches([batch]).cast(in_ms(batch.schema)).to_pylist():
            yield row | {"properties": dict(row["properties"])}


def in_ms(schema: pa.Schema) -> pa.Schema:
    times = {name: pa.timestamp("ms", tz="UTC") for name in ("store_timestamp", "born_timestamp")}
    return pa.schema([pa.field(field.name, times.get(field.name, field.type)) for field in schema])


def check_rows(found: Iterable[dict[str, Any]], expected: Iterable[dict[str, Any]]) -> int:
    """Each row is as expected, and in its place; gives how many there are."""
    count = 0
    for row, wanted in zip_longest(found, expected):
        assert row is not None, f"{count} rows and no more; the next is {wanted}"
        assert wanted is not None, f"{count} rows are expected, and then comes {row}"
        seen = row | {name: round(row[name].timestamp() * 1000) for name in ("store_timestamp", "born_timestamp")}
        assert seen == wanted, f"row {count}"
        count += 1
    return count


def spark_batches(spark: SparkSession, root: Path, last: RecordPlace, parts: int) -> Iterator[pa.RecordBatch]:
    """All columns of all messages in the order of the log, by as many queries as the driver's memory asks for."""
    messages = spark.read.format("rocketmq_store").option("splitSize", str(1 << 20)).load(f"{BROKER}={root}")
    end = int(last.file) + last.position + last.size
    step = end // parts + 1
    for low in range(0, end, step):
        chosen = messages.where(f"physical_offset >= {low} AND physical_offset < {low + step}")
        yield from chosen.toArrow().sort_by("physical_offset").select(MESSAGE_SCHEMA.names).to_batches()


def check_store(spark: SparkSession, made: Made, parts: int) -> None:
    for root in (made.sound, made.damaged):
        log, report = root / "commitlog", DecodeReport()
        source = f"{BROKER}={root}"
        count = check_rows(rows_of(read_store(source, report=report)), slow_rows_of(log, made.records, BROKER))
        assert report.messages == count
        batches = spark_batches(spark, root, made.records[-1], parts)
        assert check_rows(rows_of(batches), slow_rows_of(log, made.records, BROKER)) == count
        check_report(report, made, root)
    assert sum(made.counts.values()) == len(made.records)


def check_report(report: DecodeReport, made: Made, root: Path) -> None:
    """The records reported as damaged are exactly those that are lost."""
    if root == made.sound:
        assert report.broken == report.unfinished == []
        return
    contents = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    lost = {place for place in made.records[:-1] if not is_left(contents[place.file], place)}
    told = [(Path(each.path).name, each.position, each.position + each.length) for each in report.broken]
    assert sum(place.size for place in lost) == sum(end - begin for _, begin, end in told)
    for place in lost:
        assert any(name == place.file and begin <= place.position < end for name, begin, end in told), place
    assert [(Path(each.path).name, each.position) for each in report.unfinished] == [
        (made.torn.file, made.torn.position)
    ]
    assert {each.kind for each in made.damages} == {"magic", "size", "position", "body", "zeros", "noise"}


def is_left(data: bytes, place: RecordPlace) -> bool:
    record = data[place.position : place.position + place.size]
    return is_sound(record, int(place.file) + place.position, place.size)


def test_ten_thousand_messages_equal_a_plain_loop(spark: SparkSession, store: Made) -> None:
    check_store(spark, store, parts=1)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_five_million_messages_equal_a_plain_loop(own_session: SparkSession, tmp_path: Path) -> None:
    made = make(tmp_path, SOAK, 256 << 20)
    assert len(made.records) == SOAK
    check_store(own_session, made, parts=10)
