"""Executors without the package, as processes that cannot import it, and without stores, which are deleted.

What a worker sets once for its whole process is called in a process of its own.
"""

import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from rocketbroker.analytics.spark.rocketmq import RocketMQ
from rocketbroker.analytics.spark.rocketmq_store import RocketMQStore
from rocketbroker.analytics.tables.table_reader import TABLES
from rocketbroker.common.errors import StoreError
from tests.support import golden_store
from tests.support.commit_log_writer import CommitLogWriter

# What Spark's worker does with each object that it gets, in a process without a package.
ARRIVAL = """
import pickle, sys

sys.modules[sys.argv[1]] = None
for sent in pickle.load(sys.stdin.buffer):
    try:
        pickle.loads(sent)
    except ModuleNotFoundError as error:
        print(error)
"""
SCHEMA = from_arrow_schema(TABLES["messages"].schema)
ROWS = StructType([StructField("body", StringType())])


@pytest.mark.parametrize("missing", ["rocketbroker", "pyarrow", "msgspec"])
def test_an_executor_without_a_package_says_what_to_do(tmp_path: Path, missing: str) -> None:
    store, live = RocketMQStore({"path": str(tmp_path)}), RocketMQ({"namesrvAddr": "127.0.0.1:9", "subscribe": "T"})
    sink = RocketMQ({"namesrvAddr": "127.0.0.1:9", "topic": "T"})
    readers = [each for source in (store, live) for each in (source.reader(SCHEMA), source.streamReader(SCHEMA))]
    sent = [store, live, *readers, sink.writer(ROWS, False), sink.streamWriter(ROWS, False)]
    arrived = subprocess.run(
        [sys.executable, "-c", ARRIVAL, missing],
        input=pickle.dumps([cloudpickle.dumps(each) for each in sent]),
        capture_output=True,
        check=True,
    )
    text = (
        f"the executor's Python at {socket.gethostname()}, {sys.executable}, has no {missing}; bring rocketbroker by "
        "spark-submit --py-files rocketbroker.zip, and all that it needs by a packed environment (--archives)"
    )
    assert arrived.stdout.decode().splitlines() == [text] * len(sent)


def test_a_reader_arrives_as_it_was(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path).append_many(20)
    reader = cloudpickle.loads(cloudpickle.dumps(RocketMQStore({"path": str(tmp_path)}).reader(SCHEMA)))
    assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 20


@pytest.mark.parametrize("name", TABLES)
def test_a_store_that_a_task_cannot_see_is_named_with_the_machine(tmp_path: Path, name: str) -> None:
    store = golden_store.unpack("clean", tmp_path)
    source = RocketMQStore(
        {"path": f"{store},other={tmp_path}/other", "table": name, "selection": '{"brokers":["store"]}'}
    )
    reader = source.reader(source.schema())
    part = reader.partitions()[0]
    shutil.rmtree(store)
    gone = f"{store} does not exist at {socket.gethostname()}: a path names a folder of each executor's machine; mount"
    with pytest.raises(StoreError, match=re.escape(gone)):
        list(reader.read(part))


def test_a_stream_does_not_take_such_a_store_for_lost_data(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path / "a").append_many(3)
    reader = RocketMQStore({"path": str(tmp_path / "a"), "failOnDataLoss": "false"}).streamReader(SCHEMA)
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(StoreError, match=f"{tmp_path}/a does not exist at "):
        list(reader.read(part))


CODE = (
    "import gc; from rocketbroker.analytics.spark.worker import freeze_modules as f; f(); print(gc.get_freeze_count())"
)


@pytest.mark.parametrize(("reused", "passed_over"), [("1", True), ("", False)])
def test_only_a_worker_that_is_used_again_has_its_modules_skipped(reused: str, *, passed_over: bool) -> None:
    environment = os.environ | {"SPARK_REUSE_WORKER": reused}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert (int(done.stdout) > 0) is passed_over
