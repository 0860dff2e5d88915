"""Stores that are sound, or stopped at any moment, have no errors; what can be chosen is left out."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from rocketbroker.app.mqstore.check import run_audit
from rocketbroker.audit.store_audit import audit, sizes_of
from rocketbroker.audit.store_files import AuditOptions, Expiry
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.storefile.audit_rules import AuditRule, Severity
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_CQ_STORE_UNIT_SIZE
from rocketbroker.codec.storefile.index_file_layout import ENTRY as INDEX_ENTRY
from rocketbroker.codec.storefile.index_file_layout import decode_header, entry_position
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import StoreError
from rocketbroker.store.recovery.store_lock import StoreLock
from tests.support import golden_store
from tests.support.audit_damage import DAMAGE, WARNINGS, config, hole, in_record, index_file
from tests.support.audited_store import (
    MESSAGES,
    QUEUE,
    check,
    errors,
    log_place,
    make_audited_store,
    patch,
    put_all,
    warnings,
)
from tests.support.fakes import FakeClock
from tests.support.stores import LOG_FILE, crash_copy, inner_batch, make_store, message, store_config


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
        store.appender.put_message(message(topic="Topic0", properties={"UNIQ_KEY": "last"}))
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


async def test_a_topic_deleted_and_recreated_is_no_error(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    await store.start()
    for topic in ("Gone", "Anew", "Kept") * 5:
        store.appender.put_message(message(topic=topic))
    store.appender.dispatch()
    for topic in ("Gone", "Anew"):
        store.queues.delete_topic(topic)  # without a mark, as RocketMQ does
    for _ in range(3):
        store.appender.put_message(message(topic="Anew"))
    await store.stop()
    report = check(tmp_path)
    assert errors(report) == {}
    assert warnings(report) == {"queue-missing": 1}
    assert "5 messages of Gone/0" in report.findings[0].detail


async def test_messages_of_a_topic_that_was_deleted_need_no_entries_and_no_keys(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    await store.start()
    for number in range(9):
        store.appender.put_message(message(topic="Gone" if number % 3 else "Kept", properties={"KEYS": f"k{number}"}))
    await store.deletion.delete_topics({"Gone"})
    await store.stop()
    for folder in ("consumequeue", "index"):
        shutil.rmtree(tmp_path / folder)
    again = make_store(tmp_path)
    await again.start()
    await again.stop()

    report = check(tmp_path)

    assert (errors(report), warnings(report)) == ({}, {})


def test_an_index_that_begins_later_is_no_error(copy: Path) -> None:
    index_file(copy).unlink()
    assert check(copy).findings == []


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


def test_a_folder_that_is_not_a_store_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a CommitLog"):
        check(tmp_path)


def test_progress_ends_with_all_bytes(sound: Path, queued: list[MessageExt]) -> None:
    seen: list[tuple[int, int]] = []
    audit(store_config(sound), progress=lambda done, total: seen.append((done, total)))
    assert seen
    assert seen[-1][0] == seen[-1][1]


def test_sizes_that_the_settings_give_are_asked_of_the_files(copy: Path) -> None:
    def with_sizes(**settings: int) -> dict[str, int]:
        config = store_config(copy, **settings)
        return errors(audit(config, sizes_of(config, AuditOptions())))

    assert with_sizes() == {}
    assert list(with_sizes(max_index_num=201)) == ["index-header"]
    config = store_config(copy, max_index_num=201)
    first = audit(config, sizes_of(config, AuditOptions())).findings[0]
    assert first.detail == "4240 bytes instead of 4260, by maxHashSlotNum 50 and maxIndexNum 201"
    assert list(with_sizes(mapped_file_size_commit_log=LOG_FILE * 2)) == ["log-file-size"]


async def test_a_store_that_a_broker_writes_to_has_no_errors(tmp_path: Path) -> None:
    clock = FakeClock()
    store = make_store(tmp_path, clock)
    await store.start()
    put_all(store, clock, 60)
    written = 0

    def write(_done: int, _total: int) -> None:
        nonlocal written
        written += 1
        put_all(store, clock, 30)

    report = audit(store_config(tmp_path), progress=write)
    assert written
    await store.stop()
    assert report.state.is_open
    assert errors(report) == {}


def test_a_queue_whose_files_were_all_removed_by_age_says_nothing_of_consumers(copy: Path) -> None:
    folder = copy / "consumequeue" / "Old" / "0"
    folder.mkdir(parents=True)
    config("consumerOffset.json", '{"offsetTable":{"Old@group":{0:70}}}')(copy, [])
    assert check(copy).findings == []


@pytest.mark.long
@pytest.mark.parametrize("kind", DAMAGE)
def test_each_rule_sees_its_damage_and_no_other(copy: Path, queued: list[MessageExt], kind: str) -> None:
    rule, damage = DAMAGE[kind]
    damage(copy, queued)
    report = check(copy)
    assert list(errors(report)) == [rule], report.findings
    found = next(each for each in report.findings if each.severity is Severity.ERROR)
    assert Path(found.path).is_relative_to(copy)
    assert found.detail


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


def test_tables_in_rocksdb_are_named(copy: Path) -> None:
    (copy / "config" / "topics").mkdir(parents=True, exist_ok=True)
    (copy / "config" / "topics" / "CURRENT").write_text("MANIFEST-000005\n")
    report = run_audit(store_config(copy), AuditOptions())
    assert errors(report) == {"foreign-part": 1}
    assert "rocksDBConfigToJson" in next(each.detail for each in report.findings if each.rule == "foreign-part")


def test_a_dledger_store_without_a_log_of_its_own_is_named(copy: Path) -> None:
    shutil.rmtree(copy / "commitlog")
    (copy / "dledger-n0" / "data").mkdir(parents=True)
    (copy / "dledger-n0" / "data" / f"{0:020d}").write_bytes(bytes(64))
    with pytest.raises(StoreError, match="is the log of a DLedger group"):
        run_audit(store_config(copy), AuditOptions())


def test_every_rule_is_tested() -> None:
    seen = {rule for rule, _ in (DAMAGE | WARNINGS).values()}
    # Tested beside this, and the last, which `mqanalytics audit` alone finds, there.
    elsewhere = {"file-unreadable", "log-torn-tail", "foreign-part", "unconsumed-expiring"}
    assert seen | elsewhere == {rule.value for rule in AuditRule}


def test_findings_of_a_rule_are_limited_and_all_counted(copy: Path, queued: list[MessageExt]) -> None:
    for each in queued[3:10]:
        patch(log_place(copy, each.commit_log_offset), b"\x55", 8)
    report = check(copy, AuditOptions(limit=2))
    assert (len(report.findings), report.count_of(Severity.ERROR)) == (2, 7)


def test_index_entries_of_any_bytes_are_reported(copy: Path, queued: list[MessageExt]) -> None:
    place = index_file(copy), entry_position(20, 50)
    patch(place, INDEX_ENTRY.pack(-1, -(1 << 63), -1, -1) + INDEX_ENTRY.pack(-(1 << 31), (1 << 63) - 1, 0, 1 << 30))
    assert errors(check(copy)) == {"index-entry-unreadable": 2, "index-missing-key": 2}


@pytest.mark.parametrize("call", [1, -1])
def test_no_loss_is_reported_while_the_store_is_cleaned(tmp_path: Path, call: int) -> None:
    """Files are removed when the first bytes of the log were read, or the last; damage in the rest is found."""
    root, per_file = tmp_path / "store", 20
    queued = asyncio.run(make_audited_store(root, max_index_num=1000, mapped_file_size_consume_queue=per_file * 20))
    files = sorted((root / "consumequeue" / QUEUE[0] / str(QUEUE[1])).iterdir())
    patch((files[-1], (len(queued) - 1) % per_file * 20), b"\0\0\x7f", 8)  # its size
    calls: list[int] = []
    audit(store_config(root), progress=lambda done, _: calls.append(done))
    when = calls[call] if call < 0 else calls[0]

    def clean(done: int, _total: int) -> None:
        """As CleanCommitLogService does, and behind it CleanConsumeQueueService."""
        if done < when or not (root / "commitlog" / f"{0:020d}").exists():
            return
        for base in (0, LOG_FILE):
            (root / "commitlog" / f"{base:020d}").unlink()
        gone = [
            path for path in files if queued[int(path.name) // 20 :][:per_file][-1].commit_log_offset < 2 * LOG_FILE
        ]
        assert 0 < len(gone) < len(files)
        for path in gone:
            path.unlink()

    report = audit(store_config(root), progress=clean)
    assert report.begin == 2 * LOG_FILE
    assert [(each.rule, each.queue_offset) for each in report.findings] == [("queue-entry-mismatch", len(queued) - 1)]


@pytest.mark.parametrize(("hours", "is_soon"), [(40, False), (50, True)])
async def test_messages_that_expire_before_they_are_consumed_are_reported(
    tmp_path: Path, hours: int, is_soon: bool
) -> None:
    """The last file is still written. A group may be amid a batch; damaged entries count for nothing."""
    store = make_store(tmp_path, batch_topics=["Batches"])
    await store.start()
    for number in range(300):
        store.appender.put_message(message(bytes(1000), queue_id=number % 2))
    for _ in range(40):
        store.appender.put_inner_batch(inner_batch(*[bytes(1000)] * 3), 3)
    for _ in range(100):
        store.appender.put_message(message(bytes(1000), "Last"))
    store.appender.dispatch()
    record = store.commit_log.record(0)
    assert record is not None
    await store.stop()
    groups = {"Topic@Slow": {"0": 10, "1": 0}, "Topic@Fast": {"0": 150, "1": 150}, "Batches@Amid": {"0": 100}}
    (tmp_path / "config").mkdir(exist_ok=True)
    table = {"offsetTable": groups | {"Last@New": {"0": 0}, "Batches@AtEnd": {"0": 120}}}
    (tmp_path / "config" / "consumerOffset.json").write_text(json.dumps(table))
    far = tmp_path / "batchconsumequeue" / "Batches" / "0" / f"{0:020d}"
    patch((far, 39 * BATCH_CQ_STORE_UNIT_SIZE), b"\x7f" + b"\xff" * 7, 28)

    now = decode_record(record).store_timestamp + hours * 3_600_000
    report = audit(store_config(tmp_path), AuditOptions(expiry=Expiry(now)))

    found = [each for each in report.findings if each.rule == "unconsumed-expiring"]
    assert {each.severity.value for each in found} <= {"warning"}
    counts = {(each.topic, each.queue_id, each.queue_offset): each.detail.split(":")[1].split()[0] for each in found}
    counts.pop(("Last", 0, 0), None)  # as many as are not in the last file
    expected = {("Topic", 0, 10): "140", ("Topic", 1, 0): "150", ("Batches", 0, 100): "17"}
    assert counts == (expected if is_soon else {})


def test_an_index_file_that_was_cut_is_a_finding_and_no_error(tmp_path: Path) -> None:
    root = golden_store.unpack("clean", tmp_path)
    path = min((root / "index").iterdir())
    os.truncate(path, 10)
    report = audit(MessageStoreConfig(store_path_root_dir=str(root)))
    found = next(each for each in report.findings if each.rule is AuditRule.INDEX_HEADER)
    assert (found.path, found.detail) == (str(path), "index header has 10 bytes instead of 40")


def test_an_index_file_that_repeats_another_one_is_a_finding_as_a_start_sets_it_aside(copy: Path) -> None:
    files = sorted((copy / "index").iterdir())
    repeated = files[-1].with_name(str(int(files[-1].name) + 1))
    shutil.copy(files[0], repeated)
    report = check(copy)
    (found,) = report.findings
    assert (found.rule, found.severity, found.path) == (AuditRule.INDEX_HEADER, Severity.ERROR, str(repeated))
    ends = [decode_header(path.read_bytes()).end_phy_offset for path in files]
    assert found.detail == f"beginPhyOffset is 0, before {max(ends)}, where the file before it ends"


def test_slots_that_a_file_does_not_tell_may_be_given(tmp_path: Path) -> None:
    root = golden_store.unpack("clean", tmp_path)
    for path in sorted((root / "index").iterdir())[1:]:
        path.unlink()
    (path,) = (root / "index").iterdir()
    data = path.read_bytes()
    header = decode_header(data)
    path.write_bytes(header._replace(end_phy_offset=header.end_phy_offset + 1, index_count=2).encode() + data[40:])
    rules = []
    for slots in (0, golden_store.MAX_HASH_SLOT_NUM):
        report = audit(MessageStoreConfig(store_path_root_dir=str(root)), AuditOptions(slot_count=slots))
        rules.append([each.detail for each in report.findings if each.rule is AuditRule.INDEX_HEADER])
    unknown = "its slots cannot be told from its entries"
    assert unknown in rules[0][0]
    assert unknown not in " ".join(rules[1])
