"""Begin of a sync: at once for a lone message, together for many, late for none."""

import asyncio
import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.storefile.consume_queue_layout import ENTRY
from rocketbroker.common import lifecycle
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.put_message import ACKNOWLEDGED, Refusal, StandingRefusals
from rocketbroker.store.flush import flush_service
from rocketbroker.store.flush.flush_consume_queue_service import ConsumeQueueFlusher
from rocketbroker.store.flush.flush_service import CommitLogFlusher, GroupCommit
from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from rocketbroker.store.logfile.allocate_mapped_file_service import AllocateMappedFileService
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.queue.consume_queue import ConsumeQueue
from tests.support.damage import overwrite
from tests.support.stores import V4_HOST
from tests.support.waiting import until

SIZE = 4096


def make_queue(tmp_path: Path, files: int = 1) -> MappedFileQueue:
    queue = MappedFileQueue(tmp_path / "log", SIZE)
    for _ in range(files):
        queue.create_next().ensure_allocated(SIZE)
    return queue


def refuse(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def failing_sync(monkeypatch: pytest.MonkeyPatch, code: int = errno.EIO) -> pytest.MonkeyPatch:
    def refuse(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fdatasync", refuse)
    return monkeypatch


class Seen(list[int | None]):
    """Arguments of on_flushed, and a clock that advances with each look."""

    now = 0

    def stored(self) -> int:
        self.now += 1
        return self.now


class Clock:
    """Monotonic clock of the flush thread; it advances by 10 ms with each look, and counts them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        self.now += 0.01
        return self.now


class Log:
    """A CommitLog's files and what its flusher tells of them."""

    def __init__(self, tmp_path: Path, files: int = 1, on_synced: Callable[[], None] | None = None, **settings) -> None:
        self.queue = make_queue(tmp_path, files)
        self.checkpoint = StoreCheckpoint(tmp_path / "checkpoint")
        self.refusals = StandingRefusals()
        self.now = 0
        config = MessageStoreConfig(**({"flush_interval_commit_log": 60_000} | settings))
        self.flusher = CommitLogFlusher(
            self.queue, config, self.checkpoint, self.refusals, self.stored, on_synced=on_synced
        )

    def stored(self) -> int:
        """A clock that goes on with each look."""
        self.now += 1
        return self.now

    @property
    def known(self) -> int:
        return self.checkpoint.layout.physic_msg_timestamp

    async def stop(self) -> None:
        await asyncio.to_thread(self.flusher.stop)
        self.queue.close()


def test_only_files_with_unsynced_bytes_are_synced(tmp_path: Path, monkeypatch):
    log = Log(tmp_path, 3)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    first, second, _ = log.queue.files
    first.wrote = first.flushed = SIZE
    second.wrote = 100

    log.flusher.flush()
    log.flusher.flush()

    assert synced == [second.fd]
    assert log.flusher.flushed_offset == SIZE + 100
    assert log.known == 3, "as it was before the second sync; each flush looks before and after"
    log.queue.close()


def test_all_files_synced_to_their_ends_are_the_end_of_the_log(tmp_path: Path):
    log = Log(tmp_path, 2)
    for file in log.queue.files:
        file.wrote = SIZE

    log.flusher.flush()

    assert log.flusher.flushed_offset == 2 * SIZE
    log.queue.close()


@pytest.mark.proves("The steps of a message", "5. checkpoint")
def test_the_time_told_is_from_before_the_sync(tmp_path: Path, monkeypatch):
    log = Log(tmp_path)
    log.queue.files[0].wrote = 10
    monkeypatch.setattr(os, "fdatasync", lambda _: log.stored())

    log.flusher.flush()

    assert (log.known, log.now) == (1, 3)
    log.queue.close()


@pytest.mark.proves("The steps of a message", "5. checkpoint")
def test_after_the_clock_was_set_back_the_checkpoint_goes_back_before_anything_is_acknowledged(tmp_path: Path):
    log = Log(tmp_path)
    log.checkpoint.advance(physic_msg_timestamp=9000, logics_msg_timestamp=8000, index_msg_timestamp=7000)
    log.checkpoint.save()
    log.queue.files[0].wrote = 10

    log.flusher.flush()

    on_disk = StoreCheckpoint(tmp_path / "checkpoint")
    on_disk.load()
    assert on_disk.layout[:3] == (1, 1, 1)
    assert log.flusher.flushed_offset == 10
    log.queue.close()


def test_nothing_is_acknowledged_while_the_checkpoint_cannot_go_back(tmp_path: Path, monkeypatch):
    log = Log(tmp_path)
    log.checkpoint.advance(physic_msg_timestamp=9000)
    log.queue.files[0].wrote = 10

    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "write", refuse)
        log.flusher.flush()
    refused_at = log.flusher.flushed_offset
    log.flusher.flush()

    on_disk = StoreCheckpoint(tmp_path / "checkpoint")
    on_disk.load()
    assert (refused_at, log.flusher.flushed_offset, on_disk.layout.physic_msg_timestamp) == (0, 10, 3)
    log.queue.close()


async def test_a_few_bytes_wait_for_the_thorough_interval(tmp_path: Path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(flush_service, "time", clock)
    log = Log(tmp_path, flush_interval_commit_log=1, flush_commit_log_thorough_interval=600_000)
    log.flusher.start()
    file = log.queue.files[0]
    await until(lambda: log.now > 0)  # the first round is a thorough one
    file.wrote = 100
    log.flusher.look()
    looks = clock.looks
    await until(lambda: clock.looks > looks + 3)

    assert file.flushed == 0

    clock.now += 600
    await until(lambda: file.flushed == 100)
    await log.stop()


async def test_enough_pages_are_synced_at_the_interval(tmp_path: Path):
    log = Log(
        tmp_path,
        flush_interval_commit_log=1,
        flush_commit_log_least_pages=1,
        flush_commit_log_thorough_interval=600_000,
    )
    log.flusher.start()
    await until(lambda: log.now > 0)
    log.queue.files[0].wrote = SIZE
    log.flusher.look()

    await until(lambda: log.queue.files[0].flushed == SIZE)
    await log.stop()


async def test_a_thread_without_work_sleeps_until_the_log_has_grown(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(lifecycle, "IDLE_S", 60)
    clock = Clock()
    monkeypatch.setattr(flush_service, "time", clock)
    log = Log(tmp_path, flush_interval_commit_log=1, flush_commit_log_thorough_interval=1)
    log.flusher.start()
    file = log.queue.files[0]
    await until(lambda: log.now > 0)
    looks = clock.looks
    for _ in range(20):
        log.flusher.look()
        await asyncio.sleep(0.001)
    assert clock.looks == looks, "there is nothing to sync"

    file.wrote = 100
    log.flusher.look()

    await until(lambda: file.flushed == 100)
    await log.stop()


@pytest.mark.proves("The steps of a message", "2. sync")
async def test_a_sync_serves_those_that_were_written_before_it_began(tmp_path: Path, monkeypatch):
    log = Log(tmp_path)
    file, flusher = log.queue.files[0], log.flusher
    entered, go = threading.Semaphore(0), threading.Semaphore(0)

    def slow_sync(_: int) -> None:
        entered.release()
        assert go.acquire(timeout=60)

    monkeypatch.setattr(os, "fdatasync", slow_sync)
    flusher.start()
    file.wrote = 100
    first = flusher.wait_flushed(100)
    assert await asyncio.to_thread(entered.acquire, timeout=60)
    file.wrote = 300
    later = [flusher.wait_flushed(offset) for offset in (200, 300)]
    assert not first.done()

    go.release()
    assert (await asyncio.wait_for(first, 60)).ok
    assert await asyncio.to_thread(entered.acquire, timeout=60)
    assert [future.done() for future in later] == [False, False]

    go.release()
    assert await asyncio.wait_for(asyncio.gather(*later), 60) == [ACKNOWLEDGED, ACKNOWLEDGED]
    await log.stop()
    assert not entered.acquire(blocking=False), "both were served by one sync"


async def test_unsynced_messages_at_the_stop_are_still_synced(tmp_path: Path):
    log = Log(tmp_path)
    log.flusher.start()
    log.queue.files[0].wrote = 100
    waiting = log.flusher.wait_flushed(100)

    await log.stop()

    assert (await asyncio.wait_for(waiting, 60)).ok


async def test_a_wait_that_was_abandoned_does_no_harm(tmp_path: Path):
    log = Log(tmp_path)
    log.queue.files[0].wrote = 100
    log.flusher.start()
    given_up, kept = log.flusher.wait_flushed(50), log.flusher.wait_flushed(100)
    given_up.cancel()

    assert (await asyncio.wait_for(kept, 60)).ok
    await log.stop()


async def test_a_wait_beyond_its_limit_ends_and_others_continue(tmp_path: Path, monkeypatch):
    log = Log(tmp_path)
    syncing = threading.Event()
    monkeypatch.setattr(log.flusher, "flush", lambda: syncing.wait(60))
    log.queue.files[0].wrote = 100
    log.flusher.start()
    told: list[tuple[int, str]] = []

    def wait(offset: int, timeout_s: float) -> None:
        log.flusher.when_flushed(offset, lambda outcome: told.append((offset, outcome.reason)), timeout_s)

    patient = log.flusher.wait_flushed(10)
    for offset, timeout_s in ((30, 0.01), (60, 0.02), (100, 600.0)):
        wait(offset, timeout_s)

    await until(lambda: len(told) == 2)
    assert not patient.done()
    syncing.set()
    monkeypatch.undo()
    await asyncio.wait_for(log.flusher.wait_flushed(100), 60)
    await log.stop()

    late = "the message was not on disk within 5000 ms (syncFlushTimeout)"
    assert told == [(30, late), (60, late), (100, "")]
    assert (await patient).ok


class Unwalked(deque[Any]):
    """May be long: nobody is to go through all of it."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("all that wait were gone through")


async def test_only_those_that_are_late_are_looked_at_when_they_are(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(flush_service, "deque", Unwalked)
    log = Log(tmp_path)
    syncing = threading.Event()
    monkeypatch.setattr(log.flusher, "flush", lambda: syncing.wait(60))
    log.queue.files[0].wrote = 100
    log.flusher.start()
    told: list[int] = []
    log.flusher.when_flushed(30, lambda _: told.append(30), 0.01)
    log.flusher.when_flushed(60, lambda _: told.append(60), 600.0)

    await until(lambda: told == [30])

    syncing.set()
    monkeypatch.undo()
    await until(lambda: told == [30, 60])
    await log.stop()


async def test_the_sends_of_a_run_count_for_the_next_sync(tmp_path: Path, monkeypatch):
    log = Log(tmp_path)
    log.queue.files[0].wrote = 100
    log.flusher.start()
    counts: list[tuple[str, int]] = []
    for method in (GroupCommit.ask, GroupCommit.joined, GroupCommit.served):

        def count(group: GroupCommit, sends: int, method=method) -> None:
            counts.append((method.__name__, sends))
            method(group, sends)

        monkeypatch.setattr(GroupCommit, method.__name__, count)
    told: list[bool] = []

    log.flusher.when_flushed(40, lambda outcome: told.append(outcome.ok), 600.0, sends=25)
    log.flusher.when_flushed(60, lambda outcome: told.append(outcome.ok))
    log.flusher.when_flushed(90, lambda outcome: told.append(outcome.ok), 600.0, sends=6)
    await until(lambda: len(told) == 3)
    log.flusher.when_flushed(100, lambda outcome: told.append(outcome.ok), 600.0, sends=3)

    assert counts[:5] == [("ask", 25), ("joined", 26), ("joined", 32), ("served", 32), ("ask", 3)]
    assert told == [True] * 3
    await log.stop()


@pytest.mark.proves("The steps of a message", "4. answer")
async def test_readers_hear_of_a_sync_before_those_that_wait_for_it(tmp_path: Path):
    heard: list[int] = []
    log = Log(tmp_path, on_synced=lambda: heard.append(log.flusher.flushed_offset))
    log.queue.files[0].wrote = 100
    log.flusher.start()
    waiting = log.flusher.wait_flushed(100)
    waiting.add_done_callback(lambda _: heard.append(-1))

    await asyncio.wait_for(waiting, 60)
    await log.stop()

    assert heard.index(100) < heard.index(-1)


def store_records(file: MappedFile, count: int) -> int:
    """Records back to back; gives where they end."""
    for number in range(count):
        record = encode_record(0, 0, number, file.wrote, 0, 0, V4_HOST, 0, V4_HOST, 0, 0, b"body", b"Topic", b"")
        file.write(file.wrote, file.wrote + len(record), record)
    return file.wrote


@pytest.mark.proves("When a sync fails", "rewritten")
async def test_a_failed_sync_makes_the_store_read_only_until_all_of_it_is_rewritten(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(flush_service, "RETRY_S", 0.01)
    log = Log(tmp_path, flush_interval_commit_log=5)
    file = log.queue.files[0]
    end = store_records(file, 3)
    written: list[tuple[int, int]] = []
    write = LocalFileSystem.write

    def note(self: LocalFileSystem, fd: int, position: int, data: bytes) -> None:
        written.append((position, len(data)))
        write(self, fd, position, data)

    monkeypatch.setattr(LocalFileSystem, "write", note)
    reason = (
        f"the CommitLog in {log.queue.directory} (storePathCommitLog) could not be synced: Input/output error; "
        f"{end} bytes from 0 on may not be on disk, and the broker is read-only until they are"
    )
    with monkeypatch.context() as patched:
        failing_sync(patched)
        log.flusher.start()
        assert not (await asyncio.wait_for(log.flusher.wait_flushed(end), 60)).ok
        assert log.flusher.error == log.refusals.reason(Refusal.READ_ONLY) == reason
        assert log.flusher.errors > 0
        assert (log.known, log.flusher.flushed_offset) == (0, 0)

    await until(lambda: log.refusals.current is None)

    assert (log.flusher.error, file.flushed, log.flusher.flushed_offset) == ("", end, end)
    assert written[-1] == (0, end)
    assert log.known > 0
    await log.stop()


@pytest.mark.proves("When a sync fails", "no longer in memory")
async def test_what_the_kernel_dropped_is_not_rewritten(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(flush_service, "RETRY_S", 0.01)
    log = Log(tmp_path, flush_interval_commit_log=5)
    file = log.queue.files[0]
    store_records(file, 3)
    middle = file.wrote // 3
    with monkeypatch.context() as patched:
        failing_sync(patched)
        log.flusher.start()
        assert not (await asyncio.wait_for(log.flusher.wait_flushed(file.wrote), 60)).ok
        # As the disk has it: the pages never got there.
        overwrite(file, middle, bytes(file.wrote - middle))

    await until(lambda: "no longer in memory" in log.flusher.error)

    assert f"at {middle}" in log.refusals.reason(Refusal.READ_ONLY)
    assert file.flushed == 0
    await log.stop()
    assert log.flusher.error


def log_of_two(tmp_path: Path) -> tuple[CommitLog, int]:
    """A log with two records of one size, and that size."""
    queue = MappedFileQueue(tmp_path / "two", SIZE)
    file = queue.create_next()
    file.ensure_allocated(SIZE)
    size = store_records(file, 2) // 2
    return CommitLog(queue, AllocateMappedFileService(), V4_HOST), size


class Changed:
    """Files that wait for a sync until all of them were taken."""

    def __init__(self, files: list[MappedFile]) -> None:
        self.files = files
        self.queue = ConsumeQueue("T", 0, files[0].path.parent, SIZE)

    def __call__(self) -> Generator[tuple[ConsumeQueue, MappedFile]]:
        yield from [(self.queue, file) for file in self.files if file.wrote > file.flushed]


def test_queues_are_synced_up_to_where_they_were_written(tmp_path: Path):
    queue = make_queue(tmp_path, 2)
    seen = Seen()
    commit_log, _ = log_of_two(tmp_path)
    flusher = ConsumeQueueFlusher(Changed(queue.files), commit_log, 60, seen.stored, seen.append)
    queue.files[0].wrote = 40

    flusher.flush()

    assert [file.flushed for file in queue.files] == [40, 0]
    assert seen == [1]
    queue.close()
    commit_log.queue.close()


@pytest.mark.proves("When a sync fails", "queue files")
def test_queues_that_could_not_be_synced_do_not_count_as_on_disk(tmp_path: Path, monkeypatch, caplog):
    queue = make_queue(tmp_path, 2)
    seen = Seen()
    commit_log, size = log_of_two(tmp_path)
    flusher = ConsumeQueueFlusher(Changed(queue.files), commit_log, 60, seen.stored, seen.append)
    for file in queue.files:
        file.write(0, 40, ENTRY.pack(0, size, 0) + ENTRY.pack(size, size, 0))
    with monkeypatch.context() as patched:
        failing_sync(patched)
        flusher.flush()
        flusher.flush()
    assert seen == [None, None]
    assert flusher.error == "a queue could not be synced: Input/output error"
    assert caplog.text.count("queues: a sync failed") == 1

    flusher.flush()

    assert [file.flushed for file in queue.files] == [40, 40]
    assert (seen[2:], flusher.error) == ([3], ""), "written again and synced"
    queue.close()
    commit_log.queue.close()


class Syncs:
    """Number of syncs begun, and a group that begins them."""

    def __init__(self) -> None:
        self.begun = 0
        self.group = GroupCommit(self._begin)

    def _begin(self) -> None:
        self.begun += 1


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold that ends by itself in no test."""
    monkeypatch.setattr(flush_service, "HOLD_S", 3600.0)


async def turn() -> None:
    """Run what the loop has scheduled."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.mark.usefixtures("endless")
async def test_a_lone_sender_is_not_delayed():
    syncs = Syncs()
    for number in range(1, 4):
        syncs.group.ask(1)
        assert syncs.begun == number - 1, "the loop handles first what it has read"
        await turn()
        assert syncs.begun == number
        syncs.group.served(1)


@pytest.mark.usefixtures("endless")
async def test_a_sync_waits_for_as_many_as_before():
    syncs = Syncs()
    syncs.group.served(3)
    syncs.group.ask(1)
    syncs.group.joined(2)
    await turn()
    assert syncs.begun == 0
    syncs.group.joined(3)
    syncs.group.joined(4)
    await turn()
    assert syncs.begun == 1, "once, whoever else came with the last"


async def test_a_sync_is_held_no_longer_than_that():
    syncs = Syncs()
    syncs.group.served(64)
    syncs.group.ask(1)
    await until(lambda: syncs.begun == 1)
    syncs.group.joined(64)
    await turn()
    assert syncs.begun == 1


@pytest.mark.usefixtures("endless")
async def test_when_others_have_gone_the_last_is_soon_held_no_more():
    syncs = Syncs()
    syncs.group.served(64)
    for _ in range(60):
        syncs.group.served(1)
    syncs.group.ask(1)
    await turn()
    assert syncs.begun == 1
