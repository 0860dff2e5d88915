"""The reader against a plain loop over struct, on recorded and on made stores."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketbroker.analytics import DecodeReport, read_store
from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from rocketbroker.analytics.files import log_window
from rocketbroker.analytics.log.message_reader import read_split
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support import golden_store
from tests.support.commit_log_writer import V4_HOST, V6_HOST, CommitLogWriter
from tests.support.slow_store_reader import slow_rows

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
    monkeypatch.setattr(log_window, "_LOCAL_WINDOW_SIZE", 1000)
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
