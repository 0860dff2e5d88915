import asyncio
import os
import shutil
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.audit.store_audit import audit
from rocketbroker.codec.message.message_const import COMPRESSED_FLAG
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import StoreError
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.put_message import PutMessageStatus
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read import message_queries
from rocketbroker.store.read.checked_reader import ColdRead
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageStatus
from tests.support.fakes import FakeClock
from tests.support.stores import (
    ALWAYS,
    V4_HOST,
    V6_HOST,
    Waiter,
    batch,
    count_as_far_back,
    crash_copy,
    fetch,
    make_store,
    message,
    open_below,
    put_forged,
    read_queue,
    store_config,
)
from tests.support.waiting import turns, until


class TestMessages:
    async def test_a_stored_message_comes_back_with_all_its_fields(self, store: MessageStore, clock: FakeClock):
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
            store.appender.put_message(sent)
        store.appender.dispatch()

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
        (view,) = store.commit_log.slices([(third.commit_log_offset, third.store_size)])
        assert store.commit_log.record(third.commit_log_offset) == bytes(view)

    @pytest.mark.proves("The steps of a message", "3. queue and keys")
    async def test_held_pulls_are_notified_at_dispatch(self, store: MessageStore, waiter: Waiter):
        store.appender.put_message(message())
        assert waiter.heard == []

        store.appender.dispatch()

        assert waiter.heard == [("Topic", 0, 1)]

    async def test_held_pulls_are_notified_of_a_batch_at_once_and_of_earlier_messages(
        self, store: MessageStore, waiter: Waiter
    ):
        store.appender.put_message(message())
        store.appender.put_messages(message(queue_id=1), batch(b"a", b"b"))

        assert waiter.heard == [("Topic", 0, 1), ("Topic", 1, 1), ("Topic", 1, 2)]

    async def test_queues_are_reported_with_their_bounds(self, store: MessageStore):
        for _ in range(3):
            store.appender.put_message(message(queue_id=4))
        first = store.appender.put_message(message(queue_id=4))
        store.appender.dispatch()

        assert list(store.queues.queues_of("Topic")) == [4]
        assert (store.queues.min_offset_in_queue("Topic", 4), store.queues.max_offset_in_queue("Topic", 4)) == (0, 4)
        assert (store.queues.min_offset_in_queue("Topic", 9), store.queues.max_offset_in_queue("Topic", 9)) == (0, 0)
        assert (store.commit_log.min_offset, store.commit_log.max_offset) == (0, first.physical_offset + first.size)
        assert store.appender.put_count == 4

    async def test_slices_outlive_the_store(self, tmp_path: Path):
        store = make_store(tmp_path / "store")
        await store.start()
        result = store.appender.put_message(message(b"still here"))
        (view,) = store.commit_log.slices([(result.physical_offset, result.size)])

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
            offsets.append(store.appender.put_message(message(properties=properties)).physical_offset)
        store.appender.dispatch()

        async def query(key: str, max_num: int = 32, begin: int = 0, end: int = ALWAYS, index_type: str | None = None):
            found = await store.queries.query_message("Topic", key, max_num, begin, end, index_type)
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
            store.appender.put_message(message(properties={"KEYS": "k"}))
        store.appender.dispatch()

        assert len((await store.queries.query_message("Topic", "k", 1000, 0, ALWAYS)).records) == 64

    async def test_a_query_reads_no_more_than_a_frame_can_carry(self, store: MessageStore, monkeypatch):
        monkeypatch.setattr(message_queries, "_QUERY_BYTES", 3000)
        for _ in range(5):
            store.appender.put_message(message(bytes(1200), properties={"KEYS": "k"}))
        store.appender.put_message(message(bytes(4000), properties={"KEYS": "large"}))
        store.appender.dispatch()

        assert len((await store.queries.query_message("Topic", "k", 9, 0, ALWAYS)).records) == 2
        assert len((await store.queries.query_message("Topic", "large", 9, 0, ALWAYS)).records) == 1

    async def test_without_an_index_nothing_is_found_and_no_folder_made(self, tmp_path: Path):
        store = make_store(tmp_path / "store", message_index_enable=False)
        await store.start()
        store.appender.put_message(message(properties={"KEYS": "k"}))
        store.appender.dispatch()

        assert (await store.queries.query_message("Topic", "k", 9, 0, ALWAYS)).records == []
        await store.stop()
        assert not (tmp_path / "store" / "index").exists()

    async def test_keys_are_entered_after_a_moment_even_when_nobody_asks(self, store: MessageStore):
        store.appender.put_message(message(properties={"KEYS": "k"}))
        store.appender.dispatch()
        assert store.index_service is not None

        await until(lambda: not store.index_service or not store.index_service.waiting)

        assert store.index_service.last_update[1] == 0
        assert len(store.index_service.files) == 1


class TestTopics:
    async def test_a_deleted_topic_has_no_queues_and_may_come_again(self, store: MessageStore, tmp_path: Path):
        for topic in ("A", "B"):
            store.appender.put_message(message(topic=topic))
        store.appender.dispatch()
        store.appender.put_message(message(topic="A"))

        assert await store.deletion.delete_topics({"A", "never"}) == 1

        assert fetch(store, "A", 0, 0).status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
        assert store.queues.queues_of("A") == {}
        store.appender.put_message(message(b"again", topic="A"))
        store.appender.dispatch()
        assert [one.body for one in read_queue(store, "A", 0)] == [b"again"]
        assert [one.body for one in read_queue(store, "B", 0)] == [b"body"]


class TestLife:
    async def test_a_store_that_is_not_started_or_stopped_takes_nothing(self, tmp_path: Path):
        store = make_store(tmp_path / "store")
        early = store.appender.put_message(message())
        await store.start()
        assert store.appender.put_message(message()).status is PutMessageStatus.PUT_OK
        await store.stop()
        late = store.appender.put_messages(message(), batch(b"a"))

        assert (early.status, late.status) == (PutMessageStatus.NOT_STARTED, PutMessageStatus.SHUTTING_DOWN)
        assert early.reason
        assert late.reason

    async def test_a_stop_dispatches_and_leaves_nothing_running_or_open(self, tmp_path: Path, monkeypatch):
        threads = {thread.name for thread in threading.enumerate()}
        store = make_store(tmp_path / "store")
        await store.start()
        for _ in range(300):
            store.appender.put_message(message(bytes(1000), properties={"KEYS": "k"}))
        store.appender.dispatch()
        count_as_far_back(store)
        monkeypatch.setattr(MappedFile, "is_cached", lambda *_arguments: False)
        waiting = store.fetcher.fetch(GetMessageRequest("Topic", 0, 0, 32, 1 << 20))
        assert isinstance(waiting, ColdRead)
        await waiting

        assert open_below(tmp_path)

        await store.stop()

        assert open_below(tmp_path) == []
        left = {thread.name for thread in threading.enumerate()} - threads
        assert all(name.startswith("asyncio_") for name in left)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        again = make_store(tmp_path / "store")
        await again.start()
        assert again.queues.max_offset_in_queue("Topic", 0) == 300
        await again.stop()

    async def test_a_cancelled_start_ends_after_its_thread(self, tmp_path: Path, monkeypatch):
        began, go_on = threading.Event(), threading.Event()
        load = ConsumeQueueStore.load

        def slow_load(
            queues: ConsumeQueueStore, told: list[str], before_change: Callable[[], None], *, clean_stop: bool
        ) -> set[ConsumeQueueInterface]:
            began.set()
            assert go_on.wait(60)
            return load(queues, told, before_change, clean_stop=clean_stop)

        monkeypatch.setattr(ConsumeQueueStore, "load", slow_load)
        starting = asyncio.ensure_future(make_store(tmp_path / "other").start())
        await asyncio.to_thread(began.wait, 10)
        starting.cancel()
        await turns()
        assert not starting.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        again = make_store(tmp_path / "other")
        await again.start()
        await again.stop()

    async def test_a_second_store_is_rejected_in_one_line_and_the_first_continues(
        self, store: MessageStore, tmp_path: Path
    ):
        # The next file of the log is made ahead, on a thread.
        await asyncio.to_thread(store.allocate_service.settle, 10)
        files = open_below(tmp_path)

        with pytest.raises(StoreError) as caught:
            await make_store(tmp_path / "store").start()

        assert "is in use by another broker" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert open_below(tmp_path) == files
        assert store.appender.put_message(message()).status is PutMessageStatus.PUT_OK

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
        store.appender.put_message(message(properties={"KEYS": "k"}))
        await store.stop()

        assert sorted(path.name for path in (tmp_path / "apart").iterdir()) == ["check", "cq", "ix", "log"]
        assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["config", "lock"]

    async def test_the_checkpoint_follows_what_is_on_disk(self, store: MessageStore, clock: FakeClock):
        store.appender.put_message(message())
        store.appender.dispatch()
        stored = clock.time_ms()
        clock.advance(60)

        store.flusher.flush()
        assert store.checkpoint.layout[:2] == (stored, 0)
        store.queue_flusher.flush()
        assert store.checkpoint.layout[:2] == (stored, stored)


async def test_default_sizes_are_rocketmqs_and_take_no_room_before_they_are_written(tmp_path: Path):
    store = make_store(
        tmp_path / "store",
        mapped_file_size_commit_log=1 << 30,
        mapped_file_size_consume_queue=6_000_000,
        max_hash_slot_num=5_000_000,
        max_index_num=20_000_000,
    )
    await store.start()
    store.appender.put_message(message(properties={"KEYS": "k"}))
    store.appender.dispatch()
    assert len((await store.queries.query_message("Topic", "k", 9, 0, ALWAYS)).records) == 1
    await store.stop()

    root = tmp_path / "store"
    (queue_file,) = (root / "consumequeue" / "Topic" / "0").iterdir()
    (index_file,) = (root / "index").iterdir()
    assert (queue_file.stat().st_size, index_file.stat().st_size) == (6_000_000, 420_000_040)
    assert {path.stat().st_size for path in (root / "commitlog").iterdir()} == {1 << 30}
    used = sum(path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file())
    assert used < 200 << 20


async def test_a_copy_of_an_open_store_is_what_a_kill_leaves(store: MessageStore, tmp_path: Path):
    store.appender.put_message(message(b"not dispatched"))
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

    result = store.appender.put_message(message(properties={"KEYS": "k"}))
    store.appender.dispatch()
    store.dispatcher.flush_index()
    monkeypatch.setattr(os, "pread", reading)

    assert len((await store.queries.query_message("Topic", "k", 9, 0, ALWAYS)).records) == 1
    assert await store.queries.read_message(result.physical_offset)
    assert await store.queries.offset_in_queue_by_time("Topic", 0, 0) == 0
    assert readers == {"QueryMessage"}


async def test_a_stop_waits_for_a_query_and_closes_nothing_under_it(tmp_path: Path, monkeypatch):
    store = make_store(tmp_path / "store")
    await store.start()
    store.appender.put_message(message(properties={"KEYS": "k"}))
    store.appender.dispatch()
    store.dispatcher.flush_index()
    reading, go = threading.Event(), threading.Event()
    pread = os.pread

    def slow(fd: int, size: int, position: int) -> bytes:
        reading.set()
        assert go.wait(60)
        return pread(fd, size, position)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", slow)
        query = asyncio.create_task(store.queries.query_message("Topic", "k", 9, 0, ALWAYS))
        assert await asyncio.to_thread(reading.wait, 10)
        stop = asyncio.create_task(store.stop())
        await until(lambda: store.queries._executor._shutdown)
        assert not stop.done()
        go.set()
        await stop
    with pytest.raises(RuntimeError, match="shutdown"):
        await query  # its records would be read after the stop


async def test_a_time_is_searched_in_a_queue_that_is_deleted_meanwhile(tmp_path: Path, monkeypatch):
    store = make_store(tmp_path / "store")
    await store.start()
    for _ in range(100):
        store.appender.put_message(message())
    store.appender.dispatch()
    reader = store.reader.store_timestamp

    def deleting(queue, queue_offset: int) -> int:
        if store.queues.find("Topic", 0) is not None:
            store.queues.delete_topic("Topic")
            store.queues.remove_retired()
        return reader(queue, queue_offset)

    monkeypatch.setattr(store.reader, "store_timestamp", deleting)

    assert await store.queries.offset_in_queue_by_time("Topic", 0, ALWAYS) == 0
    await store.stop()


@pytest.mark.parametrize("batches", [False, True])
async def test_messages_accepted_under_a_larger_maxmessagesize_are_served(tmp_path: Path, batches: bool):
    body, topic = bytes(17 << 20), "Batches" if batches else "Topic"
    store = make_store(tmp_path / "store", batch_topics=["Batches"], mapped_file_size_commit_log=64 << 20)
    await store.start()
    apply_updates([store.config], {"maxMessageSize": str(18 << 20)})
    put = store.appender.put_message(message(body, topic))
    store.appender.dispatch()

    assert put.status is PutMessageStatus.PUT_OK
    assert [one.body for one in read_queue(store, topic, 0)] == [body]
    assert store.commit_log.record(put.physical_offset) is not None
    await store.stop()
    again = make_store(tmp_path / "store", batch_topics=["Batches"], mapped_file_size_commit_log=64 << 20)
    await again.start()
    assert [one.body for one in read_queue(again, topic, 0)] == [body]
    await again.stop()


@pytest.mark.long
async def test_records_above_16_mib_are_served_after_the_limit_was_lowered(tmp_path: Path):
    sizes: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 26}
    store = make_store(tmp_path / "store", max_message_size=1 << 25, **sizes)
    await store.start()
    long, clock = message(b"x" * (17 << 20), properties={"UNIQ_KEY": "U", "TAGS": "T"}), FakeClock()
    offset = store.appender.put_message(long).physical_offset
    store.appender.put_message(message(b"after"))
    store.appender.dispatch()
    crash_copy(tmp_path / "store", tmp_path / "killed")
    await store.stop()
    shutil.copytree(tmp_path / "store", tmp_path / "rebuilt")
    shutil.rmtree(tmp_path / "rebuilt" / "consumequeue")
    shutil.rmtree(tmp_path / "rebuilt" / "index")

    for name in ("store", "killed", "rebuilt"):
        store = make_store(tmp_path / name, clock, max_message_size=1000, **sizes)
        await store.start()
        bodies = [each.body for each in read_queue(store, "Topic", 0)]
        found = [store.queries.queued_message(offset), await store.queries.read_message(offset)]
        found += (await store.queries.query_message("Topic", "U", 10, 0, ALWAYS)).records
        await store.stop()
        assert [len(body) for body in bodies] == [17 << 20, 5], name
        assert [decode_record(each or b"").body == long.body for each in found] == [True] * 3, name
        assert audit(store_config(tmp_path / name, **sizes)).findings == [], name


async def test_what_looks_like_a_long_record_is_not_read_unless_a_queue_leads_to_it(store: MessageStore, monkeypatch):
    store.appender.put_message(message(b"x" * 9000))
    store.appender.dispatch()
    record = store.commit_log.record(0)
    assert record is not None
    forged = put_forged(store, record)
    store.commit_log.longest_record = 5000
    reads: list[int] = []
    bytes_at = CommitLog.bytes_at

    def noting(log: CommitLog, offset: int, size: int) -> bytes | None:
        reads.append(size)
        return bytes_at(log, offset, size)

    monkeypatch.setattr(CommitLog, "bytes_at", noting)
    assert store.queries.queued_message(forged) is None
    assert max(reads) < 200
    assert store.queries.queued_message(0) == record
