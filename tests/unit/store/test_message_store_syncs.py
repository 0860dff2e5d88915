"""The store on a disk that is slow, full, or refuses to sync."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.common import file_system
from rocketbroker.common.errors import StoreError, StoreFullError
from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.common.open_files import open_file
from rocketbroker.store.commitlog.put_message import PutMessageStatus
from rocketbroker.store.dispatch import commit_log_dispatcher
from rocketbroker.store.index.index_file import IndexFile
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.queue.consume_queue import ConsumeQueue
from tests.support.damage import overwrite
from tests.support.fakes import FakeClock
from tests.support.stores import (
    ALWAYS,
    Waiter,
    batch,
    crash_copy,
    flushed,
    make_store,
    message,
    open_below,
    read_queue,
    refuse,
)
from tests.support.waiting import until


class TestSync:
    @pytest.mark.proves("The steps of a message", "2. sync")
    async def test_a_message_is_on_disk_when_it_is_said_to_be(self, store: MessageStore):
        result = store.appender.put_message(message())
        assert store.flusher.flushed_offset == 0

        assert await flushed(store, result) == ""

        assert store.flusher.flushed_offset >= result.physical_offset + result.size

    async def test_messages_are_synced_by_and_by(self, tmp_path: Path):
        store = make_store(tmp_path / "store", flush_interval_commit_log=10)
        await store.start()
        result = store.appender.put_message(message())

        await until(lambda: store.flusher.flushed_offset >= result.size)
        await store.stop()

    @pytest.mark.proves("When a sync fails", "waiting and later sends")
    async def test_a_failing_disk_is_reported_and_nothing_more_is_accepted(self, tmp_path: Path, monkeypatch):
        store = make_store(tmp_path / "store")
        await store.start()
        result = store.appender.put_message(message())
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", refuse(errno.EIO))
            reason = await asyncio.wait_for(flushed(store, result), 60)
        later = store.appender.put_message(message())
        later_batch = store.appender.put_messages(message(), batch(b"a"))
        store.appender.dispatch()

        assert reason == (
            f"the CommitLog in {tmp_path}/store/commitlog (storePathCommitLog) could not be synced: Input/output "
            f"error; {result.size} bytes from 0 on may not be on disk, and the broker is read-only until they are"
        )
        for refused in (later, later_batch):
            assert (refused.status, refused.reason) == (PutMessageStatus.READ_ONLY, reason)
        assert len(read_queue(store, "Topic", 0)) == 1

        await until(lambda: store.appender.put_message(message()).status is PutMessageStatus.PUT_OK)
        assert await store.flusher.sync()
        await store.stop()
        assert not (tmp_path / "store" / "abort").exists(), "all of it is on disk"

    @pytest.mark.proves("When a sync fails", "no longer in memory")
    async def test_what_a_failed_sync_left_out_is_checked_before_a_consumer_gets_it(self, tmp_path: Path, monkeypatch):
        store = make_store(tmp_path / "store")
        await store.start()
        dropped = store.appender.put_message(message(b"dropped"))
        store.appender.put_message(message(b"kept"))
        store.appender.dispatch()
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", refuse(errno.EIO))
            await asyncio.wait_for(flushed(store, dropped), 60)
        # As the disk has it: the page never got there, and was read back.
        file, at = store.commit_log.queue.files[0], dropped.physical_offset
        stored = bytes(file.buffer[at : at + dropped.size])
        overwrite(file, at, bytes(dropped.size))

        assert [one.body for one in read_queue(store, "Topic", 0)] == [b"kept"]
        assert store.damage_log.count == 1

        overwrite(file, at, stored)
        await until(lambda: store.appender.put_message(message(b"new")).status is PutMessageStatus.PUT_OK)
        store.appender.dispatch()
        assert store.queues.queues_of("Topic")[0].trusted_from == 2
        await store.stop()

    @pytest.mark.proves("The steps of a message", "3. queue and keys")
    async def test_under_sync_flush_nothing_is_shown_that_is_not_on_disk(self, tmp_path: Path, monkeypatch):
        waiter = Waiter()
        store = make_store(tmp_path / "store", listener=waiter, flush_disk_type="SYNC_FLUSH")
        await store.start()
        go = threading.Event()
        fdatasync = os.fdatasync

        def slow(fd: int) -> None:
            go.wait(60)
            fdatasync(fd)

        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", slow)
            results = [
                store.appender.put_message(message(b"one")),
                store.appender.put_messages(message(), batch(b"two", b"three")),
            ]
            waiting = asyncio.gather(*(flushed(store, result) for result in results))
            store.appender.dispatch()
            assert (store.queues.max_offset_in_queue("Topic", 0), waiter.heard) == (0, [])
            assert store.appender.dispatched_offset == 0
            go.set()
            assert await asyncio.wait_for(waiting, 60) == ["", ""]

        assert [one.body for one in read_queue(store, "Topic", 0)] == [b"one", b"two", b"three"]
        assert [end for _, _, end in waiter.heard] == [1, 2, 3]
        await store.stop()

    async def test_under_sync_flush_the_last_messages_are_shown_at_the_next_start(self, tmp_path: Path):
        store = make_store(tmp_path / "store", flush_disk_type="SYNC_FLUSH")
        await store.start()
        store.appender.put_message(message(b"nobody waits"))
        await store.stop()
        assert not (tmp_path / "store" / "abort").exists()

        again = make_store(tmp_path / "store", flush_disk_type="SYNC_FLUSH")
        await again.start()
        assert [one.body for one in read_queue(again, "Topic", 0)] == [b"nobody waits"]
        await again.stop()

    @pytest.mark.proves("When a sync fails", "files after an unclean stop")
    async def test_what_a_killed_broker_left_is_on_disk_before_it_is_shown(self, tmp_path: Path, monkeypatch):
        store = make_store(tmp_path / "store")
        await store.start()
        store.appender.put_message(message())
        crash_copy(tmp_path / "store", tmp_path / "crashed")
        await store.stop()
        again = make_store(tmp_path / "crashed", flush_disk_type="SYNC_FLUSH")
        synced: list[str] = []
        fdatasync = os.fdatasync

        def note(fd: int) -> None:
            synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
            fdatasync(fd)

        monkeypatch.setattr(os, "fdatasync", note)
        await again.start()

        assert any("commitlog" in path for path in synced)
        assert again.flusher.flushed_offset == again.commit_log.max_offset > 0
        await again.stop()

    async def test_messages_that_wait_for_the_disk_go_with_their_topic(self, tmp_path: Path):
        store = make_store(tmp_path / "store", flush_disk_type="SYNC_FLUSH")
        await store.start()
        results = [store.appender.put_message(message(b"old", "A")), store.appender.put_message(message(b"kept", "B"))]
        assert await asyncio.gather(*(flushed(store, result) for result in results)) == ["", ""]
        store.appender.put_message(message(b"old", "A"))

        assert await store.deletion.delete_topics({"A"}) == 1

        assert store.queues.queues_of("A") == {}
        assert [one.body for one in read_queue(store, "B", 0)] == [b"kept"]
        await store.stop()

    async def test_a_slow_disk_is_not_waited_for_for_ever(self, tmp_path: Path, monkeypatch):
        store = make_store(tmp_path / "store", sync_flush_timeout=20)
        await store.start()
        go = threading.Event()
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", lambda _: go.wait(60))
            reason = await flushed(store, store.appender.put_message(message()))
            go.set()

            assert reason == "the message was not on disk within 20 ms (syncFlushTimeout)"
            await store.stop()

    @pytest.mark.proves("When a sync fails", "queue files")
    async def test_a_queue_that_cannot_be_synced_is_tried_again(self, store: MessageStore, monkeypatch):
        store.appender.put_message(message())
        store.appender.dispatch()
        with monkeypatch.context() as patched:
            patched.setattr(LocalFileSystem, "sync_mapped", refuse(errno.EIO))
            store.queue_flusher.flush()
        synced: list[object] = []
        with monkeypatch.context() as patched:
            patched.setattr(LocalFileSystem, "sync_mapped", lambda _, mapping: synced.append(mapping))
            store.queue_flusher.flush()
            store.queue_flusher.flush()

        assert len(synced) == 1

    async def test_a_checkpoint_that_cannot_be_written_is_logged_once_a_minute(
        self, store: MessageStore, clock: FakeClock, monkeypatch, caplog
    ):
        monkeypatch.setattr(store.checkpoint, "save", refuse(errno.EIO))
        for seconds in (0, 30, 29, 1, 30):
            clock.advance(seconds)
            store.queue_flusher.flush()

        assert caplog.text.count("checkpoint cannot be written: [Errno 5]") == 2
        assert "Traceback" not in caplog.text

    @pytest.mark.proves("Damage", "before delivery to a consumer")
    async def test_what_a_failed_sync_of_a_queue_left_out_is_checked(self, store: MessageStore, monkeypatch):
        for body in (b"a", b"b", b"c"):
            store.appender.put_message(message(body))
        store.appender.dispatch()
        queue = store.queues.queues_of("Topic")[0]
        with monkeypatch.context() as patched:
            patched.setattr(LocalFileSystem, "sync_mapped", refuse(errno.EIO))
            store.queue_flusher.flush()
        await until(lambda: queue.trusted_from == 3)
        # As the disk has it: the entry never got there, and was read back.
        overwrite(queue.queue.files[0], 20, bytes(20))

        assert [one.body for one in read_queue(store, "Topic", 0)] == [b"a", b"c"]
        assert store.damage_log.count == 1

    @pytest.mark.proves("When the store is opened", "1. `abort`")
    async def test_a_stop_that_the_disk_refuses_is_an_unclean_one(self, tmp_path: Path, monkeypatch, caplog):
        store = make_store(tmp_path / "store")
        await store.start()
        assert open_below(tmp_path)
        store.appender.put_message(message())
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", refuse(errno.EIO))
            await store.stop()

        assert (tmp_path / "store" / "abort").exists()
        assert "could not be left clean" in caplog.text
        assert open_below(tmp_path) == [], "all is released"


class TestBusyDisk:
    async def test_sends_are_rejected_while_it_gives_no_blocks_and_reads_continue(self, tmp_path: Path, monkeypatch):
        store = make_store(tmp_path / "store", os_page_cache_busy_time_out_mills=20)
        await store.start()
        store.appender.put_message(message(b"first"))
        store.appender.dispatch()
        goes_on = threading.Event()
        allocate = os.posix_fallocate

        def slow(fd: int, start: int, size: int) -> None:
            assert goes_on.wait(60)
            allocate(fd, start, size)

        monkeypatch.setattr(os, "posix_fallocate", slow)
        results = [store.appender.put_message(message(bytes(30_000))) for _ in range(20)]
        batched = store.appender.put_messages(message(), batch(bytes(30_000)))
        refused = [result for result in results if result.status is not PutMessageStatus.PUT_OK]
        assert refused
        for result in (*refused, batched):
            assert result.status is PutMessageStatus.OS_PAGE_CACHE_BUSY
            assert "above the limit of 20 ms (osPageCacheBusyTimeOutMills)" in result.reason
        assert read_queue(store, "Topic", 0)[0].body == b"first"
        goes_on.set()
        await until(lambda: store.appender.put_message(message(b"after")).status is PutMessageStatus.PUT_OK)
        store.appender.dispatch()

        assert len(read_queue(store, "Topic", 0)) == 1 + len(results) - len(refused) + 1
        await store.stop()


class TestFullDisk:
    async def test_sends_are_rejected_until_there_is_room(self, store: MessageStore, monkeypatch):
        store.appender.put_message(message(b"first"))
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", refuse(errno.ENOSPC))
            results = [store.appender.put_message(message(bytes(30_000))) for _ in range(20)]
            refused = [result for result in results if result.status is PutMessageStatus.DISK_FULL]
            assert refused
            assert "No space left on device" in refused[-1].reason
            store.appender.dispatch()
        after = store.appender.put_message(message(b"after"))
        store.appender.dispatch()

        assert after.status is PutMessageStatus.PUT_OK
        assert len(read_queue(store, "Topic", 0)) == 1 + 20 - len(refused) + 1

    async def test_a_stop_on_a_full_disk_loses_nothing(self, tmp_path: Path, monkeypatch, caplog):
        store = make_store(tmp_path / "store")
        await store.start()
        for number in range(5):
            store.appender.put_message(message(properties={"KEYS": f"k{number}"}))
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", refuse(errno.ENOSPC))
            patched.setattr(ConsumeQueue, "put", refuse_entry)
            await store.stop()
        assert "not readable before the next start" in caplog.text

        again = make_store(tmp_path / "store")
        await again.start()

        assert len(read_queue(again, "Topic", 0)) == 5
        assert [
            len((await again.queries.query_message("Topic", f"k{number}", 9, 0, ALWAYS)).records) for number in range(5)
        ] == [1] * 5
        await again.stop()

    async def test_a_stop_with_room_for_queues_only_keeps_the_keys(self, tmp_path: Path, monkeypatch):
        store = make_store(tmp_path / "store")
        await store.start()
        for number in range(5):
            store.appender.put_message(message(properties={"KEYS": f"k{number}"}))
        store.appender.dispatch()
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", refuse(errno.ENOSPC))
            await store.stop()

        again = make_store(tmp_path / "store")
        await again.start()

        assert [
            len((await again.queries.query_message("Topic", f"k{number}", 9, 0, ALWAYS)).records) for number in range(5)
        ] == [1] * 5
        await again.stop()


@pytest.mark.proves("When a sync fails", "index files")
async def test_an_index_file_that_was_not_synced_makes_the_stop_unclean(tmp_path: Path, monkeypatch, caplog):
    store = make_store(tmp_path / "store")
    await store.start()
    with monkeypatch.context() as patched:
        patched.setattr(IndexFile, "sync", refuse(errno.EIO))
        for number in range(250):
            store.appender.put_message(message(properties={"KEYS": f"k{number}"}))
        store.appender.dispatch()
        store.dispatcher.flush_index()
        store.queue_flusher.flush()
        assert "index: a sync failed" in caplog.text
    await store.stop()

    assert (tmp_path / "store" / "abort").exists()
    again = make_store(tmp_path / "store")
    await again.start()
    assert len((await again.queries.query_message("Topic", "k3", 9, 0, ALWAYS)).records) == 1
    await again.stop()
    assert not (tmp_path / "store" / "abort").exists()


def none_below(folder: Path, really_open: Callable[..., Any]) -> Callable[..., Any]:
    """Opens files, but none of those in a folder: there is no descriptor left."""

    def opened(path: Path, *arguments: Any, **named: Any) -> Any:
        if path.is_relative_to(folder):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return really_open(path, *arguments, **named)

    return opened


def refuse_entry(*_: object) -> None:
    raise StoreFullError("no room")


async def check_kept_after_an_unclean_stop(root: Path) -> None:
    assert (root / "abort").exists()
    again = make_store(root)
    await again.start()
    assert [one.body for one in read_queue(again, "Topic", 0)] == [b"kept"]
    await again.stop()
    assert not (root / "abort").exists()


async def test_a_stop_with_messages_that_no_queue_has_is_unclean(tmp_path: Path, monkeypatch):
    store = make_store(tmp_path / "store")
    await store.start()
    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueue, "put", refuse_entry)
        assert store.appender.put_message(message(b"kept", properties={"KEYS": "k"})).status is PutMessageStatus.PUT_OK
        await store.stop()

    await check_kept_after_an_unclean_stop(tmp_path / "store")


@pytest.mark.proves("When a sync fails", "queue files")
async def test_a_queue_that_was_not_synced_makes_the_stop_unclean(tmp_path: Path, monkeypatch):
    store = make_store(tmp_path / "store", flush_interval_consume_queue=10)
    sync = MappedFile.sync

    def failing(file: MappedFile) -> None:
        if "consumequeue" in file.path.parts:
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    await store.start()
    with monkeypatch.context() as patched:
        patched.setattr(MappedFile, "sync", failing)
        store.appender.put_message(message(b"kept"))
        store.appender.dispatch()
        await until(lambda: store.queue_flusher.error)
        await store.stop()

    await check_kept_after_an_unclean_stop(tmp_path / "store")


@pytest.mark.proves("When a sync fails", "queue files")
async def test_queue_entries_that_the_kernel_dropped_are_not_rewritten(tmp_path: Path, monkeypatch):
    store = make_store(tmp_path / "store")
    await store.start()
    store.appender.put_message(message(b"kept"))
    store.appender.dispatch()
    file = store.queues.queues_of("Topic")[0].queue.files[0]
    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "sync_mapped", refuse(errno.EIO))
        store.queue_flusher.flush()
    # As the disk has it: the page never got there.
    overwrite(file, 0, bytes(20))

    store.queue_flusher.flush()

    assert "no longer in memory" in store.queue_flusher.error
    assert f"{file.path} at 0" in store.queue_flusher.error
    await store.stop()
    await check_kept_after_an_unclean_stop(tmp_path / "store")


async def test_a_start_that_cannot_sync_what_would_be_shown_is_rejected(tmp_path: Path, monkeypatch):
    store = make_store(tmp_path / "store")
    await store.start()
    store.appender.put_message(message())
    crash_copy(tmp_path / "store", tmp_path / "killed")
    await store.stop()
    sync = MappedFile.sync

    def failing(file: MappedFile) -> None:
        if "commitlog" in file.path.parts:
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    again = make_store(tmp_path / "killed", flush_disk_type="SYNC_FLUSH")
    with monkeypatch.context() as patched:
        patched.setattr(MappedFile, "sync", failing)
        with pytest.raises(StoreError, match=r"are not on disk yet: the CommitLog .*could not be synced: Input/output"):
            await again.start()

    again = make_store(tmp_path / "killed", flush_disk_type="SYNC_FLUSH")
    await again.start()
    assert len(read_queue(again, "Topic", 0)) == 1
    await again.stop()


@pytest.mark.proves("The steps of a message", "5. checkpoint")
async def test_the_time_of_the_queues_is_that_of_what_is_in_them(store: MessageStore, clock: FakeClock):
    store.appender.put_message(message())
    store.appender.dispatch()
    entered = clock.time_ms()
    clock.advance(10)
    store.appender.put_message(message())

    assert entered <= store.appender.last_dispatched_timestamp < clock.time_ms()
    store.appender.dispatch()
    assert store.appender.last_dispatched_timestamp == clock.time_ms()


@pytest.mark.proves("Damage", "a start")
async def test_a_disk_that_cannot_be_read_refuses_the_start(tmp_path: Path, monkeypatch):
    store = make_store(tmp_path / "store")
    await store.start()
    store.appender.put_message(message())
    await store.stop()
    monkeypatch.setattr(os, "pread", refuse(errno.EIO))

    with pytest.raises(StoreError, match=r"/store \(storePathRootDir\) cannot be opened: .*Input/output error"):
        await make_store(tmp_path / "store").start()


class TestNoDescriptors:
    async def test_a_start_without_them_is_rejected_with_the_limit(self, tmp_path: Path, monkeypatch):
        store = make_store(tmp_path / "store")
        await store.start()
        store.appender.put_message(message(properties={"KEYS": "k"}))
        await store.stop()
        for name in ("index", "consumequeue", "commitlog"):
            again = make_store(tmp_path / "store")
            with monkeypatch.context() as patched:
                patched.setattr(Path, "open", none_below(tmp_path / "store" / name, Path.open))
                patched.setattr(file_system, "open_file", none_below(tmp_path / "store" / name, open_file))
                with pytest.raises(StoreError, match=f"{name}.*Too many open files: this process may open"):
                    await again.start()
            assert open_below(tmp_path) == []
        again = make_store(tmp_path / "store")
        await again.start()
        assert len(read_queue(again, "Topic", 0)) == 1
        await again.stop()

    async def test_what_needs_none_continues_and_the_rest_once_there_are_some(
        self, tmp_path: Path, monkeypatch, caplog
    ):
        monkeypatch.setattr(commit_log_dispatcher, "RETRY_S", 0.0)
        store = make_store(tmp_path / "store", flush_interval_consume_queue=10)
        await store.start()
        store.appender.put_message(message(b"first", properties={"KEYS": "k"}))
        store.appender.dispatch()
        # The next file is prepared.
        await asyncio.to_thread(store.allocate_service.settle)
        with monkeypatch.context() as patched:
            patched.setattr(file_system, "open_file", refuse(errno.EMFILE))
            results = [store.appender.put_message(message(bytes(9000), properties={"KEYS": "k"})) for _ in range(60)]
            new_topic = store.appender.put_message(message(b"new", "New"))
            store.appender.dispatch()
            store.dispatcher.flush_index()
            await until(lambda: "checkpoint cannot be written" in caplog.text)
            taken = sum(result.status is PutMessageStatus.PUT_OK for result in results)
            assert 0 < taken < 60, "until the log needs a file that is not prepared"
            assert len(read_queue(store, "Topic", 0)) == 1 + taken
        for refused in (results[-1], new_topic):
            assert refused.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
            assert "Too many open files: this process may open" in refused.reason
        assert results[taken:] == [results[-1]] * (60 - taken)

        await until(lambda: store.appender.put_message(message(b"after")).status is PutMessageStatus.PUT_OK)
        assert store.appender.put_message(message(b"new", "New")).status is PutMessageStatus.PUT_OK
        store.appender.dispatch()
        await store.stop()

        assert not (tmp_path / "store" / "abort").exists()
        again = make_store(tmp_path / "store")
        await again.start()
        assert again.recovery_report.damaged_files == []
        assert [one.body for one in read_queue(again, "Topic", 0)][taken:] == [bytes(9000), b"after"]
        assert [one.body for one in read_queue(again, "New", 0)] == [b"new"]
        await again.stop()
