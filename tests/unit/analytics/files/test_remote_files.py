"""Stores at addresses: on an S3 server, and whatever else pyarrow reads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from rocketbroker.analytics import DecodeReport, Selection, read_store
from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from rocketbroker.analytics.files.store_files import RemoteFile, StoreEntry, open_folder, opened
from rocketbroker.analytics.files.store_names import store_roots
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.jobs.queue_traffic import traffic_by_minute
from rocketbroker.analytics.log import queue_plan
from rocketbroker.analytics.log.minute_turns import MINUTE_MS
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support import golden_store
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.consume_queue_writer import write_queues
from tests.support.mixed_store import MixedStore
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, s3_server
from tests.support.slow_store_reader import slow_rows

FILE_SIZE = 1 << 24


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)


@pytest.fixture(scope="module")
def made(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A store of two files, the second of them nearly all zeros."""
    root = tmp_path_factory.mktemp("made")
    writer = CommitLogWriter(root, file_size=FILE_SIZE)
    while writer.end < FILE_SIZE + 300_000:
        number = len(writer.records)
        writer.append(
            b"%d" % number * 1_500,
            b"T%d" % (number % 12),
            queue_offset=number // 12,
            store_timestamp=1_795_255_000_000 + number * 1_000,
        )
    write_queues(root, slow_rows(writer.directory))
    server.put(root, "stores/made")
    return server.address("stores/made"), root


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each read of the server."""
    sizes: list[int] = []
    read_into, read = RemoteFile.read_into, RemoteFile._read

    def counting_into(self: RemoteFile, position: int, buffer: memoryview) -> int:
        sizes.append(len(buffer))
        return read_into(self, position, buffer)

    def counting(self: RemoteFile, position: int, length: int) -> bytes:
        sizes.append(length)
        return read(self, position, length)

    monkeypatch.setattr(RemoteFile, "read_into", counting_into)
    monkeypatch.setattr(RemoteFile, "_read", counting)
    return sizes


def rows_of(stores: Any, **arguments: Any) -> list[dict[str, Any]]:
    table = pa.Table.from_batches(read_store(stores, **arguments), MESSAGE_SCHEMA.remove_metadata())
    in_ms = {name: table[name].cast("int64").to_pylist() for name in ("store_timestamp", "born_timestamp")}
    return [
        row | {"properties": dict(row["properties"])} | {name: times[at] // 1_000 for name, times in in_ms.items()}
        for at, row in enumerate(table.to_pylist())
    ]


@pytest.mark.long
@pytest.mark.parametrize("name", golden_store.NAMES)
def test_recorded_stores_equal_the_slow_reader(server: S3Server, tmp_path: Path, name: str) -> None:
    root = golden_store.unpack(name, tmp_path)
    server.put(root, f"stores/{name}")
    report = DecodeReport()
    assert rows_of(server.address(f"stores/{name}"), report=report) == slow_rows(root / "commitlog", name)
    assert report.ranges == []


def test_a_pattern_names_the_stores_of_a_bucket(server: S3Server, tmp_path: Path) -> None:
    for name in ("a", "b", "c d", ".hidden"):
        writer = CommitLogWriter(tmp_path / name)
        writer.append()
        server.put(tmp_path / name, f"many/{name}/store")
    server.put(tmp_path / "a", "many/no-store")
    assert [root.broker for root in store_roots(server.address("many/*/store"))] == ["a", "b", "c d"]
    assert [root.broker for root in store_roots(server.address("many/[ab]/s*/commitlog"))] == ["a", "b"]
    assert [row["broker"] for row in rows_of(server.address("many/*/store"))] == ["a", "b", "c d"]
    with pytest.raises(ConfigError, match=r"/many/x\*/store matches no directory; name one that exists"):
        store_roots(server.address("many/x*/store"))


@pytest.mark.long
def test_large_ranges_are_read_and_no_zeros_after_the_log(made: tuple[str, Path], reads: list[int]) -> None:
    address, root = made
    assert rows_of(address) == slow_rows(root / "commitlog", "made")
    large = [size for size in reads if size > 1 << 20]
    assert large[0] == 8 << 20, "what lies behind the end of the log is looked at once"
    assert sum(large[1:]) < FILE_SIZE + (1 << 20)
    assert len(reads) < 30


@pytest.mark.long
def test_a_selected_topic_is_read_through_its_queue(
    made: tuple[str, Path], reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_plan, "_DISPATCH_MARGIN", 100_000)
    address, root = made
    expected = [row for row in slow_rows(root / "commitlog", "made") if row["topic"] == "T5"]
    assert rows_of(address, selection=Selection(topics={"T5"})) == expected


@pytest.mark.long
def test_a_time_range_reads_little(made: tuple[str, Path], reads: list[int]) -> None:
    address, root = made
    selection = Selection(1_795_255_000_000 + 500_000, 1_795_255_000_000 + 520_000)
    expected = slow_rows(root / "commitlog", "made")[500:520]
    assert rows_of(address, selection=selection) == expected
    assert sum(reads) < FILE_SIZE


def test_stores_here_and_there_are_one_table(made: tuple[str, Path], tmp_path: Path) -> None:
    CommitLogWriter(tmp_path).append(b"here")
    found = read_store(["there=" + made[0], f"here={tmp_path}"], ["broker"])
    assert {row["broker"] for batch in found for row in batch.to_pylist()} == {"there", "here"}


def test_folders_and_files(made: tuple[str, Path]) -> None:
    folder = open_folder(StoreRoot("b", made[0]))
    assert folder.folders() == ["commitlog", "consumequeue"]
    assert folder.files("commitlog") == {"0" * 20: FILE_SIZE, f"{FILE_SIZE:020d}": FILE_SIZE}
    assert folder.entries("none") == []
    assert folder.entries("consumequeue/T5") == [StoreEntry("0", 0, True)]
    assert [folder.is_folder(path) for path in ("", "commitlog", f"commitlog/{0:020d}", "none")] == [
        True,
        True,
        False,
        False,
    ]
    assert folder.read_if_there("none") is None
    with pytest.raises(StoreError, match="is not a path within a store"):
        folder.read("../made/commitlog")


def test_small_reads_come_out_of_blocks(made: tuple[str, Path], reads: list[int]) -> None:
    address, root = made
    data = (root / "commitlog" / f"{0:020d}").read_bytes()
    block = 256 << 10
    with opened(open_folder(StoreRoot("b", address)), f"commitlog/{0:020d}") as file:
        for position, length in (
            (10, 100),
            (5, 7),
            (block - 5, 10),
            (block + 1, 9),
            (len(data) - 3, 50),
            (len(data), 1),
        ):
            assert file.read_at(position, length) == data[position : position + length]
        assert file.read_at(1_000, block + 1) == data[1_000 : 1_001 + block]
    assert reads == [block, block, block, block + 1]


def test_single_heads_are_read_alone(made: tuple[str, Path], reads: list[int]) -> None:
    address, root = made
    data = (root / "commitlog" / f"{0:020d}").read_bytes()
    with opened(open_folder(StoreRoot("b", address)), f"commitlog/{0:020d}") as file:
        found = file.read_each([5, 1_000, len(data) - 3, len(data), len(data) + 1], 10)
    assert found == data[5:15] + data[1_000:1_010] + data[-3:] + bytes(27)
    assert reads == [10, 10, 3]


@pytest.mark.long
def test_traffic_from_the_queues_is_that_of_the_store(server: S3Server, tmp_path: Path, caplog) -> None:
    root = tmp_path / "mixed"
    MixedStore(root, 500, span_ms=50 * MINUTE_MS, mapped_file_size_commit_log=1 << 17).make()
    server.put(root, "stores/mixed")
    assert traffic_by_minute(server.address("stores/mixed")) == traffic_by_minute(root)
    assert not [record for record in caplog.records if record.name.endswith("queue_traffic")]


def test_what_is_not_there_is_named_without_what_is_secret(server: S3Server, made: tuple[str, Path]) -> None:
    for address in (server.address("stores/none", with_credentials=True), server.address("stores/made/consumequeue")):
        with pytest.raises(StoreError) as error:
            read_store(address)
        assert str(error.value).startswith("s3://stores/")
        assert "name a store directory, which contains commitlog/" in str(error.value)
        assert SECRET_KEY not in str(error.value)
        assert "endpoint" not in str(error.value)


def test_a_file_that_goes_away_is_named(server: S3Server, tmp_path: Path) -> None:
    CommitLogWriter(tmp_path).append()
    server.put(tmp_path, "stores/going")
    rows = read_store(server.address("stores/going"))
    server.client().delete_file(f"stores/going/commitlog/{0:020d}")
    with pytest.raises(
        StoreError, match=r"cannot read the commit-log file s3://stores/going/commitlog/0{20}: .*deletes"
    ):
        list(rows)


def test_an_address_that_is_not_understood_shows_no_secret() -> None:
    addresses = {"s3": "cannot reach", "nothing": "unknown scheme"}
    for scheme, reason in addresses.items():
        with pytest.raises((StoreError, ConfigError), match=reason) as error:
            plan_splits(f"{scheme}://AKIA:s3cret@stores/x?option=t0ken")
        assert "s3cret" not in str(error.value)
        assert "t0ken" not in str(error.value)


class PretendedPyarrow:
    """In place of ``pyarrow.fs``: every address leads to one folder of this machine."""

    FileSelector, FileType = fs.FileSelector, fs.FileType

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.asked: list[str] = []
        self.FileSystem = self

    def from_uri(self, uri: str) -> tuple[fs.FileSystem, str]:
        self.asked.append(uri)
        return fs.SubTreeFileSystem(str(self._folder), fs.LocalFileSystem()), "store/"


@pytest.mark.parametrize("scheme", ["gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"])
def test_addresses_of_other_clouds_and_of_hadoop_go_to_pyarrow(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = CommitLogWriter(tmp_path / "store", file_size=1 << 16)
    writer.append_many(300)
    pyarrow = PretendedPyarrow(tmp_path)
    monkeypatch.setattr(pa, "fs", pyarrow)
    address = f"{scheme}://container@{tmp_path.name}/store"
    assert rows_of(f"s={address}") == slow_rows(writer.directory, "s")
    assert set(pyarrow.asked) == {address}


def test_a_library_that_pyarrow_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ARROW_LIBHDFS_DIR", "HADOOP_HOME", "JAVA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    reason = r"^cannot reach hdfs://namenode:9000/store: .*(libhdfs|libjvm); reading from Hadoop needs its libhdfs"
    with pytest.raises(StoreError, match=reason):
        plan_splits("hdfs://namenode:9000/store")


def test_a_namenode_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "fs", PretendedPyarrow(tmp_path / "none"))
    with pytest.raises(StoreError, match="cannot reach hdfs://silent/store: the namenode does not answer; libhdfs"):
        plan_splits("hdfs://silent/store")


@pytest.mark.parametrize("scheme", ["ftp", "memory", "nothing"])
def test_an_unknown_kind_of_address_is_rejected(scheme: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"^{scheme}://folder/store: unknown scheme; use a path, file://, or one of s3, gs,"
    ):
        plan_splits(f"{scheme}://folder/store")
