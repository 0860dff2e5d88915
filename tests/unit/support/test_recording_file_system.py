"""The stand-in for a disk: what is synced stays, what is not may go, page by page and name by name."""

import errno
import os
from pathlib import Path

import pytest

from rocketbroker.common.atomic_file import write_synced
from tests.support.recording_file_system import PAGE, Disk, Loss, RecordingFileSystem

SEEDS = range(40)


@pytest.fixture
def files(tmp_path: Path) -> RecordingFileSystem:
    return RecordingFileSystem(tmp_path / "live")


def played(files: RecordingFileSystem) -> Disk:
    disk = Disk()
    for event in files.journal:
        disk.apply(event)
    return disk


def images(files: RecordingFileSystem, tmp_path: Path, loss: Loss, name: str) -> set[bytes | None]:
    """Return a file's contents after crashes with many seeds; ``None`` if it is gone."""
    disk, found = played(files), set()
    for seed in SEEDS:
        tmp_path.mkdir(exist_ok=True)
        disk.image(tmp_path / f"{loss.value}{seed}", loss, seed)
        path = tmp_path / f"{loss.value}{seed}" / name
        found.add(path.read_bytes() if path.exists() else None)
    return found


@pytest.mark.proves("What is assumed of the disk", "1. what was synced")
def test_what_is_synced_with_its_name_is_never_lost(files: RecordingFileSystem, tmp_path: Path):
    write_synced(files.root / "a", b"one", files)
    files.sync_folder(files.root)

    for loss in Loss:
        assert images(files, tmp_path, loss, "a") == {b"one"}


@pytest.mark.proves("What is assumed of the disk", "3. names")
def test_without_the_folder_the_name_may_be_lost(files: RecordingFileSystem, tmp_path: Path):
    write_synced(files.root / "a", b"one", files)

    assert images(files, tmp_path, Loss.NOTHING, "a") == {b"one"}
    assert images(files, tmp_path, Loss.ALL, "a") == {None}
    assert images(files, tmp_path, Loss.PAGES, "a") == {b"one", None}


@pytest.mark.proves("What is assumed of the disk", "2. what was not")
def test_pages_stored_by_a_mapping_are_lost_one_by_one(files: RecordingFileSystem, tmp_path: Path):
    fd = files.open(files.root / "a")
    files.set_size(fd, 2 * PAGE)
    files.sync(fd)
    files.sync_folder(files.root)
    mapped = files.map(fd, 2 * PAGE)
    stored = files.watcher(fd)
    assert stored is not None
    for value in (b"x", b"y"):
        memoryview(mapped).cast("B")[:] = value * 2 * PAGE
        stored(0, 2 * PAGE)

    found = images(files, tmp_path, Loss.PAGES, "a")

    assert found == {first * PAGE + second * PAGE for first in (b"\0", b"x", b"y") for second in (b"\0", b"x", b"y")}
    torn = images(files, tmp_path, Loss.SECTORS, "a")
    assert {len(one or b"") for one in torn} == {2 * PAGE}
    assert len(torn) > len(found)
    files.close(fd)


@pytest.mark.proves("What is assumed of the disk", "4. a sync that failed")
def test_a_later_sync_does_not_bring_what_a_failed_one_left_out(files: RecordingFileSystem, tmp_path: Path):
    fd = files.open(files.root / "a")
    files.set_size(fd, 4)
    files.sync(fd)
    files.sync_folder(files.root)
    files.write(fd, 0, b"ab")

    def refuse(operation: str, _path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    files.fault = refuse
    with pytest.raises(OSError, match="Input/output"):
        files.sync(fd)
    files.fault = lambda *_: None
    files.write(fd, 2, b"cd")
    files.sync(fd)
    assert images(files, tmp_path / "before", Loss.ALL, "a") == {b"\0\0cd"}

    files.write(fd, 0, b"ab")
    files.sync(fd)
    assert images(files, tmp_path / "after", Loss.ALL, "a") == {b"abcd"}
    files.close(fd)


@pytest.mark.proves("What is assumed of the disk", "3. names")
def test_a_rename_is_there_or_not(files: RecordingFileSystem, tmp_path: Path):
    for name, data in (("a", b"old"), ("a.tmp", b"new")):
        write_synced(files.root / name, data, files)
    files.sync_folder(files.root)
    files.rename(files.root / "a.tmp", files.root / "a")

    assert images(files, tmp_path, Loss.ALL, "a") == {b"old"}
    assert images(files, tmp_path, Loss.PAGES, "a") == {b"old", b"new"}
    files.sync_folder(files.root)
    assert images(files, tmp_path / "later", Loss.ALL, "a") == {b"new"}


def test_a_mapping_is_synced_without_a_descriptor(files: RecordingFileSystem, tmp_path: Path):
    fd = files.open(files.root / "a")
    files.set_size(fd, PAGE)
    files.sync(fd)
    files.sync_folder(files.root)
    mapped, stored = files.map(fd, PAGE), files.watcher(fd)
    files.close(fd)
    assert stored is not None
    memoryview(mapped).cast("B")[:] = b"x" * PAGE
    stored(0, PAGE)

    files.sync_mapped(mapped)

    assert images(files, tmp_path, Loss.ALL, "a") == {b"x" * PAGE}
