"""A standalone cluster of two workers: rocketbroker reaches them by ``spark-submit --py-files`` alone."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from rocketbroker.analytics.jobs.job_list import JOBS
from rocketbroker.app.mqanalytics import cli
from tests.support import golden_store
from tests.support.commit_log_writer import CommitLogWriter, overwrite
from tests.support.delta_table import delta_rows, lake_settings
from tests.support.hdfs_server import client_environment, hdfs_server
from tests.support.java_toolchain import LAKES
from tests.support.killed_stream import LIMIT_S, SOURCES, KilledStream
from tests.support.our_servers import ROOT, OurServers
from tests.support.ports import LOOPBACK
from tests.support.pseudo_terminal import pseudo_terminal
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, s3_server
from tests.support.slow_store_reader import slow_rows
from tests.support.spark_cluster import SparkCluster, package_zip, packed_environment
from tests.support.streaming_query import COLUMNS
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

JOB = Path(__file__).parents[1] / "support" / "cluster_job.py"
JOBS_PROGRAM = JOB.with_name("all_jobs.py")
# A format that is registered does not take the driver's Python path to executors.
BARE_JOB = """
import sys
from pyspark.sql import SparkSession
from rocketbroker.analytics import register

spark = SparkSession.builder.getOrCreate()
register(spark)
spark.read.format("rocketmq_store").load(sys.argv[1]).count()
"""
# The store is renamed between the plan of a query and its tasks.
RENAMING_JOB = """
import os
import sys
from pyspark.sql import SparkSession
from rocketbroker.analytics import messages, register

spark = SparkSession.builder.getOrCreate()
register(spark)
planned = messages(spark, sys.argv[1], ["topic"]).rdd
planned.getNumPartitions()
os.rename(sys.argv[1], sys.argv[1] + ".gone")
planned.count()
"""
# An interpreter of another version, as far as Spark asks.
OTHER_VERSION = """
import sys
from collections import namedtuple

sys.version_info = namedtuple("Version", "major minor micro releaselevel serial")(3, 10, 0, "final", 0)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    made = SparkCluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start(workers=2)
        yield made
    finally:
        made.close()


def test_two_workers_read_a_local_and_a_remote_store_with_the_files_of_spark_submit(
    cluster: SparkCluster, tmp_path: Path
):
    writers = {name: CommitLogWriter(tmp_path / name, file_size=1 << 17) for name in ("a", "b")}
    expected: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for seed, (broker, writer) in enumerate(writers.items()):
        writer.append_many(600, seed)
        for row in slow_rows(writer.directory):
            expected[broker, row["topic"]][0] += 1
            expected[broker, row["topic"]][1] += row["size"]
    path, position, size = writers["b"].records[101]
    lost = next(row for row in slow_rows(writers["b"].directory) if row["physical_offset"] == int(path.name) + position)
    overwrite(path, position + 4, b"????")
    expected["b", lost["topic"]][0] -= 1
    expected["b", lost["topic"]][1] -= size
    credentials = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    with s3_server() as server:
        server.put(writers["b"].root, "stores/b")
        shutil.rmtree(writers["b"].root)
        stores = f"a={writers['a'].root},b={server.address('stores/b')}"
        done = cluster.submit(JOB, stores, py_files=package_zip(tmp_path), executors=credentials, **credentials)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert (done.returncode, len(lines)) == (0, 1), done.stdout[-2000:] + done.stderr[-6000:]
    result = json.loads(lines[0].removeprefix("RESULT "))
    assert result["sizes"] == sorted([*key, *values] for key, values in expected.items())
    assert result["counts"] == [row for row in result["sizes"] if row[1].startswith("Topic")]
    assert result["executors"] == 2
    assert result["partitions"] >= 4
    assert result["corrupt"] == 1
    assert SECRET_KEY not in done.stdout + done.stderr
    assert all("rocketbroker.zip" in source for source in result["imported"]), result["imported"]


@pytest.mark.soak
def test_executors_run_in_a_packed_environment(cluster: SparkCluster, tmp_path: Path):
    writer = CommitLogWriter(tmp_path / "a", file_size=1 << 17)
    writer.append_many(300)
    archive = packed_environment(tmp_path)
    # Spark plans a query by a Python process of the driver's machine, which it starts by the same path.
    (cluster.home / "environment").symlink_to(tmp_path / "env")
    try:
        done = cluster.submit(
            JOB,
            f"a={writer.root}",
            archives=f"{archive}#environment",
            PYSPARK_PYTHON="./environment/bin/python",
            PYSPARK_DRIVER_PYTHON=sys.executable,
            PYTHONPATH=str(ROOT / "src"),
        )
    finally:
        (cluster.home / "environment").unlink()
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert (done.returncode, len(lines)) == (0, 1), done.stdout[-2000:] + done.stderr[-6000:]
    result = json.loads(lines[0].removeprefix("RESULT "))
    topics = Counter(row["topic"] for row in slow_rows(writer.directory) if row["topic"].startswith("Topic"))
    assert {topic: count for _, topic, count, _ in result["counts"]} == topics
    assert result["executors"] == 2
    assert all("/environment/lib/" in source for source in result["imported"]), result["imported"]


@pytest.mark.soak
def test_a_store_that_executors_cannot_see_is_named(cluster: SparkCluster, tmp_path: Path):
    """The driver has planned when the store leaves its place, as if it had only been on the driver's machine."""
    writer = CommitLogWriter(tmp_path / "a")
    writer.append()
    job = tmp_path / "job.py"
    job.write_text(RENAMING_JOB)
    done = cluster.submit(job, str(writer.root), py_files=package_zip(tmp_path))
    assert done.returncode != 0
    told = re.search(r"StoreError: .*", done.stderr)
    assert told, done.stderr[-6000:]
    assert str(writer.root) in told[0]
    assert socket.gethostname() in told[0]


@pytest.mark.soak
@pytest.mark.java
def test_executors_read_hdfs(cluster: SparkCluster, tmp_path: Path):
    writer = CommitLogWriter(tmp_path / "a", file_size=1 << 17)
    writer.append_many(300)
    home = tmp_path / "hdfs"
    home.mkdir()
    with hdfs_server(home) as hdfs:
        hdfs.put(writer.root, "/store")
        hadoop = client_environment()
        done = cluster.submit(
            JOB, f"a={hdfs.address}/store", py_files=package_zip(tmp_path), executors=hadoop, **hadoop
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert (done.returncode, len(lines)) == (0, 1), done.stdout[-2000:] + done.stderr[-6000:]
    result = json.loads(lines[0].removeprefix("RESULT "))
    topics = Counter(row["topic"] for row in slow_rows(writer.directory) if row["topic"].startswith("Topic"))
    assert {topic: count for _, topic, count, _ in result["counts"]} == topics


@pytest.mark.soak
def test_jobs_run_at_a_cluster(cluster: SparkCluster, tmp_path: Path):
    writer = CommitLogWriter(tmp_path / "a", file_size=1 << 17)
    writer.append_many(300)
    rows = slow_rows(writer.directory)
    here = f"spark.driver.host={LOOPBACK}"
    options = ["--master", cluster.master, "--conf", here, "--conf", "spark.executor.memory=512m"]
    command = [sys.executable, "-m", "rocketbroker.app.mqanalytics.cli", *options, "sizes", str(writer.root), "--json"]
    environment = os.environ | {"TERM": "xterm"}
    with pseudo_terminal() as (terminal, shown):
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=terminal, text=True, timeout=300, check=False, env=environment
        )
    assert done.returncode == 0, shown[-4000:].decode()
    assert "Measure the sizes of messages by topic, in bytes" in shown.decode()
    assert "━" in shown.decode(), "a progress bar"
    found = {row["topic"]: row["messages"] for row in json.loads(done.stdout)["rows"]}
    assert found == Counter(row["topic"] for row in rows)
    # The master runs executors for an application of that name.
    assert "mqanalytics" in cluster.started[0].text()
    submitted = cluster.submit(Path(cli.__file__), "sizes", str(writer.root), "--json", py_files=package_zip(tmp_path))
    assert submitted.returncode == 0, submitted.stderr[-4000:]
    assert json.loads(submitted.stdout)["rows"] == json.loads(done.stdout)["rows"]


@pytest.mark.soak
def test_each_job_has_the_same_rows_at_a_cluster(cluster: SparkCluster, tmp_path: Path):
    store = golden_store.unpack("clean", tmp_path / "a")
    other = Path(shutil.copytree(store, tmp_path / "b" / "other"))
    message = golden_store.manifest("clean")["messages"][20]
    overwrite(other / "commitlog" / ("0" * 20), message["phyOffset"] + 4, b"????")
    local = subprocess.run(
        [sys.executable, JOBS_PROGRAM, store, other, tmp_path / "local"], capture_output=True, text=True, check=False
    )
    arguments = [str(each) for each in (store, other, tmp_path / "remote")]
    remote = cluster.submit(JOBS_PROGRAM, *arguments, py_files=package_zip(tmp_path))
    results = []
    for done in (local, remote):
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        assert (done.returncode, len(lines)) == (0, 1), done.stdout[-2000:] + done.stderr[-6000:]
        results.append(json.loads(lines[0].removeprefix("RESULT ")))
    (_, here), (master, there) = results
    assert master == cluster.master
    for _, found in (here["lag"], there["lag"]):
        found["rows"] = [{**row, "time": None, "behindMs": None} for row in found["rows"]]
    for _, found in (here["export"], there["export"]):
        found["to"] = None
    assert there == here
    assert {*here} == {*JOBS, "lag", "search", "compare", "export", "audit", "count"}
    assert [code for code, _ in here.values()].count(3) == 1, "what compare finds"
    exported = [
        ds.dataset(tmp_path / name, ignore_prefixes=["_"]).to_table(["physical_offset"])["physical_offset"].to_pylist()
        for name in ("local", "remote")
    ]
    assert (
        sorted(exported[0]) == sorted(exported[1]) == [row["physical_offset"] for row in slow_rows(store / "commitlog")]
    )


@pytest.mark.soak
def test_the_first_example_of_the_manual_runs_at_a_cluster(cluster: SparkCluster, tmp_path: Path):
    writer = CommitLogWriter(tmp_path / "store")
    for number in range(30):
        writer.append(topic=b"T%d" % (number % 2), properties=b"TAGS\x01t%d\x02" % (number % 3))
    manual = (ROOT / "docs" / "reference" / "analytics.md").read_text()
    example = manual.partition("```python\n")[2].partition("```")[0]
    assert example.count("/home/rocketmq/store") == 1
    example = example.replace("/home/rocketmq/store", str(writer.root))
    job = tmp_path / "example.py"
    job.write_text(example + '    print("MASTER", spark.sparkContext.master)\n')
    done = cluster.submit(job, PYTHONPATH=str(ROOT / "src"))
    assert done.returncode == 0, done.stderr[-6000:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if "|" in line]
    rows = Counter((row["topic"], row["tags"]) for row in slow_rows(writer.directory))
    assert sorted(cells[1:]) == sorted([topic, tags, str(count)] for (topic, tags), count in rows.items())
    assert f"MASTER {cluster.master}" in done.stdout


@pytest.mark.soak
def test_an_executor_that_lacks_something_is_named_with_what_to_do(cluster: SparkCluster, tmp_path: Path):
    writer = CommitLogWriter(tmp_path / "a")
    writer.append()
    job = tmp_path / "job.py"
    job.write_text(BARE_JOB)
    bare = cluster.submit(job, str(writer.root), PYTHONPATH=str(ROOT / "src"))
    assert bare.returncode != 0
    assert re.search(r"Lost task .* \(TID \d+\) \(127\.0\.0\.1 executor \d\)", bare.stderr), bare.stderr[-6000:]
    assert "has no rocketbroker; bring rocketbroker by spark-submit --py-files rocketbroker.zip" in bare.stderr
    (tmp_path / "sitecustomize.py").write_text(OTHER_VERSION)
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    other = cluster.submit(job, str(writer.root), PYSPARK_PYTHON=str(python), PYTHONPATH=str(ROOT / "src"))
    assert other.returncode != 0
    assert "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than" in other.stdout, other.stdout


@pytest.mark.soak
@pytest.mark.java
@pytest.mark.parametrize("seed", range(3))
def test_a_stream_into_delta_goes_on_through_kills_of_executors(cluster: SparkCluster, servers: OurServers, seed: int):
    settings = lake_settings(LAKES[0]) | cluster.application_settings()
    stream = KilledStream(servers, SOURCES[seed % 2], "delta", settings, seed)
    victims = [cluster.executors, cluster.python_workers] * 2
    stream.random.shuffle(victims)
    with stream.program() as process:
        with stream.load:
            for running in victims:
                stream.wait_for_batch(process)
                stream.load.wait_for(stream.random.randrange(1, 150))
                wait_until(running, "there is none to kill", 120)
                os.kill(stream.random.choice(running()), signal.SIGKILL)
            stream.wait_for_batch(process)
        expected = stream.expected()
        wait_until(lambda: len(list(delta_rows(stream.out, COLUMNS))) >= len(expected), "rows are missing", LIMIT_S)
        assert process.poll() is None
    assert sorted(delta_rows(stream.out, COLUMNS)) == expected


@pytest.mark.soak
@pytest.mark.java
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2))
def test_a_stream_into_delta_goes_on_through_kills_of_driver_executors_and_broker(
    cluster: SparkCluster, servers: OurServers, seed: int
):
    settings = lake_settings(LAKES[0]) | cluster.application_settings()
    stream = KilledStream(servers, SOURCES[seed % 2], "delta", settings, seed)

    def kill_one(running: Callable[[], list[int]]) -> None:
        stream.load.wait_for(stream.random.randrange(1, 150))
        wait_until(running, "there is none to kill", 120)
        os.kill(stream.random.choice(running()), signal.SIGKILL)

    with stream.load:
        for number in range(2):
            kills: list[Callable[[], None]] = [
                stream.kill_broker,
                partial(kill_one, cluster.executors),
                partial(kill_one, cluster.python_workers),
            ]
            stream.random.shuffle(kills)
            with stream.program() as process:  # the driver is killed at the end of the block
                for kill in kills:
                    stream.wait_for_batch(process)
                    kill()
                stream.wait_for_batch(process)
                stream.wait_for_moment(process, number)
        stream.load.wait_for(100)
    with stream.program() as process:
        expected = stream.expected()
        wait_until(lambda: len(list(delta_rows(stream.out, COLUMNS))) >= len(expected), "rows are missing", LIMIT_S)
        assert process.poll() is None
    assert sorted(delta_rows(stream.out, COLUMNS)) == expected
