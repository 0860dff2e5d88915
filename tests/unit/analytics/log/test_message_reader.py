"""The walk over a log that is damaged, unfinished, or made to mislead."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketbroker.analytics import read_store
from rocketbroker.analytics.columns.decode_report import DecodeReport, SkippedRange
from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from rocketbroker.analytics.files import commit_log_files
from rocketbroker.analytics.log.message_reader import read_split, walk_split
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support import golden_store
from tests.support.commit_log_writer import V4_HOST, V6_HOST, CommitLogWriter, overwrite
from tests.support.slow_store_reader import slow_rows

SPLIT_SIZES = [3_000, 50_000, 1 << 26]


def walk(root: Path, split_size: int = 1 << 26) -> tuple[list[int], DecodeReport]:
    """The offsets of the records found, and the report."""
    report, offsets = DecodeReport(), []
    for split in plan_splits(root, split_size):
        for records in walk_split(split, report):
            offsets += (records.starts + records.base).tolist()
    return offsets, report


@pytest.fixture
def writer(tmp_path: Path) -> CommitLogWriter:
    writer = CommitLogWriter(tmp_path, file_size=1 << 18)
    writer.append_many(1_500)  # the first of two files is long enough for several chains
    return writer


def skipped(path: Path, position: int, length: int, reason: AuditRule) -> SkippedRange:
    return SkippedRange(path.parents[1].name, str(path), position, length, reason.value)


def offsets_of(writer: CommitLogWriter) -> list[int]:
    return [int(path.name) + position for path, position, _ in writer.records]


DAMAGE = {
    "totalSize zero": (0, b"\0\0\0\0", AuditRule.RECORD_LENGTH),
    "totalSize negative": (0, b"\xff\xff\xff\xff", AuditRule.RECORD_LENGTH),
    "totalSize huge": (0, b"\x7f\xff\xff\xff", AuditRule.RECORD_LENGTH),
    "totalSize one more": (3, b"+1", AuditRule.RECORD_LENGTH),
    "totalSize over the next record": (0, b"next", AuditRule.RECORD_LENGTH),
    "magic": (4, b"\xda\xa3\x20\xa8", AuditRule.RECORD_MAGIC),
    "physicalOffset": (28, b"\0\0\0\1\0\0\0\0", AuditRule.RECORD_POSITION),
    "a false IPv6 host": (39, b"\x10", AuditRule.RECORD_LENGTH),
    "bodyLength negative": (84, b"\xff\xff\xff\xff", AuditRule.RECORD_LENGTH),
    "bodyLength huge": (84, b"\x7f\xff\xff\xff", AuditRule.RECORD_LENGTH),
    "all zeros": (0, b"zeros", AuditRule.LOG_HOLE),
}


@pytest.mark.long
@pytest.mark.parametrize("split_size", SPLIT_SIZES)
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_record_is_skipped_counted_and_named(writer: CommitLogWriter, kind: str, split_size: int) -> None:
    at, data, reason = DAMAGE[kind]
    # Numbers whose hosts are IPv4, in the middle of the first file and at its beginning.
    for number in (600, 0):
        path, position, size = writer.records[number]
        if data == b"+1":
            data = bytes([(size & 0xFF) + 1 & 0xFF])
        elif data == b"next":
            data = (size + writer.records[number + 1][2]).to_bytes(4, "big")
        elif data == b"zeros":
            data = bytes(size)
        overwrite(path, position + at, data)
        offsets, report = walk(writer.root, split_size)
        assert report.broken[0] == skipped(path, position, size, reason)
        data = DAMAGE[kind][1]
    assert offsets == [offset for index, offset in enumerate(offsets_of(writer)) if index not in {0, 600}]
    assert (len(report.broken), report.unfinished, len(offsets)) == (2, [], 1_498)


def test_damage_is_logged_with_file_and_position(writer: CommitLogWriter, caplog: pytest.LogCaptureFixture) -> None:
    path, position, size = writer.records[5]
    overwrite(path, position + 4, b"?")
    walk(writer.root)
    assert caplog.messages == [f"{path}: no readable record in {size} bytes from position {position}; skipped"]


@pytest.mark.parametrize("split_size", SPLIT_SIZES)
def test_a_large_hole_is_one_range(writer: CommitLogWriter, split_size: int) -> None:
    path, position, _ = writer.records[100]
    overwrite(path, position, bytes(100_000))
    after = next(p for q, p, _ in writer.records if q == path and p >= position + 100_000)
    _, report = walk(writer.root, split_size)
    assert report.broken == [skipped(path, position, after - position, AuditRule.LOG_HOLE)]


@pytest.mark.parametrize("split_size", SPLIT_SIZES)
def test_a_full_file_that_ends_in_zeros_is_damage(writer: CommitLogWriter, split_size: int) -> None:
    first_file = [record for record in writer.records if record[0] == writer.records[0][0]]
    path, position, _ = first_file[-10]
    overwrite(path, position, bytes(writer.file_size - position))
    offsets, report = walk(writer.root, split_size)
    assert report.broken == [skipped(path, position, writer.file_size - position, AuditRule.LOG_HOLE)]
    assert len(offsets) == 1_490


@pytest.mark.parametrize("split_size", [1, 200, 1 << 26])
def test_a_record_cut_at_any_byte_is_left_out(tmp_path: Path, split_size: int) -> None:
    writer = CommitLogWriter(tmp_path, file_size=4096)
    writer.append(b"first")
    record = writer.append(b"second", b"Topic", b"KEYS\x01k\x02TAGS\x01t\x02")
    path, position, size = writer.records[-1]
    for cut in range(size):
        overwrite(path, position, record[:cut] + bytes(size - cut))
        offsets, report = walk(tmp_path, split_size)
        left = len(record[:cut].rstrip(b"\0"))
        assert offsets == [0], cut
        assert report.unfinished == ([skipped(path, position, left, AuditRule.LOG_TORN_TAIL)] if left else []), cut
        assert report.broken == []


def test_a_last_record_whose_body_is_not_all_there_is_left_out(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path)
    writer.append(b"first")
    writer.append(b"A" * 200)
    path, position, _ = writer.records[-1]
    overwrite(path, position + 88 + 100, bytes(100))
    assert walk(tmp_path)[0] == [0]


def test_a_last_record_without_properties_is_whole(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path)
    writer.append(b"", b"T", b"")  # its last two bytes are zeros
    assert walk(tmp_path)[0] == [0]


def test_a_copy_without_the_zeros_after_the_data_is_whole(writer: CommitLogWriter) -> None:
    path, position, size = writer.records[-1]
    with path.open("r+b") as file:
        file.truncate(position + size)
    offsets, report = walk(writer.root)
    assert (offsets, report) == (offsets_of(writer), DecodeReport())


def test_a_record_inside_a_body_is_no_message(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path, file_size=1 << 19)
    number = 0
    while writer.end < 400_000:
        forged_at = writer.end + 88
        forged = encode_record(0, 0, 0, forged_at, 0, 0, V4_HOST, 0, V4_HOST, 0, 0, b"", b"Forged", b"")
        writer.append(forged * (1 + number % 3))
        number += 1
    assert walk(tmp_path)[0] == offsets_of(writer)


def test_a_garbage_file_is_one_broken_range(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path, file_size=4096)
    writer.append_many(40)
    first = writer.records[0][0]
    first.write_bytes(b"\xda\xa3\x20\xa7" * 1024)
    offsets, report = walk(tmp_path)
    assert report.broken == [skipped(first, 0, 4096, AuditRule.RECORD_POSITION)]
    assert offsets == [offset for offset in offsets_of(writer) if offset >= 4096]


SCHEMA_IN_MS = pa.schema([(f.name, pa.int64() if f.name.endswith("_timestamp") else f.type) for f in MESSAGE_SCHEMA])


def read_rows(store: Path, split_size: int = 1 << 26, report: DecodeReport | None = None) -> list[dict[str, Any]]:
    """All rows, split by split, as `slow_rows` gives them."""
    found = DecodeReport() if report is None else report
    splits = plan_splits(store, split_size)
    batches = [batch for split in splits for batch in read_split(split, SCHEMA_IN_MS, found)]
    rows = pa.Table.from_batches(batches, SCHEMA_IN_MS).to_pylist()
    return [row | {"properties": dict(row["properties"])} for row in rows]


@pytest.fixture(scope="module", params=golden_store.NAMES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    root = tmp_path_factory.mktemp(request.param)
    for name, data in golden_store.files(request.param).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return request.param, root


@pytest.mark.parametrize("split_size", [20, 500, 4096, 1 << 26])
def test_recorded_stores_equal_the_slow_reader_however_split(recorded: tuple[str, Path], split_size: int) -> None:
    _, root = recorded
    report = DecodeReport()
    expected = slow_rows(root / "commitlog")
    assert read_rows(root, split_size, report) == expected
    assert report == DecodeReport(messages=len(expected))


_IN_MANIFEST = {
    "topic": "topic",
    "queue_id": "queueId",
    "queue_offset": "queueOffset",
    "physical_offset": "phyOffset",
    "size": "size",
    "msg_id": "offsetMsgId",
    "uniq_key": "uniqKey",
    "keys": "keys",
    "tags": "tags",
    "born_host": "bornHost",
    "store_host": "storeHost",
    "born_timestamp": "bornTimestamp",
    "store_timestamp": "storeTimestamp",
    "flag": "flag",
    "sys_flag": "sysFlag",
    "body_crc": "bodyCRC",
    "reconsume_times": "reconsumeTimes",
    "prepared_transaction_offset": "preparedTransactionOffset",
}


def test_recorded_stores_equal_their_manifest(recorded: tuple[str, Path]) -> None:
    name, root = recorded
    messages = golden_store.manifest(name)["messages"]
    rows = read_rows(root)
    assert len(rows) == len(messages)
    for row, message in zip(rows, messages, strict=True):
        assert {name: row[name] for name in _IN_MANIFEST} == {k: message[v] for k, v in _IN_MANIFEST.items()}
        assert (row["properties"], len(row["body"])) == (message["properties"], message["bodyLen"])


@pytest.mark.long
@pytest.mark.parametrize("split_size", [10_000, 1 << 26])
def test_a_log_of_all_kinds_of_records_equals_the_slow_reader(tmp_path: Path, split_size: int) -> None:
    writer = CommitLogWriter(tmp_path, file_size=1 << 19)
    writer.append_many(4_000)  # three files, the first two with several walking chains
    report = DecodeReport()
    assert read_rows(tmp_path, split_size, report) == slow_rows(writer.directory)
    assert (report.messages, report.broken, report.unfinished) == (4_000, [], [])


_RECORD = st.tuples(
    st.binary(max_size=600),
    st.sampled_from([b"T", b"%DLQ%group", "Thème".encode(), b"L" * 127, b"L" * 128, b"L" * 300]),
    st.sampled_from([b"", b"TAGS\x01a", b"KEYS\x01a b\x02UNIQ_KEY\x01\xc3\xa9\x02", b"\x01\x02\x02x\x01"]),
    st.sampled_from([V4_HOST, V6_HOST]),
    st.sampled_from([V4_HOST, V6_HOST]),
)


@settings(max_examples=40, deadline=None)
@given(records=st.lists(_RECORD, max_size=30), split_size=st.integers(1, 5_000))
def test_any_log_equals_the_slow_reader(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], split_size: int
) -> None:
    writer = CommitLogWriter(tmp_path_factory.mktemp("store"), file_size=4096)
    for body, topic, properties, born_host, store_host in records:
        writer.append(body, topic, properties, born_host=born_host, store_host=store_host)
    assert read_rows(writer.root, split_size) == slow_rows(writer.directory)


def test_only_the_columns_asked_for_are_made_in_their_order(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path).append(b"x", b"T", queue_id=3)
    (batch,) = read_store(tmp_path, ["size", "topic", "queue_id"])
    assert batch.schema.names == ["size", "topic", "queue_id"]
    assert batch.to_pylist() == [{"size": 100, "topic": "T", "queue_id": 3}]


def test_the_commit_log_directory_itself_is_taken_wherever_it_is(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path)
    writer.append()
    elsewhere = tmp_path / "disk2" / "log"
    elsewhere.parent.mkdir()
    writer.directory.rename(elsewhere)
    assert [batch.num_rows for batch in read_store(elsewhere)] == [1]


def test_an_empty_log_has_no_messages(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path)
    assert list(read_store(tmp_path)) == []


def test_an_unknown_column_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no column 'offset'; its columns are broker, topic, queue_id, queue_offset"):
        read_store(tmp_path, ["topic", "offset"])


def test_a_record_larger_than_the_window_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log_files, "_LOCAL_WINDOW_SIZE", 1000)
    writer = CommitLogWriter(tmp_path)
    for size in (10, 5_000, 10, 900, 20_000):
        writer.append(b"x" * size)
    assert [len(row["body"]) for row in read_rows(tmp_path)] == [10, 5_000, 10, 900, 20_000]


def test_a_file_that_a_broker_removes_while_it_is_read_ends_the_rows_by_an_error_that_names_it(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path, file_size=1 << 13)
    writer.append_many(100)
    paths = sorted({path for path, _, _ in writer.records})
    assert len(paths) > 2
    batches = read_store(tmp_path, ["physical_offset"])
    first = next(batches).num_rows
    paths[1].unlink()
    with pytest.raises(StoreError, match=f"cannot read the commit-log file {paths[1]}: .*a broker deletes old files"):
        list(batches)
    assert first == sum(path == paths[0] for path, _, _ in writer.records)
    report = DecodeReport()
    left = sum(batch.num_rows for batch in read_store(tmp_path, ["size"], report=report))
    assert left == sum(path != paths[1] for path, _, _ in writer.records)
    assert [(each.path, each.length) for each in report.missing] == [(str(paths[0]), 1 << 13)]
