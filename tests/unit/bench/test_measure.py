"""CPU time and memory are those of the process and of its children, running or ended."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.measure import anonymous_mib, cpu_seconds, loop_seconds, percentile, process_tree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

CPU_S = 0.3
TICK_S = 1 / os.sysconf("SC_CLK_TCK")  # /proc counts CPU time in whole ticks, rounded down

# A parent that starts a child which takes memory and CPU time, and says so once the child has it.
CHILD = f"""
import sys, time
kept = bytearray(b"x") * (40 << 20)
while time.process_time() < {CPU_S}: pass
print("ready", flush=True)
sys.stdin.read()
"""
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {CHILD!r}], check=True)
print("ended", flush=True)
sys.stdin.read()
"""


@contextmanager
def parent() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


def test_children_count_while_they_run():
    with parent() as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

        assert len(list(process_tree(process.pid))) == 2
        assert cpu_seconds(process.pid) >= CPU_S - TICK_S
        assert 40 < anonymous_mib(process.pid) < 200


def test_children_that_ended_still_count_for_the_time():
    code = PARENT.replace("sys.stdin.read()", "pass", 1)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "ended\n"]

        assert list(process_tree(process.pid)) == [process.pid]
        assert cpu_seconds(process.pid) >= CPU_S - TICK_S
        assert anonymous_mib(process.pid) < 40


def test_a_process_that_is_gone_has_nothing():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()

    assert cpu_seconds(process.pid) == 0
    assert anonymous_mib(process.pid) == 0


def test_time_grows_with_work():
    pid = next(process_tree(os.getpid()))
    before = cpu_seconds(pid)
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass

    assert 0.08 <= cpu_seconds(pid) - before < 5


def test_the_main_thread_has_a_clock_of_its_own():
    before, whole = loop_seconds(os.getpid()), cpu_seconds(os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass

    assert 0.08 <= loop_seconds(os.getpid()) - before <= cpu_seconds(os.getpid()) - whole + 0.1


def test_percentiles_are_values_that_were_measured():
    assert percentile([3, 1, 2, 4], 0.5) == 3
    assert percentile([1, 2], 0.99) == 2
    assert percentile([], 0.5) == 0
