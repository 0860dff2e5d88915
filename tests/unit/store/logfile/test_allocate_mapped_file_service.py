import errno
import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketbroker.common.errors import StoreBusyError, StoreError, StoreFullError
from rocketbroker.store.logfile.allocate_mapped_file_service import AllocateMappedFileService
from rocketbroker.store.logfile.mapped_file import MappedFile
from tests.support.recording_file_system import Disk, Loss, RecordingFileSystem
from tests.support.stores import open_below

SIZE = 65536


@pytest.fixture
def service() -> Iterator[AllocateMappedFileService]:
    made = AllocateMappedFileService()
    yield made
    made.stop()


def test_a_prepared_file_is_handed_over_once(service: AllocateMappedFileService, tmp_path: Path):
    path = tmp_path / f"{0:020d}"
    service.prepare(path, SIZE, 4096)
    service.prepare(path, SIZE, 4096)

    file = service.take(path, SIZE, 4096)

    assert file.path == path
    assert file.allocated == 4096
    file.close()
    other = service.take(path, SIZE, 4096)
    assert other is not file
    other.close()


def test_a_file_that_nobody_prepared_is_made_at_once(service: AllocateMappedFileService, tmp_path: Path):
    file = service.take(tmp_path / f"{0:020d}", SIZE, 0)

    assert file.allocated == SIZE
    file.close()


def test_grow_allocates_on_its_thread(service: AllocateMappedFileService, tmp_path: Path):
    file = service.take(tmp_path / f"{0:020d}", SIZE, 4096)
    service.grow(file, 4096, SIZE * 2)

    service.stop()

    assert file.allocated == SIZE
    file.close()


def test_what_the_taker_held_when_the_disk_was_full_is_free_again_at_once(
    service: AllocateMappedFileService, tmp_path: Path, monkeypatch
):
    """It may be the file that was written: removed later, its blocks must not wait for a collection of cycles."""

    class Held:
        pass

    def take() -> "weakref.ref[Held]":
        held = Held()
        with pytest.raises(StoreFullError):
            _call_with(held, lambda: service.take(tmp_path / f"{0:020d}", SIZE, 4096))
        return weakref.ref(held)

    def grow(file: MappedFile) -> "weakref.ref[Held]":
        held = Held()
        with pytest.raises(StoreFullError):
            _call_with(held, lambda: service.ensure_allocated(file, SIZE))
        return weakref.ref(held)

    file = service.take(tmp_path / f"{SIZE:020d}", SIZE, 4096)
    monkeypatch.setattr(os, "posix_fallocate", _no_room)
    gc.disable()
    try:
        assert take()() is None
        assert grow(file)() is None
    finally:
        gc.enable()
    file.close()


def _call_with(_held: object, call: Callable[[], object]) -> None:
    call()


def _no_room(*_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_reaches_the_taker_each_time_and_costs_no_files(
    service: AllocateMappedFileService, tmp_path: Path, monkeypatch
):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    path = tmp_path / f"{0:020d}"
    service.prepare(path, SIZE, 4096)
    with pytest.raises(StoreFullError):
        service.take(path, SIZE, 4096)
    before = open_below(tmp_path)

    for _ in range(5):
        with pytest.raises(StoreFullError):
            service.take(path, SIZE, 4096)

    assert open_below(tmp_path) == before
    assert list(tmp_path.iterdir()) == [], "a start would find a file that is nothing but a hole"


@pytest.mark.proves("The steps of a message", "1. files in order")
def test_size_and_name_of_a_file_are_on_disk_before_the_next_file_is_there(tmp_path: Path):
    file_system = RecordingFileSystem(tmp_path / "live")
    service = AllocateMappedFileService(file_system)
    paths = [tmp_path / "live" / "log" / f"{number * SIZE:020d}" for number in range(3)]
    for path in paths:
        service.prepare(path, SIZE, 4096)
    for path in paths:
        service.take(path, SIZE, 4096).close()
    service.stop()

    disk = Disk()
    for number, event in enumerate(file_system.journal):
        disk.apply(event)
        image = tmp_path / str(number)
        disk.image(image, Loss.PAGES, number)
        sizes = [path.stat().st_size for path in sorted(image.glob("log/*"))]
        assert all(size == SIZE for size in sizes[:-1]), f"a file without its size before another, after {event[:2]}"


def test_a_refused_sync_reaches_the_taker_and_costs_no_files(tmp_path: Path):
    file_system = RecordingFileSystem(tmp_path / "live")
    service = AllocateMappedFileService(file_system)

    def refuse(operation: str, _: Path) -> None:
        if operation == "sync":
            raise OSError(errno.EIO, "Input/output error")

    path = tmp_path / "live" / f"{0:020d}"
    file_system.fault = refuse
    with pytest.raises(StoreError, match=f"cannot sync {path}: Input/output error"):
        service.take(path, SIZE, 4096)
    assert not path.exists()
    file_system.fault = lambda _operation, _path: None
    service.take(path, SIZE, 4096).close()
    service.stop()


class SlowDisk:
    """A disk that allocates nothing while it is held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.goes_on = threading.Event()
        self._allocate = os.posix_fallocate
        monkeypatch.setattr(os, "posix_fallocate", self.allocate)

    def allocate(self, fd: int, start: int, size: int) -> None:
        self.asked += 1
        assert self.goes_on.wait(60)
        self._allocate(fd, start, size)


def test_the_writer_waits_for_a_file_once_and_gets_it_when_it_is_ready(
    service: AllocateMappedFileService, tmp_path: Path, monkeypatch
):
    disk = SlowDisk(monkeypatch)
    service.busy_after_s = 0.02
    path = tmp_path / f"{0:020d}"
    for _ in range(3):
        with pytest.raises(
            StoreBusyError, match=rf"{path} for \d+ ms, above the limit of 20 ms \(osPageCacheBusyTimeOut"
        ):
            service.take(path, SIZE, 4096)

    service.busy_after_s = None
    disk.goes_on.set()
    service.prepare(path, SIZE, 4096)
    service.settle(10)
    file = service.take(path, SIZE, 4096)

    assert (file.allocated, disk.asked) == (4096, 1)
    file.close()


def test_the_writer_waits_for_blocks_once_and_continues_when_they_are_there(
    service: AllocateMappedFileService, tmp_path: Path, monkeypatch
):
    file = service.take(tmp_path / f"{0:020d}", SIZE, 4096)
    disk = SlowDisk(monkeypatch)
    service.busy_after_s = 0.02
    for _ in range(3):
        with pytest.raises(StoreBusyError, match="osPageCacheBusyTimeOutMills"):
            service.ensure_allocated(file, 4097)
    assert (file.allocated, disk.asked) == (4096, 1)

    disk.goes_on.set()
    service.settle(10)
    service.ensure_allocated(file, 8192)
    service.busy_after_s = None
    service.ensure_allocated(file, 20_000)

    assert (file.allocated, disk.asked) == (20_480, 2)
    file.close()


def test_stop_closes_what_nobody_took(tmp_path: Path):
    before = open_below(tmp_path)
    service = AllocateMappedFileService()
    service.prepare(tmp_path / f"{0:020d}", SIZE, 4096)

    service.stop()

    assert open_below(tmp_path) == before
    assert (tmp_path / f"{0:020d}").stat().st_size == SIZE
