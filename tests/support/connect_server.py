"""A Spark Connect server on this machine: a process of its own, bound to loopback, on a free port."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocketbroker.analytics.spark.local_session import ensure_java_home, spark_home
from tests.support.java_process import JavaProcess
from tests.support.job_frames import SMALL_SESSION
from tests.support.our_servers import ROOT
from tests.support.ports import LOOPBACK, free_ports
from tests.support.spark_cluster import BOOT_LIMIT_S

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def connect_server(home: Path) -> Iterator[str]:
    """Run a server and yield its address; its Python workers can import rocketbroker. Its output is printed.

    ``home`` is an empty folder.
    """
    port = free_ports()
    settings = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        **SMALL_SESSION,
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    spark = spark_home(home)
    command = [str(spark / "bin" / "spark-submit"), "--master", "local[2]", "--class", _SERVER, *options]
    environment = {
        **os.environ,
        "JAVA_HOME": str(ensure_java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT / "src"),
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": LOOPBACK,
    }
    log = home / "connect-server.out"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "spark-internal"], stdout=out, stderr=subprocess.STDOUT, cwd=home, env=environment
        )
    server = JavaProcess("connect server", process, log)
    try:
        server.wait_for("Spark Connect server started at", BOOT_LIMIT_S)
        yield f"sc://{LOOPBACK}:{port}"
    finally:
        server.kill()
        print(f"----- {server.name} -----\n{server.text()[-8000:]}")
