"""The audit by Spark tells of each kind of damage what the audit in one process tells."""

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rocketbroker.analytics import audit
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.jobs.local_audit import finding_row
from rocketbroker.app.mqanalytics import audit as audit_command
from rocketbroker.app.mqanalytics import running
from rocketbroker.app.mqanalytics.audit import Found, run, run_locally
from rocketbroker.app.mqanalytics.cli import app
from rocketbroker.audit.store_files import AuditOptions, Expiry
from rocketbroker.codec.message.message_const import INNER_BATCH_FLAG, parse_delay_levels
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_ENTRY, ENTRY
from rocketbroker.codec.storefile.index_file_layout import ENTRY as INDEX_ENTRY
from rocketbroker.codec.storefile.index_file_layout import decode_header, entry_position, slot_position
from rocketbroker.common.config import MessageStoreConfig
from tests.support import audit_damage, golden_store
from tests.support.audited_store import (
    QUEUE,
    bytes_at,
    check,
    errors,
    log_place,
    make_audited_store,
    patch,
    put_all,
    queue_place,
)
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.fakes import FakeClock
from tests.support.slow_store_reader import slow_rows
from tests.support.stores import LOG_FILE, make_store

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Damage = Callable[[Path, list[MessageExt]], None]
Counts = Counter[tuple[str, str]]
QUEUE_OFFSET = 17  # of the message that is damaged
LEVELS = parse_delay_levels(MessageStoreConfig().message_delay_level)
HOUR = 3_600_000
LIMIT = 10_000  # of findings of a rule
# A date long before the messages, so that none is about to be removed.
ALL = AuditOptions(limit=LIMIT, expiry=Expiry(0))


def in_record(number: int, at: int, data: bytes) -> Damage:
    """Overwrite bytes of the record of the queue's message ``number``."""
    return lambda root, queued: patch(log_place(root, queued[number].commit_log_offset), data, at)


def in_entry(number: int, offset: int = 0, size: int = 0, tags_code: int = 0) -> Damage:
    def damage(root: Path, queued: list[MessageExt]) -> None:
        place = queue_place(root, number)
        was = ENTRY.unpack(bytes_at(place, 20))
        patch(place, ENTRY.pack(was[0] + offset, was[1] + size, was[2] + tags_code))

    return damage


def in_index_entry(number: int, **fields: int) -> Damage:
    def damage(root: Path, queued: list[MessageExt]) -> None:
        place = min((root / "index").iterdir()), entry_position(number, 50)
        names = ("key_hash", "phy_offset", "time_diff", "previous")
        was = dict(zip(names, INDEX_ENTRY.unpack(bytes_at(place, 20)), strict=True))
        patch(place, INDEX_ENTRY.pack(*(was | {name: was[name] + by for name, by in fields.items()}).values()))

    return damage


def zero_record(number: int) -> Damage:
    return lambda root, queued: patch(
        log_place(root, queued[number].commit_log_offset), bytes(queued[number].store_size)
    )


def hole(number: int) -> Damage:
    return lambda root, queued: patch(queue_place(root, number), bytes(20))


def lost(number: int) -> Damage:
    """A message of no queue stands where one of the queue was, and its entry is gone."""

    def damage(root: Path, queued: list[MessageExt]) -> None:
        hole(number)(root, queued)
        patch(log_place(root, queued[number].commit_log_offset), b"\0\0\0\x04", 36)  # half of a transaction

    return damage


def misplaced_entry(number: int) -> Damage:
    """An entry that leads to the message after its own."""
    return lambda root, queued: patch(queue_place(root, number), bytes_at(queue_place(root, number + 1), 20))


def beyond(root: Path, queued: list[MessageExt]) -> None:
    patch(queue_place(root, len(queued)), ENTRY.pack(1 << 30, 100, 0))


def repeated(root: Path, queued: list[MessageExt]) -> None:
    """A message has the queue offset of the one before it, and the queue ends before it."""
    last = queued[-1]
    patch(log_place(root, last.commit_log_offset), Struct(">q").pack(last.queue_offset - 1), 20)
    patch(queue_place(root, last.queue_offset), bytes(20))


def out_of_order(number: int) -> Damage:
    """Two messages have each other's queue offset, and their entries agree with them."""

    def damage(root: Path, queued: list[MessageExt]) -> None:
        one, other = queued[number : number + 2]
        entries = [bytes_at(queue_place(root, each.queue_offset), 20) for each in (one, other)]
        for each, queue_offset, entry in ((one, other.queue_offset, entries[0]), (other, one.queue_offset, entries[1])):
            patch(log_place(root, each.commit_log_offset), Struct(">q").pack(queue_offset), 20)
            patch(queue_place(root, queue_offset), entry)

    return damage


def remove(path: str) -> Damage:
    """Remove a file or a folder of the store."""

    def damage(root: Path, queued: list[MessageExt]) -> None:
        shutil.rmtree(root / path) if (root / path).is_dir() else (root / path).unlink()

    return damage


def first_index_file_gone(root: Path, queued: list[MessageExt]) -> None:
    min((root / "index").iterdir()).unlink()


def missing_key(root: Path, queued: list[MessageExt]) -> None:
    """The last two entries, a key and a tag of the last message, are taken back as if they had never been entered."""
    path = max((root / "index").iterdir())
    header = decode_header(path.read_bytes())
    for last in (header.index_count - 1, header.index_count - 2):
        key_hash, _, _, previous = INDEX_ENTRY.unpack(bytes_at((path, entry_position(last, 50)), 20))
        patch((path, slot_position(key_hash, 50)), previous.to_bytes(4, "big"))
        patch((path, entry_position(last, 50)), bytes(20))
    patch((path, 0), header._replace(index_count=header.index_count - 2).encode())


def offset_beyond(root: Path, queued: list[MessageExt]) -> None:
    (root / "config").mkdir(exist_ok=True)
    table = {f"{QUEUE[0]}@G": {"0": len(queued) + 1}, f"{QUEUE[0]}@H": {"0": len(queued)}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def damaged_config(root: Path, queued: list[MessageExt]) -> None:
    """Write config files that cannot be read: each is a finding, and the audit goes on."""
    (root / "config").mkdir(exist_ok=True)
    for name, text in {"topics.json": "{", "consumerOffset.json": "{}", "consumerOffset.json.bak": ""}.items():
        (root / "config" / name).write_text(text)


def killed(root: Path, queued: list[MessageExt]) -> None:
    """As after a kill; messages up to one in the midst were on disk for certain."""
    (root / "abort").touch()
    at = queued[20].store_timestamp
    (root / "checkpoint").write_bytes(StoreCheckpoint(at, at, at).encode())


def a_queue_that_ends_early(root: Path, queued: list[MessageExt]) -> None:
    for number in range(len(queued) - 5, len(queued)):
        patch(queue_place(root, number), bytes(20))


MOST = (1 << 63) - 1
LEAST = -(1 << 63)


def far_delayed(root: Path, queued: list[MessageExt]) -> None:
    """A delayed message was stored so late that no time is left to deliver it."""
    rows = [row for row in slow_rows(root / "commitlog") if row["topic"] == RMQ_SYS_SCHEDULE_TOPIC]
    patch(log_place(root, rows[3]["physical_offset"]), Struct(">q").pack(MOST), 56)


def far_entry(offset: int) -> Damage:
    return lambda root, queued: patch(queue_place(root, 35), ENTRY.pack(offset, 100, 0))


def far_index_time(root: Path, queued: list[MessageExt]) -> None:
    """The times of a whole index file."""
    patch((min((root / "index").iterdir()), 0), Struct(">q").pack(MOST))


def far_batch(root: Path, queued: list[MessageExt]) -> None:
    """A queue of batches whose only entry leads to a message of another, and has the last queue offset of all."""
    queue = root / "batchconsumequeue" / "Batches" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(BATCH_ENTRY.pack(0, 100, 0, 0, MOST, 5, 0, 0))


# Of each store what is done to it; a number is that of a message of QUEUE, or of an index entry.
DAMAGES: dict[str, list[Damage]] = {
    "sound": [],
    "records": [
        in_record(3, 4, b"\0"),  # magic code
        in_record(7, 0, b"\x7f"),  # totalSize
        in_record(11, 28, b"\x01"),  # physicalOffset
        in_record(15, 90, b"\xff"),  # body
        in_record(19, 12, b"\0\0\0\7"),  # queueId
        zero_record(23),
    ],
    "one-record": [in_record(3, 4, b"\0")],
    "entries": [
        in_entry(3, offset=1),
        in_entry(7, size=1),
        in_entry(11, tags_code=1),
        misplaced_entry(15),
        hole(19),
        lost(23),
        lost(27),
        lost(28),
        out_of_order(32),
        beyond,
    ],
    "one-entry": [in_entry(QUEUE_OFFSET, tags_code=1)],
    "index": [in_index_entry(20, key_hash=1), in_index_entry(30, phy_offset=1), in_index_entry(40, time_diff=1)],
    "no-file": [remove(f"commitlog/{LOG_FILE:020d}")],
    "no-first-file": [remove(f"commitlog/{0:020d}")],
    "no-queue": [remove(f"consumequeue/{QUEUE[0]}"), remove("index")],
    "missing-key": [missing_key],
    "ends": [repeated, first_index_file_gone, offset_beyond],
    "config": [damaged_config, in_entry(7, size=1)],
    "killed": [killed, a_queue_that_ends_early, in_record(2, 4, b"\0"), hole(7), hole(30)],
    "far": [
        in_record(17, 20, Struct(">q").pack(MOST)),  # queueOffset
        in_record(21, 20, Struct(">q").pack(LEAST)),
        in_record(25, 56, Struct(">q").pack(MOST)),  # storeTimestamp
        in_record(29, 56, Struct(">q").pack(LEAST)),
        far_delayed,
        far_entry(LEAST + 1),
    ],
    "far-batch": [far_batch],
    "files": [audit_damage.missing_queue_file, audit_damage.checkpoint(StoreCheckpoint(-1, 5).encode())],
    "sizes": [
        audit_damage.queue_file_size,
        audit_damage.last_log_file_size,
        audit_damage.checkpoint(StoreCheckpoint(1 << 50, 1 << 51).encode()),
    ],
    "short": [audit_damage.checkpoint(bytes(20)), audit_damage.in_index_slot],
    "killed-ahead": [killed, beyond, offset_beyond, in_index_entry(20, key_hash=1)],
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A damaged copy of one store for each damage."""
    sound = tmp_path_factory.mktemp("audit") / "store"
    queued = asyncio.run(make_audited_store(sound, max_index_num=1000))
    found = {}
    for name, damages in DAMAGES.items():
        found[name] = shutil.copytree(sound, sound.parent / name)
        for damage in damages:
            damage(found[name], queued)
    return found


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Batches of 3 and 4 messages, and one of 2 behind a gap of 3; a group at the end of the queue, one behind it."""
    root = tmp_path_factory.mktemp("batches")
    writer, entries = CommitLogWriter(root), b""
    for base, count in ((0, 3), (3, 4), (10, 2)):
        number = b"INNER_NUM\x01%d\x02" % count
        record = writer.append(b"", b"Batches", number, sys_flag=INNER_BATCH_FLAG, queue_offset=base, store_timestamp=7)
        entries += BATCH_ENTRY.pack(writer.end - len(record), len(record), 0, 7, base, count, -1, 0)
    queue = root / "batchconsumequeue" / "Batches" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(entries)
    (root / "config").mkdir()
    table = {"Batches@AtEnd": {"0": 12}, "Batches@Behind": {"0": 13}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    return root


@pytest.fixture(scope="module")
def told(
    spark: SparkSession, stores: dict[str, Path], batches: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Found]:
    """The findings of one audit by store: of those above, of one with batches, and of stores of Apache RocketMQ."""
    recorded = {name: golden_store.unpack(name, tmp_path_factory.mktemp(name)) for name in golden_store.NAMES}
    far_index = shutil.copytree(stores["sound"], tmp_path_factory.mktemp("far-index") / "store")
    far_index_time(far_index, [])
    known = {**stores, "batches": batches, "far-index": far_index, **recorded}
    assert len(known) == len(stores) + 2 + len(recorded)
    roots = tuple(StoreRoot(name, str(path)) for name, path in known.items())
    found, _ = run(spark, roots, ALL, LEVELS)
    by_store: dict[str, Found] = {name: [] for name in known}
    for each in found:
        by_store[each["broker"]].append(each)
    return by_store


def counted(found: Found) -> Counts:
    """Count the findings of each rule and severity."""
    counts = Counts()
    for each in found:
        counts[each["rule"], each["severity"]] = each["count"]
    return counts


def rows_of_check(root: Path) -> list[Any]:
    """The findings of the audit in one process as rows of the job, with the number of each kind."""
    report = check(root, ALL)
    rows = [finding_row("", each) | {"count": report.counts[each.rule, each.severity]} for each in report.findings]
    return sorted(map(repr, rows))


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_reported_as_by_one_process(told: dict[str, Found], stores: dict[str, Path], name: str) -> None:
    assert sorted(repr(each | {"broker": ""}) for each in told[name]) == rows_of_check(stores[name])


@pytest.mark.parametrize("name", [*DAMAGES, "batches"])
def test_the_job_finds_the_same_without_spark(
    told: dict[str, Found], stores: dict[str, Path], batches: Path, name: str
) -> None:
    root = StoreRoot(name, str({**stores, "batches": batches}[name]))
    found, _ = run_locally((root,), ALL, LEVELS)
    assert sorted(map(repr, found)) == sorted(map(repr, told[name]))


def test_each_damage_breaks_the_rule_it_is_made_for(told: dict[str, Found]) -> None:
    rules = {each["rule"] for found in told.values() for each in found}
    assert told["sound"] == []
    assert rules >= {
        "log-file-missing",
        "log-hole",
        "record-magic",
        "record-length",
        "record-position",
        "record-crc",
        "queue-missing",
        "queue-entry-unreadable",
        "queue-entry-beyond-log",
        "queue-entry-mismatch",
        "queue-offset-missing",
        "queue-offset-repeated",
        "queue-offset-order",
        "message-not-queued",
        "index-entry-unreadable",
        "index-entry-mismatch",
        "index-missing-key",
        "consumer-offset-beyond-queue",
        "config-damaged",
        "config-backup-damaged",
        "queue-file-missing",
        "queue-file-size",
        "log-file-size",
        "checkpoint-damaged",
        "checkpoint-ahead",
    }
    assert ("message-not-queued", "warning") in counted(told["killed"])


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_a_store_of_apache_rocketmq_has_no_findings(told: dict[str, Found], name: str) -> None:
    assert told[name] == []


def test_impossible_times_of_an_index_file_are_reported(told: dict[str, Found]) -> None:
    """An overflow decides which of its entries have the time of their message."""
    rules = {(each["rule"], each["severity"]) for each in told["far-index"]}
    assert rules == {("index-entry-mismatch", "error"), ("index-header", "error")}


def test_one_batch_entry_covers_all_messages_of_the_batch(told: dict[str, Found]) -> None:
    assert sorted((each["rule"], each["queue_offset"], each["detail"]) for each in told["batches"]) == [
        ("consumer-offset-beyond-queue", None, "group Behind is at 13 of Batches/0, but the queue ends at 12"),
        ("queue-offset-missing", 7, "neither message nor entry to 9"),
    ]


async def test_no_loss_is_reported_while_the_store_is_written(spark: SparkSession, tmp_path: Path) -> None:
    clock = FakeClock()
    store = make_store(tmp_path / "store", clock, max_index_num=1000)
    await store.start()
    try:
        put_all(store, clock)
        roots = (StoreRoot("a", str(tmp_path / "store")),)
        auditing = asyncio.create_task(asyncio.to_thread(run, spark, roots, ALL, LEVELS))
        rounds = 0
        while not auditing.done():
            put_all(store, clock, 50)
            rounds += 1
            await asyncio.wait({auditing}, timeout=0.2)
        found, _ = await auditing
    finally:
        await store.stop()
    assert rounds > 1
    assert [each for each in found if each["severity"] == "error"] == []


def invoke(*arguments: object) -> tuple[int, str, str]:
    printed = CliRunner().invoke(app, ["audit", *[str(each) for each in arguments]])
    return printed.exit_code, printed.stdout, printed.stderr


def test_the_exit_code_reports_loss(spark: SparkSession, stores: dict[str, Path]) -> None:
    by_engine = {}
    for engine in ("auto", "spark"):
        exit_code, stdout, stderr = invoke(
            stores["one-record"], "--json", "--max-hash-slot-num", "50", "--engine", engine
        )
        assert exit_code == 3, stderr
        by_engine[engine] = json.loads(stdout)
    printed = by_engine["auto"]
    assert printed == by_engine["spark"]
    expected = errors(check(stores["one-record"]))
    assert {each["rule"]: each["count"] for each in printed["rules"]} == expected
    assert (printed["errors"], printed["warnings"], printed["notRead"]["ranges"]) == (sum(expected.values()), 0, 1)
    assert printed["findings"][0].keys() >= {"rule", "queueId", "physicalOffset", "detail"}


def test_a_program_audits_with_the_defaults(spark: SparkSession, stores: dict[str, Path]) -> None:
    found, not_read = audit(spark, f"a={stores['one-entry']}")
    assert [(rule.value, count) for (rule, _), count in found["a"].counts.items()] == [("queue-entry-mismatch", 1)]
    assert not_read == (0, 0)


def test_a_small_store_is_audited_without_spark(stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def starting(*_: object) -> None:
        raise AssertionError("Spark starts")

    monkeypatch.setattr(audit_command, "running", starting)
    assert invoke(stores["one-entry"])[0] == 3
    monkeypatch.setattr(running, "_MOST_LOCAL_BYTES", 1)
    assert str(CliRunner().invoke(app, ["audit", str(stores["one-entry"])]).exception) == "Spark starts"


def test_a_sound_store_is_no_error(stores: dict[str, Path]) -> None:
    exit_code, stdout, stderr = invoke(stores["sound"])
    assert (exit_code, stdout) == (0, "nothing is wrong; 0 ranges, 0 bytes not read\n"), stderr


def test_people_see_each_rule_and_its_findings(stores: dict[str, Path]) -> None:
    exit_code, stdout, _ = invoke(f"a={stores['one-entry']}")
    lines = stdout.splitlines()
    assert exit_code == 3
    assert lines[0].split() == ["Broker", "Rule", "Severity", "Count", "Meaning"]
    assert lines[-2].startswith(
        f"error queue-entry-mismatch a {QUEUE[0]}/0 queue offset {QUEUE_OFFSET}: the entry has size"
    )
    assert lines[-1] == "1 error, 0 warnings, 1 of them shown; 0 ranges, 0 bytes not read"
