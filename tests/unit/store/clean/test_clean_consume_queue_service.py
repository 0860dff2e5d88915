import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.store.clean.clean_files_service import CleanCommitLogService, CleanConsumeQueueService
from rocketbroker.store.clean.clean_thread import CleanThread
from rocketbroker.store.clean.disk_watch import DiskWatch
from rocketbroker.store.commitlog.put_message import Refusal
from rocketbroker.store.index.index_file import IndexFile
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.queue.consume_queue_store import FirstOffsets
from tests.support.cleaning import LOG_FILE, Losses, SaidDisk, age, fill, small_store
from tests.support.fakes import FakeClock
from tests.support.stores import ALWAYS, inner_batch, message, open_below, read_queue
from tests.support.waiting import until


class Cleaned:
    """A started store, its service, and the one that goes before it."""

    def __init__(self, store: MessageStore, clock: FakeClock) -> None:
        self.store = store
        self.clock = clock
        self.thread = CleanThread(clock)
        self._watch = DiskWatch(store.config, store.refusals, clock, SaidDisk())
        self._log = CleanCommitLogService(store, clock, self.thread, self._watch, Losses())
        self.service = CleanConsumeQueueService(store, store.index_service, clock, self.thread)

    async def stop(self) -> None:
        await self.thread.stop()
        await self._watch.stop()

    async def expire(self, files: int) -> None:
        """Remove so many files of the log."""
        for number in range(files):
            age(self.store, self.clock, number, 73)
        self._log.delete_files_manually()
        while self._log._manual_rounds:
            await self._log.clean()

    async def release(self) -> None:
        """Wait until the room of all removed files has come: a flush thread may hold one for a moment."""
        async with asyncio.timeout(60):
            while self.thread.holds_files:
                await self.thread.release()

    def queue_files(self, topic: str = "T", queue_id: int = 0) -> list[int]:
        """The files of a queue that the disk has and the queue serves, by the offset of their first message."""
        queue = self.store.queues.find(topic, queue_id)
        assert queue is not None
        served = [int(file.path.name) // 20 for file in queue.queue.files]
        assert served == sorted(int(path.name) // 20 for path in queue.queue.directory.iterdir())
        return served

    def index_files(self) -> list[str]:
        service = self.store.index_service
        assert service is not None
        served = [file.file.path.name for file in service.files]
        assert served == sorted(path.name for path in self.store.config.index_dir.iterdir())
        return served


@pytest.fixture
async def cleaned(tmp_path: Path) -> AsyncIterator[Cleaned]:
    clock = FakeClock()
    store = small_store(tmp_path, clock, max_index_num=10)
    await store.start()
    made = Cleaned(store, clock)
    yield made
    await made.stop()
    await store.stop()


async def test_queue_files_before_the_log_go(cleaned: Cleaned):
    fill(cleaned.store, 21)  # seven files of the log, five of the queue
    await cleaned.service.clean()
    assert cleaned.queue_files() == [0, 5, 10, 15, 20]

    await cleaned.expire(3)
    await cleaned.service.clean()
    assert cleaned.queue_files() == [5, 10, 15, 20]

    await cleaned.expire(2)
    await cleaned.service.clean()
    assert cleaned.queue_files() == [15, 20]
    assert [each.queue_offset for each in read_queue(cleaned.store, "T", 0, 15)] == list(range(15, 21))


async def test_files_of_queues_of_batches_go_as_well(tmp_path: Path):
    clock = FakeClock()
    store = small_store(tmp_path, clock, batch_topics=["T"], mapper_file_size_batch_consume_queue=46 * 2)
    await store.start()
    cleaned = Cleaned(store, clock)
    for number in range(9):  # three files of the log, and five of the queue
        bodies = [b"%d" % (2 * number + each) + bytes(520) for each in range(2)]
        assert store.appender.put_inner_batch(inner_batch(*bodies, topic="T"), 2).queue_offset == 2 * number
    store.appender.dispatch()
    await cleaned.service.clean()
    await cleaned.expire(2)
    await cleaned.service.clean()

    queue = store.queues.queues_of("T")[0]
    first = store.queues.min_offset_in_queue("T", 0)
    assert [file.file_from_offset for file in queue.queue.files] == [46 * 2 * each for each in (3, 4)]
    assert first == 12
    assert [each.queue_offset for each in read_queue(store, "T", 0, first)] == [12, 14, 16]
    await cleaned.stop()
    await store.stop()
    again = small_store(tmp_path, clock, batch_topics=["T"], mapper_file_size_batch_consume_queue=46 * 2)
    await again.start()
    assert (again.queues.min_offset_in_queue("T", 0), again.queues.max_offset_in_queue("T", 0)) == (12, 18)
    await again.stop()


async def test_a_queue_without_messages_keeps_its_last_file_and_its_offsets(cleaned: Cleaned):
    fill(cleaned.store, 12, "Old", 3)
    fill(cleaned.store, 6, "New")
    await cleaned.expire(4)

    await cleaned.service.clean()

    assert cleaned.queue_files("Old", 3) == [10]
    store = cleaned.store
    assert (store.queues.min_offset_in_queue("Old", 3), store.queues.max_offset_in_queue("Old", 3)) == (12, 12)
    assert store.queues.topics_without_messages() == {"Old"}
    fill(store, 1, "Old", 3)
    assert [each.queue_offset for each in read_queue(store, "Old", 3, 12)] == [12]


async def test_index_files_before_the_log_go_and_queries_continue(cleaned: Cleaned):
    store = cleaned.store
    for number in range(24):
        store.appender.put_message(message(b"x" * 1000, "T", properties={"KEYS": f"k{number}"}))
    store.appender.dispatch()
    await store.queries.query_message("T", "k0", 1, 0, ALWAYS)
    before = cleaned.index_files()
    assert len(before) == 3  # nine keys each

    await cleaned.expire(4)
    await cleaned.service.clean()

    assert cleaned.index_files() == before[1:]
    for number in range(24):
        found = await store.queries.query_message("T", f"k{number}", 1, 0, ALWAYS)
        assert bool(found.records) == (number >= 12), number
    await cleaned.expire(3)
    await cleaned.service.clean()
    assert cleaned.index_files() == before[2:]


async def test_a_query_that_is_under_way_reads_the_file_that_is_removed(cleaned: Cleaned, monkeypatch):
    store = cleaned.store
    for number in range(24):
        store.appender.put_message(message(b"x" * 1000, "T", properties={"KEYS": f"k{number}"}))
    store.appender.dispatch()
    await store.queries.query_message("T", "k0", 1, 0, ALWAYS)
    reading, go_on = threading.Event(), threading.Event()
    chain = IndexFile.chain

    def wait(self: IndexFile, *args: int) -> Iterator[int | None]:
        reading.set()
        assert go_on.wait(60)
        yield from chain(self, *args)

    monkeypatch.setattr(IndexFile, "chain", wait)
    query = asyncio.ensure_future(store.queries.query_message("T", "k0", 1, 0, ALWAYS))
    assert await asyncio.to_thread(reading.wait, 10)
    await cleaned.expire(4)
    await cleaned.service.clean()
    assert cleaned.thread.holds_files

    go_on.set()

    assert (await query).records == []
    await cleaned.release()


async def test_nothing_is_looked_at_until_the_log_begins_elsewhere(cleaned: Cleaned, monkeypatch):
    fill(cleaned.store, 12)
    await cleaned.expire(2)
    await cleaned.service.clean()
    asked: list[int] = []

    def note(offset: int) -> FirstOffsets:
        asked.append(offset)
        return FirstOffsets([], [])

    monkeypatch.setattr(cleaned.store.queues, "first_offsets", note)

    await cleaned.service.clean()
    assert asked == []
    await cleaned.service.clean(again=True)
    assert asked == [2 * LOG_FILE]


async def test_no_pause_is_made_while_a_full_disk_refuses_sends(tmp_path: Path):
    clock = FakeClock()
    store = small_store(tmp_path, clock, delete_consume_queue_files_interval=60_000)
    await store.start()
    cleaned = Cleaned(store, clock)
    fill(store, 21)
    await cleaned.expire(5)
    cleaning = asyncio.ensure_future(cleaned.service.clean())
    queue = store.queues.find("T", 0)
    assert queue is not None
    # The file is gone from the disk a moment before it is out of service.
    await until(lambda: len(queue.queue.files) == 4)
    cleaning.cancel()
    await asyncio.wait([cleaning])
    store.refusals.set(Refusal.DISK_FULL, "the disk is full")

    await cleaned.service.clean()

    assert cleaned.queue_files() == [15, 20]
    await cleaned.stop()
    await store.stop()


async def test_without_an_index_the_queues_are_cleaned_all_the_same(tmp_path: Path):
    clock = FakeClock()
    store = small_store(tmp_path, clock, message_index_enable=False)
    await store.start()
    cleaned = Cleaned(store, clock)
    fill(store, 12)
    await cleaned.expire(2)

    await cleaned.service.clean()

    assert cleaned.queue_files() == [5, 10]
    await cleaned.stop()
    await store.stop()


async def test_a_refused_removal_is_tried_again_later(cleaned: Cleaned, monkeypatch, caplog):
    fill(cleaned.store, 12)
    await cleaned.expire(2)

    def refuse(_self: LocalFileSystem, _path: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(LocalFileSystem, "unlink", refuse)
        await cleaned.service.clean()
    assert "next attempt in 120000 ms (redeleteHangedFileInterval)" in caplog.text
    assert cleaned.queue_files() == [0, 5, 10]

    await cleaned.service.clean()
    assert cleaned.queue_files() == [0, 5, 10]
    cleaned.clock.advance(121)
    await cleaned.service.clean()
    assert cleaned.queue_files() == [5, 10]


async def test_a_queue_that_the_disk_keeps_does_not_keep_the_others_and_the_index(
    cleaned: Cleaned, monkeypatch, caplog
):
    store = cleaned.store
    for topic in ("A", "B"):
        fill(store, 12, topic)
    for number in range(12):
        store.appender.put_message(message(b"x" * 1000, "T", properties={"KEYS": f"k{number}"}))
    store.appender.dispatch()
    await store.queries.query_message("T", "k0", 1, 0, ALWAYS)
    indexed = cleaned.index_files()
    unlink = LocalFileSystem.unlink

    def refuse(self: LocalFileSystem, path: Path) -> None:
        if path.parent.parent.name == "A":
            raise OSError(5, "Input/output error")
        unlink(self, path)

    await cleaned.expire(len(store.commit_log.queue.files) - 1)
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(LocalFileSystem, "unlink", refuse)
        await cleaned.service.clean()

    assert cleaned.queue_files("A") == [0, 5, 10]
    assert cleaned.queue_files("B") == [10]
    assert cleaned.index_files() == indexed[-1:]
    assert "files that could not be removed: 1; next attempt" in caplog.text
    cleaned.clock.advance(121)
    await cleaned.service.clean()
    assert cleaned.queue_files("A") == [10]


async def test_a_failed_removal_is_named_in_the_answer_and_logged_once(cleaned: Cleaned, monkeypatch, caplog):
    store = cleaned.store
    for number in range(13):
        fill(store, 6, "T", number)
    await cleaned.expire(len(store.commit_log.queue.files) - 1)

    def refuse(_self: LocalFileSystem, path: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(LocalFileSystem, "unlink", refuse)
        told = [await cleaned.service.clean(again=True) for _ in range(2)]

    begin = (
        "files that could not be removed: 12; next attempt in 120000 ms (redeleteHangedFileInterval): "
        f"{store.config.consume_queue_dir}/T/0: Input/output error; "
    )
    assert told[0].startswith(begin)
    assert told[0].endswith(f"{store.config.consume_queue_dir}/T/9: Input/output error; 2 more")
    assert told[1] == told[0]
    assert [record.message for record in caplog.records] == [told[0]]
    assert await cleaned.service.clean(again=True) == ""
    assert cleaned.queue_files("T", 11) == [5]


async def test_a_queue_that_cannot_be_read_keeps_neither_the_log_nor_the_others(cleaned: Cleaned, monkeypatch, caplog):
    store = cleaned.store
    for topic in ("A", "B"):
        fill(store, 12, topic)
    queue = store.queues.find("A", 0)
    assert queue
    read, folder = MappedFile.read_at, queue.queue.directory

    def refuse(file: MappedFile, position: int, size: int) -> bytes:
        if file.path.parent == folder:
            raise OSError(5, "Input/output error")
        return read(file, position, size)

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(MappedFile, "read_at", refuse)
        await cleaned.expire(5)
        assert store.commit_log.min_offset == 5 * LOG_FILE, "all five are removed"
        told = await cleaned.service.clean()

    assert f"{folder}: Input/output error" in told
    assert caplog.text.count(f"{folder} cannot be read: Input/output error") == 1
    assert cleaned.queue_files("A") == [0, 5, 10]
    assert store.queues.min_offset_in_queue("A", 0) == 0
    cleaned.clock.advance(121)
    assert await cleaned.service.clean() == ""
    assert cleaned.queue_files("A") == [10]


async def test_a_topic_that_is_deleted_meanwhile_and_recreated_keeps_its_new_files(cleaned: Cleaned, monkeypatch):
    fill(cleaned.store, 12)
    await cleaned.expire(2)
    store = cleaned.store
    remove_file = store.queues.remove_file

    def delete_first(queue, file):
        # The event loop does it, while the thread of cleaning is about to remove the file by its path.
        store.queues.delete_topic("T")
        fill(store, 1)
        return remove_file(queue, file)

    monkeypatch.setattr(store.queues, "remove_file", delete_first)

    await cleaned.service.clean()

    assert cleaned.queue_files() == [0]
    assert len(read_queue(store, "T", 0)) == 1
    store.queues.remove_retired()
    assert [path.name for path in store.config.consume_queue_dir.iterdir()] == ["T"]


async def test_no_descriptor_of_a_removed_file_is_left(cleaned: Cleaned):
    fill(cleaned.store, 21)
    await cleaned.expire(5)

    await cleaned.service.clean()

    await cleaned.release()
    opened = open_below(Path(cleaned.store.config.store_path_root_dir))
    assert opened
    assert not [path for path in opened if path.endswith("(deleted)")]
