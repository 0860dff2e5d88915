import errno
import mmap
import os
from pathlib import Path
from struct import Struct

import pytest

from rocketbroker.common import platform
from rocketbroker.common.errors import StoreError, StoreFullError
from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.store.logfile.mapped_file import MappedFile
from tests.support.recording_file_system import RecordingFileSystem
from tests.support.stores import open_below

NAME = "00000000000000065536"


def fallocate_fails(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", refuse)


def test_a_new_file_has_its_size_its_offset_and_no_blocks(tmp_path: Path):
    file = MappedFile(tmp_path / "made" / NAME, 65536, 4096)

    assert file.path.stat().st_size == 65536
    assert file.path.stat().st_blocks == 0
    assert (file.file_from_offset, file.wrote, file.flushed, file.allocated) == (65536, 0, 0, 0)
    file.close()


def test_a_name_that_is_no_offset_begins_at_zero(tmp_path: Path):
    file = MappedFile(tmp_path / "20261121095923270", 4096)

    assert file.file_from_offset == 0
    file.close()


def test_blocks_come_in_steps_and_never_past_the_end(tmp_path: Path):
    file = MappedFile(tmp_path / NAME, 10_000, 4096)

    file.ensure_allocated(1)
    assert file.allocated == 4096
    file.ensure_allocated(4096)
    assert file.allocated == 4096
    assert 0 < file.path.stat().st_blocks * 512 <= 8192
    file.ensure_allocated(9_000)
    assert file.allocated == 10_000
    assert file.path.stat().st_size == 10_000
    file.close()


def test_without_a_step_all_blocks_come_at_once(tmp_path: Path):
    file = MappedFile(tmp_path / NAME, 10_000)

    file.ensure_allocated(1)

    assert file.allocated == 10_000
    file.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_reported_by_file_and_leaves_it_as_it_was(tmp_path: Path, monkeypatch, code: int):
    file = MappedFile(tmp_path / NAME, 65536, 4096)
    fallocate_fails(monkeypatch, code)

    with pytest.raises(StoreFullError, match=rf"no room for 4096 bytes of .*{NAME}"):
        file.ensure_allocated(100)

    assert file.allocated == 0
    file.close()


def test_another_refusal_is_no_full_disk(tmp_path: Path, monkeypatch):
    file = MappedFile(tmp_path / NAME, 65536, 4096)
    fallocate_fails(monkeypatch, errno.EIO)

    with pytest.raises(StoreError, match="cannot allocate") as caught:
        file.ensure_allocated(100)

    assert not isinstance(caught.value, StoreFullError)
    file.close()


def test_another_size_is_rejected_and_the_file_kept(tmp_path: Path):
    (tmp_path / NAME).write_bytes(b"x" * 100)

    with pytest.raises(StoreError, match=r"has 100 bytes, but files of this kind are set to 4096.*mappedFileSize"):
        MappedFile(tmp_path / NAME, 4096)

    assert (tmp_path / NAME).read_bytes() == b"x" * 100


def test_a_path_that_cannot_be_opened_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match="cannot open"):
        MappedFile(tmp_path / "file" / NAME, 4096)


def test_what_is_stored_is_in_the_file_and_zero_from_removes_it(tmp_path: Path):
    file = MappedFile(tmp_path / NAME, 65536, 4096)
    file.ensure_allocated(65536)
    file.write(0, 65536, b"\xaa" * 65536)

    file.zero_from(5001)

    assert bytes(file.buffer[:5001]) == b"\xaa" * 5001
    assert bytes(file.buffer[5001:]) == bytes(65536 - 5001)
    assert file.path.read_bytes() == bytes(file.buffer)
    file.close()


def test_zero_from_skips_holes(tmp_path: Path):
    file = MappedFile(tmp_path / NAME, 1 << 20, 4096)

    file.zero_from(0)

    assert file.path.stat().st_blocks == 0
    file.close()


def test_populated_pages_hold_zeros_and_are_not_past_the_blocks(tmp_path: Path):
    file = MappedFile(tmp_path / NAME, 65536, 8192)
    file.ensure_allocated(8192)

    file.populate(100, 65536)

    assert bytes(file.buffer[:8192]) == bytes(8192)
    assert file.path.stat().st_blocks * 512 < 65536
    file.close()


def test_only_its_own_methods_store_into_a_file(tmp_path: Path):
    file = MappedFile(tmp_path / NAME, 4096)
    file.ensure_allocated(4096)

    with pytest.raises(TypeError, match="read-only"):
        file.buffer[0] = 1
    file.write(0, 2, b"ab")
    with file.writing(1, 3) as view:
        view[:] = b"cd"

    assert (bytes(file.buffer[:4]), file.wrote) == (b"acd\0", 2)


def test_each_stored_range_is_reported_once_it_is_stored(tmp_path: Path):
    disk = RecordingFileSystem(tmp_path / "disk")
    file = MappedFile(tmp_path / "disk" / NAME, 4096, file_system=disk)
    before = len(disk.journal)

    file.write(0, 2, b"ab")
    with file.writing(1, 3) as view:
        view[0] = 1
    file.packer(Struct(">hh"))(3, 1, 2)

    stored = [(event.kind, event.position, event.data) for event in disk.journal[before:]]
    assert stored == [("write", 0, b"ab"), ("write", 1, b"\1\0"), ("write", 3, b"\0\1\0\2")]


def test_close_while_a_slice_is_out_leaves_it_readable(tmp_path: Path):
    file = MappedFile(tmp_path / NAME, 4096)
    file.ensure_allocated(4096)
    file.write(0, 5, b"hello")
    view = file.buffer[:5]

    file.close()

    assert bytes(view) == b"hello"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file.fd)


def test_delete_removes_the_file(tmp_path: Path):
    file = MappedFile(tmp_path / NAME, 4096)

    file.delete()

    assert not (tmp_path / NAME).exists()


def test_sync_calls_the_disk_for_this_file(tmp_path: Path, monkeypatch):
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    file = MappedFile(tmp_path / NAME, 4096)

    file.sync()

    assert synced == [file.fd]
    file.close()


def test_where_msync_does_not_sync_a_file_it_keeps_a_descriptor_and_both_are_synced(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(platform, "MSYNC_IS_FDATASYNC", False)
    synced: list[str] = []
    monkeypatch.setattr(LocalFileSystem, "sync_mapped", lambda *_: synced.append("mapping"))
    monkeypatch.setattr(LocalFileSystem, "sync", lambda *_: synced.append("file"))
    file = MappedFile(tmp_path / NAME, 4096, keeps_open=False)

    file.sync()

    assert synced == ["mapping", "file"]
    assert open_below(tmp_path) == [str(file.path)]
    file.close()


def test_without_advice_pages_are_faulted_in_one_by_one(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(platform, "MADV_POPULATE_WRITE", None)
    monkeypatch.setattr(platform, "madvise", None)
    file = MappedFile(tmp_path / NAME, 65536)
    file.ensure_allocated(65536)

    file.populate(0, 65536)

    file.write(0, 4, b"data")
    assert file.read_at(0, 4) == b"data"
    file.close()


def test_without_mincore_no_page_is_known_to_be_cached(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(platform, "mincore", platform.libc_function("no_such_function"))
    file = MappedFile(tmp_path / NAME, 4096)
    file.ensure_allocated(4096)
    file.write(0, 4, b"data")

    assert not file.is_cached(0, 4)
    file.close()


def test_the_first_sync_brings_the_name_and_those_of_new_folders_to_disk(tmp_path: Path, monkeypatch):
    synced: list[Path] = []
    monkeypatch.setattr(LocalFileSystem, "sync_folder", lambda _, path: synced.append(path))
    folder = tmp_path / "queues" / "T" / "0"
    file = MappedFile(folder / "00000000000000000000", 4096)

    file.sync()
    assert synced == [tmp_path, tmp_path / "queues", tmp_path / "queues" / "T", folder]
    file.sync()
    assert len(synced) == 4
    file.close()


def test_the_names_of_a_file_that_was_there_are_synced_once_as_well(tmp_path: Path, monkeypatch):
    MappedFile(tmp_path / NAME, 4096).close()
    synced: list[Path] = []
    monkeypatch.setattr(LocalFileSystem, "sync_folder", lambda _, path: synced.append(path))
    file = MappedFile(tmp_path / NAME, 4096)

    file.sync()
    file.sync()

    assert synced.count(tmp_path) == 1
    file.close()


def test_a_name_that_could_not_be_synced_is_tried_again(tmp_path: Path, monkeypatch):
    def refuse(_self: LocalFileSystem, _folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    file = MappedFile(tmp_path / "00000000000000000000", 4096)
    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "sync_folder", refuse)
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                file.sync()

    file.sync()
    file.close()


def test_flush_takes_note_of_what_is_on_disk(tmp_path: Path):
    file = MappedFile(tmp_path / NAME, 4096)
    file.wrote = 100

    file.flush()

    assert file.flushed == 100
    file.close()


def test_after_a_failed_sync_all_that_is_not_on_disk_is_rewritten(tmp_path: Path, monkeypatch):
    file = MappedFile(tmp_path / NAME, 65536)
    file.ensure_allocated(65536)
    file.write(0, 3000, b"a" * 3000)
    file.wrote = 1000
    file.flush()
    file.wrote = 2000
    written: list[tuple[int, bytes]] = []
    write = LocalFileSystem.write

    def note(self: LocalFileSystem, fd: int, position: int, data: bytes) -> None:
        written.append((position, bytes(data)))
        write(self, fd, position, data)

    monkeypatch.setattr(LocalFileSystem, "write", note)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", _refuse)
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                file.flush()
    assert (file.flushed, file.to_write_again) == (1000, True)

    file.wrote = 3000
    file.flush()

    assert (file.flushed, file.to_write_again) == (3000, False)
    assert written == [(1000, b"a" * 1000), (1000, b"a" * 2000)]
    file.close()


def _refuse(_fd: int) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_a_removed_file_stays_readable_for_its_holders(tmp_path: Path):
    file = MappedFile(tmp_path / NAME, 4096)
    file.ensure_allocated(4096)
    file.write(0, 5, b"hello")
    view = file.buffer[:5]

    removed = file.remove()

    assert not (tmp_path / NAME).exists()
    assert bytes(view) == os.pread(file.fd, 5, 0) == b"hello"
    assert not removed.release()
    del file
    assert bytes(view) == b"hello"
    assert not removed.release()
    del view
    assert removed.release()


def test_a_file_that_the_disk_keeps_stays_in_service_and_is_removed_later(tmp_path: Path, monkeypatch):
    before = open_below(tmp_path)
    file = MappedFile(tmp_path / NAME, 4096)
    file.ensure_allocated(4096)
    own = os.dup(file.fd)
    for operation in ("sync_folder", "unlink"):
        with monkeypatch.context() as patch:
            patch.setattr(LocalFileSystem, operation, refuse)
            with pytest.raises(OSError, match="Input/output error"):
                file.remove()
        assert os.pread(file.fd, 1, 0) == b"\0"
    assert not (tmp_path / NAME).exists()

    # A disk without room takes no new name.
    monkeypatch.setattr(LocalFileSystem, "open", refuse)
    removed = file.remove()

    del file
    assert removed.release()
    assert os.fstat(own).st_size == 0, "the room comes from the file itself"
    os.close(own)
    assert open_below(tmp_path) == before


def test_a_file_that_is_abandoned_between_two_tries_leaves_no_descriptor(tmp_path: Path, monkeypatch):
    before = open_below(tmp_path)
    file = MappedFile(tmp_path / NAME, 4096)
    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "sync_folder", refuse)
        with pytest.raises(OSError, match="Input/output error"):
            file.remove()

    file.delete()

    assert open_below(tmp_path) == before


def refuse(_self: LocalFileSystem, _path: Path) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_the_last_holder_of_a_file_closes_its_descriptor(tmp_path: Path):
    before = open_below(tmp_path)
    file = MappedFile(tmp_path / NAME, 4096)
    assert open_below(tmp_path) != before

    del file

    assert open_below(tmp_path) == before


def test_a_closed_file_is_not_read_by_its_old_number(tmp_path: Path):
    file = MappedFile(tmp_path / NAME, 4096)
    file.close()

    with (tmp_path / "other").open("wb"), pytest.raises(OSError, match="Bad file descriptor"):
        os.pread(file.fd, 1, 0)


def test_what_can_be_read_without_the_disk_is_known(tmp_path: Path):
    # So far apart that reading the one does not bring the other.
    file = MappedFile(tmp_path / "0", 64 << 20)
    page, here, there = mmap.PAGESIZE, 8 << 20, 48 << 20
    file.write(here, here + 1, b"\1")
    file.write(here + page, here + page + 1, b"\1")

    assert file.is_cached(here + 10, here + 2 * page)
    assert not file.is_cached(there, there + 1)
    assert not file.is_cached(here, there)


def test_a_store_into_a_new_queue_file_reads_no_pages_ahead(tmp_path: Path):
    size, page = 6_000_000, mmap.PAGESIZE
    file = MappedFile(tmp_path / NAME, size, 65_536, keeps_open=False)
    file.ensure_allocated(20)
    file.write(0, 20, b"x" * 20)

    assert [at for at in range(65_536, size - page, page) if file.is_cached(at, at + page)] == []
    file.close()


@pytest.mark.parametrize("keeps_open", [True, False])
def test_a_queue_file_that_grows_is_read_ahead_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_open: bool):
    advised: list[tuple[int, int]] = []
    monkeypatch.setattr(platform, "madvise", lambda _, length, advice: advised.append((length, advice)))
    file = MappedFile(tmp_path / NAME, 4 * 65_536, 65_536, keeps_open=keeps_open)
    file.ensure_allocated(20)
    file.ensure_allocated(65_536)
    first = [] if keeps_open else [(4 * 65_536, mmap.MADV_RANDOM)]
    assert advised == first

    for end in (65_537, 3 * 65_536):
        file.ensure_allocated(end)

    assert advised == first + ([] if keeps_open else [(4 * 65_536, mmap.MADV_NORMAL)])
    file.close()


def test_the_last_change_is_in_ms(tmp_path: Path):
    file = MappedFile(tmp_path / NAME, 4096)
    os.utime(file.path, (12, 34.5678))

    assert file.last_modified_ms() == 34567
    file.close()


def test_two_threads_may_sync_a_new_file_at_once(tmp_path: Path):
    class SlowFolders(LocalFileSystem):
        """Lets another thread sync the same file in the middle of each sync of a folder."""

        again = True

        def sync_folder(self, path: Path) -> None:
            if self.again:
                self.again = False
                file.sync()
                self.again = True
            super().sync_folder(path)

    file = MappedFile(tmp_path / "q" / f"{0:020}", 4096, file_system=SlowFolders())
    file.sync()
    file.close()
