"""The part of a store that is rebuilt after a kill when the clock was set back shortly before."""

from pathlib import Path

import pytest

from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.recovery import log_recovery
from tests.support.commit_log_writer import overwrite
from tests.support.fakes import FakeClock
from tests.support.stores import ALWAYS, LOG_FILE, crash_copy, make_store, message, read_queue


def put(store: MessageStore, name: bytes, queue_id: int, size: int) -> int:
    """Put a message and dispatch it; return its CommitLog offset."""
    one = message(name + bytes(size), queue_id=queue_id, properties={"UNIQ_KEY": f"U{name.decode()}"})
    result = store.appender.put_message(one)
    store.appender.dispatch()
    return result.physical_offset


def note_on_disk(store: MessageStore) -> None:
    """Sync all parts, and note that in the checkpoint."""
    store.dispatcher.flush_index()
    if store.index_sync is not None:
        store.index_sync.sync()
    store.flusher.flush()
    store.queue_flusher.flush()


async def killed_after_the_clock_was_set_back(folder: Path, clock: FakeClock, *, has_index: bool) -> Path:
    """Store a message that no checkpoint covers, and an older one that begins the next file."""
    store = make_store(folder / "live", clock, message_index_enable=has_index)
    await store.start()
    for queue_id in range(2):
        put(store, b"first", queue_id, 0)
    note_on_disk(store)
    clock.advance(60)
    assert put(store, b"unknown", 1, LOG_FILE // 2) < LOG_FILE
    clock.advance(-120)
    assert put(store, b"older", 0, LOG_FILE // 2) == LOG_FILE
    killed = crash_copy(folder / "live", folder / "killed")
    await store.stop()
    return killed


@pytest.mark.proves("When the store is opened", "2. torn tail")
async def test_no_entry_is_missing_before_a_clock_that_was_set_back(tmp_path: Path) -> None:
    clock = FakeClock()
    killed = await killed_after_the_clock_was_set_back(tmp_path, clock, has_index=False)
    # The power loss took an entry that was not synced.
    overwrite(killed / "consumequeue" / "Topic" / "1" / f"{0:020d}", 20, bytes(20))

    store = make_store(killed, clock, message_index_enable=False)
    await store.start()

    assert [one.body.rstrip(b"\0") for one in read_queue(store, "Topic", 1)] == [b"first", b"unknown"]
    await store.stop()


@pytest.mark.proves("When the store is opened", "3. index")
@pytest.mark.parametrize("name", ["first", "unknown", "older"])
async def test_no_key_is_missing_before_a_clock_that_was_set_back(tmp_path: Path, name: str) -> None:
    clock = FakeClock()
    killed = await killed_after_the_clock_was_set_back(tmp_path, clock, has_index=True)

    store = make_store(killed, clock)
    await store.start()

    found = (await store.queries.query_message("Topic", f"U{name}", 9, 0, ALWAYS)).records
    assert {decode_record(record).body.rstrip(b"\0") for record in found} == {name.encode()}
    await store.stop()


async def test_no_key_that_waited_while_the_index_was_synced_is_missing(tmp_path: Path) -> None:
    clock = FakeClock()
    store = make_store(tmp_path / "live", clock)
    await store.start()
    put(store, b"first", 0, 0)
    note_on_disk(store)
    clock.advance(-60)
    put(store, b"older", 0, 0)
    store.flusher.flush()
    assert store.index_sync is not None
    store.index_sync.sync()
    clock.advance(1)
    assert put(store, b"filler", 0, LOG_FILE - 200) == LOG_FILE
    clock.advance(60)
    put(store, b"later", 0, 0)
    store.flusher.flush()
    store.queue_flusher.flush()
    killed = crash_copy(tmp_path / "live", tmp_path / "killed")
    await store.stop()

    again = make_store(killed, clock)
    await again.start()

    found = (await again.queries.query_message("Topic", "Uolder", 9, 0, ALWAYS)).records
    assert [decode_record(record).body for record in found] == [b"older"]
    await again.stop()


async def test_files_before_the_checkpoint_are_not_checked(tmp_path: Path) -> None:
    clock = FakeClock()
    store = make_store(tmp_path / "live", clock)
    await store.start()
    for number in range(6):
        clock.advance(20)
        put(store, b"%d" % number, 0, LOG_FILE // 2)
    note_on_disk(store)
    killed = crash_copy(tmp_path / "live", tmp_path / "killed")
    await store.stop()
    overwrite(killed / "commitlog" / f"{0:020d}", 0, bytes(200))

    again = make_store(killed, clock)
    await again.start()

    assert again.recovery_report.checked_from == 5 * LOG_FILE
    assert not again.recovery_report.corrupt_ranges
    await again.stop()


async def test_the_whole_log_is_not_searched_for_a_time_that_no_record_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    store = make_store(tmp_path / "live", clock)
    await store.start()
    for number in range(6):
        clock.advance(20)
        put(store, b"%d" % number, 0, LOG_FILE // 2)
    note_on_disk(store)
    later = clock.time_ms() + 60_000
    store.checkpoint.advance(physic_msg_timestamp=later, logics_msg_timestamp=later)
    store.checkpoint.save()
    killed = crash_copy(tmp_path / "live", tmp_path / "killed")
    await store.stop()
    searched: list[int] = []
    has_since = log_recovery._has_since

    def counted(queue: MappedFileQueue, file: MappedFile, time_ms: int) -> bool | None:
        searched.append(file.file_from_offset // LOG_FILE)
        return has_since(queue, file, time_ms)

    monkeypatch.setattr(log_recovery, "_has_since", counted)

    again = make_store(killed, clock)
    await again.start()

    assert [number for number in searched if number < 6] == [5, 4], "a file 6 is prepared and empty"
    assert f"the checkpoint is later ({later} ms) than the last records" in caplog.text
    assert [one.body[:1] for one in read_queue(again, "Topic", 0)] == [b"%d" % number for number in range(6)]
    await again.stop()
