"""Finding a commit log, and where its data ends."""

import os
from pathlib import Path

import pytest

from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.files.commit_log_files import commit_log_files, commit_log_folder, written_end
from rocketbroker.analytics.files.store_files import open_folder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.message_reader import read_store
from rocketbroker.common.errors import StoreError
from rocketbroker.common.local_file import CommitLogFile, measure
from tests.support.commit_log_writer import CommitLogWriter

NAME = "0" * 20


def root(path: Path) -> StoreRoot:
    return StoreRoot("broker", str(path))


def test_a_folder_that_is_not_a_store_is_rejected_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cases = {"missing": "does not exist", "file": "is not a directory", ".": "has no commit log"}
    for name, wrong in cases.items():
        with pytest.raises(StoreError) as error:
            commit_log_files(root(tmp_path / name))
        text = str(error.value)
        assert wrong in text
        assert text.endswith("name a store directory, which contains commitlog/, or its commit-log directory")
        assert "\n" not in text


def test_root_and_commit_log_directory_are_both_taken(tmp_path: Path) -> None:
    directory = CommitLogWriter(tmp_path).directory
    assert commit_log_folder(open_folder(root(tmp_path))) == "commitlog"
    assert commit_log_folder(open_folder(root(directory))) == ""


def test_files_come_by_offset_and_others_are_skipped(tmp_path: Path) -> None:
    for name in (f"{4096:020d}", NAME, ".tmp", "readme.txt"):
        (tmp_path / name).write_bytes(b"x" * 4096)
    assert [file.base for file in commit_log_files(root(tmp_path))] == [0, 4096]


@pytest.mark.parametrize("last", [None, 0, 1, (1 << 20) - 1, 1 << 20, 3_000_000, (8 << 20) - 1])
@pytest.mark.parametrize("sparse", [True, False])
def test_data_ends_after_the_last_byte_that_is_not_zero(tmp_path: Path, last: int | None, sparse: bool) -> None:
    path, size = tmp_path / NAME, 8 << 20
    with path.open("wb") as file:
        os.truncate(file.fileno(), size) if sparse else file.write(bytes(size))
        if last is not None:
            file.seek(last)
            file.write(b"x")
    (found,) = commit_log_files(root(tmp_path))
    assert (found.size, found.data_end) == (size, 0 if last is None else last + 1)


@pytest.mark.parametrize("last", [None, 0, 70_000, (1 << 24) - 1, 1 << 24, 20_000_000, (1 << 25) - 1])
def test_the_written_end_is_found_by_few_reads(last: int | None) -> None:
    data = bytearray(1 << 25)
    if last is not None:
        data[: last + 1 : 40_000] = b"x" * len(range(0, last + 1, 40_000))
        data[last] = 1
    reads = []

    def read_at(position: int, length: int) -> bytes:
        reads.append(length)
        return bytes(data[position : position + length])

    assert written_end(read_at, len(data)) == (0 if last is None else last + 1)
    assert len(reads) < 20
    assert sum(reads) < 10 << 20


def test_zeros_within_a_file_are_skipped_up_to_the_length_of_a_message() -> None:
    data = bytearray(1 << 25)
    data[1000] = data[1000 + (8 << 20)] = 1
    assert written_end(lambda position, length: bytes(data[position : position + length]), len(data)) == 1001 + (
        8 << 20
    )


def test_an_empty_file_has_no_data(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()
    assert commit_log_files(root(tmp_path))[0].data_end == 0


def test_a_broker_that_rolls_to_the_next_file_meanwhile_leaves_no_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = CommitLogWriter(tmp_path / "store", file_size=1 << 14)
    while writer.end < 15_000:
        writer.append_many(1)
    (writer.directory / f"{1 << 14:020d}").write_bytes(bytes(1 << 14))  # as a broker allocates it ahead
    measured: list[int] = []

    def measure_and_roll(base: int, path: Path) -> CommitLogFile:
        found = measure(base, path)
        if not measured:
            writer.append_many(30)
        measured.append(base)
        return found

    monkeypatch.setattr("rocketbroker.analytics.files.commit_log_files.measure", measure_and_roll)
    report = DecodeReport()
    offsets = [
        offset
        for batch in read_store(writer.root, ["physical_offset"], report=report)
        for offset in batch.column(0).to_pylist()
    ]
    assert offsets == [int(path.name) + position for path, position, _ in writer.records][: len(offsets)]
    assert report.ranges == []
    assert sorted(measured) == [0, 1 << 14]
