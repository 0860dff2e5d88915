"""The audit by Spark tells of each kind of damage what `mqstore check` tells, under the same names."""

import asyncio
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any
from unittest.mock import create_autospec

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.jobs import audit as audit_job
from rocketbroker.analytics.jobs.audit import AuditOptions
from rocketbroker.analytics.jobs.audit_expiry import ExpiryFrames, audit_expiry
from rocketbroker.analytics.jobs.audit_findings import Kept
from rocketbroker.analytics.jobs.audited_stores import AuditedStore, OfStore
from rocketbroker.analytics.jobs.scope import NotRead
from rocketbroker.app.mqanalytics import audit as audit_command
from rocketbroker.app.mqanalytics.audit import Found, run
from rocketbroker.app.mqanalytics.cli import app
from rocketbroker.audit.store_audit import AuditReport
from rocketbroker.audit.store_files import AuditOptions as CheckOptions
from rocketbroker.codec.message.message_const import INNER_BATCH_FLAG, parse_delay_levels
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_ENTRY, ENTRY
from rocketbroker.codec.storefile.index_file_layout import ENTRY as INDEX_ENTRY
from rocketbroker.codec.storefile.index_file_layout import decode_header, entry_position, slot_position
from rocketbroker.codec.storefile.store_state import StoreState
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
from tests.support.stores import LOG_FILE, make_store, message

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Damage = Callable[[Path, list[MessageExt]], None]
Counts = Counter[tuple[str, str]]
QUEUE_OFFSET = 17  # of the message that is damaged
LEVELS = parse_delay_levels(MessageStoreConfig().message_delay_level)
HOUR = 3_600_000
LIMIT = 10_000  # of findings of a rule
AUDIT = "mqanalytics audit"
OF_LOG = {rule for rule in AuditRule if rule.startswith(("log-", "record-", "blank-")) and rule != "log-file-size"}
OF_FILES = {"config-damaged", "config-backup-damaged", "queue-file-missing", "queue-file-size", "log-file-size"}
OF_FILES |= {"checkpoint-damaged", "checkpoint-ahead"}
PLACE = re.compile(r"^[^:]*: ")
# A date long before the messages, so that none is about to be removed.
EARLY = 0


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
        record = writer.append(topic=b"Batches", sys_flag=INNER_BATCH_FLAG, queue_offset=base)
        entries += BATCH_ENTRY.pack(writer.end - len(record), len(record), 0, 0, base, count, -1, 0)
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
    found, _ = run(spark, roots, AuditOptions(EARLY, LEVELS), limit=LIMIT, check_crc=True)
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


def places_in_tables(found: Found) -> Counter[tuple[str, ...]]:
    """Rule, severity and place of each finding: topic, queue and queue offset, file and entry, or physical offset."""
    places = Counter[tuple[str, ...]]()
    for each in found:
        rule, detail = each["rule"], each["detail"]
        if each["queue_offset"] is not None:
            place = f"{each['topic']}/{each['queue_id']} queue offset {max(each['queue_offset'], 0)}: {detail}"
        elif rule in OF_LOG:
            place = str(each["physical_offset"])
        elif rule in OF_FILES:
            place = detail.split(": ", 1)[1] if "checkpoint, position" in detail else PLACE.sub("", detail)
        else:
            place = detail
        places[rule, each["severity"], place] += 1
    return places


def places_in_files(report: AuditReport) -> Counter[tuple[str, ...]]:
    """The same of the findings of `mqstore check`."""
    places = Counter[tuple[str, ...]]()
    for each in report.findings:
        rule, path, position, detail, severity = each.rule, each.path, each.position, each.text, each.severity
        place = detail
        if rule in OF_LOG:
            place = str(int(Path(path).name) + position)
        elif rule.startswith("index-entry"):
            place = f"{Path(path).name} {detail}"
        if AUDIT in rule.tools:
            places[rule.value, severity.value, place] += 1
    return places


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_reported_as_by_the_store_check(
    told: dict[str, Found], stores: dict[str, Path], name: str
) -> None:
    assert places_in_tables(told[name]) == places_in_files(check(stores[name], CheckOptions(limit=LIMIT)))


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
    assert {(each["rule"], each["severity"]) for each in told["far-index"]} == {("index-entry-mismatch", "error")}


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
        options = AuditOptions(EARLY, LEVELS)
        auditing = asyncio.create_task(asyncio.to_thread(run, spark, roots, options, limit=5, check_crc=True))
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


@pytest.mark.parametrize("is_read", ["nothing", "log"])
def test_no_loss_is_reported_while_the_store_is_cleaned(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_read: str
) -> None:
    """Damage is found also where nothing was removed."""
    root, per_file = tmp_path / "store", 20
    queued = asyncio.run(make_audited_store(root, max_index_num=1000, mapped_file_size_consume_queue=per_file * 20))
    queue = root / "consumequeue" / QUEUE[0] / str(QUEUE[1])
    files = sorted(queue.iterdir())
    patch((files[-1], (len(queued) - 1) % per_file * 20), b"\0\0\x7f", 8)  # its size

    def clean() -> None:
        """As CleanCommitLogService does, and behind it CleanConsumeQueueService."""
        for base in (0, LOG_FILE):
            (root / "commitlog" / f"{base:020d}").unlink()
        gone = [
            path for path in files if queued[int(path.name) // 20 :][:per_file][-1].commit_log_offset < 2 * LOG_FILE
        ]
        assert 0 < len(gone) < len(files)
        for path in gone:
            path.unlink()

    module, name = (audit_command, "_tables") if is_read == "nothing" else (audit_job, "_expected")
    really = getattr(module, name)

    def cleaned_before(*args: Any, **options: Any) -> Any:
        clean()
        return really(*args, **options)

    monkeypatch.setattr(module, name, cleaned_before)
    found, _ = run(spark, (StoreRoot("a", str(root)),), AuditOptions(EARLY, LEVELS), limit=5, check_crc=True)
    assert [(each["rule"], each["queue_offset"], each["count"]) for each in found] == [
        ("queue-entry-mismatch", len(queued) - 1, 1)
    ]


async def test_messages_removed_before_they_are_consumed_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    await store.start()
    for number in range(300):
        store.appender.put_message(message(bytes(1000), queue_id=number % 2))
    store.appender.dispatch()
    record = store.commit_log.record(0)
    assert record is not None
    await store.stop()
    now = decode_record(record).store_timestamp
    offset_table = {"Topic@Slow": {"0": 10, "1": 0}, "Topic@Fast": {"0": 150, "1": 150}}
    (tmp_path / "store" / "config").mkdir(exist_ok=True)
    (tmp_path / "store" / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offset_table}))
    roots = (StoreRoot("a", str(tmp_path / "store")),)
    found, _ = run(spark, roots, AuditOptions(now + 50 * HOUR, LEVELS), limit=5, check_crc=False)
    assert [(each["rule"], each["severity"]) for each in found] == [("unconsumed-expiring", "warning")] * 2
    assert [(each["queue_id"], each["queue_offset"]) for each in sorted(found, key=lambda f: f["queue_id"])] == [
        (0, 10),
        (1, 0),
    ]
    assert all(each["detail"].startswith("group Slow is at ") for each in found)


@pytest.mark.parametrize(
    ("hours", "positions", "expected"),
    [
        (47, {}, []),
        (48, {}, [("All", 0, 0, 8), ("Amid", 0, 2, 6), ("Old", 1, 0, 1)]),
        (48, {"All": 8, "Amid": 7, "Old": 1}, [("Amid", 0, 7, 1)]),
    ],
)
def test_unread_messages_in_expiring_files_are_counted_by_group_and_queue(
    spark: SparkSession, hours: int, positions: dict[str, int], expected: list[tuple[str, int, int, int]]
) -> None:
    """Two files, of which the second is written to; queue 0 has batches of 2 and 5, queue 1 single messages.

    Two entries are damaged: nothing can be added to the queue offset of one, nor taken from where the other leads.
    """
    records = spark.createDataFrame(
        [("a", at, at) for at in (0, 100, 200, 900, 1000)],
        "broker string, physical_offset bigint, store_timestamp bigint",
    )
    places = [(0, 0, 0, 1), (0, 1, 100, 2), (0, 3, 200, 5), (0, 8, 1000, 1), (1, 0, 900, 1), (1, 1, 1100, 1)]
    places += [(0, MOST, 200, 5), (1, 2, LEAST + 1, 1)]
    entries = spark.createDataFrame(
        [("a", "T", *place) for place in places],
        "broker string, topic string, queue_id int, queue_offset bigint, physical_offset bigint, batch_size int",
    )
    groups = [("All", 0, 0), ("Amid", 0, 2), ("Old", 1, 0), ("None", 0, 8)]
    offsets = spark.createDataFrame(
        [("a", name, "T", queue, positions.get(name, at)) for name, queue, at in groups],
        "broker string, group_name string, topic string, queue_id int, consumer_offset bigint",
    )
    store = AuditedStore("a", 0, 1000, 1000, StoreState(False, (), StoreCheckpoint()), {}, (), pa.table({}))
    frames = ExpiryFrames(records, entries, offsets, OfStore([store], {}))
    with Kept() as kept:
        rows = audit_expiry(frames, 900 + hours * HOUR, 72, 24, kept).collect()
    told = [(each["detail"].split()[1], each["queue_id"], each["queue_offset"], each["detail"]) for each in rows]
    assert [(*place, int(detail.split(": ")[1].split()[0])) for *place, detail in sorted(told)] == [*expected]


def invoke(*arguments: object) -> tuple[int, str, str]:
    printed = CliRunner().invoke(app, ["audit", *[str(each) for each in arguments]])
    return printed.exit_code, printed.stdout, printed.stderr


def test_the_exit_code_reports_loss(spark: SparkSession, stores: dict[str, Path]) -> None:
    exit_code, stdout, stderr = invoke(stores["one-record"], "--json", "--max-hash-slot-num", "50")
    assert exit_code == 3, stderr
    printed = json.loads(stdout)
    expected = errors(check(stores["one-record"]))
    assert {each["rule"]: each["count"] for each in printed["rules"]} == expected
    assert (printed["errors"], printed["warnings"], printed["notRead"]["ranges"]) == (sum(expected.values()), 0, 1)
    assert printed["findings"][0].keys() >= {"rule", "queueId", "physicalOffset", "detail"}


@pytest.fixture
def found_before(told: dict[str, Found], stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command show what the audit of all stores found: each audit takes Spark seconds."""

    def find(
        _spark: SparkSession, roots: tuple[StoreRoot, ...], *_: object, **_options: object
    ) -> tuple[Found, NotRead]:
        [root] = roots
        name = next(name for name, path in stores.items() if str(path) == root.uri)
        return [each | {"broker": root.broker} for each in told[name]], NotRead(0, 0)

    monkeypatch.setattr(audit_command, "run", create_autospec(run, side_effect=find))


@pytest.mark.usefixtures("found_before")
def test_a_sound_store_is_no_error(stores: dict[str, Path]) -> None:
    exit_code, stdout, stderr = invoke(stores["sound"])
    assert (exit_code, stdout) == (0, "nothing is wrong; 0 ranges, 0 bytes not read\n"), stderr


@pytest.mark.usefixtures("found_before")
def test_people_see_each_rule_and_its_findings(stores: dict[str, Path]) -> None:
    exit_code, stdout, _ = invoke(f"a={stores['one-entry']}")
    lines = stdout.splitlines()
    assert exit_code == 3
    assert lines[0].split() == ["Broker", "Rule", "Severity", "Count", "Meaning"]
    assert lines[-2].startswith(
        f"error queue-entry-mismatch a {QUEUE[0]}/0 queue offset {QUEUE_OFFSET}: the entry has size"
    )
    assert lines[-1] == "1 error, 0 warnings, 1 of them shown; 0 ranges, 0 bytes not read"
