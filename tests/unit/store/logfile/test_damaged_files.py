"""Files that are missing, cut short or foreign: the store opens, serves what is left, and names them."""

import os
from pathlib import Path

import pytest

from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import LOCAL
from rocketbroker.store.logfile.damaged_files import set_aside
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.recovery.queue_recovery import QUEUE_ENDS_FILE
from tests.support.commit_log_writer import overwrite
from tests.support.filled_store import COUNT, Filled, check, flushed, log_file, opened, serves_all_but, stopped
from tests.support.store_audit import check_store
from tests.support.stores import LOG_FILE, QUEUE_FILE, crash_copy, message

pytestmark = pytest.mark.in_memory

CLEAN = pytest.mark.parametrize("clean", [True, False])


async def left(filled: Filled, tmp_path: Path, *, clean: bool) -> Path:
    """The store after a clean stop, or as a kill leaves one that was never flushed."""
    root = await stopped(filled, tmp_path)
    if not clean:
        (root / "abort").write_text("1")
        (root / "checkpoint").unlink()
        (root / "config" / QUEUE_ENDS_FILE).unlink()
    return root


def named(store: MessageStore, path: Path) -> str:
    """Return the report's line about a file."""
    (found,) = [text for text in store.recovery_report.damaged_files if text.startswith(f"{path}: ")]
    return found


def numbers_within(filled: Filled, begin: int, end: int) -> set[int]:
    """Messages any byte of which lies between two offsets."""
    return {n for n in range(COUNT) if filled.offsets[n] < end and filled.offsets[n] + filled.sizes[n] > begin}


@CLEAN
async def test_a_log_file_that_is_gone_from_the_middle_takes_its_messages_only(
    filled: Filled, tmp_path: Path, clean: bool
):
    root = await left(filled, tmp_path, clean=clean)
    path = root / "commitlog" / f"{LOG_FILE:020d}"
    path.unlink()

    store = await opened(root, filled)

    if clean:
        serves_all_but(store, filled, numbers_within(filled, LOG_FILE, 2 * LOG_FILE))
    assert store.commit_log.max_offset == filled.log_end
    assert store.commit_log.record(filled.offsets[-1]) is not None
    assert "was missing" in named(store, path)
    assert store.recovery_report.corrupt_ranges[0][:3] == (path, 0, LOG_FILE)
    assert path.stat().st_size == LOG_FILE
    await store.stop()
    store = await opened(root, filled)
    assert store.commit_log.record(filled.offsets[-1]) is not None
    await store.stop()


async def test_a_kill_after_a_missing_file_was_recreated_does_not_end_the_log_there(filled: Filled, tmp_path: Path):
    root = await left(filled, tmp_path, clean=False)
    (root / "commitlog" / f"{LOG_FILE:020d}").unlink()
    store = await opened(root, filled)
    killed = crash_copy(root, tmp_path / "killed")
    await store.stop()
    (killed / "checkpoint").unlink(missing_ok=True)

    store = await opened(killed, filled)

    serves_all_but(store, filled, numbers_within(filled, LOG_FILE, 2 * LOG_FILE))
    await store.stop()


async def test_rebuilt_queues_keep_offsets_for_the_messages_of_a_missing_file(filled: Filled, tmp_path: Path):
    root = await left(filled, tmp_path, clean=False)
    (root / "commitlog" / f"{LOG_FILE:020d}").unlink()

    store = await opened(root, filled)

    serves_all_but(store, filled, numbers_within(filled, LOG_FILE, 2 * LOG_FILE))
    await store.stop()


@CLEAN
async def test_a_log_file_cut_short_in_the_middle_loses_what_was_cut(filled: Filled, tmp_path: Path, clean: bool):
    root = await left(filled, tmp_path, clean=clean)
    path = root / "commitlog" / f"{LOG_FILE:020d}"
    os.truncate(path, 40_000)

    store = await opened(root, filled)

    serves_all_but(store, filled, numbers_within(filled, LOG_FILE + 40_000, 2 * LOG_FILE))
    assert "had 40000 bytes" in named(store, path)
    assert store.recovery_report.corrupt_ranges[0][:3] == (path, 40_000, LOG_FILE - 40_000)
    await store.stop()


@pytest.mark.parametrize("size", [0, 1, 4096, 9000])
async def test_a_last_log_file_cut_short_after_a_clean_stop_leaves_its_offsets_taken(
    filled: Filled, tmp_path: Path, size: int
):
    root = await stopped(filled, tmp_path)
    for later in sorted((root / "commitlog").iterdir()):
        if int(later.name) > filled.offsets[-1]:
            later.unlink()
    path, _ = log_file(root, filled.offsets[-1])
    os.truncate(path, size)

    store = await opened(root, filled)

    base = int(path.name)
    serves_all_but(store, filled, numbers_within(filled, base + size, base + LOG_FILE))
    assert store.recovery_report.corrupt_ranges
    assert store.appender.put_message(message(b"after")).physical_offset == filled.log_end
    await store.stop()


async def test_a_last_log_file_cut_short_after_the_checkpoint_ends_the_log(filled: Filled, tmp_path: Path):
    root = flushed(filled, tmp_path)
    for later in sorted((root / "commitlog").iterdir()):
        if int(later.name) > filled.offsets[-1]:
            later.unlink()
    path, position = log_file(root, filled.offsets[-5])
    os.truncate(path, position + 100)

    store = await opened(root, filled)

    serves_all_but(store, filled, set(), COUNT - 5)
    assert f"had {position + 100} bytes" in named(store, path)
    await store.stop()


async def test_a_log_that_is_gone_after_a_clean_stop_leaves_its_offsets_taken(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    for path in (root / "commitlog").iterdir():
        path.unlink()

    store = await opened(root, filled)

    serves_all_but(store, filled, set(range(COUNT)))
    assert store.appender.put_message(message(b"after")).queue_offset == 84
    await store.stop()


async def test_foreign_files_beside_the_log_are_named_and_left_alone(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    path = root / "commitlog" / "notes.txt"
    path.write_text("mine")

    store = await check(root, filled)

    assert "left unchanged" in named(store, path)
    assert path.read_text() == "mine"
    await store.stop()


async def test_a_name_far_away_is_rejected(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    (root / "commitlog" / f"{LOG_FILE << 30:020d}").write_bytes(bytes(LOG_FILE))

    with pytest.raises(StoreError, match="files are missing between"):
        await opened(root, filled)
    assert not (root / "abort").exists()


def removed(path: Path) -> None:
    path.unlink()


def shorter(path: Path) -> None:
    os.truncate(path, 100)


def longer(path: Path) -> None:
    os.truncate(path, QUEUE_FILE + 20)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def zeros(path: Path) -> None:
    overwrite(path, 0, bytes(QUEUE_FILE))


@pytest.mark.long
@pytest.mark.proves("Damage", "queue and index files")
@CLEAN
@pytest.mark.parametrize("damage", [removed, shorter, longer, empty])
@pytest.mark.parametrize("number", [0, 1])
async def test_a_damaged_queue_file_is_rebuilt(filled: Filled, tmp_path: Path, damage, number: int, clean: bool):
    root = await left(filled, tmp_path, clean=clean)
    path = root / "consumequeue" / "Topic" / "1" / f"{number * QUEUE_FILE:020d}"
    before = path.read_bytes()
    damage(path)

    store = await check(root, filled)

    assert path.read_bytes()[: 20 * 20] == before[: 20 * 20]
    if clean:
        assert store.recovery_report.damage
    if damage in {shorter, longer}:
        assert path.with_name(f"{path.name}.damaged").exists()
        assert "bytes instead of" in named(store, path)
    await store.stop()
    store = await opened(root, filled)
    assert store.recovery_report.damaged_files == []
    await store.stop()


async def test_a_zeroed_queue_file_before_the_last_is_rebuilt(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    path = root / "consumequeue" / "Topic" / "1" / f"{0:020d}"
    zeros(path)

    store = await check(root, filled)

    assert "has no entries" in named(store, path)
    await store.stop()


async def test_a_foreign_file_in_a_queue_is_set_aside(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    path = root / "consumequeue" / "Topic" / "1" / "core"
    path.write_text("dump")

    store = await check(root, filled)

    assert "set aside" in named(store, path)
    assert path.with_name("core.damaged").read_text() == "dump"
    await store.stop()


async def test_an_index_file_that_is_gone_is_rebuilt(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    path = sorted((root / "index").iterdir())[1]
    path.unlink()

    store = await check(root, filled)

    assert "is missing" in named(store, path)
    await store.stop()


def other_size(path: Path) -> None:
    os.truncate(path, 500)


def too_many(path: Path) -> None:
    overwrite(path, 36, (10_000).to_bytes(4, "big"))


def backwards(path: Path) -> None:
    overwrite(path, 16, (1 << 50).to_bytes(8, "big"))


@pytest.mark.long
@pytest.mark.proves("Damage", "queue and index files")
@CLEAN
@pytest.mark.parametrize("damage", [other_size, too_many, backwards])
@pytest.mark.parametrize("number", [0, 1, -1])
async def test_a_damaged_index_file_is_set_aside_and_rebuilt(
    filled: Filled, tmp_path: Path, damage, number: int, clean: bool
):
    root = await left(filled, tmp_path, clean=clean)
    path = sorted((root / "index").iterdir())[number]
    damage(path)

    store = await check(root, filled)

    assert "set aside" in named(store, path)
    assert path.with_name(f"{path.name}.damaged").exists()
    await store.stop()


def test_what_is_set_aside_overwrites_nothing(tmp_path: Path):
    names = []
    for number in range(3):
        path = tmp_path / "file"
        path.write_text(str(number))
        names.append(set_aside(path, LOCAL).name)

    assert names == ["file.damaged", "file.damaged-2", "file.damaged-3"]
    assert [(tmp_path / name).read_text() for name in names] == ["0", "1", "2"]


@CLEAN
@pytest.mark.parametrize("data", [b"short", bytes(5000), b"\xff" * 4096, b"\x7f" * 4096])
async def test_a_damaged_checkpoint_is_set_aside(filled: Filled, tmp_path: Path, data: bytes, clean: bool):
    root = await left(filled, tmp_path, clean=clean)
    path = root / "checkpoint"
    path.write_bytes(data)

    store = await check(root, filled)

    assert path.with_name("checkpoint.damaged").read_bytes() == data
    assert any("set aside as checkpoint.damaged" in text for text in store.recovery_report.damaged_files)
    await store.stop()


async def test_queue_files_that_were_made_for_messages_that_never_came_are_no_damage(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    last = max((root / "consumequeue" / "Topic" / "1").iterdir())
    for number in (1, 2):
        ahead = last.with_name(f"{int(last.name) + number * QUEUE_FILE:020d}")
        ahead.write_bytes(bytes(QUEUE_FILE))

    store = await check(root, filled)

    assert store.recovery_report.damaged_files == []
    await store.stop()
    check_store(root)
