"""Stores on an S3 server in a Spark session: the Python workers open them by their addresses."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from rocketbroker.app.mqanalytics.cli import app
from tests.support import golden_store
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, s3_server
from tests.support.shared_session import SharedSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", autouse=True)
def credentials(shared_session: SharedSession) -> Iterator[None]:
    """In the environment, which the Java process and its Python workers take over: set before the session starts."""
    shared_session.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        yield


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(scope="module")
def places(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same two stores of two brokers: here, and on the server."""
    here, there = [], []
    for name in golden_store.NAMES:
        root = golden_store.unpack(name, tmp_path_factory.mktemp(name))
        server.put(root, f"stores/{name}")
        here.append(f"{name}={root}")
        there.append(f"{name}={server.address(f'stores/{name}')}")
    return ",".join(here), ",".join(there)


def rows(frame: DataFrame) -> list[str]:
    return sorted(str(row.asDict()) for row in frame.collect())


@pytest.mark.parametrize("name", ["messages", "consume_queue", "topics", "consumer_offsets", "dead_letters"])
def test_a_table_of_two_stores_has_the_same_rows_remotely_and_locally(
    spark: SparkSession, places: tuple[str, str], name: str
) -> None:
    here, there = (spark.read.format("rocketmq_store").option("table", name).load(place) for place in places)
    expected = rows(here)
    assert rows(there) == expected
    if name == "messages":
        assert {row["broker"] for row in there.select("broker").distinct().collect()} == set(golden_store.NAMES)


def test_a_job_gives_the_same_result_remotely_and_locally(spark: SparkSession, places: tuple[str, str]) -> None:
    told: list[dict[str, Any]] = []
    for place in places:
        printed = CliRunner().invoke(app, ["traffic", *place.split(","), "--json"])
        assert printed.exit_code == 0, printed.stderr
        told.append(json.loads(printed.stdout))
    here, there = told
    assert there == here
    assert sum(row["messages"] for row in here["rows"]) == sum(
        len(golden_store.manifest(name)["messages"]) for name in golden_store.NAMES
    )


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_an_export_is_written_to_an_address_and_continued(
    spark: SparkSession, server: S3Server, places: tuple[str, str], form: str
) -> None:
    target, client = server.address(f"stores/{form}"), server.client()
    options = ["--to", target, "--format", form, "--append", "--json"]
    store = places[1].split(",")[0]
    count = len(golden_store.manifest(golden_store.NAMES[0])["messages"])
    for written in (count, 0):
        printed = CliRunner().invoke(app, ["export", store, *options])
        assert printed.exit_code == 0, printed.stderr
        assert json.loads(printed.stdout)["messages"] == written
    files = [info.path for info in client.get_file_info(fs.FileSelector(f"stores/{form}", recursive=True))]
    assert f"stores/{form}/_SUCCESS" in files
    parts = [path for path in files if "/part-" in path]
    if form == "parquet":
        assert ds.dataset(parts, filesystem=client).count_rows() == count
    else:
        lines = [client.open_input_stream(path).read().splitlines() for path in parts]
        assert sum(map(len, lines)) == count
        assert {json.loads(line)["broker"] for each in lines for line in each} == {golden_store.NAMES[0]}


def test_a_missing_store_is_reported_without_credentials(spark: SparkSession, places: tuple[str, str]) -> None:
    address = places[1].split(",")[0].partition("=")[2].replace("s3://", f"s3://{ACCESS_KEY}:{SECRET_KEY}@")
    printed = CliRunner().invoke(app, ["traffic", address.replace("stores/clean", "stores/none")])
    assert printed.exit_code == 1
    assert "s3://stores/none" in printed.stderr
    assert "name a store directory, which contains commitlog/" in printed.stderr
    assert SECRET_KEY not in printed.stderr + printed.stdout
