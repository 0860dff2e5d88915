"""Isolation of tests from the garbage of a failed one."""

import subprocess
import sys
from pathlib import Path

from tests.support.ports import ROOT

TESTS = """
import gc, socket

class Holder:
    def __init__(self):
        self.own = self
        self.socket = socket.socket()

def test_fails():
    holder = Holder()
    assert not holder

def test_passes():
    gc.collect()
"""


def test_what_a_failed_test_left_open_is_collected_with_it(tmp_path: Path):
    (tmp_path / "test_left.py").write_text(TESTS)
    options = ["-q", "-W", "error", "-p", "tests.conftest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options, "-c", "/dev/null", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
