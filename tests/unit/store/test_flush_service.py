import asyncio
import errno
import os
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from rocketbroker.store.flush_service import CommitLogFlusher, ConsumeQueueFlusher
from rocketbroker.store.mapped_file import MappedFile
from rocketbroker.store.mapped_file_queue import MappedFileQueue

SIZE = 4096


def make_queue(tmp_path: Path, files: int = 1) -> MappedFileQueue:
    queue = MappedFileQueue(tmp_path / "log", SIZE)
    for _ in range(files):
        queue.create_next().ensure_allocated(SIZE)
    return queue


def failing_sync(monkeypatch: pytest.MonkeyPatch, code: int = errno.EIO) -> pytest.MonkeyPatch:
    def refuse(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fdatasync", refuse)
    return monkeypatch


class Seen(list[int | None]):
    """What on_flushed was told, and a clock that goes on with each look."""

    now = 0

    def stored(self) -> int:
        self.now += 1
        return self.now


def test_only_files_with_unsynced_bytes_are_synced(tmp_path: Path, monkeypatch):
    queue = make_queue(tmp_path, 3)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    seen = Seen()
    flusher = CommitLogFlusher(queue, 60, seen.stored, seen.append, lambda _: None)
    queue.files[0].wrote = queue.files[0].flushed = SIZE
    queue.files[1].wrote = 100

    flusher.flush()
    flusher.flush()

    assert synced == [queue.files[1].fd]
    assert flusher.flushed_offset == SIZE + 100
    assert seen == [1, 2]
    queue.close()


def test_all_files_synced_to_their_ends_are_the_end_of_the_log(tmp_path: Path):
    queue = make_queue(tmp_path, 2)
    flusher = CommitLogFlusher(queue, 60, lambda: 0, lambda _: None, lambda _: None)
    for file in queue.files:
        file.wrote = SIZE

    flusher.flush()

    assert flusher.flushed_offset == 2 * SIZE
    queue.close()


def test_the_time_told_is_from_before_the_sync(tmp_path: Path, monkeypatch):
    queue = make_queue(tmp_path)
    queue.files[0].wrote = 10
    seen = Seen()
    monkeypatch.setattr(os, "fdatasync", lambda _: seen.stored())
    flusher = CommitLogFlusher(queue, 60, seen.stored, seen.append, lambda _: None)

    flusher.flush()

    assert (list(seen), seen.now) == ([1], 2)
    queue.close()


async def test_a_sync_serves_those_that_were_written_before_it_began(tmp_path: Path, monkeypatch):
    queue = make_queue(tmp_path)
    file = queue.files[0]
    entered, go = threading.Semaphore(0), threading.Semaphore(0)

    def slow_sync(_: int) -> None:
        entered.release()
        assert go.acquire(timeout=10)

    monkeypatch.setattr(os, "fdatasync", slow_sync)
    flusher = CommitLogFlusher(queue, 60, lambda: 0, lambda _: None, lambda _: None)
    flusher.start()
    file.wrote = 100
    first = flusher.wait_flushed(100)
    assert await asyncio.to_thread(entered.acquire, timeout=10)
    file.wrote = 300
    later = [flusher.wait_flushed(offset) for offset in (200, 300)]
    assert not first.done()

    go.release()
    assert await asyncio.wait_for(first, 10) is True
    assert await asyncio.to_thread(entered.acquire, timeout=10)
    assert [future.done() for future in later] == [False, False]

    go.release()
    assert await asyncio.wait_for(asyncio.gather(*later), 10) == [True, True]
    await asyncio.to_thread(flusher.stop)
    assert not entered.acquire(blocking=False), "both were served by one sync"
    queue.close()


async def test_what_waits_at_the_stop_is_still_synced(tmp_path: Path):
    queue = make_queue(tmp_path)
    flusher = CommitLogFlusher(queue, 60, lambda: 0, lambda _: None, lambda _: None)
    flusher.start()
    queue.files[0].wrote = 100
    waiting = flusher.wait_flushed(100)

    await asyncio.to_thread(flusher.stop)

    assert await asyncio.wait_for(waiting, 10) is True
    queue.close()


async def test_a_wait_that_was_given_up_does_no_harm(tmp_path: Path):
    queue = make_queue(tmp_path)
    flusher = CommitLogFlusher(queue, 60, lambda: 0, lambda _: None, lambda _: None)
    queue.files[0].wrote = 100
    flusher.start()
    given_up, kept = flusher.wait_flushed(50), flusher.wait_flushed(100)
    given_up.cancel()

    assert await asyncio.wait_for(kept, 10) is True
    await asyncio.to_thread(flusher.stop)
    queue.close()


async def test_a_failing_sync_is_told_to_all_that_wait_and_stays(tmp_path: Path, monkeypatch):
    queue = make_queue(tmp_path)
    seen = Seen()
    reasons: list[str] = []
    flusher = CommitLogFlusher(queue, 60, seen.stored, seen.append, reasons.append)
    queue.files[0].wrote = 100
    with monkeypatch.context() as patched:
        failing_sync(patched)
        flusher.start()
        assert await asyncio.wait_for(flusher.wait_flushed(100), 10) is False
    assert set(reasons) == {flusher.error} == {"the CommitLog could not be synced: Input/output error"}

    assert await asyncio.wait_for(flusher.wait_flushed(100), 10) is False
    await asyncio.to_thread(flusher.stop)

    assert flusher.error
    assert seen == []
    queue.close()


class Changed:
    """Files that wait for a sync until all of them were taken."""

    def __init__(self, files: list[MappedFile]) -> None:
        self.files = files

    def __call__(self) -> Generator[MappedFile]:
        yield from [file for file in self.files if file.wrote > file.flushed]


def test_queues_are_synced_up_to_where_they_were_written(tmp_path: Path):
    queue = make_queue(tmp_path, 2)
    seen = Seen()
    flusher = ConsumeQueueFlusher(Changed(queue.files), 60, seen.stored, seen.append)
    queue.files[0].wrote = 40

    flusher.flush()

    assert [file.flushed for file in queue.files] == [40, 0]
    assert seen == [1]
    queue.close()


def test_queues_that_could_not_be_synced_are_not_told_as_on_disk(tmp_path: Path, monkeypatch, caplog):
    queue = make_queue(tmp_path, 2)
    seen = Seen()
    flusher = ConsumeQueueFlusher(Changed(queue.files), 60, seen.stored, seen.append)
    for file in queue.files:
        file.wrote = 40
    with monkeypatch.context() as patched:
        failing_sync(patched)
        flusher.flush()
        flusher.flush()
    assert seen == [None, None]
    assert flusher.error == "a queue could not be synced: Input/output error"
    assert caplog.text.count("could not be synced") == 1

    flusher.flush()

    assert [file.flushed for file in queue.files] == [40, 40]
    assert seen == [None, None, None], "what the kernel dropped is not known"
    queue.close()
