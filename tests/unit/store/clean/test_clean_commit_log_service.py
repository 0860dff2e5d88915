import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.store.clean.clean_files_service import CleanCommitLogService, QueueRange
from rocketbroker.store.clean.clean_thread import CleanThread
from rocketbroker.store.clean.disk_watch import DiskWatch
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageStatus
from tests.support.cleaning import LOG_FILE, Losses, SaidDisk, age, fill, log_files, small_store
from tests.support.fakes import FakeClock
from tests.support.stores import completed, count_as_far_back, fetch, message, pulled, read_queue


class Cleaned:
    """A started store and its service."""

    def __init__(self, store: MessageStore, clock: FakeClock) -> None:
        self.store = store
        self.clock = clock
        self.disk = SaidDisk()
        self.losses = Losses()
        self.thread = CleanThread(clock)
        self.watch = DiskWatch(store.config, store.refusals, clock, self.disk)
        # CommitLog offset of the oldest message that somebody has still to deliver.
        self.pending: int | None = None
        waits = (lambda: None, lambda: self.pending)
        self.service = CleanCommitLogService(store, clock, self.thread, self.watch, self.losses, waits)

    async def stop(self) -> None:
        await self.thread.stop()
        await self.watch.stop()

    async def clean(self) -> list[int]:
        """One round; gives the files that are left."""
        await self.service.clean()
        return log_files(self.store)

    async def settle(self) -> list[int]:
        """Rounds until no room of a removed file is awaited: a flush thread may hold one for a moment."""
        left = await self.clean()
        async with asyncio.timeout(60):
            while self.thread.holds_files:
                left = await self.clean()
        return left

    def age(self, *numbers: int, hours: float = 73) -> None:
        for number in numbers:
            age(self.store, self.clock, number, hours)


@pytest.fixture
async def cleaned(tmp_path: Path) -> AsyncIterator[Cleaned]:
    clock = FakeClock()
    store = small_store(tmp_path, clock)
    await store.start()
    made = Cleaned(store, clock)
    fill(store, 12)
    assert log_files(store) == [0, 1, 2, 3]
    made.age(0, 1, 2, 3, hours=1)
    yield made
    await made.stop()
    await store.stop()


def set_(cleaned: Cleaned, **settings: object) -> None:
    for name, value in settings.items():
        cleaned.store.config.__dict__[name] = value


def this_hour(clock: FakeClock) -> str:
    return f"{time.localtime(clock.time_ms() // 1000).tm_hour:02d}"


async def test_nothing_goes_while_it_is_not_the_hour_and_there_is_room(cleaned: Cleaned):
    cleaned.age(0, 1, 2, 3)

    assert await cleaned.clean() == [0, 1, 2, 3]
    assert cleaned.disk.asked == [cleaned.store.config.commit_log_dir, cleaned.store.config.consume_queue_dir]


async def test_at_the_hour_the_expired_files_go(cleaned: Cleaned):
    set_(cleaned, delete_when=f"{cleaned.store.config.delete_when};{this_hour(cleaned.clock)};")
    cleaned.age(0, 2)

    assert await cleaned.clean() == [1, 2, 3]
    assert not list(cleaned.losses.ranges)
    cleaned.age(0, hours=71.9)
    assert await cleaned.clean() == [1, 2, 3]
    cleaned.age(0, hours=72)
    assert await cleaned.clean() == [3]


async def test_the_hour_is_one_of_local_time(cleaned: Cleaned, monkeypatch: pytest.MonkeyPatch):
    cleaned.age(0)
    monkeypatch.setenv("TZ", "XST-5:30")  # 5 h 30 min ahead of UTC
    time.tzset()
    try:
        here = time.localtime(cleaned.clock.time_ms() // 1000).tm_hour
        there = time.gmtime(cleaned.clock.time_ms() // 1000).tm_hour
        assert here != there
        set_(cleaned, delete_when=f"{there:02d}")
        assert await cleaned.clean() == [0, 1, 2, 3]
        set_(cleaned, delete_when=f"{here:02d}")
        assert await cleaned.clean() == [1, 2, 3]
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_the_last_file_stays_however_old_it_is(cleaned: Cleaned):
    cleaned.service.delete_files_manually()
    cleaned.age(0, 1, 2, 3, hours=1000)

    assert await cleaned.clean() == [3]
    fill(cleaned.store, 1)
    assert len(read_queue(cleaned.store, "T", 0, 9)) == 4


@pytest.mark.parametrize(("percent", "left"), [(75.0, [0, 1, 2, 3]), (75.1, [1, 2, 3])])
async def test_a_disk_that_fills_has_the_expired_files_removed(cleaned: Cleaned, percent: float, left: list[int]):
    cleaned.age(0)
    cleaned.disk.percent = percent

    assert await cleaned.clean() == left


async def test_a_requested_removal_continues_until_nothing_has_expired(cleaned: Cleaned):
    set_(cleaned, delete_file_batch_max=1)
    cleaned.age(0, 1)
    cleaned.service.delete_files_manually()

    assert await cleaned.clean() == [1, 2, 3]
    assert await cleaned.clean() == [2, 3]
    assert await cleaned.clean() == [2, 3]
    cleaned.age(0)
    assert await cleaned.clean() == [2, 3]


@pytest.mark.parametrize(("enabled", "left"), [(True, [2, 3]), (False, [0, 1, 2, 3])])
async def test_a_disk_over_85_percent_has_the_oldest_files_removed_until_it_is_not(
    cleaned: Cleaned, monkeypatch, enabled: bool, left: list[int]
):
    set_(cleaned, clean_file_forcibly_enable=enabled)
    cleaned.disk.percent = 85.5
    unlink = LocalFileSystem.unlink

    def free_some(self: LocalFileSystem, path: Path) -> None:
        unlink(self, path)
        cleaned.disk.percent -= 0.3

    monkeypatch.setattr(LocalFileSystem, "unlink", free_some)

    assert await cleaned.settle() == left


async def test_groups_that_lose_messages_by_a_forced_removal_are_logged_for_each_file(cleaned: Cleaned, caplog):
    fill(cleaned.store, 3, "Other", 2)
    cleaned.disk.percent = 86.0

    with caplog.at_level(logging.WARNING):
        assert await cleaned.settle() == [4]

    assert cleaned.losses.ranges == [
        [QueueRange("T", 0, 0, 3)],
        [QueueRange("T", 0, 3, 6)],
        [QueueRange("T", 0, 6, 9)],
        [QueueRange("T", 0, 9, 12)],
    ]
    told = [record.message for record in caplog.records]
    folder = cleaned.store.config.commit_log_dir
    assert told[0] == (
        f"{folder}/{0:020d} is removed before it expires (cleanFileForciblyEnable): the disk of {folder} is 86.0 % "
        "full, above the limit of 85 % (diskSpaceCleanForciblyRatio); groups and queues that lose unconsumed "
        "messages: 1"
    )
    assert told[1] == "group g loses T/0"
    assert len(told) == 8


async def test_a_forced_removal_counts_on_the_room_of_files_that_are_still_read(cleaned: Cleaned):
    cleaned.disk.percent = 86.0  # a file is one percent of the disk
    view = cleaned.store.commit_log.slices([(0, 100)])[0]
    before = bytes(view)

    assert await cleaned.clean() == [1, 2, 3]
    assert await cleaned.clean() == [1, 2, 3]
    cleaned.clock.advance(121)
    async with asyncio.timeout(60):
        while await cleaned.clean() != [3]:
            assert cleaned.thread.holds_files
    assert bytes(view) == before
    assert cleaned.thread.holds_files
    del view
    assert await cleaned.settle() == [3]


async def test_one_round_removes_a_batch(cleaned: Cleaned):
    set_(cleaned, delete_file_batch_max=2)
    cleaned.age(0, 1, 2)
    cleaned.disk.percent = 80.0

    assert await cleaned.clean() == [2, 3]
    assert await cleaned.clean() == [3]


async def test_a_file_that_the_disk_keeps_stays_in_service_and_is_tried_again_later(
    cleaned: Cleaned, monkeypatch, caplog
):
    cleaned.age(0, 1)
    cleaned.disk.percent = 80.0
    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "unlink", _refuse)
        assert await cleaned.clean() == [0, 1, 2, 3]
    assert "next attempt in 120000 ms (redeleteHangedFileInterval)" in caplog.text
    assert len(read_queue(cleaned.store, "T", 0)) == 12

    assert await cleaned.clean() == [0, 1, 2, 3]
    cleaned.clock.advance(121)
    assert await cleaned.clean() == [2, 3]


def _refuse(_self: LocalFileSystem, _path: Path) -> None:
    raise OSError(5, "Input/output error")


async def test_by_hand_it_is_tried_again_at_once(cleaned: Cleaned, monkeypatch):
    cleaned.age(0)
    cleaned.disk.percent = 80.0
    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "unlink", _refuse)
        await cleaned.clean()

    cleaned.service.delete_files_manually()

    assert await cleaned.clean() == [1, 2, 3]


async def test_queues_begin_where_the_log_does(cleaned: Cleaned):
    fill(cleaned.store, 1, "Young")
    cleaned.service.delete_files_manually()
    cleaned.age(0, 1)

    await cleaned.clean()

    store = cleaned.store
    assert store.commit_log.min_offset == 2 * LOG_FILE
    assert (store.queues.min_offset_in_queue("T", 0), store.queues.max_offset_in_queue("T", 0)) == (6, 12)
    assert store.queues.min_offset_in_queue("Young", 0) == 0
    result = fetch(store, "T", 0, 2)
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, 6)
    assert [each.queue_offset for each in read_queue(store, "T", 0, 6)] == [6, 7, 8, 9, 10, 11]
    assert store.queries.earliest_message_time("T", 0) == cleaned.clock.time_ms()


async def test_what_was_pulled_before_is_right_after(cleaned: Cleaned):
    result = fetch(cleaned.store, "T", 0, 0)
    cleaned.service.delete_files_manually()
    cleaned.age(0, 1, 2)

    assert await cleaned.clean() == [3]

    assert [each.queue_offset for each in decode_messages(pulled(result))] == list(range(result.message_count))
    assert cleaned.store.commit_log.record(0) is None


async def test_a_cold_read_that_is_under_way_gets_what_it_asked_for(cleaned: Cleaned, monkeypatch):
    store = cleaned.store
    count_as_far_back(store)
    monkeypatch.setattr(MappedFile, "is_cached", lambda *_arguments: False)
    expected = b"".join(store.commit_log.slices([entry[:2] for entry in store.queues.queues_of("T")[0].entries(0, 3)]))
    waiting = store.fetcher.fetch(GetMessageRequest("T", 0, 0, 3, 1 << 20))
    reading, go_on = threading.Event(), threading.Event()
    preadv = os.preadv

    def wait(fd: int, into: Sequence[memoryview], position: int) -> int:
        if threading.current_thread().name.startswith("ColdRead"):
            reading.set()
            assert go_on.wait(60)
        return preadv(fd, into, position)

    monkeypatch.setattr(os, "preadv", wait)
    read = asyncio.ensure_future(completed(waiting))
    await asyncio.to_thread(reading.wait, 10)
    cleaned.service.delete_files_manually()
    cleaned.age(0, 1, 2)

    assert await cleaned.clean() == [3]
    # The numbers of descriptors that were closed go to others.
    with (store.config.commit_log_dir.parent / "other").open("wb") as other:
        other.write(b"o" * LOG_FILE)
        go_on.set()
        assert pulled(await read) == expected


async def test_a_file_whose_messages_are_not_readable_yet_stays(cleaned: Cleaned):
    store = cleaned.store
    for _ in range(4):
        store.appender.put_message(message(b"x" * 1100))
    cleaned.service.delete_files_manually()
    cleaned.age(0, 1, 2, 3, 4)

    assert await cleaned.clean() == [4, 5]
    store.appender.dispatch()
    cleaned.service.delete_files_manually()
    assert await cleaned.clean() == [5]


async def test_a_store_continues_from_what_is_left(tmp_path: Path):
    clock = FakeClock()
    first = small_store(tmp_path, clock)
    await first.start()
    fill(first, 12)
    cleaned = Cleaned(first, clock)
    cleaned.age(0, 1, 2)
    cleaned.service.delete_files_manually()
    await cleaned.clean()
    await cleaned.thread.stop()
    await first.stop()
    again = small_store(tmp_path, clock)
    await again.start()

    assert (again.queues.min_offset_in_queue("T", 0), again.queues.max_offset_in_queue("T", 0)) == (9, 12)
    fill(again, 1)
    assert [each.queue_offset for each in read_queue(again, "T", 0, 9)] == [9, 10, 11, 12]
    await again.stop()


@pytest.mark.proves(
    "Delayed messages",
    "messages that wait for days are stored again on the way, and the CommitLog is not cleaned under them",
)
async def test_a_file_with_messages_that_are_to_be_delivered_stays_when_it_has_expired(cleaned: Cleaned):
    cleaned.age(0, 1, 2)
    cleaned.service.delete_files_manually()
    cleaned.pending = LOG_FILE + 100
    assert await cleaned.settle() == [1, 2, 3]
    cleaned.service.delete_files_manually()
    cleaned.pending = 2 * LOG_FILE
    assert await cleaned.settle() == [2, 3]
    cleaned.service.delete_files_manually()
    cleaned.pending = None
    assert await cleaned.settle() == [3]


async def test_a_disk_that_is_full_takes_it_all_the_same(cleaned: Cleaned):
    cleaned.pending = 0
    cleaned.disk.percent = 86.0
    assert await cleaned.settle() != [0, 1, 2, 3]
