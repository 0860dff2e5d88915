"""Each rule sees its own damage and no other error."""

import shutil
from pathlib import Path

import pytest

from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.storefile.audit_rules import AuditRule, Severity
from rocketbroker.codec.storefile.index_file_layout import ENTRY as INDEX_ENTRY
from rocketbroker.codec.storefile.index_file_layout import entry_position
from rocketbroker.common.errors import StoreError
from rocketbroker.store.audit.store_audit import AuditOptions
from tests.support.audit_damage import DAMAGE, WARNINGS, index_file
from tests.support.audited_store import check, errors, log_place, patch, warnings
from tests.support.stores import make_store, message


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
    report = check(copy)
    assert errors(report) == {"foreign-part": 1}
    assert "rocksDBConfigToJson" in next(each.detail for each in report.findings if each.rule == "foreign-part")


def test_a_dledger_store_without_a_log_of_its_own_is_named(copy: Path) -> None:
    shutil.rmtree(copy / "commitlog")
    (copy / "dledger-n0" / "data").mkdir(parents=True)
    (copy / "dledger-n0" / "data" / f"{0:020d}").write_bytes(bytes(64))
    with pytest.raises(StoreError, match="is the log of a DLedger group"):
        check(copy)


async def test_popped_messages_are_named_until_pop_has_read_all(tmp_path: Path) -> None:
    topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    store = make_store(tmp_path)
    await store.start()
    for number in range(3):
        store.appender.put_message(message(b"check point", topic, number % 2))
    store.appender.dispatch()
    await store.stop()
    (tmp_path / "config").mkdir(exist_ok=True)
    offsets = tmp_path / "config" / "consumerOffset.json"
    for read, expected in (("", {"pop-open": 2}), ('"0":0,"1":0', {"pop-open": 1}), ('"0":1,"1":0', {})):
        table = f'"{topic}@CID_RMQ_SYS_REVIVE_GROUP":{{{read}}}' if read else ""
        offsets.write_text(f'{{"offsetTable":{{{table}}}}}')
        report = check(tmp_path)
        assert (errors(report), warnings(report)) == ({}, expected)


def test_every_rule_is_tested() -> None:
    seen = {rule for rule, _ in (DAMAGE | WARNINGS).values()}
    # Tested beside this, and the last, which `mqanalytics audit` alone finds, there.
    elsewhere = {"file-unreadable", "log-torn-tail", "foreign-part", "pop-open", "unconsumed-expiring"}
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
