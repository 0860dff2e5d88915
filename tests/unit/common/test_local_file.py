"""Open files of this machine."""

import fcntl
import os
from pathlib import Path

import pytest

from rocketbroker.codec.storefile.store_file import StoreFile
from rocketbroker.common.errors import StoreError
from rocketbroker.common.local_file import LocalFile, lock_holders
from rocketbroker.store.logfile.mapped_file import MappedFile


def refused(error: OSError) -> StoreError:
    return StoreError(f"refused: {error.strerror}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / f"{0:020d}"
    path.write_bytes(b"0123456789")
    return path


@pytest.mark.parametrize("mapped", [False, True])
def test_a_store_file_gives_fewer_bytes_only_at_its_end(path: Path, mapped: bool):
    opened = MappedFile(path, 10) if mapped else LocalFile(path, refused)
    file: StoreFile = opened
    memory = bytearray(b"." * 5)

    assert file.size == 10
    assert [file.read_at(*place) for place in ((0, 3), (8, 5), (10, 1), (12, 1))] == [b"012", b"89", b"", b""]
    assert file.read_into(7, memoryview(memory)) == 3
    assert memory == b"789.."
    opened.close()


def test_a_local_file_names_what_was_refused(path: Path):
    with pytest.raises(StoreError, match="refused: No such file"):
        LocalFile(path.parent / "none", refused)
    file = LocalFile(path.parent, refused)
    reads = (lambda: file.read_at(0, 1), lambda: file.read_into(0, memoryview(bytearray(1))))
    for read in (*reads, lambda: file.read_each([0], 1)):
        with pytest.raises(StoreError, match="refused: Is a directory"):
            read()
    file.close()


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
