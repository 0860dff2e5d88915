"""Tables of a lake as targets of exports and streams, counted again by a few lines of struct over the log."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.delta_table import delta_actions, delta_files, delta_rows, lake_settings
from tests.support.java_toolchain import LAKES
from tests.support.job_frames import made_store
from tests.support.killed_stream import SOURCES, KilledStream
from tests.support.our_servers import OurServers
from tests.support.shared_session import SharedSession
from tests.support.streaming_query import COLUMNS, run_to_end, written_rows
from tests.support.struct_log import LogRow, log_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(600)]
FORMS = (pytest.param("parquet", marks=pytest.mark.soak), "delta")  # other tests export and stream into Parquet
CUT = 40_000  # bytes of the log
DELTA = LAKES[0]


@pytest.fixture(scope="module")
def lakes(shared_session: SharedSession) -> "Iterator[SparkSession]":
    """A session with the jars of Delta Lake and Iceberg."""
    from rocketbroker.analytics import register, spark_session

    settings = lake_settings(*LAKES) | {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog"}
    shared_session.close()
    with spark_session("lakes", settings) as session:
        register(session)
        yield session


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_store(tmp_path_factory.mktemp("store"))


def table_rows(lakes: "SparkSession", form: str, target: Path) -> list[LogRow]:
    rows = lakes.read.format(form).load(str(target)).select(*LogRow._fields).collect()
    return sorted(LogRow(row[0], row[1], row[2], bytes(row[3])) for row in rows)


@pytest.mark.parametrize("form", FORMS)
def test_an_export_is_continued_to_the_end_of_the_log(
    lakes: "SparkSession", store: Path, tmp_path: Path, form: str
) -> None:
    from rocketbroker.analytics import Scope, Selection, store_roots
    from rocketbroker.analytics.jobs.export import export, exported_ends

    expected = sorted(log_rows(store / "commitlog"))
    scope = Scope(lakes, tuple(store_roots(f"a={store}")), Selection())
    target = tmp_path / "export"
    before = [row.physical_offset for row in expected if row.physical_offset < CUT]
    assert exported_ends(lakes, target, form) == {}
    cut = scope.messages().where(f"physical_offset < {CUT}")
    assert export(cut, target, form, append=True) == len(before)
    assert exported_ends(lakes, target, form) == {"a": before[-1]}
    # The rows that are there are left out of both, whether the store is read again or only what follows.
    assert export(scope.messages(), target, form, append=True) == len(expected) - len(before)
    assert table_rows(lakes, form, target) == expected
    ends = exported_ends(lakes, target, form)
    assert export(scope.messages_beyond(ends), target, form, append=True) == 0
    assert table_rows(lakes, form, target) == expected
    with pytest.raises(ConfigError, match="exists already; export to a new target, or --append to it"):
        export(scope.messages(), target, form)
    with pytest.raises(ConfigError, match=r"of_topic.*append with the same --format and --partition-by"):
        export(scope.messages(), target, form, append=True, partition_by="day")


@pytest.mark.soak
def test_a_delta_table_has_partitions_and_its_small_files_are_joined(
    lakes: "SparkSession", store: Path, tmp_path: Path
) -> None:
    from rocketbroker.analytics import Scope, Selection, store_roots
    from rocketbroker.analytics.jobs.export import DAY, OF_TOPIC, export

    expected = sorted(log_rows(store / "commitlog"))
    scope = Scope(lakes, tuple(store_roots(f"a={store}")), Selection())
    table = tmp_path / "export"
    for end in (CUT // 2, CUT, 1 << 62):
        export(scope.messages().where(f"physical_offset < {end}"), table, "delta", append=True)
    (partitions,) = [each["metaData"]["partitionColumns"] for each in delta_actions(table) if "metaData" in each]
    assert partitions == [DAY, OF_TOPIC]
    before = delta_files(table)
    folders = {(values[DAY], values[OF_TOPIC]) for values in before.values()}
    assert {topic for _, topic in folders} == {row.topic for row in expected}
    assert len(before) > len(folders)

    lakes.sql(f"OPTIMIZE delta.`{table}`")
    assert len(delta_files(table)) == len(folders)
    assert sorted(LogRow(*row) for row in delta_rows(table, LogRow._fields)) == expected
    # An export goes on behind what was joined.
    assert export(scope.messages(), table, "delta", append=True) == 0


def test_a_failed_export_into_delta_is_continued(lakes: "SparkSession", store: Path, tmp_path: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    from rocketbroker.analytics import Scope, Selection, store_roots
    from rocketbroker.analytics.jobs.export import export

    expected = sorted(log_rows(store / "commitlog"))
    whole = Scope(lakes, tuple(store_roots(f"a={store}")), Selection()).messages()
    last = expected[-1].physical_offset
    failing = whole.withColumn(
        "tags", F.expr(f"if(physical_offset = {last}, cast(raise_error('no tag') as string), tags)")
    )
    table = tmp_path / "export"
    for there in (0, 1):  # the first export fails, and one that goes on
        with pytest.raises(StoreError, match=r"no tag(.|\n)*export has nothing of this export, and --append goes on"):
            export(failing, table, "delta", append=True)
        found = sorted(LogRow(*row) for row in delta_rows(table, LogRow._fields))
        assert found == [row for row in expected if there and row.physical_offset < CUT]
        cut = whole.where(f"physical_offset < {CUT if not there else last + 1}")
        export(cut, table, "delta", append=True)
    assert sorted(LogRow(*row) for row in delta_rows(table, LogRow._fields)) == expected


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_is_continued_from_its_checkpoint(
    lakes: "SparkSession", store: Path, tmp_path: Path, form: str
) -> None:
    columns = "physical_offset bigint, store_timestamp timestamp, topic string, body binary"

    def start(most: str):
        reader = lakes.readStream.format("rocketmq_store").schema(columns).option("maxBytesPerTrigger", most)
        in_ms = "unix_millis(store_timestamp) AS store_timestamp"
        rows = reader.load(str(store)).selectExpr("physical_offset", in_ms, "topic", "body")
        writer = rows.writeStream.format(form).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start(str(tmp_path / "table"))

    expected = sorted(log_rows(store / "commitlog"))
    for _ in range(2):  # the second query finds nothing new
        query = run_to_end(lambda: start("40k"), 300)
        assert table_rows(lakes, form, tmp_path / "table") == expected
        if form == "delta":  # each micro-batch leaves a file
            lakes.sql(f"OPTIMIZE delta.`{tmp_path / 'table'}`")
            assert len(delta_files(tmp_path / "table")) == 1
            assert table_rows(lakes, form, tmp_path / "table") == expected
    assert query.lastProgress is None or query.lastProgress.numInputRows == 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("source", SOURCES)
def test_a_stream_into_delta_survives_many_kills(
    lakes: "SparkSession", servers: OurServers, source: str, seed: int
) -> None:
    """The table equals the log, read by Spark and without it."""
    stream = KilledStream(servers, source, "delta", lake_settings(DELTA), seed)
    stream.kill_both(rounds=2)
    stream.finish(lakes)
    expected = stream.expected()
    assert written_rows(lakes, stream.out) == expected
    read = lakes.read.format("delta").load(str(stream.out))
    assert sorted(map(tuple, read.select(*COLUMNS[:-1]).collect())) == [row[:-1] for row in expected]


def test_iceberg_for_another_release_of_spark_is_named(lakes: "SparkSession", store: Path) -> None:
    """No release of Iceberg is built for a Spark with the streams that we need."""
    from rocketbroker.analytics import messages
    from rocketbroker.analytics.jobs.export import export

    with pytest.raises(ConfigError, match=r"cannot write iceberg: its jars are not built for Spark .*SparkView"):
        export(messages(lakes, store), "lake.db.messages", "iceberg")


def test_a_table_of_spark_at_an_address_without_a_file_system_is_named(lakes: "SparkSession", store: Path) -> None:
    from rocketbroker.analytics import messages
    from rocketbroker.analytics.jobs.export import export

    with pytest.raises(ConfigError, match=r"Spark itself writes delta, and has no file system for s3://; add Hadoop's"):
        export(messages(lakes, store), "s3://bucket/table", "delta")
