"""Many chains at once find the records that one chain finds."""

from pathlib import Path

import pytest

from rocketbroker.codec.message.message_encoder import encode_record
from rocketbroker.codec.storefile.log_window import LogExtent, LogWindow
from rocketbroker.codec.storefile.record_chains import chain_records
from rocketbroker.common.errors import StoreError
from rocketbroker.common.local_file import LocalFile
from tests.support.commit_log_writer import V4_HOST, CommitLogWriter, overwrite


def chain_starts(path: Path) -> list[int]:
    """Return the records that chains find in a file that begins at 0, and their end."""
    size = path.stat().st_size
    with LocalFile(path, lambda error: StoreError(str(error))) as source:
        window = LogWindow(source, LogExtent(0, size, size), size)
        window.load(0)
        chains = chain_records(window, size)
    return [] if chains is None else [*chains[0].starts.tolist(), chains[1]]


@pytest.fixture
def writer(tmp_path: Path) -> CommitLogWriter:
    writer = CommitLogWriter(tmp_path, file_size=1 << 18)
    writer.append_many(1_500)
    return writer


def test_many_chains_find_what_one_finds(writer: CommitLogWriter) -> None:
    path = writer.records[0][0]
    starts = chain_starts(path)
    expected = [position for each, position, _ in writer.records if each == path]
    assert len(starts) > len(expected) // 2
    assert starts == expected[: len(starts)]


DAMAGE = {
    "physicalOffset": (28, b"?"),
    "totalSize zero": (0, bytes(4)),
    "totalSize negative": (0, b"\xff\xff\xff\xff"),
    "totalSize one more": (3, b"+1"),
    "bodyLength": (84, b"\0\0\0\1"),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("number", [0, 1, 300, 600])
def test_they_find_what_lies_before_a_damaged_record(writer: CommitLogWriter, number: int, kind: str) -> None:
    path, position, size = writer.records[number]
    at, data = DAMAGE[kind]
    overwrite(path, position + at, bytes([(size & 0xFF) + 1 & 0xFF]) if data == b"+1" else data)
    starts = chain_starts(path)
    expected = [place for each, place, _ in writer.records[:number] if each == path]
    assert starts[:-1] == expected[: max(len(starts) - 1, 0)]
    assert len(starts) == 0 or starts[-1] <= position
    assert len(starts) > len(expected) // 2 or number < 300


def test_a_record_inside_a_body_starts_no_chain(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path, file_size=1 << 19)
    while writer.end < 400_000:
        forged_at = writer.end + 88
        writer.append(encode_record(0, 0, 0, forged_at, 0, 0, V4_HOST, 0, V4_HOST, 0, 0, b"", b"Forged", b"") * 2)
    path = writer.records[0][0]
    starts = chain_starts(path)
    assert set(starts) <= {position for _, position, _ in writer.records}
