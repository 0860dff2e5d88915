"""Starting Spark with an archive of its classes, as `mqanalytics prepare` writes it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commit_log_writer import CommitLogWriter
from tests.support.our_servers import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1800)]


def mqanalytics(cache: Path, *arguments: str) -> str:
    """Return the output of the command with a cache of its own."""
    variables = {"PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-m", "rocketbroker.app.mqanalytics.cli", *arguments]
    done = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, timeout=1500, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout


def test_jobs_map_the_archive_and_ignore_one_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    CommitLogWriter(tmp_path / "store").append_many(20)
    assert Path(mqanalytics(tmp_path / "cache", "prepare").strip()).is_file()
    log = tmp_path / "classes.log"

    def mapped_classes(*settings: str) -> tuple[int, int]:
        """Run a job; return the number of its messages, and of Spark's classes that Java mapped."""
        options = f"spark.driver.extraJavaOptions=-Xlog:class+load:file={log}"
        told = mqanalytics(
            tmp_path / "cache", "--conf", options, *settings, "traffic", "--json", str(tmp_path / "store")
        )
        lines = [line for line in log.read_text().splitlines() if "org.apache.spark.sql." in line]
        rows = json.loads(told)["rows"]
        return sum(row["messages"] for row in rows), sum("shared objects file (top)" in line for line in lines)

    messages, mapped = mapped_classes()
    assert messages == 20
    assert mapped > 1000
    assert mapped_classes("--conf", f"spark.driver.extraClassPath={tmp_path}") == (20, 0)
