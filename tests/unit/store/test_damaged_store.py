"""Damage costs the messages it hit and no other, if all was on disk for certain; file and position are reported."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketbroker.codec.message.message_const import TRANSACTION_PREPARED_TYPE
from rocketbroker.common.file_system import LocalFileSystem
from tests.support.commit_log_writer import overwrite
from tests.support.filled_store import (
    BODY,
    COUNT,
    QUEUES,
    Filled,
    check,
    flipped_in_the_body,
    flipped_in_the_head,
    flushed,
    log_file,
    opened,
    serves_all_but,
    stopped,
    strange_size,
    told,
    zeroed,
)
from tests.support.stores import LOG_FILE, crash_copy, message, read_queue

pytestmark = pytest.mark.in_memory


def another_offset(path: Path, position: int, size: int) -> None:
    overwrite(path, position + 35, b"\x01")


DAMAGES = [zeroed, flipped_in_the_head, strange_size, another_offset]

Damage = Callable[[Path, int, int], None]


@pytest.mark.proves("Damage", "the log")
@pytest.mark.parametrize("damage", [*DAMAGES, flipped_in_the_body])
@pytest.mark.parametrize("number", [0, 100, COUNT - 10])
async def test_damage_after_a_clean_stop_takes_one_message_only(
    filled: Filled, tmp_path: Path, damage: Damage, number: int
):
    root = await stopped(filled, tmp_path)
    damage(*log_file(root, filled.offsets[number]), filled.sizes[number])

    store = await opened(root, filled)

    serves_all_but(store, filled, {number})
    await store.stop()


@pytest.mark.parametrize("damage", [*DAMAGES, flipped_in_the_body])
@pytest.mark.parametrize("count", [1, 4])
async def test_damage_of_the_last_messages_after_a_clean_stop_leaves_their_offsets_taken(
    filled: Filled, tmp_path: Path, damage: Damage, count: int
):
    root = await stopped(filled, tmp_path)
    lost = set(range(COUNT - count, COUNT))
    for number in lost:
        damage(*log_file(root, filled.offsets[number]), filled.sizes[number])

    store = await opened(root, filled)

    serves_all_but(store, filled, lost)
    assert told(store, filled, COUNT - 1)
    result = store.appender.put_message(message(b"after"))
    assert (result.physical_offset, result.queue_offset) == (filled.log_end, len(range(0, COUNT, QUEUES)))
    await store.stop()
    store = await opened(root, filled)
    assert store.commit_log.record(filled.log_end) is not None
    await store.stop()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("clean", [True, False])
async def test_rebuilt_queues_keep_the_offsets_of_messages_that_the_log_lost(
    filled: Filled, tmp_path: Path, damage: Damage, clean: bool
):
    root = await stopped(filled, tmp_path)
    shutil.rmtree(root / "consumequeue")
    if not clean:
        (root / "abort").write_text("1")
    lost = {50, 51, 52, 53, 120, COUNT - 40}
    for number in lost:
        damage(*log_file(root, filled.offsets[number]), filled.sizes[number])

    store = await opened(root, filled)

    serves_all_but(store, filled, lost)
    assert all(told(store, filled, number) for number in lost)
    await store.stop()


@pytest.mark.proves("Damage", "the log")
@pytest.mark.parametrize("damage", DAMAGES)
async def test_damage_before_the_checkpoint_takes_one_message_only(filled: Filled, tmp_path: Path, damage: Damage):
    root = flushed(filled, tmp_path)
    number = next(n for n in range(COUNT - 32, 0, -1) if filled.offsets[n] % LOG_FILE > 9000)
    damage(*log_file(root, filled.offsets[number]), filled.sizes[number])

    store = await opened(root, filled)

    serves_all_but(store, filled, {number})
    assert told(store, filled, number)
    assert store.recovery_report.cut_off == ""
    await store.stop()


@pytest.mark.proves("When the store is opened", "2. torn tail")
@pytest.mark.parametrize("damage", [*DAMAGES, flipped_in_the_body])
async def test_the_first_damage_after_the_checkpoint_ends_the_log(filled: Filled, tmp_path: Path, damage: Damage):
    root = flushed(filled, tmp_path)
    number = COUNT - 20
    damage(*log_file(root, filled.offsets[number]), filled.sizes[number])

    store = await opened(root, filled)

    serves_all_but(store, filled, set(), number)
    assert store.recovery_report.corrupt_ranges == []
    await store.stop()


@pytest.mark.proves("When the store is opened", "2. torn tail")
async def test_what_is_unknown_begins_with_a_message_and_not_with_a_file(filled: Filled, tmp_path: Path):
    root = flushed(filled, tmp_path)

    store = await opened(root, filled)

    assert store.recovery_report.checked_from == filled.offsets[COUNT - 30]
    assert store.recovery_report.dispatched == 30
    await store.stop()


@pytest.mark.proves("When a sync fails", "files after an unclean stop")
async def test_what_was_not_known_to_be_on_disk_is_rewritten_and_synced(filled: Filled, tmp_path: Path, monkeypatch):
    root = flushed(filled, tmp_path)
    written: list[tuple[int, int]] = []
    write = LocalFileSystem.write

    def note(self: LocalFileSystem, fd: int, position: int, data: bytes) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.parent.name == "commitlog":
            written.append((int(path.name) + position, int(path.name) + position + len(data)))
        write(self, fd, position, data)

    store = await opened(root, filled)

    assert store.flusher.flushed_offset == filled.offsets[COUNT - 30]
    monkeypatch.setattr(LocalFileSystem, "write", note)
    store.flusher.flush()
    assert store.flusher.flushed_offset == filled.log_end
    covered = {at for start, end in written for at in range(start, end)}
    assert covered >= set(range(filled.offsets[COUNT - 30], filled.log_end))
    await store.stop()


async def test_half_messages_after_the_last_queued_one_stay_after_a_clean_stop(filled: Filled, tmp_path: Path):
    halves = [
        filled.store.appender.put_message(message(bytes(BODY), sys_flag=TRANSACTION_PREPARED_TYPE)) for _ in range(99)
    ]
    assert halves[-1].physical_offset // LOG_FILE > filled.offsets[-1] // LOG_FILE
    root = await stopped(filled, tmp_path)

    store = await opened(root, filled)

    assert store.commit_log.max_offset == halves[-1].physical_offset + halves[-1].size
    assert store.commit_log.record(halves[-1].physical_offset) is not None
    assert store.recovery_report.damage == []
    await store.stop()


async def test_after_a_clean_stop_the_log_is_not_walked_through(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)

    store = await opened(root, filled)

    assert store.recovery_report.checked_from == filled.offsets[-1]
    await store.stop()


async def test_records_after_a_hole_of_the_unknown_part_are_reported(filled: Filled, killed: Path):
    path, at = log_file(killed, filled.offsets[200])
    zeroed(path, at, 100)

    store = await opened(killed, filled)

    why = "nothing is written there, though records follow"
    assert store.recovery_report.cut_off == f"{path}: cut off at {at}: {why}"
    assert store.recovery_report.end_of_log == filled.offsets[200]
    await store.stop()


@pytest.mark.proves("The steps of a message", "1. files in order")
async def test_a_file_that_lost_its_content_ends_the_log_before_a_later_one(filled: Filled, killed: Path):
    path, _ = log_file(killed, filled.offsets[200])
    begin = int(path.name)
    number = next(number for number, offset in enumerate(filled.offsets) if offset >= begin)
    assert filled.log_end > begin + LOG_FILE
    zeroed(path, 0, LOG_FILE)

    store = await opened(killed, filled)

    why = "nothing is written there, though records follow"
    assert store.recovery_report.cut_off == f"{path}: cut off at 0: {why}"
    assert store.recovery_report.end_of_log == begin
    assert [len(read_queue(store, "Topic", queue_id)) for queue_id in range(QUEUES)] == [
        len(range(queue_id, number, QUEUES)) for queue_id in range(QUEUES)
    ]
    await store.stop()


async def test_messages_that_queues_led_to_and_the_log_has_lost_are_reported(filled: Filled, killed: Path):
    path, at = log_file(killed, filled.offsets[COUNT - 5])
    overwrite(path, at, bytes(LOG_FILE - at))

    store = await opened(killed, filled)

    why = f"nothing is written there, though queues lead up to {filled.log_end}"
    assert store.recovery_report.cut_off == f"{path}: cut off at {at}: {why}"
    await store.stop()


async def test_older_records_after_the_end_of_a_log_do_not_belong_to_it(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    path, end = log_file(root, filled.log_end)
    stale = bytearray(path.read_bytes()[: filled.sizes[0]])
    stale[:] = (root / "commitlog" / f"{0:020d}").read_bytes()[: filled.sizes[0]]
    stale[28:36] = (filled.log_end + 50).to_bytes(8, "big")
    overwrite(path, end, b"rest of an older record".ljust(50, b"x") + stale)

    store = await opened(root, filled)

    serves_all_but(store, filled, set())
    assert f"{path}: cut off at {end}" in store.recovery_report.cut_off
    await store.stop()


@pytest.mark.parametrize(
    ("position", "data"),
    [
        (12, b"\xff"),  # a negative queue
        (20, b"\x40"),  # a queue offset that no file's name can bear
        (24, b"\x01"),  # one that is far away
        (26, b"\x01"),  # one that is near
        (88 + 6 + BODY + 1, b"/"),  # a topic that is no folder's name
        (88 + 6 + BODY + 1, b"\xff"),  # one that is no text
    ],
)
@pytest.mark.parametrize("number", [0, 121, COUNT - 1])
async def test_wrong_numbers_in_a_record_hurt_no_other_when_queues_are_rebuilt(
    filled: Filled, tmp_path: Path, position: int, data: bytes, number: int
):
    root = await stopped(filled, tmp_path)
    shutil.rmtree(root / "consumequeue")
    path, start = log_file(root, filled.offsets[number])
    overwrite(path, start + position, data)

    store = await opened(root, filled)

    for other in set(range(COUNT)) - {number}:
        queue = store.queues.find("Topic", other % QUEUES)
        assert queue
        assert (queue.entry(other // QUEUES) or ())[:2] == (filled.offsets[other], filled.sizes[other]), other
    await store.stop()


@pytest.mark.proves("When the store is opened", "3. index")
async def test_the_index_is_cut_where_it_is_unknown_and_entered_again(filled: Filled, tmp_path: Path):
    root = flushed(filled, tmp_path)

    store = await check(root, filled)

    assert store.recovery_report.index_entries_cut == 30 * 4  # unique id, two keys, tags
    assert store.recovery_report.dispatched == 30
    await store.stop()


async def test_an_index_that_was_synced_before_the_queues_is_entered_again_from_there(filled: Filled, tmp_path: Path):
    flushed(filled, tmp_path)
    checkpoint = filled.store.checkpoint
    checkpoint.layout = checkpoint.layout._replace(index_msg_timestamp=filled.clock.time_ms() - 4000)
    checkpoint.save()
    root = crash_copy(filled.root, tmp_path / "killed")

    store = await check(root, filled)

    report = store.recovery_report
    assert (report.index_entries_cut, report.dispatched) == (70 * 4, 70)
    assert report.checked_from == filled.offsets[COUNT - 30]
    await store.stop()


async def test_the_index_reaches_the_disk_beside_the_queues(filled: Filled, tmp_path: Path):
    filled.store.flusher.flush()
    filled.store.queue_flusher.flush()
    assert filled.store.checkpoint.layout.index_msg_timestamp == filled.clock.time_ms()
