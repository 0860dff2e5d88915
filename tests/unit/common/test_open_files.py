import errno
import os
import resource
import subprocess
import sys

import pytest

from rocketbroker.common import open_files
from rocketbroker.common.errors import StoreError
from rocketbroker.common.open_files import (
    MappingLimit,
    limit_named,
    open_file_limit,
    raise_open_file_limit,
    why_not_mapped,
    why_refused,
)

BEGIN = """
import os, resource, sys
from rocketbroker.common.open_files import connection_limit, open_file, open_file_limit, raise_open_file_limit
"""
RAISED = """
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
raise_open_file_limit(int(sys.argv[1]))
print(resource.getrlimit(resource.RLIMIT_NOFILE), open_file_limit(), connection_limit())
"""
USED_UP = """
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 100))
raise_open_file_limit(20)
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError as error:
    print(error.strerror, taken[-1])
files = []
try:
    while True:
        files.append(open_file("/dev/null", os.O_RDONLY, 0))
except OSError as error:
    print(error.strerror, files[0], files[-1], resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def run(script: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-c", BEGIN + script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize(("reserve", "soft"), [(16, 184), (50, 150), (256, 150)])
def test_the_limit_is_raised_to_what_the_system_allows_less_the_reserve(reserve: int, soft: int):
    assert run(RAISED, str(reserve)) == [f"({soft}, 200) 200 {soft - 16}"]


def test_files_are_opened_from_the_reserve_when_others_have_taken_the_rest():
    assert run(USED_UP) == ["Too many open files 79", "Too many open files 80 99 (80, 100)"]


def test_a_limit_that_cannot_be_raised_stays_and_is_reported(monkeypatch, caplog):
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 1 << 40))
    monkeypatch.setattr(resource, "setrlimit", refuse)

    raise_open_file_limit(16)

    assert "the limit of open files stays 100" in caplog.text


def error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def test_a_limit_that_is_reached_is_named_with_what_raises_it(monkeypatch):
    monkeypatch.setattr(open_files, "max_map_count", lambda: 65_530)

    assert why_refused(error(errno.EMFILE)).startswith(
        f"Too many open files: this process may open {open_file_limit():,} (ulimit -n); raise"
    )
    assert "raise fs.file-max" in why_refused(error(errno.ENFILE))
    assert "65,530 mappings (vm.max_map_count); raise it by sysctl" in why_not_mapped(error(errno.ENOMEM))


@pytest.mark.parametrize("why", [why_refused, why_not_mapped])
def test_another_error_is_reported_as_it_is(why):
    assert why(error(errno.EIO)) == "Input/output error"


def test_queue_files_leave_mappings_to_others(monkeypatch):
    asked: list[int] = []
    mapped, allowed = 0, 10_000

    def ask() -> int:
        asked.append(mapped)
        return allowed

    monkeypatch.setattr(open_files, "max_map_count", ask)
    monkeypatch.setattr(open_files, "mapped_count", lambda: mapped)
    limit = MappingLimit()
    for count in range(7500):
        mapped = count
        assert not limit.why_reached()
        assert bool(limit.why_reached(is_new_queue=True)) == (count >= 5625)
    assert [each for each in asked if each < 5625] == [0], "the kernel is asked once"
    assert limit.why_reached(is_new_queue=True).startswith(
        "7,499 files are mapped, and the rest is kept for the log and"
    )
    mapped = 7500

    assert limit.why_reached().startswith("7,500 files are mapped, and the rest is kept for the log: ")
    assert "10,000 mappings (vm.max_map_count); raise it by sysctl" in limit.why_reached()
    allowed = 65_530
    assert not limit.why_reached(), "a limit that was raised holds at once"
    mapped = 65_530 - 4096
    assert limit.why_reached()
    monkeypatch.setattr(open_files, "max_map_count", lambda: None)
    assert not limit.why_reached(), "where the system has no such limit"


def test_an_error_names_the_limit_only_when_descriptors_run_out():
    with pytest.raises(StoreError, match="cannot open queue"), limit_named():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "queue")
    with pytest.raises(PermissionError), limit_named():
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "queue")
