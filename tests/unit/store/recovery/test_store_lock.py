"""Parts of a store that this broker cannot read keep it from starting, before anything is written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocketbroker.common.errors import StoreError
from rocketbroker.store.dispatch.commit_log_dispatcher import NoListener
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.recovery.store_lock import StoreLock
from tests.support.fakes import FakeClock
from tests.support.recording_file_system import Disk, Loss, RecordingFileSystem
from tests.support.stores import V4_HOST, make_store, message, store_config

# Databases of RocketMQ 5.5.0 below config/: separate ones, one for all tables, and those of configManagerVersion=v2.
ROCKSDB = ["topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb"]


def files_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.mark.parametrize("name", ROCKSDB)
async def test_tables_in_rocksdb(tmp_path: Path, name: str):
    folder = tmp_path / "config" / name
    folder.mkdir(parents=True)
    (folder / "CURRENT").write_text("MANIFEST-000005\n")
    before = files_below(tmp_path)

    with pytest.raises(StoreError) as caught:
        await make_store(tmp_path).start()

    assert str(caught.value).startswith(f"{folder} is a RocksDB database (storeType=defaultRocksDB")
    assert "by rocksDBConfigToJson of Apache's mqadmin, then move this folder away" in str(caught.value)
    assert files_below(tmp_path) == before


async def test_the_log_of_a_dledger_group(tmp_path: Path):
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    (data / f"{0:020d}").write_bytes(bytes(64))
    before = files_below(tmp_path)

    with pytest.raises(StoreError, match="is the log of a DLedger group") as caught:
        await make_store(tmp_path).start()

    assert str(caught.value).startswith(str(data))
    assert files_below(tmp_path) == before


async def test_other_folders_are_no_obstacle(tmp_path: Path):
    for name in ("config/backup", "dledger-n0/data", "dledger", "CURRENT"):
        (tmp_path / name).mkdir(parents=True)
    store = make_store(tmp_path)
    await store.start()
    await store.stop()


HOLDER = """
import sys
from pathlib import Path
from rocketbroker.store.recovery.store_lock import StoreLock
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


def test_the_holder_of_the_lock_may_acquire_it_again(tmp_path: Path):
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

    assert (tmp_path / "lock").read_bytes() == b"open"
    lock.note_open()
    assert (tmp_path / "lock").read_bytes() == b"lock"
    lock.release()


async def test_it_is_said_once_the_store_is_recovered(tmp_path: Path):
    store = MessageStore(store_config(tmp_path / "store"), V4_HOST, NoListener(), FakeClock())
    await store.start()

    assert (tmp_path / "store" / "lock").read_bytes() == b"lock"
    await store.stop()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match=r"cannot open .*file/store/lock"):
        make_lock(tmp_path / "file" / "store").acquire()


def stopped_cleanly(root: Path, abort: Path) -> bool:
    lock = StoreLock(root, abort)
    lock.acquire()
    lock.release()
    return lock.was_clean


def test_the_abort_file_is_there_while_a_broker_runs(tmp_path: Path):
    abort = tmp_path / "elsewhere" / "abort"
    lock = StoreLock(tmp_path, abort)

    lock.acquire()
    lock.mark_running(4711)
    assert abort.read_text() == "4711"
    assert lock.was_clean, "it tells of the last broker"
    lock.release()
    assert not stopped_cleanly(tmp_path, abort)

    lock.mark_stopped()
    lock.mark_stopped()
    assert stopped_cleanly(tmp_path, abort)


def test_an_abort_file_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "abort").mkdir()

    with pytest.raises(StoreError, match=r"cannot write .*abort: Is a directory"):
        make_lock(tmp_path).mark_running(1)


def contents(root: Path) -> dict[str, bytes]:
    """The files below a folder that hold something; the lock is no part of the store."""
    files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"}
    return {str(path.relative_to(root)): data for path, data in files.items() if data.strip(b"\0")}


@pytest.mark.long
@pytest.mark.proves("When the store is opened", "1. `abort`")
async def test_without_the_abort_file_the_disk_has_what_a_clean_stop_left(tmp_path: Path):
    """It is on disk before anything is changed, and goes when all that was changed is."""
    file_system = RecordingFileSystem(tmp_path / "live")
    clean = [contents(tmp_path / "live")]
    for number in range(2):
        store = MessageStore(store_config(tmp_path / "live" / "store"), V4_HOST, NoListener(), FakeClock(), file_system)
        await store.start()
        for key in ("a", "b"):
            store.appender.put_message(message(b"%d" % number, properties={"KEYS": key}))
            store.appender.dispatch()
        await store.stop()
        clean.append(contents(tmp_path / "live"))

    disk, found = Disk(), []
    for number, event in enumerate(file_system.journal):
        disk.apply(event)
        for loss in Loss:
            image = tmp_path / "image"
            disk.image(image, loss, seed=number)
            if not (image / "store" / "abort").exists():
                found.append(contents(image))
            shutil.rmtree(image)
    assert [sorted(left) for left in found if left not in clean] == []
    assert all(left in found for left in clean)
