"""Entries at the end of a queue that are damaged are rebuilt, and never say where the log ends."""

import shutil
from pathlib import Path

import pytest

from rocketbroker.codec.storefile.consume_queue_layout import BATCH_ENTRY, ENTRY
from rocketbroker.store.queue.queue_ends import FILE_NAME
from tests.support.commit_log_writer import overwrite
from tests.support.filled_store import COUNT, QUEUES, Filled, check, log_file, opened, serves_all_but, stopped, zeroed
from tests.support.stores import LOG_FILE, QUEUE_FILE, crash_copy, inner_batch, make_store, message

pytestmark = pytest.mark.in_memory

LAST = COUNT - 1
LAST_QUEUE = LAST % QUEUES
GARBLED = [(5, 0x7FFFFF00), (5, 800), (1 << 40, 800), (-1, 800), (1 << 13, 90), (-(1 << 15), 800), (-(1 << 62), 800)]


def overwrite_entries(root: Path, queue_id: int, first: int, data: bytes) -> None:
    """Write over entries of a queue of the topic."""
    at = first * ENTRY.size
    path = root / "consumequeue" / "Topic" / str(queue_id) / f"{at - at % QUEUE_FILE:020d}"
    overwrite(path, at % QUEUE_FILE, data)


def commit_log_files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "commitlog").iterdir())


@pytest.mark.parametrize(("moved", "size"), GARBLED)
@pytest.mark.parametrize("number", [LAST, LAST - 2])
@pytest.mark.parametrize("with_ends", [True, False])
async def test_a_damaged_last_entry_is_rebuilt_and_reported(
    filled: Filled, tmp_path: Path, moved: int, size: int, number: int, with_ends: bool
):
    root = await stopped(filled, tmp_path)
    files = commit_log_files(root)
    if not with_ends:
        (root / "config" / FILE_NAME).unlink()
    entry = ENTRY.pack(filled.offsets[number] + moved, size, 0)
    overwrite_entries(root, number % QUEUES, number // QUEUES, entry)

    store = await check(root, filled)

    (told,) = store.recovery_report.damage
    assert f" of queue {number % QUEUES} of Topic " in told
    assert told.endswith("rebuilt")
    assert set(commit_log_files(root)) <= {*files, f"{int(files[-1]) + LOG_FILE:020d}"}, "the next one is made ahead"
    await store.stop()


@pytest.mark.parametrize(
    "bit", [pytest.param(bit, marks=[] if bit % 8 in {0, 7} else [pytest.mark.soak]) for bit in range(64)]
)
async def test_a_flipped_bit_in_the_offset_of_the_last_entry_loses_no_message(filled: Filled, tmp_path: Path, bit: int):
    root = await stopped(filled, tmp_path)
    offset = int.from_bytes((filled.offsets[LAST] ^ 1 << bit).to_bytes(8, "big"), "big", signed=True)
    entry = ENTRY.pack(offset, filled.sizes[LAST], 0)
    overwrite_entries(root, LAST_QUEUE, LAST // QUEUES, entry)

    store = await check(root, filled)

    assert len(store.recovery_report.queues_rebuilt) == 1
    await store.stop()
    again = await check_again(root, filled)
    assert again == []


async def check_again(root: Path, filled: Filled) -> list[str]:
    """Start again and return the findings."""
    store = await opened(root, filled)
    serves_all_but_what_was_put_since = store.queues.max_offset_in_queue("Topic", 0) == len(range(0, COUNT, QUEUES)) + 1
    assert serves_all_but_what_was_put_since
    damage = store.recovery_report.damage
    await store.stop()
    return damage


@pytest.mark.parametrize("count", [2, 5, 20])
@pytest.mark.parametrize("with_ends", [True, False])
async def test_noise_at_the_end_of_a_queue_is_rebuilt(filled: Filled, tmp_path: Path, count: int, with_ends: bool):
    root = await stopped(filled, tmp_path)
    if not with_ends:
        (root / "config" / FILE_NAME).unlink()
    noise = b"\x13\x57\x9b" * (count * ENTRY.size)
    overwrite_entries(root, LAST_QUEUE, LAST // QUEUES + 1 - count, noise[: count * ENTRY.size])

    store = await check(root, filled)

    assert len(store.recovery_report.queues_rebuilt) == 1
    await store.stop()


@pytest.mark.parametrize(("moved", "size"), GARBLED)
async def test_a_damaged_entry_that_is_known_to_be_on_disk_is_rebuilt_after_a_kill(
    filled: Filled, tmp_path: Path, moved: int, size: int
):
    store = await opened(await stopped(filled, tmp_path), filled)
    root = crash_copy(Path(store.config.store_path_root_dir), tmp_path / "killed")
    await store.stop()
    overwrite_entries(root, LAST_QUEUE, LAST // QUEUES, ENTRY.pack(filled.offsets[LAST] + moved, size, 0))

    store = await check(root, filled)

    await store.stop()


async def test_entries_whose_messages_a_power_loss_took_have_nothing_before_them_looked_through(
    filled: Filled, tmp_path: Path
):
    filled.store.appender.put_message(message(topic="Seldom"))
    filled.put(COUNT)
    filled.store.appender.dispatch()
    store = await opened(await stopped(filled, tmp_path), filled)
    lost = store.appender.put_message(message(b"lost", "Seldom"))
    store.appender.dispatch()
    root = crash_copy(Path(store.config.store_path_root_dir), tmp_path / "killed")
    await store.stop()
    zeroed(*log_file(root, lost.physical_offset), lost.size)

    store = await opened(root, filled)

    assert store.recovery_report.dispatched == 0
    assert store.appender.put_message(message(topic="Seldom")).queue_offset == 1
    await store.stop()


async def test_an_entry_whose_message_the_log_has_lost_says_where_the_log_ended(filled: Filled, tmp_path: Path):
    """Nothing else does, since another broker stopped the store."""
    root = await stopped(filled, tmp_path)
    (root / "config" / FILE_NAME).unlink()
    zeroed(*log_file(root, filled.offsets[LAST]), filled.sizes[LAST])

    store = await opened(root, filled)

    serves_all_but(store, filled, {LAST})
    await store.stop()


async def test_entries_say_nothing_beyond_the_file_of_the_last_sound_record(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    (root / "config" / FILE_NAME).unlink()
    path, position = log_file(root, filled.offsets[LAST])
    zeroed(path, position, filled.sizes[LAST])
    overwrite_entries(root, LAST_QUEUE, LAST // QUEUES, ENTRY.pack(int(path.name) + LOG_FILE, 800, 0))

    store = await opened(root, filled)

    assert store.commit_log.max_offset <= int(path.name) + LOG_FILE
    assert store.queues.max_offset_in_queue("Topic", LAST_QUEUE) == LAST // QUEUES + 1
    await store.stop()


async def test_used_offsets_behind_the_last_message_lead_to_no_damage(filled: Filled, tmp_path: Path):
    queue = filled.store.queues.find("Topic", LAST_QUEUE)
    assert queue
    queue.go_on_at(queue.max_offset + 2)
    assert queue.message_end(queue.max_offset - 1) == filled.log_end
    root = await stopped(filled, tmp_path)

    store = await opened(root, filled)

    assert store.recovery_report.damage == []
    assert store.recovery_report.dispatched == 0
    assert store.appender.put_message(message(queue_id=LAST_QUEUE)).queue_offset == LAST // QUEUES + 3
    killed = crash_copy(root, tmp_path / "killed")
    await store.stop()
    store = await opened(killed, filled)
    assert store.recovery_report.corrupt_ranges == []
    await store.stop()


BATCH = BATCH_ENTRY.size


async def batches(root: Path) -> int:
    """Make a store with batches and stop it; gives the CommitLog offset of the last one."""
    store = make_store(root, batch_topics=["Batches"])
    await store.start()
    for number in range(5):
        result = store.appender.put_inner_batch(inner_batch(b"%d" % number, b"more"), 2)
        store.appender.dispatch()
    await store.stop()
    return result.physical_offset


@pytest.mark.parametrize(("moved", "size"), GARBLED)
@pytest.mark.parametrize("with_ends", [True, False])
async def test_a_damaged_last_entry_of_batches_is_rebuilt_and_reported(
    tmp_path: Path, moved: int, size: int, with_ends: bool
):
    root = tmp_path / "store"
    last = await batches(root)
    if not with_ends:
        (root / "config" / FILE_NAME).unlink()
    files = commit_log_files(root)
    path = root / "batchconsumequeue" / "Batches" / "0" / f"{0:020d}"
    entry = path.read_bytes()[4 * BATCH : 5 * BATCH]
    path_size = path.stat().st_size
    overwrite(path, 4 * BATCH, ENTRY.pack(last + moved, size, 0)[:12] + entry[12:])
    assert path.stat().st_size == path_size

    store = make_store(root, batch_topics=["Batches"])
    await store.start()

    assert store.queues.max_offset_in_queue("Batches", 0) == 10
    queue = store.queues.find("Batches", 0)
    assert queue
    assert queue.message_end(9) > last
    assert store.recovery_report.damage != []
    assert commit_log_files(root) == files
    await store.stop()
    shutil.rmtree(root)
