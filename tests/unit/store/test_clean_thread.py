import logging
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from rocketbroker.store.clean_thread import CleanThread
from rocketbroker.store.mapped_file import MappedFile
from tests.support.fakes import FakeClock
from tests.support.stores import open_files

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


async def test_work_is_done_on_one_thread_of_its_own(thread: CleanThread):
    first = await thread.run(threading.current_thread)

    assert first.name.startswith("CleanCommitLogService")
    assert await thread.run(threading.current_thread) is first
    assert await thread.run(int, "12", base=3) == 5


async def test_the_room_of_a_file_comes_when_nobody_holds_it(thread: CleanThread, tmp_path: Path):
    file = make_file(tmp_path)
    before = open_files()
    view = file.buffer[:4]

    assert await thread.remove(file.remove)
    del file
    await thread.release()

    assert [thread.holds_files, bytes(view)] == [True, bytes(4)]
    del view
    await thread.release()
    assert not thread.holds_files
    assert open_files() == before - 2


async def test_a_removal_that_was_not_needed_holds_nothing(thread: CleanThread):
    assert not await thread.remove(lambda: None)
    assert not thread.holds_files


async def test_an_error_of_the_disk_comes_through(thread: CleanThread, tmp_path: Path, monkeypatch):
    file = make_file(tmp_path)

    def refuse(_path: Path, missing_ok: bool = False) -> None:
        raise OSError("refused")

    monkeypatch.setattr(Path, "unlink", refuse)

    with pytest.raises(OSError, match="refused"):
        await thread.remove(file.remove)

    assert not thread.holds_files


async def test_room_is_awaited_for_so_long_and_its_lateness_told_once(
    thread: CleanThread, clock: FakeClock, tmp_path: Path, caplog
):
    files = [make_file(tmp_path, offset) for offset in (0, SIZE)]
    assert thread.coming_room(1000) == 0
    await thread.remove(files[0].remove)

    assert thread.coming_room(1000) == SIZE
    clock.advance(1.5)
    with caplog.at_level(logging.WARNING):
        assert thread.coming_room(1000) == 0
        assert thread.coming_room(1000) == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{tmp_path}/{0:020d} was removed more than 1000 ms ago" in caplog.text
    assert f"its {SIZE} bytes" in caplog.text

    await thread.remove(files[1].remove)
    assert thread.coming_room(1000) == SIZE
    assert len(caplog.records) == 1


async def test_a_stop_closes_what_is_still_read(clock: FakeClock, tmp_path: Path):
    thread = CleanThread(clock)
    file = make_file(tmp_path)
    before = open_files()
    await thread.remove(partial(file.remove))
    assert open_files() == before + 1

    await thread.stop()

    assert open_files() == before
