"""Stores that are sound, or stopped at any moment, have no errors; what can be chosen is left out."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import StoreError
from rocketbroker.store.audit.queues_audit import QueuesAudit
from rocketbroker.store.audit.store_audit import AuditOptions, audit
from rocketbroker.store.recovery.store_lock import StoreLock
from tests.support import golden_store
from tests.support.audit_damage import config, hole, in_record, index_file
from tests.support.audited_store import MESSAGES, QUEUE, check, errors, make_audited_store, put_all, warnings
from tests.support.fakes import FakeClock
from tests.support.stores import LOG_FILE, crash_copy, make_store, message, store_config


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
