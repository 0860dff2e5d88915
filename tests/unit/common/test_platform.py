"""Fallbacks for calls that only some systems have: each call is taken away, and the promise must still be kept."""

import ctypes
import errno
import gc
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketbroker.common import platform
from rocketbroker.common.file_system import LOCAL
from rocketbroker.common.local_file import lock_holders
from rocketbroker.common.open_files import open_file_limit, raise_open_file_limit
from rocketbroker.common.platform import map_shared, mapped_count, max_map_count, sync_shared
from tests.support.stores import open_below

SIZE = 1 << 20


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """A file that is one hole."""
    fd = LOCAL.open(tmp_path / "file")
    LOCAL.set_size(fd, SIZE)
    yield fd
    LOCAL.close(fd)


@pytest.fixture
def no_fallocate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")


def blocks(fd: int) -> int:
    return os.fstat(fd).st_blocks * 512


def test_the_parts_of_a_file_that_are_no_holes(fd: int):
    LOCAL.write(fd, 1 << 16, b"data")
    LOCAL.write(fd, 1 << 18, b"more")

    ranges = list(platform.data_ranges(fd, 0, SIZE))
    assert [start for start, _ in ranges] == [1 << 16, 1 << 18]
    assert all(start + 4 <= end <= start + (1 << 16) for start, end in ranges)
    assert list(platform.data_ranges(fd, (1 << 16) + 1, (1 << 16) + 3)) == [((1 << 16) + 1, (1 << 16) + 3)]
    assert list(platform.data_ranges(fd, 1 << 19, SIZE)) == []


def test_all_of_a_file_is_data_where_the_system_shows_no_holes(fd: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "SEEK_DATA")

    assert list(platform.data_ranges(fd, 7, SIZE)) == [(7, SIZE)]
    assert list(platform.data_ranges(fd, SIZE, SIZE)) == []


@pytest.mark.usefixtures("no_fallocate")
@pytest.mark.parametrize(("start", "length"), [(0, SIZE), (1 << 16, 1 << 18), (4096, 4096)])
def test_without_posix_fallocate_holes_get_blocks_and_data_stays(fd: int, start: int, length: int):
    LOCAL.write(fd, start + 100, b"data")
    LOCAL.write(fd, start + length - 4, b"more")

    LOCAL.allocate(fd, start, length)

    assert blocks(fd) >= length
    content = os.pread(fd, SIZE + 1, 0)
    assert len(content) == SIZE
    assert content[start + 100 : start + 104] == b"data"
    assert content[start + length - 4 : start + length] == b"more"
    assert sum(content) == sum(b"datamore")


@pytest.mark.usefixtures("no_fallocate")
def test_without_posix_fallocate_a_range_beyond_the_end_is_allocated_too(fd: int):
    LOCAL.allocate(fd, SIZE - 4096, 8192)

    assert os.fstat(fd).st_size == SIZE + 4096
    assert blocks(fd) >= 8192


@pytest.mark.usefixtures("no_fallocate")
def test_without_posix_fallocate_a_full_disk_is_reported_before_anything_is_stored(
    fd: int, monkeypatch: pytest.MonkeyPatch
):
    def refuse(_fd: int, _data: memoryview, _position: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)

    with pytest.raises(OSError, match="No space left"):
        LOCAL.allocate(fd, 0, SIZE)


@pytest.mark.usefixtures("no_fallocate")
def test_blocks_are_synced_before_anyone_may_store_into_them(fd: int, monkeypatch: pytest.MonkeyPatch):
    """Some file systems find room for zeros only when they are written out."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)

    LOCAL.allocate(fd, 0, SIZE)
    LOCAL.allocate(fd, 0, SIZE)

    assert synced == [fd], "the second call finds no hole"


@pytest.mark.usefixtures("no_fallocate")
def test_a_second_thread_writes_no_zeros_over_what_is_stored_meanwhile(fd: int, monkeypatch: pytest.MonkeyPatch):
    pwrite, seek = os.pwrite, os.lseek
    seeking = threading.Event()
    second = threading.Thread(target=LOCAL.allocate, args=(fd, 0, SIZE))

    def note_seek(fd: int, position: int, how: int) -> int:
        if threading.current_thread() is second:
            seeking.set()
        return seek(fd, position, how)

    def begin_second(fd: int, data: memoryview, position: int) -> int:
        if threading.current_thread() is not second and not second.is_alive():
            second.start()
            assert not seeking.wait(0.05), "the second thread looks for holes while the first fills them"
        return pwrite(fd, data, position)

    monkeypatch.setattr(os, "lseek", note_seek)
    monkeypatch.setattr(os, "pwrite", begin_second)
    LOCAL.allocate(fd, 0, SIZE)
    pwrite(fd, b"stored", 0)
    second.join()

    assert os.pread(fd, 6, 0) == b"stored"


@pytest.mark.usefixtures("no_fallocate")
def test_a_system_that_can_neither_allocate_nor_show_holes_is_refused(fd: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "SEEK_DATA")

    with pytest.raises(OSError, match="neither posix_fallocate nor SEEK_DATA"):
        LOCAL.allocate(fd, 0, SIZE)


def noted(calls: list[str], name: str) -> Callable[..., None]:
    def note(*_arguments: object) -> None:
        calls.append(name)

    return note


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that sync, in order."""
    calls: list[str] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, noted(calls, name))
    return calls


def test_without_fdatasync_files_are_synced_by_fsync(fd: int, syncs: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "fdatasync")

    LOCAL.sync(fd)

    assert syncs == ["fsync"]


def test_macos_empties_the_disks_cache_for_files_and_folders(
    fd: int, tmp_path: Path, syncs: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(platform, "fcntl", SimpleNamespace(F_FULLFSYNC=51, fcntl=noted(syncs, "F_FULLFSYNC")))

    LOCAL.sync(fd)
    LOCAL.sync_folder(tmp_path)

    assert syncs == ["F_FULLFSYNC", "F_FULLFSYNC"]


@pytest.mark.parametrize(("code", "done"), [(errno.ENOTSUP, ["fsync"]), (errno.ENOTTY, ["fsync"]), (errno.EIO, [])])
def test_a_volume_without_full_syncs_is_synced_and_a_failed_disk_is_not_hidden(
    fd: int, syncs: list[str], monkeypatch: pytest.MonkeyPatch, code: int, done: list[str]
):
    def refuse(*_arguments: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(platform, "fcntl", SimpleNamespace(F_FULLFSYNC=51, fcntl=refuse))

    if done:
        LOCAL.sync(fd)
    else:
        with pytest.raises(OSError, match="Input/output error"):
            LOCAL.sync(fd)

    assert syncs == done


def test_without_folders_that_can_be_opened_their_names_are_left_to_the_journal(
    tmp_path: Path, syncs: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(platform, "O_DIRECTORY", None)

    LOCAL.sync_folder(tmp_path)

    assert syncs == []


def test_without_pwrite_bytes_are_written_at_their_position(fd: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "pwrite")

    LOCAL.write(fd, 100, b"data")
    LOCAL.write(fd, 50, b"more")

    content = (tmp_path / "file").read_bytes()
    assert (content[100:104], content[50:54], sum(content)) == (b"data", b"more", sum(b"datamore"))


def test_without_pwrite_a_second_thread_does_not_move_the_position(
    fd: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seek = os.lseek
    second = threading.Thread(target=platform.write_at, args=(fd, memoryview(b"second"), 1000))

    def seek_and_begin_second(fd: int, position: int, how: int) -> int:
        found = seek(fd, position, how)
        if second.ident is None:
            second.start()
            second.join(0.05)
        return found

    monkeypatch.delattr(os, "pwrite")
    monkeypatch.setattr(os, "lseek", seek_and_begin_second)
    platform.write_at(fd, memoryview(b"first"), 10)
    second.join()

    data = (tmp_path / "file").read_bytes()
    assert (data[10:15], data[1000:1006]) == (b"first", b"second")


def test_a_missing_function_of_the_c_library_fails_with_enosys():
    count = platform.libc_function("no_such_function", ctypes.c_int)
    address = platform.libc_function("no_such_function", ctypes.c_int, result=ctypes.c_void_p)

    ctypes.set_errno(0)
    assert (count(1), ctypes.get_errno()) == (-1, errno.ENOSYS)
    assert address(1) is None


def test_without_a_c_library_every_function_fails(monkeypatch: pytest.MonkeyPatch):
    def refuse(_name: None, *, use_errno: bool) -> None:
        raise TypeError("LoadLibrary() argument 1 must be str, not None")

    monkeypatch.setattr(ctypes, "CDLL", refuse)

    assert platform.libc_function("msync", ctypes.c_void_p)(0) == -1


def test_pages_are_known_where_the_kernel_tells(fd: int):
    with mmap.mmap(fd, SIZE) as mapping:
        view = ctypes.c_char.from_buffer(mapping)
        pages = (ctypes.c_char * 1)()
        mapping[0:1] = b"x"
        assert platform.mincore(ctypes.addressof(view), 1, ctypes.addressof(pages)) == 0
        assert pages.raw != b"\0"
        del view


def test_without_a_list_of_locks_no_holder_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(platform, "LOCKS", tmp_path / "gone")
    with (tmp_path / "lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        assert lock_holders(tmp_path / "lock") == ()


def test_an_unlimited_number_of_open_files_is_taken_as_a_large_one(monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[int, int]] = []
    unlimited = (1 << 63) - 1
    monkeypatch.setattr(
        platform,
        "resource",
        SimpleNamespace(
            RLIMIT_NOFILE=8,
            RLIM_INFINITY=unlimited,
            getrlimit=lambda _: (256, unlimited),
            setrlimit=lambda _, limits: asked.append(limits),
        ),
    )

    raise_open_file_limit(240)

    assert open_file_limit() == 10_240
    assert asked == [(10_000, unlimited)]


def test_without_limits_of_open_files_none_is_raised(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(platform, "resource", None)

    raise_open_file_limit(240)

    assert open_file_limit() == 10_240


def test_the_numbers_of_linux_are_not_given_to_macos(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    spec = spec_from_file_location("platform_of_macos", platform.__file__)
    assert spec
    assert spec.loader
    of_macos = module_from_spec(spec)
    spec.loader.exec_module(of_macos)

    assert (of_macos.MS_SYNC, of_macos.MADV_POPULATE_WRITE, of_macos.MSYNC_IS_FDATASYNC) == (0x10, None, False)


def test_the_names_in_a_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    synced: list[int] = []
    monkeypatch.setattr(platform, "fcntl", SimpleNamespace())
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))

    LOCAL.sync_folder(tmp_path)

    assert synced == [tmp_path.stat().st_ino]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(8192))
    return path


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def test_a_mapped_file_needs_no_descriptor(file: Path):
    fd = opened(file)
    mapping = map_shared(fd, 8192)
    os.close(fd)

    memoryview(mapping).cast("B")[4096:4101] = b"hello"
    sync_shared(mapping)

    assert file.read_bytes()[4096:4101] == b"hello"
    assert open_below(file.parent) == []


def test_it_is_mapped_until_the_last_view_of_it_goes(file: Path):
    gc.collect()  # mappings that earlier tests left to the collector
    fd, before = opened(file), mapped_count()
    view = memoryview(map_shared(fd, 8192)).cast("B")
    os.close(fd)
    part = view[:5]
    view.release()
    del view
    gc.collect()

    assert mapped_count() == before + 1
    assert str(file) in Path("/proc/self/maps").read_text()
    assert bytes(part) == bytes(5)
    part.release()
    del part
    assert mapped_count() == before
    assert str(file) not in Path("/proc/self/maps").read_text()


def test_a_mapping_that_the_kernel_rejects_is_reported(file: Path):
    before = mapped_count()
    fd = os.open(file, os.O_RDONLY)

    with pytest.raises(OSError, match="Permission denied") as refused:
        map_shared(fd, 8192)

    os.close(fd)
    assert refused.value.errno == errno.EACCES
    assert mapped_count() == before


def test_the_kernels_limit_is_known():
    assert (max_map_count() or 0) > 1000
