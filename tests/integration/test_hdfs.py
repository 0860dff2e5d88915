"""A store in HDFS, read through Hadoop's libhdfs by a program of its own, which then has a JVM in its process."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commit_log_writer import CommitLogWriter
from tests.support.hdfs_server import HdfsServer, client_environment, hdfs_server
from tests.support.ports import free_ports
from tests.support.slow_store_reader import slow_rows

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    return os.environ | client_environment()


@pytest.fixture(scope="module")
def hdfs(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    with hdfs_server(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


def count(environment: dict[str, str], place: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rocketbroker.app.mqanalytics.cli", "count", place, "--json", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def test_a_store_is_counted_without_and_with_spark(hdfs: HdfsServer, environment: dict[str, str], tmp_path: Path):
    writer = CommitLogWriter(tmp_path / "store", file_size=1 << 16)
    writer.append_many(300)
    hdfs.put(writer.root, "/store")
    expected = Counter((row["topic"], row["queue_id"]) for row in slow_rows(writer.directory))
    for engine in ("local", "spark"):
        done = count(environment, f"a={hdfs.address}/store", "--engine", engine)
        assert done.returncode == 0, done.stderr[-6000:]
        queues = json.loads(done.stdout)["queues"]
        assert {(row["topic"], row["queueId"]): row["messages"] for row in queues} == expected


def test_a_missing_store_and_a_missing_namenode_are_told_apart(hdfs: HdfsServer, environment: dict[str, str]):
    for place, reason in (
        (f"{hdfs.address}/none", "/none does not exist; name a store directory"),
        (f"hdfs://localhost:{free_ports()}/none", "/none: the namenode does not answer"),
    ):
        done = count(environment, place, "--engine", "local")
        assert (done.returncode, done.stdout) == (1, "")
        assert reason in done.stderr
