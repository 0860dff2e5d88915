"""What the walk does where the log is damaged, unfinished, or made to mislead."""

from pathlib import Path

import pytest

from rocketbroker.analytics.columns.decode_report import DecodeReport, SkippedRange
from rocketbroker.analytics.log.record_walk import walk_split
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.storefile.audit_rules import AuditRule
from tests.support.commit_log_writer import V4_HOST, CommitLogWriter, overwrite

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
    "an IPv6 host that is none": (39, b"\x10", AuditRule.RECORD_LENGTH),
    "bodyLength negative": (84, b"\xff\xff\xff\xff", AuditRule.RECORD_LENGTH),
    "bodyLength huge": (84, b"\x7f\xff\xff\xff", AuditRule.RECORD_LENGTH),
    "all zeros": (0, b"zeros", AuditRule.LOG_HOLE),
}


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
