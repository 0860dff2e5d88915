"""Lock of a folder with users and policies: one server at a time, also after a kill."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketbroker.auth.table_lock import FILE_NAME, TableLock
from rocketbroker.common.errors import ConfigError


def test_one_holder_at_a_time(tmp_path: Path):
    folder = tmp_path / "config"
    first, second = TableLock(folder), TableLock(folder)
    first.acquire()
    first.acquire()
    with pytest.raises(ConfigError, match=rf"authConfigPath: {folder} is in use by another .*process {os.getpid()}\)"):
        second.acquire()
    second.release()
    first.release()
    second.acquire()
    assert (folder / FILE_NAME).stat().st_mode & 0o777 == 0o600
    second.release()


def test_another_process_is_named_and_its_kill_ends_the_lock(tmp_path: Path):
    hold = (
        "import sys; from pathlib import Path; from rocketbroker.auth.table_lock import TableLock; "
        "lock = TableLock(Path(sys.argv[1])); lock.acquire(); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        lock = TableLock(tmp_path)
        with pytest.raises(ConfigError, match=rf"process {process.pid}\).*give each server a folder of its own"):
            lock.acquire()
        process.kill()
    lock.acquire()
    lock.release()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=f"{tmp_path}/file/{FILE_NAME} cannot be opened: "):
        TableLock(tmp_path / "file").acquire()
