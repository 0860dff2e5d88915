"""Settings that a worker makes once for its whole process; called in a process of its own."""

import os
import subprocess
import sys

import pytest

CODE = (
    "import gc; from rocketbroker.analytics.spark.worker import freeze_modules as f; f(); print(gc.get_freeze_count())"
)


@pytest.mark.parametrize(("reused", "passed_over"), [("1", True), ("", False)])
def test_only_a_worker_that_is_used_again_has_its_modules_skipped(reused: str, *, passed_over: bool) -> None:
    environment = os.environ | {"SPARK_REUSE_WORKER": reused}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert (int(done.stdout) > 0) is passed_over
