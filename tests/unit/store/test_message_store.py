import asyncio
import errno
import mmap
import os
import threading
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_sys_flag import COMPRESSED_FLAG
from rocketbroker.common.errors import StoreError
from rocketbroker.store import message_queries
from rocketbroker.store.consume_queue import ConsumeQueue
from rocketbroker.store.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.get_message import GetMessageStatus
from rocketbroker.store.index_file import IndexFile
from rocketbroker.store.mapped_file import MappedFile
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.put_message import PutMessageStatus
from tests.support.fakes import FakeClock
from tests.support.stores import (
    ALWAYS,
    V4_HOST,
    V6_HOST,
    batch,
    count_as_far_back,
    crash_copy,
    make_store,
    message,
    open_below,
    read_queue,
)
from tests.support.waiting import until


class Waiter:
    """Somebody who waits for messages."""

    waiting = True

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, int]] = []

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        self.heard.append((topic, queue_id, max_offset))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def waiter() -> Waiter:
    return Waiter()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock, waiter: Waiter) -> AsyncIterator[MessageStore]:
    made = make_store(tmp_path / "store", clock, waiter)
    await made.start()
    yield made
    await made.stop()


def refuse(code: int):
    def fail(*_) -> None:
        raise OSError(code, os.strerror(code))

    return fail


class TestMessages:
    async def test_what_is_put_comes_back_with_all_its_fields(self, store: MessageStore, clock: FakeClock):
        body = zlib.compress(b"x" * 5000)
        sent = message(
            body,
            "%RETRY%" + "g" * 150,
            5,
            properties={"TAGS": "é", "KEYS": "k1 k2"},
            flag=-9,
            sys_flag=COMPRESSED_FLAG,
            born_host=V6_HOST,
            born_timestamp=1_795_255_000_001,
            reconsume_times=2,
            prepared_transaction_offset=77,
        )
        for _ in range(3):
            store.put_message(sent)
        store.dispatch()

        third = read_queue(store, sent.topic, 5)[2]

        assert third.body == body
        assert (third.properties, third.flag, third.sys_flag) == (
            {"TAGS": "é", "KEYS": "k1 k2"},
            -9,
            sent.sys_flag,
        )
        assert (third.queue_id, third.queue_offset, third.reconsume_times) == (5, 2, 2)
        assert (third.born_host, third.store_host) == (V6_HOST, V4_HOST)
        assert (third.born_timestamp, third.store_timestamp) == (1_795_255_000_001, clock.time_ms())
        assert third.prepared_transaction_offset == 77
        (view,) = store.slices([(third.commit_log_offset, third.store_size)])
        assert store.look_message_by_offset(third.commit_log_offset) == bytes(view)

    async def test_who_waits_is_told_at_dispatch(self, store: MessageStore, waiter: Waiter):
        store.put_message(message())
        assert waiter.heard == []

        store.dispatch()

        assert waiter.heard == [("Topic", 0, 1)]

    async def test_who_waits_is_told_of_a_batch_at_once_and_of_what_came_before(
        self, store: MessageStore, waiter: Waiter
    ):
        store.put_message(message())
        store.put_messages(message(queue_id=1), batch(b"a", b"b"))

        assert waiter.heard == [("Topic", 0, 1), ("Topic", 1, 1), ("Topic", 1, 2)]

    async def test_queues_are_told_with_their_bounds(self, store: MessageStore):
        for _ in range(3):
            store.put_message(message(queue_id=4))
        first = store.put_message(message(queue_id=4))
        store.dispatch()

        assert list(store.topic_queues("Topic")) == [4]
        assert (store.min_offset_in_queue("Topic", 4), store.max_offset_in_queue("Topic", 4)) == (0, 4)
        assert (store.min_offset_in_queue("Topic", 9), store.max_offset_in_queue("Topic", 9)) == (0, 0)
        assert (store.min_physical_offset, store.max_physical_offset) == (0, first.physical_offset + first.size)
        assert store.put_count == 4

    async def test_slices_outlive_the_store(self, tmp_path: Path):
        store = make_store(tmp_path / "store")
        await store.start()
        result = store.put_message(message(b"still here"))
        (view,) = store.slices([(result.physical_offset, result.size)])

        await store.stop()

        assert decode_record(view).body == b"still here"


class TestQueries:
    async def test_by_key_unique_id_and_tag(self, store: MessageStore, clock: FakeClock):
        offsets = []
        for number in range(6):
            clock.advance(2)
            properties = {
                "UNIQ_KEY": f"U{number}",
                "KEYS": "all odd" if number % 2 else "all",
                "TAGS": f"t{number % 2}",
            }
            offsets.append(store.put_message(message(properties=properties)).physical_offset)
        store.dispatch()

        async def query(key: str, max_num: int = 32, begin: int = 0, end: int = ALWAYS, index_type: str | None = None):
            found = await store.query_message("Topic", key, max_num, begin, end, index_type)
            assert (found.index_last_update_timestamp, found.index_last_update_physical_offset) == (
                clock.time_ms(),
                offsets[-1],
            )
            return [decode_record(record).commit_log_offset for record in found.records]

        assert await query("U3") == await query("U3", index_type="U") == [offsets[3]]
        assert await query("odd") == await query("odd", index_type="K") == [offsets[5], offsets[3], offsets[1]]
        assert await query("t0", index_type="T") == [offsets[4], offsets[2], offsets[0]]
        assert await query("all", 2) == [offsets[5], offsets[4]]
        assert await query("all", 32, clock.time_ms() - 4000, clock.time_ms() - 2000) == [offsets[4], offsets[3]]
        assert await query("nothing") == []

    async def test_no_more_than_the_setting_allows(self, store: MessageStore):
        for _ in range(70):
            store.put_message(message(properties={"KEYS": "k"}))
        store.dispatch()

        assert len((await store.query_message("Topic", "k", 1000, 0, ALWAYS)).records) == 64

    async def test_a_query_reads_no_more_than_a_frame_can_carry(self, store: MessageStore, monkeypatch):
        monkeypatch.setattr(message_queries, "_QUERY_BYTES", 3000)
        for _ in range(5):
            store.put_message(message(bytes(1200), properties={"KEYS": "k"}))
        store.put_message(message(bytes(4000), properties={"KEYS": "large"}))
        store.dispatch()

        assert len((await store.query_message("Topic", "k", 9, 0, ALWAYS)).records) == 2
        assert len((await store.query_message("Topic", "large", 9, 0, ALWAYS)).records) == 1

    async def test_without_an_index_nothing_is_found_and_no_folder_made(self, tmp_path: Path):
        store = make_store(tmp_path / "store", message_index_enable=False)
        await store.start()
        store.put_message(message(properties={"KEYS": "k"}))
        store.dispatch()

        assert (await store.query_message("Topic", "k", 9, 0, ALWAYS)).records == []
        await store.stop()
        assert not (tmp_path / "store" / "index").exists()

    async def test_keys_are_entered_after_a_moment_even_when_nobody_asks(self, store: MessageStore):
        store.put_message(message(properties={"KEYS": "k"}))
        store.dispatch()
        assert store.index_service is not None

        await until(lambda: not store.index_service or not store.index_service.waiting)

        assert store.index_service.last_update[1] == 0
        assert len(store.index_service.files) == 1


class TestTopics:
    async def test_a_deleted_topic_has_no_queues_and_may_come_again(self, store: MessageStore, tmp_path: Path):
        for topic in ("A", "B"):
            store.put_message(message(topic=topic))
        store.dispatch()
        store.put_message(message(topic="A"))

        assert await store.delete_topics({"A", "never"}) == 1

        assert store.get_message("A", 0, 0, 1, 100).status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
        assert store.topic_queues("A") == {}
        store.put_message(message(b"again", topic="A"))
        store.dispatch()
        assert [one.body for one in read_queue(store, "A", 0)] == [b"again"]
        assert [one.body for one in read_queue(store, "B", 0)] == [b"body"]


class TestLife:
    async def test_a_store_that_is_not_started_or_stopped_takes_nothing(self, tmp_path: Path):
        store = make_store(tmp_path / "store")
        early = store.put_message(message())
        await store.start()
        assert store.put_message(message()).status is PutMessageStatus.PUT_OK
        await store.stop()
        late = store.put_messages(message(), batch(b"a"))

        assert (early.status, late.status) == (PutMessageStatus.NOT_STARTED, PutMessageStatus.SHUTTING_DOWN)
        assert early.reason
        assert late.reason

    async def test_a_stop_dispatches_and_leaves_nothing_running_or_open(self, tmp_path: Path, monkeypatch):
        threads = {thread.name for thread in threading.enumerate()}
        store = make_store(tmp_path / "store")
        await store.start()
        for _ in range(300):
            store.put_message(message(bytes(1000), properties={"KEYS": "k"}))
        store.dispatch()
        count_as_far_back(store)
        monkeypatch.setattr(MappedFile, "is_cached", lambda *_arguments: False)
        result = store.get_message("Topic", 0, 0, 32, 1 << 20)
        assert result.unchecked is not None
        await store.checked_reader.read_on_thread(result, result.unchecked)

        assert open_below(tmp_path)

        await store.stop()

        assert open_below(tmp_path) == []
        left = {thread.name for thread in threading.enumerate()} - threads
        assert all(name.startswith("asyncio_") for name in left)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        again = make_store(tmp_path / "store")
        await again.start()
        assert again.max_offset_in_queue("Topic", 0) == 300
        await again.stop()

    async def test_a_cancelled_start_ends_after_its_thread(self, tmp_path: Path, monkeypatch):
        began, go_on = threading.Event(), threading.Event()
        load = ConsumeQueueStore.load

        def slow_load(
            queues: ConsumeQueueStore, told: list[str], before_change: Callable[[], None], *, clean_stop: bool
        ) -> set[ConsumeQueue]:
            began.set()
            assert go_on.wait(10)
            return load(queues, told, before_change, clean_stop=clean_stop)

        monkeypatch.setattr(ConsumeQueueStore, "load", slow_load)
        starting = asyncio.ensure_future(make_store(tmp_path / "other").start())
        await asyncio.to_thread(began.wait, 10)
        starting.cancel()
        await asyncio.sleep(0.01)
        assert not starting.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        again = make_store(tmp_path / "other")
        await again.start()
        await again.stop()

    async def test_a_second_store_is_refused_in_one_line_and_the_first_goes_on(
        self, store: MessageStore, tmp_path: Path
    ):
        # The next file of the log is made ahead, on a thread.
        await asyncio.to_thread(store._allocate_service._executor.submit(lambda: None).result, 10)
        files = open_below(tmp_path)

        with pytest.raises(StoreError) as caught:
            await make_store(tmp_path / "store").start()

        assert "is in use by another broker" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert open_below(tmp_path) == files
        assert store.put_message(message()).status is PutMessageStatus.PUT_OK

    async def test_paths_apart_from_the_root_are_honoured(self, tmp_path: Path):
        names = ("log", "cq", "ix", "check", "stop")
        log, queues, index, checkpoint, abort = (str(tmp_path / "apart" / name) for name in names)
        store = make_store(
            tmp_path / "store",
            store_path_commit_log=log,
            store_path_consume_queue=queues,
            store_path_index=index,
            store_checkpoint=checkpoint,
            abort_file=abort,
        )
        await store.start()
        assert "stop" in {path.name for path in (tmp_path / "apart").iterdir()}
        store.put_message(message(properties={"KEYS": "k"}))
        await store.stop()

        assert sorted(path.name for path in (tmp_path / "apart").iterdir()) == ["check", "cq", "ix", "log"]
        assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["config", "lock"]

    async def test_the_checkpoint_follows_what_is_on_disk(self, store: MessageStore, clock: FakeClock):
        store.put_message(message())
        store.dispatch()
        stored = clock.time_ms()
        clock.advance(60)

        store.flusher.flush()
        assert store._checkpoint.layout[:2] == (stored, 0)
        store._queue_flusher.flush()
        assert store._checkpoint.layout[:2] == (stored, stored)


class TestSync:
    async def test_a_message_is_on_disk_when_it_is_said_to_be(self, store: MessageStore):
        result = store.put_message(message())
        assert store.flusher.flushed_offset == 0

        assert await store.wait_flushed(result) == ""

        assert store.flusher.flushed_offset >= result.physical_offset + result.size

    async def test_messages_are_synced_by_and_by(self, tmp_path: Path):
        store = make_store(tmp_path / "store", flush_interval_commit_log=10)
        await store.start()
        result = store.put_message(message())

        await until(lambda: store.flusher.flushed_offset >= result.size)
        await store.stop()

    async def test_a_disk_that_refuses_is_told_and_nothing_more_is_taken(self, tmp_path: Path, monkeypatch):
        store = make_store(tmp_path / "store")
        await store.start()
        result = store.put_message(message())
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", refuse(errno.EIO))
            reason = await asyncio.wait_for(store.wait_flushed(result), 10)
        later = store.put_message(message())
        later_batch = store.put_messages(message(), batch(b"a"))
        store.dispatch()

        assert reason == (
            f"the CommitLog in {tmp_path}/store/commitlog (storePathCommitLog) could not be synced: Input/output "
            f"error; {result.size} bytes from 0 on may not be on disk, and the broker is read-only until they are"
        )
        for refused in (later, later_batch):
            assert (refused.status, refused.reason) == (PutMessageStatus.READ_ONLY, reason)
        assert len(read_queue(store, "Topic", 0)) == 1

        await until(lambda: store.put_message(message()).status is PutMessageStatus.PUT_OK)
        assert await store.sync()
        await store.stop()
        assert not (tmp_path / "store" / "abort").exists(), "all of it is on disk"

    async def test_what_a_failed_sync_left_out_is_checked_before_a_consumer_gets_it(self, tmp_path: Path, monkeypatch):
        store = make_store(tmp_path / "store")
        await store.start()
        dropped = store.put_message(message(b"dropped"))
        store.put_message(message(b"kept"))
        store.dispatch()
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", refuse(errno.EIO))
            await asyncio.wait_for(store.wait_flushed(dropped), 10)
        # As the disk has it: the page never got there, and was read back.
        (record,) = store.slices([(dropped.physical_offset, dropped.size)])
        stored = bytes(record)
        record[:] = bytes(dropped.size)

        assert [one.body for one in read_queue(store, "Topic", 0)] == [b"kept"]
        assert store.damage_log.count == 1

        record[:] = stored
        await until(lambda: store.put_message(message(b"new")).status is PutMessageStatus.PUT_OK)
        store.dispatch()
        assert store.topic_queues("Topic")[0].trusted_from == 2
        await store.stop()

    async def test_under_sync_flush_nothing_is_shown_that_is_not_on_disk(self, tmp_path: Path, monkeypatch):
        waiter = Waiter()
        store = make_store(tmp_path / "store", listener=waiter, flush_disk_type="SYNC_FLUSH")
        await store.start()
        go = threading.Event()
        fdatasync = os.fdatasync

        def slow(fd: int) -> None:
            go.wait(10)
            fdatasync(fd)

        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", slow)
            results = [store.put_message(message(b"one")), store.put_messages(message(), batch(b"two", b"three"))]
            waiting = asyncio.gather(*map(store.wait_flushed, results))
            store.dispatch()
            assert (store.max_offset_in_queue("Topic", 0), waiter.heard) == (0, [])
            assert store.dispatch_behind_bytes == store.max_physical_offset
            go.set()
            assert await asyncio.wait_for(waiting, 10) == ["", ""]

        assert [one.body for one in read_queue(store, "Topic", 0)] == [b"one", b"two", b"three"]
        assert [end for _, _, end in waiter.heard] == [1, 2, 3]
        await store.stop()

    async def test_under_sync_flush_the_last_messages_are_shown_at_the_next_start(self, tmp_path: Path):
        store = make_store(tmp_path / "store", flush_disk_type="SYNC_FLUSH")
        await store.start()
        store.put_message(message(b"nobody waits"))
        await store.stop()
        assert not (tmp_path / "store" / "abort").exists()

        again = make_store(tmp_path / "store", flush_disk_type="SYNC_FLUSH")
        await again.start()
        assert [one.body for one in read_queue(again, "Topic", 0)] == [b"nobody waits"]
        await again.stop()

    async def test_what_a_killed_broker_left_is_on_disk_before_it_is_shown(self, tmp_path: Path, monkeypatch):
        store = make_store(tmp_path / "store")
        await store.start()
        store.put_message(message())
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
        assert again.flusher.flushed_offset == again.max_physical_offset > 0
        await again.stop()

    async def test_messages_that_wait_for_the_disk_go_with_their_topic(self, tmp_path: Path):
        store = make_store(tmp_path / "store", flush_disk_type="SYNC_FLUSH")
        await store.start()
        results = [store.put_message(message(b"old", "A")), store.put_message(message(b"kept", "B"))]
        assert await asyncio.gather(*map(store.wait_flushed, results)) == ["", ""]
        store.put_message(message(b"old", "A"))

        assert await store.delete_topics({"A"}) == 1

        assert store.topic_queues("A") == {}
        assert [one.body for one in read_queue(store, "B", 0)] == [b"kept"]
        await store.stop()

    async def test_a_slow_disk_is_not_waited_for_for_ever(self, tmp_path: Path, monkeypatch):
        store = make_store(tmp_path / "store", sync_flush_timeout=20)
        await store.start()
        go = threading.Event()
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", lambda _: go.wait(10))
            reason = await store.wait_flushed(store.put_message(message()))
            go.set()

            assert reason == "the message was not on disk within 20 ms (syncFlushTimeout)"
            await store.stop()

    async def test_a_queue_that_cannot_be_synced_is_tried_again(self, store: MessageStore, monkeypatch):
        store.put_message(message())
        store.dispatch()
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", refuse(errno.EIO))
            store._queue_flusher.flush()
        synced: list[int] = []
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", synced.append)
            store._queue_flusher.flush()
            store._queue_flusher.flush()

        assert synced.count(store.topic_queues("Topic")[0].queue.files[0].fd) == 1

    async def test_what_a_failed_sync_of_a_queue_left_out_is_checked(self, store: MessageStore, monkeypatch):
        for body in (b"a", b"b", b"c"):
            store.put_message(message(body))
        store.dispatch()
        queue = store.topic_queues("Topic")[0]
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", refuse(errno.EIO))
            store._queue_flusher.flush()
        await until(lambda: queue.trusted_from == 3)
        # As the disk has it: the entry never got there, and was read back.
        queue.queue.files[0].buffer[20:40] = bytes(20)

        assert [one.body for one in read_queue(store, "Topic", 0)] == [b"a", b"c"]
        assert store.damage_log.count == 1

    async def test_a_stop_that_the_disk_refuses_is_an_unclean_one(self, tmp_path: Path, monkeypatch, caplog):
        store = make_store(tmp_path / "store")
        await store.start()
        assert open_below(tmp_path)
        store.put_message(message())
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", refuse(errno.EIO))
            await store.stop()

        assert (tmp_path / "store" / "abort").exists()
        assert "could not be left clean" in caplog.text
        assert open_below(tmp_path) == [], "all is released"


class TestBusyDisk:
    async def test_sends_are_refused_while_it_gives_no_blocks_and_reads_go_on(self, tmp_path: Path, monkeypatch):
        store = make_store(tmp_path / "store", os_page_cache_busy_time_out_mills=20)
        await store.start()
        store.put_message(message(b"first"))
        store.dispatch()
        goes_on = threading.Event()
        allocate = os.posix_fallocate

        def slow(fd: int, start: int, size: int) -> None:
            assert goes_on.wait(10)
            allocate(fd, start, size)

        monkeypatch.setattr(os, "posix_fallocate", slow)
        results = [store.put_message(message(bytes(30_000))) for _ in range(20)]
        batched = store.put_messages(message(), batch(bytes(30_000)))
        refused = [result for result in results if result.status is not PutMessageStatus.PUT_OK]
        assert refused
        for result in (*refused, batched):
            assert result.status is PutMessageStatus.OS_PAGE_CACHE_BUSY
            assert "the limit is 20 ms (osPageCacheBusyTimeOutMills)" in result.reason
        assert read_queue(store, "Topic", 0)[0].body == b"first"
        goes_on.set()
        await until(lambda: store.put_message(message(b"after")).status is PutMessageStatus.PUT_OK)
        store.dispatch()

        assert len(read_queue(store, "Topic", 0)) == 1 + len(results) - len(refused) + 1
        await store.stop()


class TestFullDisk:
    async def test_sends_are_refused_until_there_is_room(self, store: MessageStore, monkeypatch):
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", refuse(errno.ENOSPC))
            results = [store.put_message(message(bytes(30_000))) for _ in range(20)]
            refused = [result for result in results if result.status is PutMessageStatus.DISK_FULL]
            assert refused
            assert "No space left on device" in refused[-1].reason
            with pytest.raises(StoreError):
                store.dispatch()
        after = store.put_message(message(b"after"))
        store.dispatch()

        assert after.status is PutMessageStatus.PUT_OK
        assert len(read_queue(store, "Topic", 0)) == 20 - len(refused) + 1

    async def test_a_stop_on_a_full_disk_loses_nothing(self, tmp_path: Path, monkeypatch, caplog):
        store = make_store(tmp_path / "store")
        await store.start()
        for number in range(5):
            store.put_message(message(properties={"KEYS": f"k{number}"}))
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", refuse(errno.ENOSPC))
            await store.stop()
        assert "cannot be read before the next start" in caplog.text

        again = make_store(tmp_path / "store")
        await again.start()

        assert len(read_queue(again, "Topic", 0)) == 5
        assert [
            len((await again.query_message("Topic", f"k{number}", 9, 0, ALWAYS)).records) for number in range(5)
        ] == [1] * 5
        await again.stop()

    async def test_a_stop_with_room_for_queues_only_keeps_the_keys(self, tmp_path: Path, monkeypatch):
        store = make_store(tmp_path / "store")
        await store.start()
        for number in range(5):
            store.put_message(message(properties={"KEYS": f"k{number}"}))
        store.dispatch()
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", refuse(errno.ENOSPC))
            await store.stop()

        again = make_store(tmp_path / "store")
        await again.start()

        assert [
            len((await again.query_message("Topic", f"k{number}", 9, 0, ALWAYS)).records) for number in range(5)
        ] == [1] * 5
        await again.stop()


async def test_default_sizes_are_rocketmqs_and_take_no_room_before_they_are_written(tmp_path: Path):
    store = make_store(
        tmp_path / "store",
        mapped_file_size_commit_log=1 << 30,
        mapped_file_size_consume_queue=6_000_000,
        max_hash_slot_num=5_000_000,
        max_index_num=20_000_000,
    )
    await store.start()
    store.put_message(message(properties={"KEYS": "k"}))
    store.dispatch()
    assert len((await store.query_message("Topic", "k", 9, 0, ALWAYS)).records) == 1
    await store.stop()

    root = tmp_path / "store"
    (queue_file,) = (root / "consumequeue" / "Topic" / "0").iterdir()
    (index_file,) = (root / "index").iterdir()
    assert (queue_file.stat().st_size, index_file.stat().st_size) == (6_000_000, 420_000_040)
    assert {path.stat().st_size for path in (root / "commitlog").iterdir()} == {1 << 30}
    used = sum(path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file())
    assert used < 200 << 20


async def test_a_copy_of_an_open_store_is_what_a_kill_leaves(store: MessageStore, tmp_path: Path):
    store.put_message(message(b"not dispatched"))
    root = crash_copy(tmp_path / "store", tmp_path / "copy")

    killed = make_store(root)
    await killed.start()

    assert [one.body for one in read_queue(killed, "Topic", 0)] == [b"not dispatched"]
    await killed.stop()


async def test_queries_read_the_disk_on_a_thread_of_their_own(store: MessageStore, monkeypatch):
    readers = set()
    pread = os.pread

    def reading(fd: int, size: int, position: int) -> bytes:
        readers.add(threading.current_thread().name.partition("_")[0])
        return pread(fd, size, position)

    result = store.put_message(message(properties={"KEYS": "k"}))
    store.dispatch()
    store._dispatcher.flush_index()
    monkeypatch.setattr(os, "pread", reading)

    assert len((await store.query_message("Topic", "k", 9, 0, ALWAYS)).records) == 1
    assert await store.read_message(result.physical_offset)
    assert await store.offset_in_queue_by_time("Topic", 0, 0) == 0
    assert readers == {"QueryMessage"}


async def test_a_stop_waits_for_a_query_and_closes_nothing_under_it(tmp_path: Path, monkeypatch):
    store = make_store(tmp_path / "store")
    await store.start()
    store.put_message(message(properties={"KEYS": "k"}))
    store.dispatch()
    store._dispatcher.flush_index()
    reading, go = threading.Event(), threading.Event()
    pread = os.pread

    def slow(fd: int, size: int, position: int) -> bytes:
        reading.set()
        assert go.wait(10)
        return pread(fd, size, position)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", slow)
        query = asyncio.create_task(store.query_message("Topic", "k", 9, 0, ALWAYS))
        assert await asyncio.to_thread(reading.wait, 10)
        stop = asyncio.create_task(store.stop())
        await until(lambda: store._queries._executor._shutdown)
        assert not stop.done()
        go.set()
        await stop
    with pytest.raises(RuntimeError, match="shutdown"):
        await query  # its records would be read after the stop


async def test_a_time_is_searched_in_a_queue_that_is_deleted_meanwhile(tmp_path: Path, monkeypatch):
    store = make_store(tmp_path / "store")
    await store.start()
    for _ in range(100):
        store.put_message(message())
    store.dispatch()
    reader = store._reader.store_timestamp

    def deleting(queue, queue_offset: int) -> int:
        if store.queues.find("Topic", 0) is not None:
            store.queues.delete_topic("Topic")
            store.queues.remove_retired()
        return reader(queue, queue_offset)

    monkeypatch.setattr(store._reader, "store_timestamp", deleting)

    assert await store.offset_in_queue_by_time("Topic", 0, ALWAYS) == 0
    await store.stop()


async def test_an_index_file_that_was_not_synced_makes_the_stop_unclean(tmp_path: Path, monkeypatch, caplog):
    store = make_store(tmp_path / "store")
    await store.start()
    with monkeypatch.context() as patched:
        patched.setattr(IndexFile, "sync", refuse(errno.EIO))
        for number in range(250):
            store.put_message(message(properties={"KEYS": f"k{number}"}))
        store.dispatch()
        store._dispatcher.flush_index()
        store._queue_flusher.flush()
        assert "the index could not be synced" in caplog.text
    await store.stop()

    assert (tmp_path / "store" / "abort").exists()
    again = make_store(tmp_path / "store")
    await again.start()
    assert len((await again.query_message("Topic", "k3", 9, 0, ALWAYS)).records) == 1
    await again.stop()
    assert not (tmp_path / "store" / "abort").exists()


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
        patched.setattr(mmap, "mmap", refuse(errno.ENOMEM))
        assert store.put_message(message(b"kept", properties={"KEYS": "k"})).status is PutMessageStatus.PUT_OK
        await store.stop()

    await check_kept_after_an_unclean_stop(tmp_path / "store")


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
        store.put_message(message(b"kept"))
        store.dispatch()
        await until(lambda: store._queue_flusher.error)
        await store.stop()

    await check_kept_after_an_unclean_stop(tmp_path / "store")


async def test_queue_entries_that_the_kernel_dropped_are_not_written_anew(tmp_path: Path, monkeypatch):
    store = make_store(tmp_path / "store")
    await store.start()
    store.put_message(message(b"kept"))
    store.dispatch()
    file = store.topic_queues("Topic")[0].queue.files[0]
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", refuse(errno.EIO))
        store._queue_flusher.flush()
    # As the disk has it: the page never got there.
    file.buffer[:20] = bytes(20)

    store._queue_flusher.flush()

    assert "not in memory any more" in store._queue_flusher.error
    assert f"{file.path} at 0" in store._queue_flusher.error
    await store.stop()
    await check_kept_after_an_unclean_stop(tmp_path / "store")


async def test_a_start_that_cannot_sync_what_would_be_shown_is_refused(tmp_path: Path, monkeypatch):
    store = make_store(tmp_path / "store")
    await store.start()
    store.put_message(message())
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
        with pytest.raises(StoreError, match=r"would be shown: the CommitLog .*could not be synced: Input/output"):
            await again.start()

    again = make_store(tmp_path / "killed", flush_disk_type="SYNC_FLUSH")
    await again.start()
    assert len(read_queue(again, "Topic", 0)) == 1
    await again.stop()


async def test_the_time_of_the_queues_is_that_of_what_is_in_them(store: MessageStore, clock: FakeClock):
    store.put_message(message())
    store.dispatch()
    entered = clock.time_ms()
    clock.advance(10)
    store.put_message(message())

    assert entered <= store._last_dispatched() < clock.time_ms()
    store.dispatch()
    assert store._last_dispatched() == clock.time_ms()
