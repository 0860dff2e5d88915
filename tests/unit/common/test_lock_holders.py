"""Who has a file locked is told without a lock being taken."""

import fcntl
import os
from pathlib import Path

import pytest

from rocketbroker.common.lock_holders import lock_holders


@pytest.mark.parametrize("lock", [fcntl.flock, fcntl.lockf])
def test_both_kinds_of_lock_are_seen_as_long_as_they_are_held(tmp_path: Path, lock):
    path = tmp_path / "lock"
    with path.open("wb") as file:
        assert lock_holders(path) == ()
        lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert lock_holders(path) == (os.getpid(),)
    assert lock_holders(path) == ()


def test_a_file_that_is_not_there_has_none(tmp_path: Path):
    assert lock_holders(tmp_path / "lock") == ()
