import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketbroker.common.errors import StoreError
from rocketbroker.store.store_lock import StoreLock

HOLDER = """
import sys
from pathlib import Path
from rocketbroker.store.store_lock import StoreLock
lock = StoreLock(Path(sys.argv[1]), Path(sys.argv[1], "abort"))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def make_lock(root: Path) -> StoreLock:
    return StoreLock(root, root / "abort")


def test_another_process_is_kept_out_until_the_first_ends(tmp_path: Path):
    root = tmp_path / "store"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreError) as caught:
            make_lock(root).acquire()
        holder.communicate("")

    text = str(caught.value)
    assert text == f"{root} is in use by another broker; stop it or set storePathRootDir to another folder"
    lock = make_lock(root)
    lock.acquire()
    lock.release()


def test_a_second_store_in_the_same_process_is_kept_out_too(tmp_path: Path):
    first = make_lock(tmp_path)
    first.acquire()

    with pytest.raises(StoreError, match="is in use"):
        make_lock(tmp_path).acquire()

    first.release()
    second = make_lock(tmp_path)
    second.acquire()
    second.release()
    second.release()


def test_who_has_it_may_ask_again(tmp_path: Path):
    lock = make_lock(tmp_path)
    lock.acquire()
    lock.acquire()
    with pytest.raises(StoreError, match="is in use"):
        make_lock(tmp_path).acquire()

    lock.release()
    again = make_lock(tmp_path)
    again.acquire()
    again.release()


def test_the_file_says_what_it_is_as_javas_does(tmp_path: Path):
    lock = make_lock(tmp_path)
    lock.acquire()

    assert (tmp_path / "lock").read_bytes() == b"lock"
    lock.release()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match=r"cannot open .*file/store/lock"):
        make_lock(tmp_path / "file" / "store").acquire()


def test_the_abort_file_is_there_while_a_broker_runs(tmp_path: Path):
    lock = StoreLock(tmp_path, tmp_path / "elsewhere" / "abort")

    lock.mark_running(4711)
    assert (tmp_path / "elsewhere" / "abort").read_text() == "4711"
    assert not lock.was_clean

    lock.mark_stopped()
    lock.mark_stopped()
    assert StoreLock(tmp_path, tmp_path / "elsewhere" / "abort").was_clean


def test_an_abort_file_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "abort").mkdir()

    with pytest.raises(StoreError, match=r"cannot write .*abort: Is a directory"):
        make_lock(tmp_path).mark_running(1)
