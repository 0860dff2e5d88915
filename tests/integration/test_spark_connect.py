"""Tables through Spark Connect: the client has no JVM, and sends plans to a server."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketbroker.analytics.java_runtime import ensure_java_home
from tests.support import golden_store
from tests.support.our_servers import ROOT
from tests.support.slow_store_reader import slow_rows
from tests.support.table_rows import table_rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="pyspark[connect] is not installed"),
]

_CLIENT = """
import json, sys
from pyspark.sql import SparkSession
from rocketbroker.analytics import create_views, messages, register, table
from tests.support.streaming_query import run_to_end

spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__, type(spark)
register(spark)
store, out = sys.argv[1:]
create_views(spark, store)
counted = spark.sql("SELECT topic, count(*) AS c FROM messages WHERE queue_id = 0 GROUP BY topic").collect()
stream = spark.readStream.format("rocketmq_store").schema("physical_offset bigint").load(store)
writer = stream.writeStream.format("parquet").option("path", out + "/rows").option("checkpointLocation", out + "/check")
run_to_end(writer.trigger(availableNow=True).start, 400)
print("RESULT " + json.dumps({
    "counts": sorted([row["topic"], row["c"]] for row in counted),
    "topics": sorted(row["topic"] for row in table(spark, store, "topics", ["topic"]).collect()),
    "streamed": sorted(row[0] for row in spark.read.parquet(out + "/rows").collect()),
}))
spark.stop()
"""


def test_tables_views_filters_and_streams(tmp_path: Path):
    store = golden_store.unpack("clean", tmp_path)
    rows = slow_rows(store / "commitlog")
    environment = {
        **os.environ,
        "JAVA_HOME": str(ensure_java_home()),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    script = tmp_path / "client.py"
    script.write_text(_CLIENT)
    done = subprocess.run(
        [sys.executable, str(script), str(store), str(tmp_path)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert len(lines) == 1, done.stdout[-2000:] + done.stderr[-6000:]
    result = json.loads(lines[0].removeprefix("RESULT "))
    counts: dict[str, int] = {}
    for row in rows:
        if row["queue_id"] == 0:
            counts[row["topic"]] = counts.get(row["topic"], 0) + 1
    assert result["counts"] == sorted([topic, count] for topic, count in counts.items())
    assert result["topics"] == sorted(row["topic"] for row in table_rows(store, "topics"))
    assert result["streamed"] == [row["physical_offset"] for row in rows]
