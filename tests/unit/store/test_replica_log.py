import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.read.get_message import GetMessageResult, GetMessageStatus
from tests.support.replicas import fill, log_bytes, replica
from tests.support.slow_index import hits
from tests.support.stores import ALWAYS, Waiter, crash_copy, fetch, make_store, message, read_queue
from tests.support.waiting import until

QUEUES = [("Topic", 0), ("Topic", 1), ("Other", 0)]


def contents(store: MessageStore) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    return {queue: [(one.queue_offset, one.body) for one in read_queue(store, *queue)] for queue in QUEUES}


def record_at(store: MessageStore, topic: str, queue_id: int, number: int) -> int:
    queue = store.queues.find(topic, queue_id)
    assert queue
    entry = queue.entry(number)
    assert entry
    return entry[0]


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[MessageStore]:
    store = make_store(tmp_path / "master")
    await store.start()
    fill(store, "a", 90)
    yield store
    await store.stop()


async def dispatched(store: MessageStore, like: MessageStore) -> None:
    await until(
        lambda: (
            [store.queues.max_offset_in_queue(*queue) for queue in QUEUES]
            == [like.queues.max_offset_in_queue(*queue) for queue in QUEUES]
        )
    )


async def test_a_copied_log_is_served_by_queue_and_by_key(tmp_path: Path, master: MessageStore):
    waiter = Waiter()
    store = make_store(tmp_path / "copy", listener=waiter)
    data = log_bytes(master)
    async with replica(store) as copy:
        while copy.max_offset < len(data):
            copy.append(copy.max_offset, data[copy.max_offset : copy.max_offset + 30_000])
            await asyncio.sleep(0)
        await dispatched(store, master)

        assert log_bytes(store) == data
        assert len(store.commit_log.queue.files) > 3
        assert contents(store) == contents(master)
        assert sorted(waiter.heard) == sorted(
            (topic, queue_id, end)
            for topic, queue_id in QUEUES
            for end in range(1, master.queues.max_offset_in_queue(topic, queue_id) + 1)
        )
        assert store.index_service
        store.index_service.flush()
        place = record_at(master, "Topic", 1, 0)
        assert hits(store.index_service.search("Topic", "a1", 0, ALWAYS)) == [place]
    again = make_store(tmp_path / "copy")
    await again.start()
    assert again.recovery_report.clean_stop
    assert again.recovery_report.dispatched == 0
    assert contents(again) == contents(master)
    await again.stop()


@pytest.mark.parametrize("restart", ["stopped", "killed"])
@pytest.mark.parametrize("cut_at", [0, 7, 20, 29])
async def test_a_log_is_cut_and_goes_on_with_other_bytes(
    tmp_path: Path, master: MessageStore, cut_at: int, restart: str
):
    store, other = make_store(tmp_path / "copy"), make_store(tmp_path / "other")
    data, cut = log_bytes(master), record_at(master, "Topic", 0, cut_at)
    async with replica(other) as second:
        second.append(0, data[:cut])
        await second.stop()
        fill(other, "b", 50)
        continued = log_bytes(other)
        async with replica(store) as copy:
            copy.append(0, data)
            await dispatched(store, master)
            ranges = [(record_at(store, "Topic", 0, 29), 200), (cut, 100)]
            before = [bytes(piece) for piece in store.commit_log.slices(ranges)]
            slices = store.commit_log.slices(ranges)

            await copy.truncate(cut)

            assert (copy.max_offset, log_bytes(store)) == (cut, data[:cut])
            for topic, queue_id in QUEUES:
                end = store.queues.max_offset_in_queue(topic, queue_id)
                assert end == len([at for at, _ in contents(store)[topic, queue_id]])
                found = fetch(store, topic, queue_id, end + 1)
                assert isinstance(found, GetMessageResult)
                assert found.status in {GetMessageStatus.OFFSET_OVERFLOW_BADLY, GetMessageStatus.NO_MESSAGE_IN_QUEUE}
            copy.append(cut, continued[cut:])
            await dispatched(store, other)

            assert log_bytes(store) == continued
            assert contents(store) == contents(other)
            assert [bytes(piece) for piece in slices] == before
            del slices
            killed = crash_copy(tmp_path / "copy", tmp_path / "killed")
        again = make_store(tmp_path / "copy" if restart == "stopped" else killed)
        await again.start()
        assert again.recovery_report.clean_stop is (restart == "stopped")
        assert not again.recovery_report.damage
        assert contents(again) == contents(other)
        assert again.index_service
        assert other.index_service
        other.index_service.flush()
        for key in ("a0", "a89", "b1"):
            both = [service.search("Topic", key, 0, ALWAYS) for service in (again.index_service, other.index_service)]
            assert hits(both[0]) == hits(both[1]), key
        again.appender.put_message(message(b"new"))
        again.appender.dispatch()
        assert read_queue(again, "Topic", 0)[-1].body == b"new"
        await again.stop()


async def test_only_what_is_on_disk_is_dispatched_under_sync_flush(tmp_path: Path, master: MessageStore, monkeypatch):
    store = make_store(tmp_path / "copy", flush_disk_type="SYNC_FLUSH")
    data = log_bytes(master)
    async with replica(store) as copy:
        await asyncio.to_thread(store.flusher.pause.acquire)
        copy.append(0, data)
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not any(contents(store).values())
        store.flusher.pause.release()
        await dispatched(store, master)


async def test_bytes_and_cuts_amid_records_are_refused(tmp_path: Path, master: MessageStore):
    store = make_store(tmp_path / "copy")
    data = log_bytes(master)
    async with replica(store) as copy:
        with pytest.raises(StoreError, match="it ends at 0"):
            copy.append(4, data[4:])
        copy.append(0, data)
        await dispatched(store, master)
        with pytest.raises(StoreError, match="no record begins there"):
            await copy.truncate(record_at(master, "Topic", 0, 3) + 1)
        cutting = asyncio.ensure_future(copy.truncate(record_at(master, "Topic", 0, 3)))
        await asyncio.sleep(0)
        with pytest.raises(StoreError, match="is being cut"):
            copy.append(copy.max_offset, data)
        with pytest.raises(StoreError, match="is being cut"):
            await copy.truncate(0)
        await cutting
        await copy.truncate(copy.max_offset)


async def test_no_time_of_the_checkpoint_covers_what_is_not_dispatched(tmp_path: Path, master: MessageStore):
    store = make_store(tmp_path / "copy")
    async with replica(store) as copy:
        first = record_at(master, "Topic", 0, 5)
        data = log_bytes(master)
        copy.append(0, data[:first])
        await until(lambda: store.queues.max_offset_in_queue("Topic", 0) == 5)
        known = store.appender.last_store_timestamp
        copy.append(first, data[first:])

        assert store.appender.last_store_timestamp < known
        await dispatched(store, master)
        assert store.appender.last_store_timestamp == known


async def test_who_waits_for_bytes_that_are_cut_holds_up_nobody(tmp_path: Path, master: MessageStore):
    store = make_store(tmp_path / "copy", flush_disk_type="SYNC_FLUSH")
    data, cut = log_bytes(master), record_at(master, "Topic", 0, 7)
    async with replica(store) as copy:
        await asyncio.to_thread(store.flusher.pause.acquire)
        copy.append(0, data)
        lost = asyncio.ensure_future(store.flusher.wait_flushed(len(data)))
        cutting = asyncio.ensure_future(copy.truncate(cut))
        await asyncio.sleep(0)
        store.flusher.pause.release()
        await cutting
        end = copy.append(cut, data[cut : record_at(master, "Topic", 0, 20)])

        assert not (await asyncio.wait_for(store.flusher.wait_flushed(end), 60)).reason
        assert (await asyncio.wait_for(lost, 60)).reason in {"", f"the CommitLog was cut at {cut}"}


async def test_a_cut_that_nobody_waits_for_any_more_is_done_all_the_same(tmp_path: Path, master: MessageStore):
    store = make_store(tmp_path / "copy")
    data, cut = log_bytes(master), record_at(master, "Topic", 0, 7)
    async with replica(store) as copy:
        copy.append(0, data)
        await asyncio.to_thread(store.flusher.pause.acquire)
        cutting = asyncio.ensure_future(copy.truncate(cut))
        await asyncio.sleep(0.01)
        cutting.cancel()
        await asyncio.gather(cutting, return_exceptions=True)
        store.flusher.pause.release()
        await until(lambda: copy.max_offset == cut and copy._cutting is None)

        copy.append(cut, data[cut:])
        assert (await asyncio.wait_for(store.flusher.sync(), 60)).ok
        await dispatched(store, master)
        assert contents(store) == contents(master)


async def test_the_end_of_a_replica_waits_for_a_cut(tmp_path: Path, master: MessageStore):
    store = make_store(tmp_path / "copy")
    cut = record_at(master, "Topic", 0, 7)
    async with replica(store) as copy:
        copy.append(0, log_bytes(master))
        cutting = asyncio.ensure_future(copy.truncate(cut))
        await asyncio.sleep(0)
        await copy.stop()
        assert copy.max_offset == cut
        await cutting


class RefusingDisk:
    """Fails one of the calls by which the log's truncation changes names: ``refuses`` is its number, from 0 on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refuses = self.calls = 0
        self._truncating = 0
        truncate = CommitLog.truncate

        def truncating(log: CommitLog, offset: int) -> None:
            self._truncating = threading.get_ident()
            try:
                truncate(log, offset)
            finally:
                self._truncating = 0

        monkeypatch.setattr(CommitLog, "truncate", truncating)
        for name in ("unlink", "rename", "sync_folder"):
            monkeypatch.setattr(LocalFileSystem, name, self._refusing(getattr(LocalFileSystem, name)))

    def _refusing(self, method: Callable[..., None]) -> Callable[..., None]:
        def call(file_system: LocalFileSystem, *paths: Path) -> None:
            if self._truncating == threading.get_ident():
                self.calls += 1
                if self.calls == self.refuses + 1:
                    raise OSError(errno.EIO, "Input/output error")
            method(file_system, *paths)

        return call


async def test_a_cut_that_the_disk_refused_on_the_way_is_made_again(tmp_path: Path, master: MessageStore, monkeypatch):
    store = make_store(tmp_path / "copy", message_index_enable=False)
    data, cut = log_bytes(master), record_at(master, "Topic", 0, 7)
    disk, is_cut = RefusingDisk(monkeypatch), False
    async with replica(store) as copy:
        while not is_cut:
            copy.append(copy.max_offset, data[copy.max_offset :])
            await dispatched(store, master)
            disk.calls = 0
            try:
                await copy.truncate(cut)
                is_cut = True
            except (OSError, StoreError):
                with pytest.raises(StoreError, match="refused a cut"):
                    copy.append(copy.max_offset, data[copy.max_offset :])
                await copy.truncate(cut)
                disk.refuses += 1
            assert log_bytes(store) == data[:cut]
            files = store.commit_log.queue.files
            assert [os.fstat(file.fd).st_ino for file in files] == [file.path.stat().st_ino for file in files]
            assert sorted(files[0].path.parent.iterdir()) == [file.path for file in files]
        copy.append(cut, data[cut:])
        await dispatched(store, master)
        assert contents(store) == contents(master)
    assert disk.refuses > 8
