"""Each rule sees its own damage and no other error; stores that are sound, or stopped at any moment, have none."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any

import pytest

from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_sys_flag import (
    INNER_BATCH_FLAG,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from rocketbroker.codec.storefile.audit_rules import AuditRule, Severity
from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint
from rocketbroker.codec.storefile.consume_queue_layout import ENTRY
from rocketbroker.codec.storefile.index_file_layout import ENTRY as INDEX_ENTRY
from rocketbroker.codec.storefile.index_file_layout import decode_header, entry_position, slot_position
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import StoreError
from rocketbroker.store.audit.log_records import log_items
from rocketbroker.store.audit.queues_audit import QueuesAudit
from rocketbroker.store.audit.store_audit import AuditOptions, audit, log_files
from rocketbroker.store.store_lock import StoreLock
from tests.support import golden_store
from tests.support.audited_store import (
    MESSAGES,
    QUEUE,
    bytes_at,
    check,
    errors,
    log_place,
    make_audited_store,
    patch,
    put_all,
    queue_place,
    warnings,
)
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.fakes import FakeClock
from tests.support.stores import LOG_FILE, crash_copy, make_store, message, store_config

QUEUE_OFFSET = 17  # of the message that is damaged
INT64 = Struct(">q")
Damage = Callable[[Path, list[MessageExt]], None]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sound") / "store"


@pytest.fixture(scope="module")
def queued(sound: Path) -> list[MessageExt]:
    """The messages of QUEUE in the store ``sound``."""
    return asyncio.run(make_audited_store(sound))


def victim(queued: list[MessageExt]) -> MessageExt:
    return queued[QUEUE_OFFSET]


def index_file(root: Path) -> Path:
    return min((root / "index").iterdir())


# -- sound stores


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_nothing_is_wrong_with_stores_of_apache_rocketmq(tmp_path: Path, name: str) -> None:
    root = golden_store.unpack(name, tmp_path)
    report = audit(MessageStoreConfig(store_path_root_dir=str(root)))
    assert (report.findings, report.counts) == ([], {})
    assert report.messages == len(golden_store.manifest(name)["messages"])
    assert report.state.unclean is (name == "kill9")


def test_nothing_is_wrong_with_a_store_of_ours(sound: Path, queued: list[MessageExt]) -> None:
    report = check(sound)
    assert report.findings == []
    assert (report.messages, len(list((sound / "commitlog").iterdir())) > 1) == (MESSAGES, True)
    assert len(list((sound / "index").iterdir())) > 1
    assert len(queued) * 20 > 1200


def test_it_writes_nothing(sound: Path, queued: list[MessageExt]) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in sound.rglob("*")}

    before = state()
    check(sound)
    assert state() == before


@pytest.mark.parametrize("dispatched", [True, False])
async def test_nothing_is_wrong_with_the_store_of_a_killed_broker(tmp_path: Path, dispatched: bool) -> None:
    clock = FakeClock()
    store = make_store(tmp_path / "store", clock)
    await store.start()
    put_all(store, clock, 150)
    if not dispatched:
        store.put_message(message(topic="Topic0", properties={"UNIQ_KEY": "last"}))
    killed = crash_copy(tmp_path / "store", tmp_path / "killed")
    await store.stop()
    report = check(killed)
    assert errors(report) == {}
    assert report.state.unclean
    assert ("message-not-queued" in warnings(report)) is not dispatched


@pytest.mark.parametrize("settings", [{"message_index_enable": False}, {"max_hash_slot_num": 7, "max_index_num": 90}])
async def test_nothing_is_wrong_with_other_settings(tmp_path: Path, settings: dict[str, int]) -> None:
    await make_audited_store(tmp_path, **settings)
    assert check(tmp_path).findings == []


async def test_a_topic_deleted_and_made_anew_is_no_error(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    await store.start()
    for topic in ("Gone", "Anew", "Kept") * 5:
        store.put_message(message(topic=topic))
    store.dispatch()
    for topic in ("Gone", "Anew"):
        store.queues.delete_topic(topic)  # without a mark, as RocketMQ does
    for _ in range(3):
        store.put_message(message(topic="Anew"))
    await store.stop()
    report = check(tmp_path)
    assert errors(report) == {}
    assert warnings(report) == {"queue-missing": 1}
    assert "5 messages of Gone/0" in report.findings[0].detail


async def test_messages_of_a_topic_that_was_deleted_need_no_entries_and_no_keys(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    await store.start()
    for number in range(9):
        store.put_message(message(topic="Gone" if number % 3 else "Kept", properties={"KEYS": f"k{number}"}))
    await store.delete_topics({"Gone"})
    await store.stop()
    for folder in ("consumequeue", "index"):
        shutil.rmtree(tmp_path / folder)
    again = make_store(tmp_path)
    await again.start()
    await again.stop()

    report = check(tmp_path)

    assert (errors(report), warnings(report)) == ({}, {})


def test_halves_of_transactions_rollbacks_and_inner_batches_are_in_no_queue(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path)
    for flag in (TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE, INNER_BATCH_FLAG):
        writer.append(sys_flag=flag)
    assert check(tmp_path).findings == []
    writer.append(sys_flag=TRANSACTION_COMMIT_TYPE)
    assert list(warnings(check(tmp_path))) == ["queue-missing"]


def test_damage_across_the_end_of_a_file_is_passed_over(copy: Path, queued: list[MessageExt]) -> None:
    (copy / "abort").touch()
    offsets = check_offsets(copy)
    first_of_file = next(each for each in offsets if each >= LOG_FILE)
    for each in (offsets[offsets.index(first_of_file) - 1], first_of_file):
        patch(log_place(copy, each), b"\0", 4)
    patch((copy / "commitlog" / f"{0:020d}", 65_000), bytes(536))
    report = check(copy)
    assert set(errors(report)) == {"record-magic"}
    assert report.messages >= MESSAGES - 4


def test_what_lies_before_the_first_file_of_the_log_is_no_error(copy: Path) -> None:
    (copy / "commitlog" / f"{0:020d}").unlink()
    report = check(copy)
    assert report.findings == []
    assert report.begin == LOG_FILE


def test_an_index_that_begins_later_is_no_error(copy: Path) -> None:
    index_file(copy).unlink()
    assert check(copy).findings == []


# -- damage


@pytest.fixture
def copy(sound: Path, queued: list[MessageExt], tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "copy")
    return tmp_path / "copy"


def in_record(at: int, data: bytes) -> Damage:
    return lambda root, queued: patch(log_place(root, victim(queued).commit_log_offset), data, at)


def in_entry(offset: int = 0, size: int = 0, tags_code: int = 0) -> Damage:
    """Change the fields of a queue entry."""

    def damage(root: Path, queued: list[MessageExt]) -> None:
        place = queue_place(root, QUEUE_OFFSET)
        was = ENTRY.unpack(bytes_at(place, 20))
        patch(place, ENTRY.pack(was[0] + offset, was[1] + size, was[2] + tags_code))

    return damage


def zero_record(root: Path, queued: list[MessageExt]) -> None:
    patch(log_place(root, victim(queued).commit_log_offset), bytes(victim(queued).store_size))


def blank(root: Path, queued: list[MessageExt]) -> None:
    path = root / "commitlog" / f"{0:020d}"
    at = path.read_bytes().rindex(bytes.fromhex("CBD43194"))
    patch((path, at - 4), b"\0\0\0\1")


def remove_log_file(root: Path, queued: list[MessageExt]) -> None:
    (root / "commitlog" / f"{LOG_FILE:020d}").unlink()


def misplaced_entry(root: Path, queued: list[MessageExt]) -> None:
    """An entry that leads to the message after its own."""
    patch(queue_place(root, QUEUE_OFFSET), bytes_at(queue_place(root, QUEUE_OFFSET + 1), 20))


def beyond(root: Path, queued: list[MessageExt]) -> None:
    patch(queue_place(root, len(queued)), ENTRY.pack(1 << 30, 100, 0))


def missing_queue_file(root: Path, queued: list[MessageExt]) -> None:
    folder = root / "consumequeue" / "Topic1" / "0"
    first = folder / f"{0:020d}"
    shutil.copy(first, folder / f"{4 * 1200:020d}")
    (folder / f"{4 * 1200:020d}").write_bytes(bytes(1200))
    last = max(path for path in folder.iterdir() if int(path.name) < 4800)
    assert last.name == f"{1200:020d}"


def queue_file_size(root: Path, queued: list[MessageExt]) -> None:
    path = max((root / "consumequeue" / QUEUE[0] / str(QUEUE[1])).iterdir())
    os.truncate(path, 1180)


def last_log_file_size(root: Path, queued: list[MessageExt]) -> None:
    path = max((root / "commitlog").iterdir())
    os.truncate(path, LOG_FILE + 10)


def hole(root: Path, queued: list[MessageExt]) -> None:
    patch(queue_place(root, QUEUE_OFFSET), bytes(20))


def lost(root: Path, queued: list[MessageExt]) -> None:
    """A message of no queue stands where one of the queue was, and its entry is gone."""
    hole(root, queued)
    patch(log_place(root, victim(queued).commit_log_offset), b"\0\0\0\x04", 36)  # half of a transaction


def repeated(root: Path, queued: list[MessageExt]) -> None:
    """A message has the queue offset of the one before it, and the queue ends before it."""
    last = queued[-1]
    patch(log_place(root, last.commit_log_offset), INT64.pack(last.queue_offset - 1), 20)
    patch(queue_place(root, last.queue_offset), bytes(20))


def out_of_order(root: Path, queued: list[MessageExt]) -> None:
    """Two messages have each other's queue offset, and their entries agree with them."""
    one, other = queued[QUEUE_OFFSET : QUEUE_OFFSET + 2]
    entries = [bytes_at(queue_place(root, each.queue_offset), 20) for each in (one, other)]
    for each, queue_offset, entry in ((one, other.queue_offset, entries[0]), (other, one.queue_offset, entries[1])):
        patch(log_place(root, each.commit_log_offset), INT64.pack(queue_offset), 20)
        patch(queue_place(root, queue_offset), entry)


def in_index_entry(number: int, **fields: int) -> Damage:
    def damage(root: Path, queued: list[MessageExt]) -> None:
        place = index_file(root), entry_position(number, 50)
        names = ("key_hash", "phy_offset", "time_diff", "previous")
        was = dict(zip(names, INDEX_ENTRY.unpack(bytes_at(place, 20)), strict=True))
        patch(place, INDEX_ENTRY.pack(*(was | {name: was[name] + by for name, by in fields.items()}).values()))

    return damage


def in_index_slot(root: Path, queued: list[MessageExt]) -> None:
    data = index_file(root).read_bytes()
    slot = next(slot for slot in range(50) if any(data[slot_position(slot, 50) :][:4]))
    patch((index_file(root), slot_position(slot, 50)), bytes(4))


def index_header(root: Path, queued: list[MessageExt]) -> None:
    patch((index_file(root), 0), INT64.pack(1 << 50), 24)  # endPhyOffset


def missing_key(root: Path, queued: list[MessageExt]) -> None:
    """The last two entries, a key and a tag of the last message, are taken back as if they had never been entered."""
    path = max((root / "index").iterdir())
    header = decode_header(path.read_bytes())
    for last in (header.index_count - 1, header.index_count - 2):
        key_hash, offset, _, previous = INDEX_ENTRY.unpack(bytes_at((path, entry_position(last, 50)), 20))
        assert offset == header.end_phy_offset
        patch((path, slot_position(key_hash, 50)), previous.to_bytes(4, "big"))
        patch((path, entry_position(last, 50)), bytes(20))
    patch((path, 0), header._replace(index_count=header.index_count - 2).encode())


def config(name: str, text: str) -> Damage:
    def damage(root: Path, queued: list[MessageExt]) -> None:
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / name).write_text(text)

    return damage


def checkpoint(data: bytes) -> Damage:
    def damage(root: Path, queued: list[MessageExt]) -> None:
        (root / "checkpoint").write_bytes(data)

    return damage


OFFSETS = '{"offsetTable":{"%s@group":{%d:%d}}}'

DAMAGE: dict[str, tuple[str, Damage]] = {
    "a body": ("record-crc", in_record(90, b"?")),
    "a checksum": ("record-crc", in_record(8, b"\x11")),
    "totalSize": ("record-length", in_record(3, b"\x01")),
    "bodyLength": ("record-length", in_record(84, b"\x7f")),
    "a magic code": ("record-magic", in_record(4, b"\0")),
    "physicalOffset": ("record-position", in_record(28, b"\1")),
    "a record zeroed": ("log-hole", zero_record),
    "a BLANK": ("blank-size", blank),
    "an entry's size": ("queue-entry-mismatch", in_entry(size=1)),
    "an entry's tags code": ("queue-entry-mismatch", in_entry(tags_code=1)),
    "an entry's offset": ("queue-entry-unreadable", in_entry(offset=1)),
    "an entry below 0": ("queue-entry-unreadable", in_entry(offset=-(1 << 40))),
    "an entry of another message": ("queue-entry-mismatch", misplaced_entry),
    "a record's queue offset": ("queue-entry-mismatch", in_record(20, b"\x01")),
    "a record's queue": ("queue-entry-mismatch", in_record(15, b"\x01")),
    "an entry behind the log": ("queue-entry-beyond-log", beyond),
    "an entry zeroed": ("message-not-queued", hole),
    "message and entry": ("queue-offset-missing", lost),
    "a queue offset twice": ("queue-offset-repeated", repeated),
    "queue offsets exchanged": ("queue-offset-order", out_of_order),
    "a queue file": ("queue-file-missing", missing_queue_file),
    "a queue file's size": ("queue-file-size", queue_file_size),
    "a log file": ("log-file-missing", remove_log_file),
    "a log file's size": ("log-file-size", last_log_file_size),
    "a key hash": ("index-entry-mismatch", in_index_entry(5, key_hash=1)),
    "a store time": ("index-entry-mismatch", in_index_entry(5, time_diff=3)),
    "an index entry's offset": ("index-entry-unreadable", in_index_entry(5, phy_offset=1)),
    "a chain": ("index-chain", in_index_entry(150, previous=-1)),
    "a slot": ("index-chain", in_index_slot),
    "an index header": ("index-header", index_header),
    "a key": ("index-missing-key", missing_key),
    "a table": ("config-damaged", config("topics.json", '{"topicConfigTable":')),
    "an empty table": ("config-damaged", config("topics.json", "")),
    "a table's name": ("config-damaged", config("consumerOffset.json", '{"offsetTablf":{}}')),
    "a consumer offset": ("consumer-offset-beyond-queue", config("consumerOffset.json", OFFSETS % (*QUEUE, 1_000))),
    "a short checkpoint": ("checkpoint-damaged", checkpoint(bytes(20))),
    "a checkpoint below 0": ("checkpoint-damaged", checkpoint(StoreCheckpoint(-1).encode())),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_each_rule_sees_its_damage_and_no_other(copy: Path, queued: list[MessageExt], kind: str) -> None:
    rule, damage = DAMAGE[kind]
    damage(copy, queued)
    report = check(copy)
    assert list(errors(report)) == [rule], report.findings
    found = next(each for each in report.findings if each.severity is Severity.ERROR)
    assert Path(found.path).is_relative_to(copy)
    assert found.detail


def test_a_log_file_that_was_lost_and_made_anew_is_a_hole(copy: Path, queued: list[MessageExt]) -> None:
    (copy / "commitlog" / f"{LOG_FILE:020d}").write_bytes(bytes(LOG_FILE))
    assert errors(check(copy)) == {"log-hole": 1}


WARNINGS: dict[str, tuple[str, Damage]] = {
    "a backup": ("config-backup-damaged", config("topics.json.bak", "{")),
    "a checkpoint ahead": ("checkpoint-ahead", checkpoint(StoreCheckpoint(1 << 50).encode())),
    "no queues": ("queue-missing", lambda root, queued: shutil.rmtree(root / "consumequeue" / QUEUE[0])),
}


@pytest.mark.parametrize("kind", WARNINGS)
def test_what_may_be_on_purpose_or_is_mended_is_a_warning(copy: Path, queued: list[MessageExt], kind: str) -> None:
    rule, damage = WARNINGS[kind]
    damage(copy, queued)
    report = check(copy)
    assert (errors(report), list(warnings(report))) == ({}, [rule])


def test_a_file_that_the_system_cannot_read_is_named(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (copy / "config").mkdir(exist_ok=True)
    (copy / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    read_bytes = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "topics.json":
            raise OSError(5, "Input/output error")
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert errors(check(copy)) == {"file-unreadable": 1}


TAIL = ["a body", "totalSize", "a magic code", "physicalOffset", "a record zeroed"]


@pytest.mark.parametrize("kind", TAIL)
def test_after_an_unclean_stop_damage_that_no_checkpoint_covers_is_a_torn_tail(
    copy: Path, queued: list[MessageExt], kind: str
) -> None:
    (copy / "abort").touch()
    (copy / "checkpoint").unlink()
    DAMAGE[kind][1](copy, queued)
    report = check(copy)
    assert errors(report) == {}
    assert warnings(report)["log-torn-tail"] == 1
    assert report.end == victim(queued).commit_log_offset
    assert warnings(report)["queue-entry-beyond-log"] >= len(queued) - QUEUE_OFFSET


@pytest.mark.parametrize("kind", TAIL)
def test_after_an_unclean_stop_damage_before_the_checkpoint_is_an_error(
    copy: Path, queued: list[MessageExt], kind: str
) -> None:
    (copy / "abort").touch()
    DAMAGE[kind][1](copy, queued)
    report = check(copy)
    assert list(errors(report)) == [DAMAGE[kind][0]]
    assert "log-torn-tail" not in warnings(report)


def test_what_a_cut_left_behind_the_log_is_no_error(copy: Path, queued: list[MessageExt]) -> None:
    """RocketMQ cuts a log without zeroing what was there: half a record, and older ones behind it."""
    end = check(copy).end
    size = victim(queued).store_size
    record = bytearray(bytes_at(log_place(copy, victim(queued).commit_log_offset), size))
    record[28:36] = INT64.pack(end + 50)
    patch(log_place(copy, end), b"left over")
    patch(log_place(copy, end + 50), bytes(record))
    report = check(copy)
    assert (errors(report), list(warnings(report))) == ({}, ["log-torn-tail"])
    assert (report.end, report.messages) == (end, MESSAGES)


def test_the_last_message_cannot_be_taken_for_what_a_cut_left(copy: Path, queued: list[MessageExt]) -> None:
    last = max(check_offsets(copy))
    patch(log_place(copy, last), b"\0", 4)
    assert list(errors(check(copy))) == ["record-magic"]


def check_offsets(root: Path) -> list[int]:
    """The physical offsets of all messages."""
    found = [item[0] for item in log_items(log_files(root / "commitlog"), 0)]
    return [each.commit_log_offset for each in found if isinstance(each, MessageExt)]


def test_every_rule_is_tested() -> None:
    seen = {rule for rule, _ in (DAMAGE | WARNINGS).values()}
    elsewhere = {"file-unreadable", "log-torn-tail"}
    assert seen | elsewhere == {rule.value for rule in AuditRule}


# -- what is told


def test_findings_of_a_rule_are_limited_and_all_counted(copy: Path, queued: list[MessageExt]) -> None:
    for each in queued[3:10]:
        patch(log_place(copy, each.commit_log_offset), b"\x55", 8)
    report = check(copy, AuditOptions(limit=2))
    assert (len(report.findings), report.count_of(Severity.ERROR)) == (2, 7)


def test_a_topic_can_be_chosen_and_checksums_left_out(copy: Path, queued: list[MessageExt]) -> None:
    hole(copy, queued)
    in_record(90, b"?")(copy, queued)
    assert errors(check(copy, AuditOptions(check_crc=False, topic="Topic1"))) == {}
    assert list(errors(check(copy, AuditOptions(check_crc=False, topic=QUEUE[0])))) == ["message-not-queued"]


def test_it_says_who_has_the_store_open_and_leaves_the_lock(copy: Path) -> None:
    lock = StoreLock(copy, copy / "abort")
    lock.acquire()
    try:
        assert check(copy).state.holders == (os.getpid(),)
    finally:
        lock.release()
    assert check(copy).state.holders == ()


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no CommitLog"):
        check(tmp_path)


def test_progress_ends_with_all_bytes(sound: Path, queued: list[MessageExt]) -> None:
    seen: list[tuple[int, int]] = []
    audit(store_config(sound), progress=lambda done, total: seen.append((done, total)))
    assert seen
    assert seen[-1][0] == seen[-1][1]


def test_index_entries_of_any_bytes_are_told(copy: Path, queued: list[MessageExt]) -> None:
    place = index_file(copy), entry_position(20, 50)
    patch(place, INDEX_ENTRY.pack(-1, -(1 << 63), -1, -1) + INDEX_ENTRY.pack(-(1 << 31), (1 << 63) - 1, 0, 1 << 30))
    assert errors(check(copy)) == {"index-entry-unreadable": 2, "index-missing-key": 2}


def test_sizes_that_the_settings_give_are_asked_of_the_files(copy: Path) -> None:
    given = AuditOptions(sizes_given=True)
    assert check(copy, given).findings == []
    assert list(errors(check(copy, given, max_index_num=201))) == ["index-header"]
    assert list(errors(check(copy, given, mapped_file_size_commit_log=LOG_FILE * 2))) == ["log-file-size"]


async def test_a_store_that_a_broker_writes_to_has_no_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    store = make_store(tmp_path, clock)
    await store.start()
    put_all(store, clock, 60)
    survey = QueuesAudit.__init__

    def survey_then_write(*arguments: Any, **options: Any) -> None:
        survey(*arguments, **options)
        put_all(store, clock, 30)

    monkeypatch.setattr(QueuesAudit, "__init__", survey_then_write)
    report = check(tmp_path)
    await store.stop()
    assert report.state.is_open
    assert errors(report) == {}


def test_a_queue_whose_files_were_all_removed_by_age_says_nothing_of_consumers(copy: Path) -> None:
    folder = copy / "consumequeue" / "Old" / "0"
    folder.mkdir(parents=True)
    config("consumerOffset.json", '{"offsetTable":{"Old@group":{0:70}}}')(copy, [])
    assert check(copy).findings == []
