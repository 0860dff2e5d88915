import asyncio
import errno
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.store.clean.clean_thread import CleanThread
from rocketbroker.store.logfile.mapped_file import MappedFile, RemovedFile
from tests.support.fakes import FakeClock
from tests.support.stores import open_below
from tests.support.waiting import until

SIZE = 4096


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def thread(clock: FakeClock) -> AsyncIterator[CleanThread]:
    made = CleanThread(clock)
    yield made
    await made.stop()


def make_file(folder: Path, offset: int = 0) -> MappedFile:
    file = MappedFile(folder / f"{offset:020d}", SIZE)
    file.ensure_allocated(SIZE)
    return file


def nothing() -> None:
    """Take out what is not in service."""


async def test_work_is_done_on_one_thread_of_its_own(thread: CleanThread):
    first = await thread.run(threading.current_thread)

    assert first.name.startswith("CleanCommitLogService")
    assert await thread.run(threading.current_thread) is first
    assert await thread.run(int, "12", base=3) == 5


async def test_the_room_of_a_file_comes_when_nobody_holds_it(thread: CleanThread, tmp_path: Path):
    file = make_file(tmp_path)
    view = file.buffer[:4]

    assert await thread.remove(file.remove, nothing)
    del file
    await thread.release()

    assert [thread.holds_files, bytes(view)] == [True, bytes(4)]
    del view
    await thread.release()
    assert not thread.holds_files
    assert open_below(tmp_path) == []


async def test_a_removal_that_was_not_needed_holds_nothing(thread: CleanThread):
    taken_out: list[bool] = []
    assert not await thread.remove(lambda: None, lambda: taken_out.append(True))
    assert not taken_out
    assert not thread.holds_files


async def test_a_file_that_is_removed_is_taken_out_also_when_nobody_waits_for_it(tmp_path: Path, clock: FakeClock):
    thread = CleanThread(clock)
    file = make_file(tmp_path)
    removing, go_on = threading.Event(), threading.Event()
    taken_out: list[Path] = []

    def remove() -> RemovedFile:
        removing.set()
        assert go_on.wait(60)
        return file.remove()

    removal = asyncio.ensure_future(thread.remove(remove, lambda: taken_out.append(file.path)))
    await until(removing.is_set)
    removal.cancel()
    await asyncio.wait([removal])
    assert taken_out == []

    go_on.set()
    await thread.stop()

    assert taken_out == [file.path]
    assert not file.path.exists()
    file.close()


async def test_blocks_that_the_disk_does_not_free_in_steps_keep_no_others(
    thread: CleanThread, tmp_path: Path, monkeypatch, caplog
):
    before = open_below(tmp_path)
    for offset in (0, SIZE):
        await thread.remove(make_file(tmp_path, offset).remove, nothing)
    set_size, refused = LocalFileSystem.set_size, iter([True])

    def refuse(self: LocalFileSystem, fd: int, size: int) -> None:
        if next(refused, False):
            raise OSError(errno.EIO, "Input/output error")
        set_size(self, fd, size)

    monkeypatch.setattr(LocalFileSystem, "set_size", refuse)

    await thread.release()

    assert not thread.holds_files
    assert open_below(tmp_path) == before
    assert f"{tmp_path}/{0:020d} is removed: its blocks could not be freed in steps" in caplog.text


async def test_an_error_of_the_disk_comes_through(thread: CleanThread, tmp_path: Path, monkeypatch):
    file = make_file(tmp_path)
    taken_out: list[bool] = []

    def refuse(_path: Path, missing_ok: bool = False) -> None:
        raise OSError("refused")

    monkeypatch.setattr(Path, "unlink", refuse)

    with pytest.raises(OSError, match="refused"):
        await thread.remove(file.remove, lambda: taken_out.append(True))

    assert not taken_out
    assert not thread.holds_files


async def test_the_wait_for_room_is_limited_and_logged_once(
    thread: CleanThread, clock: FakeClock, tmp_path: Path, caplog
):
    files = [make_file(tmp_path, offset) for offset in (0, SIZE)]
    assert thread.coming_room(1000) == 0
    await thread.remove(files[0].remove, nothing)

    assert thread.coming_room(1000) == SIZE
    clock.advance(1.5)
    with caplog.at_level(logging.WARNING):
        assert thread.coming_room(1000) == 0
        assert thread.coming_room(1000) == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{tmp_path}/{0:020d} was removed more than 1000 ms ago" in caplog.text
    assert f"its {SIZE} bytes" in caplog.text

    await thread.remove(files[1].remove, nothing)
    assert thread.coming_room(1000) == SIZE
    assert len(caplog.records) == 1


async def test_a_stop_closes_what_is_still_read(clock: FakeClock, tmp_path: Path):
    thread = CleanThread(clock)
    file = make_file(tmp_path)
    before = len(open_below(tmp_path))
    await thread.remove(file.remove, nothing)
    assert len(open_below(tmp_path)) == before + 1

    await thread.stop()

    assert len(open_below(tmp_path)) == before
