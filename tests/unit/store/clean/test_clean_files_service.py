import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.store.clean import clean_files_service, disk_watch
from rocketbroker.store.clean.clean_files_service import CleanFilesService
from rocketbroker.store.commitlog.put_message import PutMessageStatus
from rocketbroker.store.message_store import MessageStore
from tests.support.cleaning import LOG_FILE, Losses, SaidDisk, age, fill, log_files, small_store
from tests.support.fakes import FakeClock
from tests.support.stores import message
from tests.support.waiting import until


class Cleaned:
    """A started store and its service, which is started too."""

    def __init__(self, store: MessageStore, clock: FakeClock) -> None:
        self.store = store
        self.clock = clock
        self.disk = SaidDisk()
        self.service = CleanFilesService(store, clock, Losses(), self.disk)

    @property
    def looks(self) -> int:
        """Return the number of looks at the disks: the watch and a round of cleaning each look once."""
        return len(self.disk.asked) // 2

    async def first_looks(self) -> None:
        """Wait until nothing is due any more."""
        await until(lambda: self.looks == 2)


@pytest.fixture
async def cleaned(tmp_path: Path, monkeypatch) -> AsyncIterator[Cleaned]:
    for module in (clean_files_service, disk_watch):
        monkeypatch.setattr(module, "TICK_S", 0.01)
    clock = FakeClock()
    store = small_store(tmp_path, clock)
    await store.start()
    made = Cleaned(store, clock)
    await made.service.start()
    yield made
    await made.service.stop()
    await store.stop()


async def test_the_disk_is_measured_at_once_and_then_at_each_interval(cleaned: Cleaned):
    await cleaned.first_looks()

    cleaned.clock.advance(9.9)
    await cleaned.service._clean_when_due()
    await cleaned.service._watch._look_when_due()
    assert cleaned.looks == 2
    cleaned.clock.advance(0.2)
    await until(lambda: cleaned.looks == 4)


async def test_sends_are_taken_again_within_a_second_of_room(cleaned: Cleaned):
    cleaned.disk.percent = 95.0
    cleaned.clock.advance(10.0)
    await until(lambda: cleaned.store.appender.put_message(message()).status is PutMessageStatus.DISK_FULL)
    cleaned.disk.percent = 50.0

    cleaned.clock.advance(1.0)

    await until(lambda: cleaned.store.appender.put_message(message()).status is PutMessageStatus.PUT_OK)


async def test_by_hand_it_begins_at_once(cleaned: Cleaned):
    await cleaned.first_looks()
    fill(cleaned.store, 9)
    age(cleaned.store, cleaned.clock, 0, 73)

    cleaned.service.delete_files_manually()

    await until(lambda: len(cleaned.store.commit_log.queue.files) == 2)
    assert log_files(cleaned.store) == [1, 2]


async def test_both_services_have_their_turn(cleaned: Cleaned):
    fill(cleaned.store, 21)
    for number in range(4):
        age(cleaned.store, cleaned.clock, number, 73)
    cleaned.service.delete_files_manually()

    await cleaned.service.clean()

    queue = cleaned.store.queues.find("T", 0)
    assert queue is not None
    assert log_files(cleaned.store) == [4, 5, 6]
    assert sorted(int(path.name) for path in queue.queue.directory.iterdir()) == [200, 300, 400]


async def test_expired_queues_are_cleaned_before_it_answers(cleaned: Cleaned):
    fill(cleaned.store, 12)
    cleaned.store.queues.correct_min_offsets(8000)

    await cleaned.service.clean_expired_consume_queue()

    assert not (cleaned.store.config.consume_queue_dir / "T" / "0" / f"{0:020d}").exists()


async def test_rounds_do_not_run_beside_each_other(cleaned: Cleaned):
    await cleaned.first_looks()
    cleaned.disk.go_on.clear()
    first = asyncio.ensure_future(cleaned.service.clean())
    await until(lambda: len(cleaned.disk.asked) == 5)
    second = asyncio.ensure_future(cleaned.service.clean_expired_consume_queue())
    await asyncio.sleep(0)
    assert not second.done()

    cleaned.disk.go_on.set()

    await second
    assert first.done()


async def test_a_disk_that_cannot_be_measured_is_reported_and_measured_again(cleaned: Cleaned, caplog):
    await cleaned.first_looks()
    cleaned.disk.error = OSError(5, "Input/output error")

    cleaned.clock.advance(11)
    await until(lambda: "CleanFilesService.clean failed" in caplog.text and "DiskWatch.look failed" in caplog.text)

    cleaned.disk.error, cleaned.disk.percent = None, 95.0
    cleaned.clock.advance(11)
    await until(lambda: cleaned.store.appender.put_message(message()).status is PutMessageStatus.DISK_FULL)


async def refused_and_taken_again(cleaned: Cleaned) -> None:
    """See that the limits hold now as ever."""
    cleaned.disk.percent = 95.0
    cleaned.clock.advance(10.1)
    await until(lambda: cleaned.store.appender.put_message(message()).status is PutMessageStatus.DISK_FULL)
    cleaned.disk.percent = 50.0
    cleaned.clock.advance(1.0)
    await until(lambda: cleaned.store.appender.put_message(message()).status is PutMessageStatus.PUT_OK)


async def test_the_pauses_between_queue_files_do_not_keep_the_disk_from_being_looked_at(cleaned: Cleaned, monkeypatch):
    store = cleaned.store
    await cleaned.first_looks()
    fill(store, 21)
    store.queues.correct_min_offsets(5 * LOG_FILE)
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(clean_files_service, "asyncio", SimpleNamespace(sleep=pause))
    cleaning = asyncio.ensure_future(cleaned.service.clean_expired_consume_queue())
    await until(lambda: len(pauses) == 1)

    await refused_and_taken_again(cleaned)

    assert pauses == [store.config.delete_consume_queue_files_interval / 1000]
    assert not cleaning.done()
    cleaning.cancel()
    await asyncio.wait([cleaning])


async def test_a_removal_that_takes_long_does_not_keep_the_disk_from_being_looked_at(cleaned: Cleaned, monkeypatch):
    store = cleaned.store
    await cleaned.first_looks()
    fill(store, 21)
    removing, go_on = threading.Event(), threading.Event()
    unlink = LocalFileSystem.unlink

    def wait(self: LocalFileSystem, path: Path) -> None:
        removing.set()
        assert go_on.wait(60)
        unlink(self, path)

    monkeypatch.setattr(LocalFileSystem, "unlink", wait)
    store.queues.correct_min_offsets(5 * LOG_FILE)
    cleaning = asyncio.ensure_future(cleaned.service.clean_expired_consume_queue())
    await until(removing.is_set)

    await refused_and_taken_again(cleaned)

    assert not cleaning.done()
    go_on.set()
    await cleaning


async def test_a_stop_in_the_middle_leaves_a_store_that_opens(tmp_path: Path, monkeypatch):
    for module in (clean_files_service, disk_watch):
        monkeypatch.setattr(module, "TICK_S", 0.01)
    clock = FakeClock()
    store = small_store(tmp_path, clock, delete_commit_log_files_interval=60_000)
    await store.start()
    fill(store, 12)
    for number in range(3):
        age(store, clock, number, 73)
    service = CleanFilesService(store, clock, Losses(), SaidDisk(80.0))
    await service.start()
    await until(lambda: len(store.commit_log.queue.files) == 3)

    await service.stop()
    await store.stop()

    again = small_store(tmp_path, clock)
    await again.start()
    assert (again.queues.min_offset_in_queue("T", 0), again.queues.max_offset_in_queue("T", 0)) == (3, 12)
    await again.stop()
