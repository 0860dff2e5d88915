import errno
import os
import resource
import subprocess
import sys

import pytest

from rocketbroker.common import open_files
from rocketbroker.common.open_files import open_file_limit, raise_open_file_limit, why_not_mapped, why_refused

RAISED = """
import resource
from rocketbroker.common.open_files import open_file_limit, raise_open_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
print(raise_open_file_limit(), open_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_limit_is_raised_to_what_the_system_allows():
    done = subprocess.run([sys.executable, "-c", RAISED], capture_output=True, text=True, check=True)

    assert done.stdout == "200 200 (200, 200)\n"


def test_a_limit_that_cannot_be_raised_stays_and_is_told(monkeypatch, caplog):
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 1 << 40))
    monkeypatch.setattr(resource, "setrlimit", refuse)

    assert raise_open_file_limit() == 100
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
def test_another_error_is_told_as_it_is(why):
    assert why(error(errno.EIO)) == "Input/output error"
