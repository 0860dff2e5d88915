"""A program of a user, run by ``spark-submit``: master and settings are those of the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from rocketbroker.analytics.spark.local_session import ensure_java_home
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.ports import LOOPBACK

# Programs that start at a cluster by spark-submit run in test_spark_cluster.
pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(400)]

PROGRAM = """\
import json, sys
from rocketbroker.analytics import spark_session

with spark_session("traffic", {"spark.sql.shuffle.partitions": "3"}) as spark:
    messages = spark.read.format("rocketmq_store").load(sys.argv[1])
    context = spark.sparkContext
    print("RESULT " + json.dumps({
        "count": messages.count(),
        "master": context.master,
        "name": context.appName,
        "own": context.getConf().get("spark.user.setting"),
        "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
    }))
"""


def test_the_session_is_that_of_spark_submit(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path / "store").append_many(20)
    program = tmp_path / "traffic.py"
    program.write_text(PROGRAM)
    environment = os.environ | {
        "JAVA_HOME": str(ensure_java_home()),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    settings = {"spark.ui.enabled": "false", "spark.user.setting": "kept", "spark.driver.bindAddress": LOOPBACK}
    command = [str(Path(pyspark.__file__).with_name("bin") / "spark-submit"), "--master", "local[1]"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [*command, str(program), str(tmp_path / "store")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert (done.returncode, len(found)) == (0, 1), done.stdout[-2000:] + done.stderr[-6000:]
    assert json.loads(found[0]) == {
        "count": 20,
        "master": "local[1]",
        "name": "traffic",
        "own": "kept",
        "partitions": "3",
    }
