"""CPU time and memory are those of a process and its children; latencies; the probe of a disk leaves nothing."""

import mmap
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.measure import (
    anonymous_mib,
    cost,
    cpu_seconds,
    drop_from_page_cache,
    latencies,
    loop_seconds,
    own_anonymous_mib,
    percentile,
    probe_fdatasync,
    process_tree,
    room,
    shared_anonymous_mib,
    watched,
)  # fmt: skip

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
    assert latencies([0.001] * 99 + [0.101]).ms() == pytest.approx({"p50": 1.0, "p99": 101.0, "longest": 101.0})


def test_work_costs_what_it_adds():
    size = 40 << 20
    # A map of its own: a large object may come out of memory that this process freed before and still holds.
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as kept:

        def work() -> None:
            end = time.process_time() + 0.1
            while time.process_time() < end:
                pass
            for _ in range(size >> 20):
                kept.write(b"x" * (1 << 20))

        found = cost(os.getpid(), work)

    assert found.seconds >= 0.1
    assert found.loop >= 0.08
    assert 0.08 <= found.cpu < 5
    assert found.mib == pytest.approx(40, abs=20)
    assert own_anonymous_mib(os.getpid(), "no such name") == 0


def test_memory_that_a_forked_process_shares_counts_once():
    fork = """
import os, sys
kept = bytearray(b"x") * (60 << 20)
if os.fork():
    print("ready", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", fork], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        process.stdout.readline()
        once, twice = shared_anonymous_mib(process.pid), anonymous_mib(process.pid)
        process.stdin.close()
    assert 60 < once < 100
    assert twice > once + 50
    assert shared_anonymous_mib(process.pid) == 0


def test_samples_are_taken_while_the_block_runs():
    values, taken = iter([5.0, 9.0]), threading.Event()

    def sample() -> float:
        found = next(values, None)
        if found is None:
            taken.set()
        return found or 1.0

    with watched(sample) as samples:
        assert taken.wait(10)
    assert samples[:3] == [0.0, 5.0, 9.0]
    assert max(samples) == 9.0


def test_the_probe_syncs_at_least_twice_and_removes_its_file(tmp_path: Path):
    assert re.match(r"[\d,]+ syncs/s, p50 \d+\.\d\d ms, p99 ", probe_fdatasync(tmp_path, 0))
    assert list(tmp_path.iterdir()) == []


def test_some_room_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9 << 30, 4 << 30, 5 << 30))
    assert room(tmp_path) == 3 << 30

    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9 << 30, 8 << 30, 1 << 30))
    assert room(tmp_path) == 0


def test_files_in_all_folders_are_dropped_and_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    advised: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _fd, start, length, _advice: advised.append((start, length)))
    for name in ("a", "b/c"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"content")

    drop_from_page_cache(tmp_path)

    assert advised == [(0, 0)] * 2
    assert [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()] == [b"content"] * 2
