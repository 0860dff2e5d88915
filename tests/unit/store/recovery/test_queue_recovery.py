"""Queues that were lost after a clean stop are rebuilt, and never taken for new ones."""

import shutil
from pathlib import Path

import pytest

from rocketbroker.codec.storefile.config_tables import dumps_config, loads_config
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_ENTRY, ENTRY
from rocketbroker.common.file_system import LOCAL
from rocketbroker.store.dispatch.reput_message_service import ReputMessageService
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.recovery import loaded_store
from rocketbroker.store.recovery.loaded_store import RebuildNote
from rocketbroker.store.recovery.queue_recovery import QUEUE_ENDS_FILE, QueueEnds, read_queue_ends, write_queue_ends
from tests.support.commit_log_writer import overwrite
from tests.support.filled_store import COUNT, QUEUES, Filled, check, log_file, opened, serves_all_but, stopped, zeroed
from tests.support.stores import LOG_FILE, QUEUE_FILE, crash_copy, inner_batch, make_store, message

pytestmark = pytest.mark.in_memory


def test_written_bytes_are_read(tmp_path: Path):
    queues = ConsumeQueueStore(tmp_path / "cq", QUEUE_FILE)
    for topic, queue_id, count in (("A", 0, 3), ("A", 7, 1), ("B", 2, 2)):
        for number in range(count):
            queues.find_or_create(topic, queue_id).put(number, 100 * number, 100, 0)
    path = tmp_path / "config" / QUEUE_ENDS_FILE

    write_queue_ends(path, (0, 12345), queues, ["20261121095923270"], LOCAL)

    told: list[str] = []
    table = {("A", 0): (0, 3), ("A", 7): (0, 1), ("B", 2): (0, 2)}
    log = MappedFileQueue(tmp_path / "commitlog", LOG_FILE)
    assert read_queue_ends(path, log, queues, told) == QueueEnds(0, 12345, table, ["20261121095923270"])
    write_queue_ends(path, (0, 12345), queues, None, LOCAL)
    assert read_queue_ends(path, log, queues, told) == QueueEnds(0, 12345, table, None)
    assert told == []
    queues.close()


async def test_a_missing_first_file_of_the_log_is_reported(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    first, _ = log_file(root, 0)
    first.unlink()

    store = await opened(root, filled)

    (told,) = store.recovery_report.damaged_files
    assert told == f"{first}: is missing; the CommitLog began there and now begins at {LOG_FILE}"
    await store.stop()
    store = await opened(root, filled)
    assert store.recovery_report.damaged_files == []
    await store.stop()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"endOfLog":1}',
        '{"endOfLog":"1","indexFiles":[],"queues":{}}',
        '{"endOfLog":1,"indexFiles":1,"queues":{}}',
        '{"endOfLog":1,"indexFiles":null,"queues":{"A":3}}',
        '{"endOfLog":1,"indexFiles":null,"queues":{"A":{"x":[0,1]}}}',
        '{"endOfLog":1,"indexFiles":null,"queues":{"A":{"0":[0]}}}',
        '{"endOfLog":1,"indexFiles":null,"queues":{"A":{"0":[2,1]}}}',
    ],
)
def test_a_damaged_file_is_reported_and_not_used(tmp_path: Path, text: str):
    path = tmp_path / QUEUE_ENDS_FILE
    path.write_text(text)
    told: list[str] = []

    assert read(tmp_path, told) is None
    assert [one.startswith(f"{path}: cannot be read") for one in told] == [True]


@pytest.mark.proves("Damage", "`consumeQueueEnds.json`")
@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('"endOfLog":', '"endOfLog":1', "the CommitLog would end at 1"),
        ('"beginOfLog":0', '"beginOfLog":999999', "the log would begin at 999999 and end at "),
        ('"1":[0,83]', '"1":[0,30000000]', "queue 1 of Topic would lack 29999917 messages, but the CommitLog had "),
        ('"1":[0,83]', '"7":[0,30000000]', "queue 7 of Topic would lack 30000000 messages, but the CommitLog had "),
        ('"1":[0,83]', '"-1":[0,83]', "queue -1 of 'Topic' is impossible"),
        ('"Topic"', '"../../Topic"', "queue 0 of '../../Topic' is impossible"),
        ('"Topic"', '"Top\\u0000c"', "queue 0 of 'Top\\x00c' is impossible"),
    ],
)
async def test_what_log_and_queues_cannot_have_held_is_reported_and_not_used(
    filled: Filled, tmp_path: Path, before: str, after: str, why: str
):
    root = await stopped(filled, tmp_path)
    path = root / "config" / QUEUE_ENDS_FILE
    text = without_checksum(path).replace(before, after)
    assert after in text
    path.write_text(text)

    store = await check(root, filled)

    assert [one for one in store.recovery_report.damage if not one.startswith(f"{path}: contradicts the store")] == []
    assert f" and is ignored: {why}" in store.recovery_report.damage[0]
    assert store.queues.topics == {"Topic"}
    assert sorted(path.name for path in (root / "consumequeue" / "Topic").iterdir()) == ["0", "1", "2"]
    await store.stop()


@pytest.mark.proves("Damage", "`consumeQueueEnds.json`")
@pytest.mark.parametrize(("before", "after"), [("83]", "84]"), ("Topic", "Tomic"), ('"0":', '"4":')])
async def test_a_number_or_a_name_that_changed_is_reported_and_not_used(
    filled: Filled, tmp_path: Path, before: str, after: str
):
    root = await stopped(filled, tmp_path)
    path = root / "config" / QUEUE_ENDS_FILE
    path.write_text(path.read_text().replace(before, after))

    store = await check(root, filled)

    (told,) = store.recovery_report.damage
    assert told == f"{path}: cannot be read and is ignored: its checksum is wrong"
    assert store.queues.topics == {"Topic"}
    await store.stop()


def without_checksum(path: Path) -> str:
    """The file as it was before it had one."""
    content = loads_config(path.read_bytes())
    del content["crc32"]
    return dumps_config(content).decode()


def read(folder: Path, told: list[str]) -> QueueEnds | None:
    """Read the file in a folder, in a store without anything else."""
    log, queues = MappedFileQueue(folder / "commitlog", LOG_FILE), ConsumeQueueStore(folder / "cq", QUEUE_FILE)
    return read_queue_ends(folder / QUEUE_ENDS_FILE, log, queues, told)


def test_without_a_file_nothing_is_known(tmp_path: Path):
    told: list[str] = []
    assert read(tmp_path, told) is None
    assert told == []


@pytest.mark.parametrize("files", [[0], [QUEUE_FILE], [0, QUEUE_FILE]])
async def test_a_queue_that_lost_files_is_rebuilt(filled: Filled, tmp_path: Path, files: list[int]):
    root = await stopped(filled, tmp_path)
    for offset in files:
        (root / "consumequeue" / "Topic" / "1" / f"{offset:020d}").unlink()

    store = await check(root, filled)

    (text,) = store.recovery_report.queues_rebuilt
    assert text.startswith("queue 1 of Topic had the offsets 0 to 83, ")
    await store.stop()


async def test_a_queue_whose_folder_is_gone_is_rebuilt(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    shutil.rmtree(root / "consumequeue" / "Topic" / "2")

    store = await check(root, filled)

    assert len(store.recovery_report.queues_rebuilt) == 1
    await store.stop()


@pytest.mark.parametrize("files", [[0], [0, QUEUE_FILE]])
async def test_a_queue_that_lost_its_first_files_before_a_start_after_a_kill_is_rebuilt(
    filled: Filled, killed: Path, files: list[int]
):
    for offset in files:
        (killed / "consumequeue" / "Topic" / "1" / f"{offset:020d}").unlink()

    store = await check(killed, filled)

    assert store.recovery_report.queues_rebuilt == ["queue 1 of Topic has lost its first files"]
    await store.stop()


async def killed_after_a_stop(filled: Filled, tmp_path: Path) -> Path:
    """A store of which all was on disk when it was started, and that took nothing before it was killed."""
    store = await opened(await stopped(filled, tmp_path), filled)
    root = crash_copy(Path(store.config.store_path_root_dir), tmp_path / "killed")
    await store.stop()
    return root


async def test_a_queue_whose_folder_is_gone_after_a_kill_is_rebuilt(filled: Filled, tmp_path: Path):
    root = await killed_after_a_stop(filled, tmp_path)
    shutil.rmtree(root / "consumequeue" / "Topic" / "2")

    store = await check(root, filled)

    assert store.recovery_report.queues_rebuilt == ["queue 2 of Topic has lost its first files"]
    await store.stop()


async def test_a_queue_that_is_rebuilt_after_a_kill_continues_where_it_was_though_the_log_lost_messages(
    filled: Filled, tmp_path: Path
):
    root = await killed_after_a_stop(filled, tmp_path)
    (root / "consumequeue" / "Topic" / "1" / f"{0:020d}").unlink()
    last = filled.offsets[COUNT - 3]
    assert (COUNT - 3) % QUEUES == 1
    zeroed(*log_file(root, last), filled.sizes[COUNT - 3])

    store = await opened(root, filled)

    queue = store.queues.find("Topic", 1)
    assert queue is not None
    assert queue.max_offset == 83
    await store.stop()


async def test_a_damaged_entry_does_not_affect_those_after_it(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    path, at = root / "consumequeue" / "Topic" / "1" / f"{0:020d}", 83 // 2 * 20
    overwrite(path, at + 4, b"\x70")

    store = await check(root, filled)

    assert store.recovery_report.queues_rebuilt == ["entry 41 of queue 1 of Topic is damaged, and rebuilt"]
    await store.stop()


async def test_a_queue_of_noise_is_rebuilt_from_its_begin(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    for path in (root / "consumequeue" / "Topic" / "1").iterdir():
        noise = b"\x7f" * 8 + (200).to_bytes(4, "big") + bytes(8)
        overwrite(path, 0, noise * 5 + bytes(QUEUE_FILE - 100))

    store = await check(root, filled)

    assert len(store.recovery_report.queues_rebuilt) == 1
    await store.stop()


async def test_a_last_queue_file_of_zeros_is_rebuilt(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    overwrite(root / "consumequeue" / "Topic" / "0" / f"{QUEUE_FILE:020d}", 0, bytes(QUEUE_FILE))

    store = await check(root, filled)

    assert len(store.recovery_report.queues_rebuilt) == 1
    await store.stop()


async def without_early(filled: Filled, tmp_path: Path) -> Path:
    """A copy after a clean stop that lost a queue, and of the log the two messages that were in it."""
    for _ in range(2):
        filled.store.appender.put_message(message(b"first", "Early"))
    filled.store.appender.dispatch()
    filled.put(COUNT)
    filled.store.appender.dispatch()
    root = await stopped(filled, tmp_path)
    shutil.rmtree(root / "consumequeue" / "Early")
    zeroed(*log_file(root, filled.offsets[COUNT - 1] + filled.sizes[COUNT - 1]), 2 * 102)
    return root


async def test_a_queue_all_messages_of_which_the_log_lost_continues_where_it_was(filled: Filled, tmp_path: Path):
    root = await without_early(filled, tmp_path)

    for _ in range(2):
        store = await opened(root, filled)
        queue = store.queues.find("Early", 0)
        assert queue
        assert (queue.min_offset, queue.max_offset, queue.next_offset) == (2, 2, 2)
        await store.stop()
    store = await opened(root, filled)
    assert store.appender.put_message(message(b"third", "Early")).queue_offset == 2
    await store.stop()


@pytest.mark.proves("When the store is opened", "5. rebuilt")
async def test_a_kill_amid_the_start_that_found_a_queue_lost_changes_nothing_of_it(
    filled: Filled, tmp_path: Path, monkeypatch
):
    root, killed = await without_early(filled, tmp_path), tmp_path / "killed"
    catch_up = ReputMessageService.catch_up

    def kill(self: ReputMessageService, *args) -> None:
        crash_copy(root, killed)
        catch_up(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(ReputMessageService, "catch_up", kill)
        store = await opened(root, filled)
    await store.stop()
    assert (killed / "abort").exists()

    texts = ["has lost its first files", "had the offsets 0 to 2, and 0 to 0 when the store was opened"]
    for rebuilt in ([f"queue 0 of Early {text}" for text in texts], []):
        store = await opened(killed, filled)
        assert store.recovery_report.queues_rebuilt == rebuilt
        queue = store.queues.find("Early", 0)
        assert queue
        assert (queue.min_offset, queue.max_offset, queue.next_offset) == (2, 2, 2)
        again = crash_copy(killed, tmp_path / f"again-{len(rebuilt)}")
        await store.stop()
        killed = again


@pytest.mark.proves("When the store is opened", "5. rebuilt")
async def test_a_kill_amid_the_start_that_found_used_offsets_lost_has_none_of_them_used_again(
    filled: Filled, tmp_path: Path, monkeypatch
):
    queue = filled.store.queues.find("Topic", (COUNT - 1) % QUEUES)
    assert queue
    end = queue.max_offset
    queue.go_on_at(end + 2)
    root, killed = await stopped(filled, tmp_path), tmp_path / "killed"
    overwrite(*queue_file(root, queue.queue_id, end), bytes(2 * 20))
    truncate = MappedFileQueue.truncate

    def kill(self: MappedFileQueue, offset: int) -> None:
        if not killed.exists():
            crash_copy(root, killed)
        truncate(self, offset)

    with monkeypatch.context() as patched:
        patched.setattr(MappedFileQueue, "truncate", kill)
        store = await opened(root, filled)
    await store.stop()
    assert (killed / "abort").exists()
    assert not (killed / "config" / loaded_store.REBUILD_NOTE_FILE).exists()

    store = await opened(killed, filled)

    assert store.appender.put_message(message(queue_id=queue.queue_id)).queue_offset == end + 2
    await store.stop()


def queue_file(root: Path, queue_id: int, queue_offset: int) -> tuple[Path, int]:
    """File and position of an entry of a queue of the topic."""
    at = queue_offset * 20
    return root / "consumequeue" / "Topic" / str(queue_id) / f"{at - at % QUEUE_FILE:020d}", at % QUEUE_FILE


@pytest.mark.parametrize("messages", [0, 1])
async def test_a_topic_that_was_deleted_since_does_not_come_back_by_where_its_queues_ended(
    filled: Filled, tmp_path: Path, messages: int
):
    for _ in range(2):
        filled.store.appender.put_message(message(b"first", "Early"))
    filled.store.appender.dispatch()
    root = await stopped(filled, tmp_path)
    store = await opened(root, filled)
    filled.store = store
    assert await store.deletion.delete_topics({"Early"}) == 1
    for _ in range(messages):
        store.appender.put_message(message(b"again", "Early"))
    store.appender.dispatch()
    killed = crash_copy(root, tmp_path / "killed")
    RebuildNote(killed / "config" / loaded_store.REBUILD_NOTE_FILE, LOCAL).write(0)

    store = await opened(killed, filled)

    assert store.queues.max_offset_in_queue("Early", 0) == messages
    assert ("Early" in store.queues.topics) == bool(messages)
    await store.stop()


async def test_a_queue_the_last_messages_of_which_the_log_lost_continues_where_it_was(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    shutil.rmtree(root / "consumequeue")
    lost = set(range(COUNT - 7, COUNT))
    for number in lost:
        zeroed(*log_file(root, filled.offsets[number]), filled.sizes[number])

    store = await opened(root, filled)

    for queue_id in range(QUEUES):
        result = store.appender.put_message(message(b"after", queue_id=queue_id))
        assert result.queue_offset == len(range(queue_id, COUNT, QUEUES))
        assert result.physical_offset >= filled.log_end
    killed = crash_copy(root, tmp_path / "killed")
    await store.stop()
    store = await opened(killed, filled)
    assert store.commit_log.record(filled.log_end) is not None
    assert store.queues.max_offset_in_queue("Topic", 0) == len(range(0, COUNT, QUEUES)) + 1
    await store.stop()


async def test_what_was_on_disk_at_the_last_clean_stop_is_known_after_a_kill(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    (root / "checkpoint").unlink()
    store = await opened(root, filled)
    filled.store = store
    filled.put(COUNT)
    store.appender.dispatch()
    killed = crash_copy(root, tmp_path / "killed")
    await store.stop()
    zeroed(*log_file(killed, filled.offsets[100]), filled.sizes[100])

    store = await opened(killed, filled)

    serves_all_but(store, filled, {100}, COUNT + 1)
    assert store.recovery_report.checked_from == filled.offsets[COUNT]
    await store.stop()


async def test_a_broker_that_ran_since_determines_the_ends(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    old = without_checksum(root / "config" / QUEUE_ENDS_FILE)
    store = await opened(root, filled)
    filled.store = store
    filled.put(COUNT)
    await store.deletion.delete_topics({"Nothing"})
    await store.stop()
    (root / "config" / QUEUE_ENDS_FILE).write_text(old.replace("Topic", "Other"))

    store = await opened(root, filled)

    assert store.recovery_report.damage == []
    assert store.queues.topics == {"Topic"}
    await store.stop()


async def test_a_number_that_cannot_be_makes_no_log_of_that_length(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    path = root / "config" / QUEUE_ENDS_FILE
    path.write_text(path.read_text().replace(str(filled.log_end), str(filled.log_end + 100 * LOG_FILE)))

    store = await check(root, filled)

    await store.stop()


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


@pytest.mark.long
@pytest.mark.proves("Damage", "last entries of a queue")
@pytest.mark.parametrize(("moved", "size"), GARBLED)
@pytest.mark.parametrize("number", [LAST, LAST - 2])
@pytest.mark.parametrize("with_ends", [True, False])
async def test_a_damaged_last_entry_is_rebuilt_and_reported(
    filled: Filled, tmp_path: Path, moved: int, size: int, number: int, with_ends: bool
):
    root = await stopped(filled, tmp_path)
    files = commit_log_files(root)
    if not with_ends:
        (root / "config" / QUEUE_ENDS_FILE).unlink()
    entry = ENTRY.pack(filled.offsets[number] + moved, size, 0)
    overwrite_entries(root, number % QUEUES, number // QUEUES, entry)

    store = await check(root, filled)

    (told,) = store.recovery_report.damage
    assert f" of queue {number % QUEUES} of Topic " in told
    assert told.endswith("rebuilt")
    assert set(commit_log_files(root)) <= {*files, f"{int(files[-1]) + LOG_FILE:020d}"}, "the next one is made ahead"
    await store.stop()


@pytest.mark.long
@pytest.mark.proves("Damage", "last entries of a queue")
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
        (root / "config" / QUEUE_ENDS_FILE).unlink()
    noise = b"\x13\x57\x9b" * (count * ENTRY.size)
    overwrite_entries(root, LAST_QUEUE, LAST // QUEUES + 1 - count, noise[: count * ENTRY.size])

    store = await check(root, filled)

    assert len(store.recovery_report.queues_rebuilt) == 1
    await store.stop()


@pytest.mark.proves("Damage", "last entries of a queue")
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


@pytest.mark.proves("Damage", "the end of the log")
async def test_an_entry_whose_message_the_log_has_lost_says_where_the_log_ended(filled: Filled, tmp_path: Path):
    """Nothing else does, since another broker stopped the store."""
    root = await stopped(filled, tmp_path)
    (root / "config" / QUEUE_ENDS_FILE).unlink()
    zeroed(*log_file(root, filled.offsets[LAST]), filled.sizes[LAST])

    store = await opened(root, filled)

    serves_all_but(store, filled, {LAST})
    await store.stop()


@pytest.mark.proves("Damage", "the end of the log")
async def test_entries_say_nothing_beyond_the_file_of_the_last_sound_record(filled: Filled, tmp_path: Path):
    root = await stopped(filled, tmp_path)
    (root / "config" / QUEUE_ENDS_FILE).unlink()
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


@pytest.mark.proves("Damage", "last entries of a queue")
@pytest.mark.parametrize(("moved", "size"), GARBLED)
@pytest.mark.parametrize("with_ends", [True, False])
async def test_a_damaged_last_entry_of_batches_is_rebuilt_and_reported(
    tmp_path: Path, moved: int, size: int, with_ends: bool
):
    root = tmp_path / "store"
    last = await batches(root)
    if not with_ends:
        (root / "config" / QUEUE_ENDS_FILE).unlink()
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
