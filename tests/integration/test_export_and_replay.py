"""Exported messages have every field, and replayed ones arrive unchanged."""

import json
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from typer.testing import CliRunner

from rocketbroker.analytics.jobs.export import DAY, OF_TOPIC, export
from rocketbroker.analytics.jobs.replay import Replay, exported_messages, in_order, rehearse
from rocketbroker.app.launch.dev_server import DevServer
from rocketbroker.app.mqanalytics import transfer
from rocketbroker.app.mqanalytics.cli import app
from rocketbroker.client.consumer.pull_consumer import PullConsumer
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.job_frames import frame, row, rows_of
from tests.support.our_servers import OurServers, make_topic
from tests.support.running import running

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of all kinds, two days, a time that no calendar has, and topics whose names look like something else."""
    writer = CommitLogWriter(tmp_path_factory.mktemp("made"))
    writer.append_many(300)
    for number, topic in enumerate((b"2026-01-01", b"17", b"%DLQ%g", "Thème".encode())):
        writer.append(b"next day", topic, store_timestamp=1_795_341_562_876 + number)
    writer.append(b"no day", store_timestamp=(1 << 63) - 1)
    return writer.root


@pytest.fixture(params=["recorded", "made"])
def store(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def messages(spark: SparkSession, store: Path) -> DataFrame:
    return frame(spark, rows_of(store))


def by_offset(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda each: each["physical_offset"])


def test_parquet_has_every_field_by_day_and_topic(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    target = tmp_path / "export"
    expected = rows_of(store)
    assert export(messages(spark, store), target) == len(expected)
    found = ds.dataset(target, exclude_invalid_files=True).to_table().to_pylist()
    assert by_offset([each | {"properties": dict(each["properties"])} for each in found]) == expected
    folders = {path.parent.name for path in target.rglob("*.parquet")}
    assert all(name.startswith(f"{OF_TOPIC}=") for name in folders)
    days = {path.parent.parent.name for path in target.rglob("*.parquet")}
    assert days >= {f"{DAY}=2026-11-21"}
    again = exported_messages(spark, str(target)).collect()
    assert Counter(each["topic"] for each in again) == Counter(each["topic"] for each in expected)


def test_the_day_of_an_export_is_that_of_utc(spark: SparkSession, tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path / "store")
    writer.append(store_timestamp=1_795_779_000_500)
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")  # where it is the 28th by now
    export(messages(session, writer.root), tmp_path / "export")
    assert [path.name for path in (tmp_path / "export").glob(f"{DAY}=*")] == [f"{DAY}=2026-11-27"]


def test_json_lines_have_every_field(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    target = tmp_path / "export"
    expected = rows_of(made)
    assert export(messages(spark, made), target, "jsonl") == len(expected)
    schema = messages(spark, made).schema
    found = spark.read.schema(schema).json(str(target)).select(*schema.names).toArrow().to_pylist()
    assert by_offset([each | {"properties": dict(each["properties"])} for each in found]) == expected


def test_an_existing_target_and_a_missing_library_are_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    with pytest.raises(ConfigError, match="there exists already and is no export; export to a new target"):
        export(frame(spark, [row()]), tmp_path / "there", append=True)
    for names in ("day,day", "queue", ""):
        with pytest.raises(ConfigError, match=f"--partition-by '{names}': use day, topic or broker, each once"):
            export(frame(spark, [row()]), tmp_path / "new", partition_by=names)
    with pytest.raises(ConfigError, match="cannot write delta: it lacks Delta Lake's jars"):
        export(frame(spark, [row()]), tmp_path / "new", "delta")
    with pytest.raises(ConfigError, match="cannot write iceberg: it lacks Iceberg's jar"):
        export(frame(spark, [row()]), "catalog_table", "iceberg")
    with pytest.raises(ConfigError, match="--format 'csv' is unknown; use one of parquet, jsonl, delta, iceberg"):
        export(frame(spark, [row()]), tmp_path / "new", "csv")
    with pytest.raises(ConfigError, match="every column of messages; body is missing"):
        export(frame(spark, [row()]).drop("body"), tmp_path / "new")


def parts(target: Path) -> list[Path]:
    return sorted(target.rglob("part-*"))


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_failed_export_leaves_what_was_there_and_is_continued(spark: SparkSession, tmp_path: Path, form: str) -> None:
    target, rows = tmp_path / "export", [row(number, topic=f"T{number % 3}") for number in range(90)]
    whole = frame(spark, rows)
    failing = whole.withColumn("body", F.expr("if(topic = 'T2', cast(raise_error('no body') as binary), body)"))
    before: list[Path] = []
    for append in (False, True):  # the first export fails, and is repeated as it was
        with pytest.raises(StoreError, match=r"exporting failed: .*no body(.|\n)*export has nothing of this export"):
            export(failing, target, form, append=append)
        assert parts(target) == before
        assert not (target / "_SUCCESS").exists()
        if not append:
            assert export(frame(spark, rows[:30]), target, form) == 30
            before = parts(target)
            assert (target / "_SUCCESS").exists()
    with pytest.raises(ConfigError, match="export exists already; export to a new target, or --append to it"):
        export(whole, target, form)
    # A killed driver removes nothing, and late attempts write on: whole files and halves that do not count.
    shutil.copy(before[0], before[0].with_name(before[0].name.replace("-0.", "-99.")))
    (before[0].parent / f"part-{'0' * 32}-0-0.parquet").write_bytes(b"half a file")
    assert export(whole, target, form, append=True) == 60
    assert (target / "_SUCCESS").exists()
    again = in_order(exported_messages(spark, str(target), form))
    assert [each["physical_offset"] for each in again] == [each["physical_offset"] for each in rows]


def test_folders_and_sizes_of_files_are_as_wanted(spark: SparkSession, tmp_path: Path) -> None:
    bodies = random.Random(1)
    rows = [row(n, topic=f"T{0 if n < 180 else n}", body=bodies.randbytes(10_000)) for n in range(200)]
    messages = frame(spark, rows).repartition(8)
    for names, size, folders in (("topic", "128m", 21), ("none", "128m", 1), ("broker,day", "1g", 1)):
        target = tmp_path / names
        export(messages, target, partition_by=names, file_size=size)
        assert len({file.parent for file in parts(target)}) == len(parts(target)) == folders
    assert [path.name for path in (tmp_path / "broker,day").iterdir() if path.is_dir()] == ["of_broker=a"]
    export(messages, tmp_path / "small", partition_by="topic", file_size="500k")
    large = parts(tmp_path / "small" / "of_topic=T0")
    assert 3 <= len(large) <= 8
    assert sum(file.stat().st_size for file in large) > 1_800_000
    assert len(parts(tmp_path / "small")) == 20 + len(large)
    with pytest.raises(ConfigError, match="--file-size is 'big'; give a number above 0"):
        export(messages, tmp_path / "new", file_size="big")


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_an_export_is_replayed_in_store_order(spark: SparkSession, tmp_path: Path, form: str) -> None:
    rows = [row(number, store_timestamp=1000 + number // 2, topic=f"T{number % 3}") for number in range(40)]
    export(frame(spark, rows[20:] + rows[:20]), tmp_path / "export", form)
    again = list(in_order(exported_messages(spark, str(tmp_path / "export"), form)))
    assert [each["physical_offset"] for each in again] == [each["physical_offset"] for each in rows]
    assert {bytes(each["body"]) for each in again} == {b"body"}
    assert rehearse(again, {}).sent == {"T0": 14, "T1": 13, "T2": 13}


def test_a_format_that_cannot_be_read_again_is_named(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="--format 'delta': this format cannot be replayed; use parquet or jsonl"):
        exported_messages(spark, "x", "delta")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[DevServer]:
    async with running(DevServer(0, 0, tmp_path / "store")) as server:
        yield server


async def consumed(server: DevServer, topic: str, count: int) -> list[Any]:
    async with PullConsumer("CG", server.namesrv_addr) as consumer, aclosing(consumer.iterate(topic)) as arriving:
        return [await anext(arriving) for _ in range(count)]


async def test_messages_arrive_again_as_they_were(spark: SparkSession, server: DevServer, tmp_path: Path) -> None:
    async with Producer("PG", server.namesrv_addr, send_timeout_s=60) as producer:
        for number in range(30):
            body = b"body %d " % number * (1 if number % 5 else 2000)  # every fifth is compressed
            await producer.send(Message("T", body, f"t{number % 3}", ("k", str(number)), {"colour": "red"}, number))
    sent = sorted(await consumed(server, "T", 30), key=lambda each: each.flag)
    stored = messages(spark, tmp_path / "store")
    assert export(stored, tmp_path / "export") >= 30
    rows = list(in_order(exported_messages(spark, str(tmp_path / "export")).where("topic = 'T'")))
    async with Producer("PG", server.namesrv_addr, send_timeout_s=60) as producer:
        done = await Replay(producer, SystemClock(), topics={"T": "Copy"}).run(rows)
    assert (done.sent, done.failure) == ({"Copy": 30}, "")
    copies = sorted(await consumed(server, "Copy", 30), key=lambda each: each.flag)
    for one, copy in zip(sent, copies, strict=True):
        assert (copy.body, copy.flag, copy.queue_id) == (one.body, one.flag, one.queue_id)
        kept = ("KEYS", "TAGS", "colour")
        assert {name: copy.properties[name] for name in kept} == {name: one.properties[name] for name in kept}


def as_it_was(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields of a message that a replay keeps, in the order of its queue."""
    return (
        row["queue_id"],
        row["queue_offset"],
        row["flag"],
        row["body"],
        row["keys"],
        row["tags"],
        row["properties"]["of"],
    )


def test_the_command_sends_an_export_into_a_broker_at_the_rate(
    spark: SparkSession, servers: OurServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, rate = 100, 20
    source = CommitLogWriter(tmp_path / "source")
    for number in range(count):
        properties = b"KEYS\x01k%d\x02TAGS\x01t%d\x02of\x01%d\x02" % (number, number % 3, number)
        source.append(
            b"body %d" % number,
            b"T%d" % (number % 2),
            properties,
            flag=number,
            queue_id=number // 2 % 4,
            queue_offset=number // 8,
            store_timestamp=1_795_255_162_000 + number,
        )
    sent = rows_of(source.root)
    export(frame(spark, sent), tmp_path / "export")
    namesrv = servers.namesrv().address
    broker = servers.broker(namesrv)
    for topic in ("T0", "Copy"):
        make_topic(broker.address, namesrv, topic)

    began: list[int] = []

    class NotingClock(SystemClock):
        def monotonic(self) -> float:
            began.append(self.time_ms())
            return super().monotonic()

    monkeypatch.setattr(transfer, "SystemClock", NotingClock)
    options = ["-n", namesrv, "--send", "--rate", str(rate), "--to-topic", "T1=Copy", "--json"]
    printed = CliRunner().invoke(app, ["replay", str(tmp_path / "export"), *options])
    assert printed.exit_code == 0, printed.stderr
    done = json.loads(printed.stdout)
    assert (done["sent"], done["skipped"], done["failure"]) == ({"Copy": 50, "T0": 50}, {}, None)

    stored = rows_of(broker.store)
    for old, new in (("T0", "T0"), ("T1", "Copy")):
        before = sorted(as_it_was(row) for row in sent if row["topic"] == old)
        assert sorted(as_it_was(row) for row in stored if row["topic"] == new) == before
    born = [row["born_timestamp"] for row in stored]
    assert len(born) == count
    # A slow machine holds up messages, and sends none before its time.
    assert max(born) - began[0] >= 0.9 * (count - 1) / rate * 1000
