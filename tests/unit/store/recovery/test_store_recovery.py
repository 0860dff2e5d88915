"""Opening of a store after each kind of end: what is found and repaired."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketbroker.common.errors import StoreError, StoreFullError
from rocketbroker.common.file_system import LOCAL
from rocketbroker.store.dispatch.commit_log_dispatcher import NoListener
from rocketbroker.store.index.index_file import IndexFile
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.recovery import loaded_store
from rocketbroker.store.recovery.loaded_store import RebuildNote
from rocketbroker.store.recovery.queue_recovery import QUEUE_ENDS_FILE
from tests.support.commit_log_writer import overwrite
from tests.support.filled_store import (
    BODY,
    COUNT,
    QUEUES,
    Filled,
    check,
    flipped_in_the_body,
    flipped_in_the_head,
    log_file,
    stopped,
    strange_size,
    zeroed,
)
from tests.support.recording_file_system import RecordingFileSystem
from tests.support.stores import (
    ALWAYS,
    LOG_FILE,
    QUEUE_FILE,
    V4_HOST,
    crash_copy,
    make_store,
    message,
    read_queue,
    store_config,
)

pytestmark = pytest.mark.in_memory


async def test_after_a_clean_stop_nothing_is_dispatched_again(filled: Filled, caplog):
    caplog.set_level("INFO")
    await filled.store.stop()
    assert not (filled.root / "abort").exists()

    store = await check(filled.root, filled)

    assert "after a clean stop" in caplog.text
    assert " 0 messages dispatched again" in caplog.text
    await store.stop()
    filled.store = store


@pytest.mark.parametrize("properties", [{}, {"KEYS": "k"}])
async def test_messages_without_keys_are_not_looked_through_for_keys_at_each_start(
    tmp_path: Path, properties: dict[str, str]
):
    store = make_store(tmp_path)
    await store.start()
    for number in range(3):
        store.appender.put_message(message(b"%d" % number))
    await store.stop()

    again = make_store(tmp_path)
    await again.start()
    assert again.recovery_report.dispatched == 0
    again.appender.put_message(message(b"3", properties=properties))
    await again.stop()

    last = make_store(tmp_path)
    await last.start()
    assert last.recovery_report.dispatched == 0
    assert len((await last.queries.query_message("Topic", "k", 9, 0, ALWAYS)).records) == bool(properties)
    await last.stop()


async def test_after_a_kill_all_is_there(filled: Filled, killed: Path, caplog):
    assert (killed / "abort").exists()

    store = await check(killed, filled)

    assert "after an unclean stop" in caplog.text
    await store.stop()
    assert not (killed / "abort").exists()


async def test_messages_that_were_not_dispatched_before_a_kill(filled: Filled, tmp_path: Path):
    for number in range(COUNT, COUNT + 20):
        filled.put(number)
    root = crash_copy(filled.root, tmp_path / "undispatched")

    store = await check(root, filled, COUNT + 20)

    await store.stop()


@pytest.mark.proves("When the store is opened", "1. `abort`")
async def test_a_second_kill_right_after_the_first(filled: Filled, killed: Path, tmp_path: Path):
    store = make_store(killed, filled.clock)
    await store.start()
    again = crash_copy(killed, tmp_path / "again")
    await store.stop()

    store = await check(again, filled)

    await store.stop()


async def test_a_kill_after_a_start_adds_nothing_to_what_is_not_known_to_be_on_disk(
    filled: Filled, killed: Path, tmp_path: Path
):
    store = make_store(killed, filled.clock)
    await store.start()
    assert store.recovery_report.checked_from == 0
    store.flusher.flush()
    store.queue_flusher.flush()
    again = crash_copy(killed, tmp_path / "again")
    await store.stop()

    store = await check(again, filled)

    assert store.recovery_report.checked_from > 0
    await store.stop()


async def test_what_an_index_has_no_room_for_is_rebuilt_by_a_later_start(
    filled: Filled, killed: Path, tmp_path: Path, monkeypatch
):
    note = RebuildNote(killed / "config" / loaded_store.REBUILD_NOTE_FILE, LOCAL)
    note.write(0)
    full = make_store(killed, filled.clock)
    with monkeypatch.context() as patched:
        patched.setattr(IndexFile, "put_keys", refuse)
        await full.start()
        again = crash_copy(killed, tmp_path / "again")
        assert (again / "config" / loaded_store.REBUILD_NOTE_FILE).exists()
        await full.stop()

    store = await check(again, filled)

    assert not (again / "config" / loaded_store.REBUILD_NOTE_FILE).exists()
    await store.stop()


def refuse(*_: object) -> None:
    raise StoreFullError("no room")


def torn(path: Path, position: int, size: int) -> None:
    overwrite(path, position + size // 2, bytes(size - size // 2))


def negative_size(path: Path, position: int, size: int) -> None:
    overwrite(path, position, b"\xff\xff\xff\xff")


DAMAGES = [torn, zeroed, flipped_in_the_body, flipped_in_the_head, strange_size, negative_size]


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("number", [COUNT - 1, COUNT - 10, 0])
async def test_damage_cuts_the_log_there(
    filled: Filled, killed: Path, damage: Callable[[Path, int, int], None], number: int
):
    if number == 0:
        # Without it the log is checked from its beginning.
        (killed / "checkpoint").unlink(missing_ok=True)
    damage(*log_file(killed, filled.offsets[number]), filled.sizes[number])

    store = await check(killed, filled, number)

    await store.stop()
    store = make_store(killed, filled.clock)
    await store.start()
    assert store.queues.max_offset_in_queue("Topic", 0) == len(range(0, number, QUEUES)) + 1
    await store.stop()


async def test_the_cut_is_reported(filled: Filled, killed: Path, caplog):
    path, position = log_file(killed, filled.offsets[-1])
    overwrite(path, position + 200, b"\x01")

    store = await check(killed, filled, COUNT - 1)

    assert f"{path}: cut off at {position}" in caplog.text
    assert "bodyCRC" in caplog.text
    await store.stop()


@pytest.mark.proves("When the store is opened", "2. torn tail")
async def test_stale_bytes_after_the_cut_are_never_read_again(filled: Filled, killed: Path):
    path, position = log_file(killed, filled.offsets[-3])
    overwrite(path, position + 200, b"\x01")
    store = make_store(killed, filled.clock)
    await store.start()
    # A message of the same size ends where the next stale one began.
    result = store.appender.put_message(
        message(
            b"%06d" % 0 + bytes(BODY),
            queue_id=(COUNT - 3) % QUEUES,
            properties={"UNIQ_KEY": f"U{COUNT - 3}", "KEYS": f"k{COUNT - 3} all", "TAGS": "t0"},
        )
    )
    assert result.size == filled.sizes[-3]
    again = crash_copy(killed, killed.parent / "again")
    await store.stop()

    store = make_store(again, filled.clock)
    await store.start()

    assert store.commit_log.max_offset == result.physical_offset + result.size
    assert store.commit_log.record(filled.offsets[-2]) is None
    await store.stop()


@pytest.mark.proves("When the store is opened", "3. index")
async def test_keys_of_messages_that_were_cut_off_never_lead_to_others(filled: Filled, tmp_path: Path):
    await filled.store.stop()
    root = crash_copy(filled.root, tmp_path / "damaged")
    (root / "abort").write_text("1")
    (root / "config" / QUEUE_ENDS_FILE).unlink()
    zeroed(*log_file(root, filled.offsets[-1]), filled.sizes[-1])

    store = await check(root, filled, COUNT - 1)

    assert store.commit_log.record(filled.offsets[-1]) is not None
    assert (await store.queries.query_message("Topic", f"k{COUNT - 1}", 9, 0, ALWAYS)).records == []
    assert len((await store.queries.query_message("Topic", f"k{COUNT - 2}", 9, 0, ALWAYS)).records) == 1
    await store.stop()
    filled.store = store


@pytest.mark.proves("When the store is opened", "5. rebuilt")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("folders", [["consumequeue"], ["index"], ["consumequeue", "index"]], ids="+".join)
async def test_missing_folders_are_rebuilt(filled: Filled, killed: Path, folders: list[str], clean: bool):
    for folder in folders:
        shutil.rmtree(killed / folder)
    if clean:
        (killed / "abort").unlink()

    store = await check(killed, filled)

    await store.stop()


@pytest.mark.proves("When the store is opened", "3. queues")
async def test_queues_ahead_of_the_log_are_cut_to_it(filled: Filled, killed: Path):
    for number in range(COUNT - 30, COUNT):
        zeroed(*log_file(killed, filled.offsets[number]), filled.sizes[number])

    store = await check(killed, filled, COUNT - 30, indexed=False)

    await store.stop()


async def test_a_log_that_is_gone_leaves_empty_queues(filled: Filled, killed: Path):
    shutil.rmtree(killed / "commitlog")

    store = await check(killed, filled, 0)

    await store.stop()


async def test_first_files_that_are_gone_move_the_beginning(filled: Filled, killed: Path):
    (killed / "commitlog" / f"{0:020d}").unlink()
    left = [number for number in range(COUNT) if filled.offsets[number] >= LOG_FILE]

    store = make_store(killed, filled.clock)
    await store.start()

    assert store.commit_log.min_offset == LOG_FILE
    for queue_id in range(QUEUES):
        first = store.queues.min_offset_in_queue("Topic", queue_id)
        assert [one.body[:6] for one in read_queue(store, "Topic", queue_id, first)] == [
            b"%06d" % number for number in left if number % QUEUES == queue_id
        ]
    await store.stop()


async def test_files_of_another_size_are_an_error_that_names_the_setting(filled: Filled, killed: Path):
    # The lock is given back each time.
    for size in (LOG_FILE * 2, LOG_FILE // 2, LOG_FILE + 4096):
        with pytest.raises(
            StoreError, match=f"has {LOG_FILE} bytes, but .* set to {size}; set mappedFileSizeCommitLog"
        ):
            await make_store(killed, filled.clock, mapped_file_size_commit_log=size).start()


async def test_with_a_checkpoint_only_what_follows_it_is_checked(filled: Filled, tmp_path: Path, caplog):
    filled.store.flusher.flush()
    filled.store.queue_flusher.flush()
    filled.store.checkpoint.advance(index_msg_timestamp=filled.clock.time_ms())
    filled.store.checkpoint.save()
    root = crash_copy(filled.root, tmp_path / "flushed")

    store = await check(root, filled)

    files = len(list((root / "commitlog").iterdir()))
    assert files > 3
    assert "checked from offset 0," not in caplog.text
    await store.stop()


async def test_a_restart_without_a_message_keeps_the_checkpoint(filled: Filled, tmp_path: Path, caplog):
    await filled.store.stop()
    for _ in range(2):
        idle = make_store(filled.root, filled.clock)
        await idle.start()
        idle.flusher.flush()
        idle.queue_flusher.flush()
        await idle.stop()
    store = make_store(filled.root, filled.clock)
    await store.start()
    root = crash_copy(filled.root, tmp_path / "killed")
    await store.stop()

    store = await check(root, filled)

    assert "checked from offset 0," not in caplog.text
    await store.stop()
    filled.store = store


@pytest.mark.proves("When the store is opened", "3. queues")
@pytest.mark.parametrize(("first", "count"), [(0, 1), (10, 5), (40, 43), (70, 14), (83, 1)])
async def test_a_power_loss_that_takes_pages_of_a_queue_leaves_no_hole(
    filled: Filled, killed: Path, first: int, count: int
):
    folder = killed / "consumequeue" / "Topic" / "0"
    for number in range(first, first + count):
        path = folder / f"{number * 20 // QUEUE_FILE * QUEUE_FILE:020d}"
        overwrite(path, number * 20 % QUEUE_FILE, bytes(20))

    store = await check(killed, filled)

    await store.stop()


@pytest.mark.proves("When the store is opened", "3. queues")
async def test_entries_before_the_checkpoint_are_kept_and_later_ones_rebuilt(filled: Filled, tmp_path: Path, caplog):
    caplog.set_level("INFO")
    filled.store.flusher.flush()
    filled.store.queue_flusher.flush()
    filled.store.checkpoint.advance(index_msg_timestamp=filled.clock.time_ms())
    filled.store.checkpoint.save()
    root = crash_copy(filled.root, tmp_path / "killed")
    # The last file that began before the checkpoint, less its three seconds.
    path = root / "consumequeue" / "Topic" / "1" / f"{QUEUE_FILE:020d}"
    overwrite(path, QUEUE_FILE - 40 * 20, bytes(20))

    store = await check(root, filled)

    (text,) = [record.message for record in caplog.records if "after an unclean stop" in record.message]
    assert "CommitLog checked from offset 0" not in text
    await store.stop()


@pytest.mark.proves("When the store is opened", "3. topics that were deleted")
@pytest.mark.parametrize("again", [1, 3, 9])
async def test_a_topic_that_was_deleted_and_made_again_has_its_new_messages_after_a_kill(tmp_path: Path, again: int):
    store = make_store(tmp_path / "store")
    await store.start()
    for number in range(5):
        store.appender.put_message(message(b"old %d" % number))
        store.appender.put_message(message(b"other %d" % number, "Other"))
    store.appender.dispatch()
    assert await store.deletion.delete_topics({"Topic"}) == 1
    for number in range(again):
        store.appender.put_message(message(b"new %d" % number))
    store.appender.dispatch()
    root = crash_copy(tmp_path / "store", tmp_path / "killed")
    await store.stop()

    store = make_store(root)
    await store.start()

    assert [one.body for one in read_queue(store, "Topic", 0)] == [b"new %d" % number for number in range(again)]
    assert [one.body for one in read_queue(store, "Other", 0)] == [b"other %d" % number for number in range(5)]
    assert store.appender.put_message(message()).queue_offset == again
    await store.stop()


def without_the_first_file_of_a_queue(root: Path) -> None:
    (root / "consumequeue" / "Topic" / "1" / f"{0:020d}").unlink()


def with_a_queue_file_cut_short(root: Path) -> None:
    os.truncate(root / "consumequeue" / "Topic" / "1" / f"{QUEUE_FILE:020d}", 20)


def with_a_foreign_file_of_a_queue(root: Path) -> None:
    (root / "consumequeue" / "Topic" / "1" / "core").write_text("dump")


def with_an_index_file_cut_short(root: Path) -> None:
    os.truncate(min((root / "index").iterdir()), 20)


def with_a_log_file_cut_short(root: Path) -> None:
    os.truncate(root / "commitlog" / f"{0:020d}", 4096)


def with_a_damaged_checkpoint(root: Path) -> None:
    (root / "checkpoint").write_bytes(b"short")


@pytest.mark.proves("When the store is opened", "1. `abort`")
@pytest.mark.parametrize(
    "damage",
    [
        without_the_first_file_of_a_queue,
        with_a_queue_file_cut_short,
        with_a_foreign_file_of_a_queue,
        with_an_index_file_cut_short,
        with_a_log_file_cut_short,
        with_a_damaged_checkpoint,
    ],
)
async def test_the_note_and_then_the_abort_file_are_there_before_anything_is_changed(
    filled: Filled, tmp_path: Path, damage: Callable[[Path], None]
):
    root = await stopped(filled, tmp_path)
    damage(root)
    file_system = RecordingFileSystem(root)
    abort, note = root / "abort", root / "config" / loaded_store.REBUILD_NOTE_FILE
    early: list[tuple[str, Path]] = []
    noted: list[bool] = []

    def look(operation: str, path: Path) -> None:
        if abort.exists():
            return
        if path == abort:
            noted.append(note.exists())
        elif operation in {"write", "set_size", "rename", "unlink", "remove_folder"}:
            early.append((operation, path))

    file_system.fault = look
    store = MessageStore(store_config(root), V4_HOST, NoListener(), filled.clock, file_system)
    await store.start()

    assert [each for each in early if each[1] != root / "lock" and each[1].parent != note.parent] == []
    assert noted == [True]
    assert store.recovery_report.damage
    await store.stop()
