import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.common import lifecycle
from rocketbroker.common.errors import StoreError, StoreFullError
from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.store.clean.clean_files_service import CleanFilesService
from rocketbroker.store.commitlog import commit_log_walker
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.dispatch import reput_message_service
from rocketbroker.store.dispatch.reput_message_service import ReputMessageService
from rocketbroker.store.index.index_service import IndexService
from rocketbroker.store.logfile.allocate_mapped_file_service import AllocateMappedFileService
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.queue.consume_queue import ConsumeQueue
from rocketbroker.store.read.checked_reader import CachedWindows
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult, GetMessageStatus
from tests.support.cleaning import SaidDisk, age
from tests.support.fakes import FakeClock
from tests.support.replicas import fill, log_bytes, replica
from tests.support.slow_index import hits
from tests.support.stores import (
    ALWAYS,
    LOG_FILE,
    Waiter,
    completed,
    count_as_far_back,
    crash_copy,
    fetch,
    make_store,
    message,
    pulled,
    read_queue,
)
from tests.support.waiting import turns, until

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


@pytest.fixture(params=["dispatched from the log", "dispatched from memory"])
def appends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make appends large enough, or not, for a dispatch that does not read the log."""
    if request.param == "dispatched from memory":
        monkeypatch.setattr(commit_log_walker, "_MANY_BYTES", 1)
        monkeypatch.setattr(reput_message_service, "_FRESH", 1)
        monkeypatch.setattr(reput_message_service, "_MOST_FRESH", 100_000)


@pytest.mark.usefixtures("appends")
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


@pytest.mark.usefixtures("appends")
async def test_the_last_record_is_known_after_each_dispatch_restart_and_cut(tmp_path: Path, master: MessageStore):
    data, cut = log_bytes(master), record_at(master, "Topic", 0, 20)
    last = max(record_at(master, *queue, 29) for queue in QUEUES)
    store = make_store(tmp_path / "copy")
    async with replica(store) as copy:
        first = copy.last_record
        assert first is None
        copy.append(0, data[:cut])
        await until(lambda: store.appender.dispatched_offset == cut)
        before_cut = copy.last_record
        assert before_cut is not None
        assert before_cut.offset + before_cut.size == cut
        assert len(store.commit_log.record(*before_cut) or b"") == before_cut.size
        copy.append(cut, data[cut:])
        await dispatched(store, master)
        assert copy.last_record is not None
        assert copy.last_record.offset == last

    store = make_store(tmp_path / "copy")
    async with replica(store) as copy:
        for queue in store.queues:
            queue.go_on_at(queue.max_offset + 2)
        assert copy.last_record is not None
        assert copy.last_record.offset + copy.last_record.size == copy.max_offset, "used offsets have no message"
        assert copy.last_record.offset == last
        await copy.truncate(cut)
        assert copy.last_record == before_cut


@pytest.mark.long
@pytest.mark.proves("A log that copies another's", "dispatch, cut, other bytes, start")
@pytest.mark.usefixtures("appends")
@pytest.mark.parametrize("restart", ["stopped", "killed"])
@pytest.mark.parametrize("cut_at", [0, 7, 20, 29])
async def test_a_log_is_cut_and_continues_with_other_bytes(
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


async def test_messages_that_follow_each_other_are_dispatched_together(
    tmp_path: Path, master: MessageStore, monkeypatch: pytest.MonkeyPatch
):
    all_came, pauses = asyncio.Event(), list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await all_came.wait()

    monkeypatch.setattr(reput_message_service, "asyncio", SimpleNamespace(Event=asyncio.Event, sleep=pause))
    store, steps = make_store(tmp_path / "copy"), count(1)
    dispatch_some, used = ReputMessageService.dispatch_some, list[int]()

    def counted(reput: ReputMessageService, end: int) -> None:
        used.append(next(steps))
        dispatch_some(reput, end)

    monkeypatch.setattr(ReputMessageService, "dispatch_some", counted)
    async with replica(store) as copy:
        data = log_bytes(master)
        first = record_at(master, "Topic", 0, 1)
        copy.append(0, data[:first])
        await until(lambda: store.appender.dispatched_offset == first)
        for number in range(2, 10):
            copy.append(copy.max_offset, data[copy.max_offset : record_at(master, "Topic", 0, number)])
            await asyncio.sleep(0)
        assert used[-1] == 1
        assert 0 < pauses[0] <= 0.02
        all_came.set()
        await until(lambda: store.appender.dispatched_offset == copy.max_offset)
        assert used[-1] == 2


async def test_bytes_and_cuts_amid_records_are_rejected(tmp_path: Path, master: MessageStore):
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


async def test_no_cut_succeeds_during_another(tmp_path: Path, master: MessageStore):
    store = make_store(tmp_path / "copy")
    async with replica(store) as copy:
        copy.append(0, log_bytes(master))
        await dispatched(store, master)
        cutting = asyncio.ensure_future(copy.truncate(record_at(master, "Topic", 0, 3)))
        await asyncio.sleep(0)
        with pytest.raises(StoreError, match="is being cut"):
            await copy.truncate(copy.max_offset)
        await cutting


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


async def test_a_wait_for_truncated_bytes_blocks_no_other(tmp_path: Path, master: MessageStore):
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


async def test_a_cut_whose_caller_was_cancelled_is_completed(tmp_path: Path, master: MessageStore):
    store = make_store(tmp_path / "copy")
    data, cut = log_bytes(master), record_at(master, "Topic", 0, 7)
    async with replica(store) as copy:
        copy.append(0, data)
        await asyncio.to_thread(store.flusher.pause.acquire)
        cutting = asyncio.ensure_future(copy.truncate(cut))
        await turns()
        cutting.cancel()
        await asyncio.gather(cutting, return_exceptions=True)
        store.flusher.pause.release()
        await until(lambda: copy.max_offset == cut and copy._changing is None)

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


@pytest.mark.proves("A log that copies another's", "cut beside pulls and cleaning")
async def test_a_store_serves_pulls_while_its_log_is_cut(tmp_path: Path, master: MessageStore, monkeypatch):
    store, go_on = make_store(tmp_path / "copy"), threading.Event()
    data, cut = log_bytes(master), record_at(master, "Topic", 0, 7)
    expected = [body for _, body in contents(master)["Topic", 0]][:7]
    async with replica(store) as copy:
        copy.append(0, data)
        await dispatched(store, master)
        for owner, name in ((ConsumeQueue, "cut"), (IndexService, "cut"), (CommitLog, "truncate")):
            monkeypatch.setattr(owner, name, waiting_for(go_on, getattr(owner, name)))
        cutting = asyncio.ensure_future(copy.truncate(cut))
        await until(lambda: store.queues.max_offset_in_queue("Topic", 0) == 7)

        assert [body for _, body in contents(store)["Topic", 0]] == expected
        assert store.commit_log.max_offset == len(data), "the cut waits for the disk"
        assert fetch(store, "Topic", 0, 7).status is GetMessageStatus.OFFSET_OVERFLOW_ONE
        go_on.set()
        await cutting

        assert [body for _, body in contents(store)["Topic", 0]] == expected


def waiting_for(go_on: threading.Event, method: Callable[..., object]) -> Callable[..., object]:
    def wait(*arguments: object) -> object:
        assert threading.current_thread() is not threading.main_thread()
        assert go_on.wait(10)
        return method(*arguments)

    return wait


@pytest.mark.proves("A log that copies another's", "cut beside pulls and cleaning")
@pytest.mark.parametrize("awaited", ["before", "after"])
async def test_a_pull_that_is_read_later_never_mixes_what_was_cut_with_what_followed(
    tmp_path: Path, master: MessageStore, monkeypatch, awaited: str
):
    monkeypatch.setattr(CachedWindows, "holds", lambda *_: False)
    store, other = make_store(tmp_path / "copy"), make_store(tmp_path / "other")
    data, cut = log_bytes(master), record_at(master, "Topic", 0, 7)
    async with replica(other) as second:
        second.append(0, data[:cut])
        await second.stop()
        fill(other, "b", 50)
        async with replica(store) as copy:
            copy.append(0, data)
            await dispatched(store, master)
            count_as_far_back(store)
            found = store.fetcher.fetch(GetMessageRequest("Topic", 0, 5, 5, 1 << 20))
            assert not isinstance(found, GetMessageResult)
            reading = asyncio.ensure_future(completed(found)) if awaited == "before" else None
            await copy.truncate(cut)
            copy.append(cut, log_bytes(other)[cut:])
            await dispatched(store, other)

            result = await (reading or completed(found))

            messages = decode_messages(pulled(result), decompress=False)
            bodies = [one.body for one in messages]
            assert bodies in ([body for _, body in contents(one)["Topic", 0]][5:10] for one in (master, other))
            assert result.next_begin_offset == 5 + len(bodies)
            assert not store.damage_log.count


@pytest.mark.proves("A log that copies another's", "cut beside pulls and cleaning")
async def test_a_cut_waits_for_the_file_that_is_being_removed(tmp_path: Path, master: MessageStore, monkeypatch):
    clock, go_on = FakeClock(), threading.Event()
    store = make_store(tmp_path / "copy", clock, delete_commit_log_files_interval=0)
    cleaning = CleanFilesService(store, clock, lambda _: [], SaidDisk())
    async with replica(store) as copy:
        copy.append(0, log_bytes(master))
        await dispatched(store, master)
        first = store.commit_log.queue.files[0]
        age(store, clock, 0, 100)
        cleaning.delete_files_manually()
        removing = threading.Event()
        remove = MappedFile.remove

        def remove_slowly(file: MappedFile) -> object:
            if file is first:
                removing.set()
                assert go_on.wait(10)
            return remove(file)

        monkeypatch.setattr(MappedFile, "remove", remove_slowly)
        cleaned = asyncio.ensure_future(cleaning.clean())
        await asyncio.to_thread(removing.wait, 10)
        cutting = asyncio.ensure_future(copy.truncate(record_at(master, "Topic", 0, 0)))
        await asyncio.wait([cutting], timeout=0.2)
        assert store.queues.max_offset_in_queue("Topic", 0) == master.queues.max_offset_in_queue("Topic", 0)
        go_on.set()
        await cleaned

        with pytest.raises(StoreError, match="no record begins there"):
            await cutting
        assert copy.max_offset == master.commit_log.max_offset
    await cleaning.stop()


async def test_cleaning_waits_for_a_cut_and_a_cut_for_cleaning(tmp_path: Path, master: MessageStore):
    clock = FakeClock()
    store = make_store(tmp_path / "copy", clock, delete_commit_log_files_interval=0)
    cleaning = CleanFilesService(store, clock, lambda _: [], SaidDisk())
    data = log_bytes(master)
    async with replica(store) as copy:
        copy.append(0, data)
        await dispatched(store, master)
        files = store.commit_log.queue.files
        cut = next(at for at in offsets_of(store) if at > files[1].file_from_offset)
        for number in range(len(files)):
            age(store, clock, number, 100)
        cleaning.delete_files_manually()

        await asyncio.gather(cleaning.clean(), copy.truncate(cut), cleaning.clean())

        left = store.commit_log.queue.files
        assert left == [files[1]] or [file.file_from_offset for file in left] == [files[1].file_from_offset]
        assert sorted(left[0].path.parent.iterdir()) == [left[0].path]
        assert os.fstat(left[0].fd).st_ino == left[0].path.stat().st_ino
        copy.append(cut, data[cut:])
        await dispatched(store, master)
        begin = store.commit_log.min_offset
        for queue, found in contents(store).items():
            assert found == contents(master)[queue][-len(found) :]
        assert [at for at in offsets_of(master) if at >= begin] == offsets_of(store)
    await cleaning.stop()


def offsets_of(store: MessageStore) -> list[int]:
    """Return the CommitLog offsets of all messages."""
    found = []
    for topic, queue_id in QUEUES:
        queue = store.queues.find(topic, queue_id)
        assert queue
        found += [record_at(store, topic, queue_id, number) for number in range(queue.min_offset, queue.max_offset)]
    return sorted(found)


async def test_cleaning_keeps_what_is_not_dispatched(tmp_path: Path, master: MessageStore):
    clock = FakeClock()
    store = make_store(tmp_path / "copy", clock, flush_disk_type="SYNC_FLUSH", delete_commit_log_files_interval=0)
    cleaning = CleanFilesService(store, clock, lambda _: [], SaidDisk())

    async def clean() -> None:
        for number in range(len(store.commit_log.queue.files)):
            age(store, clock, number, 100)
        cleaning.delete_files_manually()
        await cleaning.clean()

    async with replica(store) as copy:
        await asyncio.to_thread(store.flusher.pause.acquire)
        copy.append(0, log_bytes(master))
        count = len(store.commit_log.queue.files)

        await clean()

        assert (store.appender.dispatched_offset, len(store.commit_log.queue.files)) == (0, count)
        store.flusher.pause.release()
        await dispatched(store, master)
        assert (await store.flusher.sync()).ok
        await clean()
        assert len(store.commit_log.queue.files) < count
    await cleaning.stop()


@pytest.mark.proves("A log that copies another's", "topics deleted after a cut")
async def test_messages_after_a_cut_are_there_although_their_topic_was_deleted_later(
    tmp_path: Path, master: MessageStore
):
    store = make_store(tmp_path / "copy")
    data, cut = log_bytes(master), record_at(master, "Topic", 0, 7)
    async with replica(store) as copy:
        copy.append(0, data)
        await dispatched(store, master)
        await store.deletion.delete_topics({"Other"})
        await copy.truncate(cut)

        copy.append(cut, data[cut:])
        behind = [one for one in contents(master)["Other", 0] if record_at(master, "Other", 0, one[0]) >= cut]
        await until(lambda: store.queues.max_offset_in_queue("Other", 0) == behind[-1][0] + 1)

        assert contents(store)["Other", 0] == behind
        killed = crash_copy(tmp_path / "copy", tmp_path / "killed")
    again = make_store(killed)
    await again.start()
    assert contents(again)["Other", 0] == behind
    await again.stop()


@pytest.mark.proves("A log that copies another's", "a later begin")
async def test_a_log_begins_where_that_of_its_master_does(tmp_path: Path, master: MessageStore):
    store, data = make_store(tmp_path / "copy"), log_bytes(master)
    begin = master.commit_log.queue.files[2].file_from_offset
    expected = {
        queue: [one for one in found if record_at(master, *queue, one[0]) >= begin]
        for queue, found in contents(master).items()
    }

    def served(store: MessageStore) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
        begins = {queue: store.queues.min_offset_in_queue(*queue) for queue in QUEUES}
        return {
            queue: [(one.queue_offset, one.body) for one in read_queue(store, *queue, begins[queue])]
            for queue in QUEUES
        }

    async with replica(store) as copy:
        with pytest.raises(StoreError, match="cannot begin at 100"):
            await copy.begin_at(100)
        await copy.begin_at(begin)
        with pytest.raises(StoreError, match=f"it ends at {begin}"):
            copy.append(0, data)
        copy.append(begin, data[begin:])
        await dispatched(store, master)

        assert (store.commit_log.min_offset, copy.max_offset) == (begin, len(data))
        assert served(store) == expected
        with pytest.raises(StoreError, match="only an empty one can"):
            await copy.begin_at(len(data) + begin)
        killed = crash_copy(tmp_path / "copy", tmp_path / "killed")
    for root, clean in ((tmp_path / "copy", True), (killed, False)):
        again = make_store(root)
        await again.start()
        assert again.recovery_report.clean_stop is clean
        assert not again.recovery_report.damage
        assert served(again) == expected
        await again.stop()


async def test_an_empty_log_that_begins_later_is_empty_there_after_a_restart(tmp_path: Path):
    store = make_store(tmp_path / "copy")
    async with replica(store) as copy:
        await copy.begin_at(4 * LOG_FILE)
        killed = crash_copy(tmp_path / "copy", tmp_path / "killed")
    for root in (tmp_path / "copy", killed):
        again = make_store(root)
        async with replica(again) as copy:
            assert (again.commit_log.min_offset, copy.max_offset) == (4 * LOG_FILE, 4 * LOG_FILE)
            assert not again.recovery_report.damage


async def test_a_dispatch_that_the_disk_refused_is_made_again(
    tmp_path: Path, master: MessageStore, monkeypatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(lifecycle, "RESTART_S", 0.01)
    store, data, refusals = make_store(tmp_path / "copy"), log_bytes(master), 0
    put_entries = ConsumeQueue.put_entries

    def refuse_sometimes(queue: ConsumeQueue, queue_offset: int, entries: bytes) -> None:
        nonlocal refusals
        if queue.topic == "Other" and refusals:
            refusals -= 1
            raise StoreFullError("no room")
        put_entries(queue, queue_offset, entries)

    monkeypatch.setattr(ConsumeQueue, "put_entries", refuse_sometimes)
    async with replica(store) as copy:
        # Few messages fail, of which some queues have one.
        few, more = record_at(master, "Topic", 0, 20), record_at(master, "Topic", 0, 21)
        copy.append(0, data[:few])
        await until(lambda: store.appender.dispatched_offset == few)
        refusals = 3
        copy.append(few, data[few:more])
        await until(lambda: store.appender.dispatched_offset == more)
        assert not refusals
        copy.append(more, data[more:])
        await dispatched(store, master)

        assert contents(store) == contents(master)
        assert store.index_service
        store.index_service.flush()
        for key, queue, number in (("a0", ("Topic", 0), 0), ("a2", ("Other", 0), 0), ("a1", ("Topic", 1), 0)):
            assert hits(store.index_service.search(queue[0], key, 0, ALWAYS)) == [record_at(master, *queue, number)]
    assert {record.getMessage() for record in caplog.records if record.levelname == "ERROR"} == {
        "ReplicaLog.ReputMessageService failed; it restarts in 0.01 s"
    }


async def test_what_precedes_a_full_disk_is_dispatched(tmp_path: Path, master: MessageStore, monkeypatch):
    store, data = make_store(tmp_path / "copy"), log_bytes(master)
    async with replica(store) as copy:
        with monkeypatch.context() as patched:
            patched.setattr(AllocateMappedFileService, "take", refusing(StoreFullError("no room")))
            with pytest.raises(StoreFullError):
                copy.append(0, data)
        end = copy.max_offset
        assert 0 < end < len(data)
        await until(lambda: store.appender.dispatched_offset == end)
        copy.append(end, data[end:])
        await dispatched(store, master)
        assert contents(store) == contents(master)


def refusing(error: Exception) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise error

    return refuse


async def test_a_cut_never_calls_more_of_the_store_known_to_be_on_disk(tmp_path: Path, master: MessageStore):
    store = make_store(tmp_path / "copy")
    async with replica(store) as copy:
        before = store.checkpoint.layout
        copy.append(0, log_bytes(master))
        await dispatched(store, master)

        await copy.truncate(record_at(master, "Topic", 0, 20))

        assert [min(pair) for pair in zip(store.checkpoint.layout, before, strict=True)] == list(
            store.checkpoint.layout
        )


async def test_the_end_of_a_replica_dispatches_all_of_its_log(tmp_path: Path, master: MessageStore):
    store = make_store(tmp_path / "copy", flush_disk_type="SYNC_FLUSH")
    async with replica(store) as copy:
        copy.append(0, log_bytes(master))

        await copy.stop()

        assert contents(store) == contents(master)
        result = store.appender.put_message(message(b"own"))
        assert result.queue_offset == master.queues.max_offset_in_queue("Topic", 0)
        with pytest.raises(StoreError, match="wait for their dispatch"):
            await copy.start()
        assert (await store.flusher.sync()).ok
        store.appender.dispatch()
        await copy.start()
        assert read_queue(store, "Topic", 0)[-1].body == b"own"


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
                with pytest.raises(StoreError, match="or a cut failed"):
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


async def test_used_queue_offsets_without_a_message_are_never_served(tmp_path: Path):
    """The master's queue went on at a higher offset, as after a lost part of its log; the slave reads the gap live."""
    master = make_store(tmp_path / "master")
    await master.start()
    put = master.appender.put_message
    for number in range(3):
        put(message(b"before %d" % number, "T", 0))
    master.appender.dispatch()
    queue = master.queues.find("T", 0)
    assert queue is not None
    put(message(bytes(1000), "Other", 0))
    master.appender.dispatch()
    queue.go_on_at(5)
    for number in range(3):
        put(message(b"after %d" % number, "T", 0))
    master.appender.dispatch()

    slave = make_store(tmp_path / "slave")
    async with replica(slave) as copy:
        data = log_bytes(master)
        assert copy.append(0, data) == len(data)
        await until(lambda: slave.queues.max_offset_in_queue("T", 0) == 8)
        wanted = [
            (0, b"before 0"),
            (1, b"before 1"),
            (2, b"before 2"),
            (5, b"after 0"),
            (6, b"after 1"),
            (7, b"after 2"),
        ]
        for begin in range(9):
            found = [(each.queue_offset, each.body) for each in read_queue(slave, "T", 0, begin)]
            assert found == [each for each in wanted if each[0] >= begin]
        # By tags too, which other code selects.
        everything = fetch(slave, "T", 0, 0, matches=lambda _: True)
        assert [each.body for each in decode_messages(pulled(everything))][:3] == [
            b"before 0",
            b"before 1",
            b"before 2",
        ]
    await master.stop()
