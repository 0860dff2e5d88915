"""Checksums and packed bodies, on request."""

import zlib
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard

from rocketbroker.analytics import DecodeReport, read_store
from rocketbroker.analytics.columns import message_columns
from rocketbroker.analytics.columns.decode_report import BODY_UNREADABLE, SkippedRange
from rocketbroker.codec.message.message_const import (
    COMPRESSED_FLAG,
    COMPRESSION_LZ4_TYPE,
    COMPRESSION_ZLIB_TYPE,
    COMPRESSION_ZSTD_TYPE,
)
from tests.support.commit_log_writer import CommitLogWriter, overwrite

TEXT = b"a body that is packed " * 50
PACKED = {
    0: zlib.compress(TEXT),
    COMPRESSION_ZLIB_TYPE: zlib.compress(TEXT),
    COMPRESSION_LZ4_TYPE: import_module("lz4.frame").compress(TEXT),
    COMPRESSION_ZSTD_TYPE: zstandard.compress(TEXT),
}


def bodies(root: Path, report: DecodeReport | None = None) -> list[tuple[bytes, bytes | None]]:
    batches = read_store(root, ["body", "decompressed_body"], report=report)
    return [(row["body"], row["decompressed_body"]) for batch in batches for row in batch.to_pylist()]


def test_packed_bodies_are_unpacked_beside_what_is_stored(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path)
    for kind, body in PACKED.items():
        writer.append(body, sys_flag=COMPRESSED_FLAG | kind)
    writer.append(TEXT)
    writer.append(b"", sys_flag=COMPRESSED_FLAG)
    report = DecodeReport()
    assert bodies(tmp_path, report) == [*((body, TEXT) for body in PACKED.values()), (TEXT, TEXT), (b"", b"")]
    assert report == DecodeReport(messages=6)


def test_what_cannot_be_unpacked_is_null_and_reported(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path)
    writer.append(b"x")
    writer.append(b"not a zlib stream", sys_flag=COMPRESSED_FLAG)
    writer.append(zlib.compress(bytes(65 << 20)), sys_flag=COMPRESSED_FLAG)
    report = DecodeReport()
    assert [unpacked for _, unpacked in bodies(tmp_path, report)] == [b"x", None, None]
    assert report.wrong_bodies == [
        SkippedRange(tmp_path.name, str(path), position, size, BODY_UNREADABLE)
        for path, position, size in writer.records[1:]
    ]


def test_batches_end_where_unpacked_bodies_would_grow_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_columns, "MAX_INFLATED", 10_000)
    writer = CommitLogWriter(tmp_path)
    for number in range(9):
        writer.append(zlib.compress(b"%d" % number * 4_000), sys_flag=COMPRESSED_FLAG, queue_offset=number)
    writer.append(zlib.compress(b"9" * 40_000), sys_flag=COMPRESSED_FLAG, queue_offset=9)
    batches = list(read_store(tmp_path, ["queue_offset", "decompressed_body"]))
    assert [batch.num_rows for batch in batches] == [2, 2, 2, 2, 1, 1]
    rows = pa.Table.from_batches(batches).to_pylist()
    assert [(row["queue_offset"], row["decompressed_body"][:1]) for row in rows] == [(n, b"%d" % n) for n in range(10)]


def test_wrong_checksums_are_reported_when_they_are_asked_for(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path, file_size=1 << 18)
    writer.append_many(1_500)
    wrong = [number for number in range(0, 1_400, 7) if writer.records[number][2] > 300]
    for number in wrong:
        path, position, _ = writer.records[number]
        overwrite(path, position + 130, bytes([path.read_bytes()[position + 130] ^ 1]))
    unchecked, checked = DecodeReport(), DecodeReport()
    rows = sum(batch.num_rows for batch in read_store(tmp_path, ["topic"], report=unchecked))
    assert sum(batch.num_rows for batch in read_store(tmp_path, ["topic"], report=checked, check_crc=True)) == rows
    assert (rows, unchecked) == (1_500, DecodeReport(messages=1_500))
    assert checked.ranges == [
        SkippedRange(tmp_path.name, str(path), position, size, "record-crc")
        for path, position, size in (writer.records[number] for number in wrong)
    ]


def values(writer: CommitLogWriter, column: str) -> list[object]:
    return [value for batch in read_store(writer.root, [column]) for value in batch.column(0).to_pylist()]


@pytest.mark.parametrize(
    ("millis", "expected"),
    [
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1_795_255_162_829, datetime(2026, 11, 21, 9, 59, 22, 829_000, tzinfo=UTC)),
        (253_402_300_799_999, datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        (253_402_300_800_000, None),
        (-62_135_596_800_001, None),
        ((1 << 63) - 1, None),
    ],
)
def test_a_time_that_no_calendar_has_is_null(tmp_path: Path, millis: int, expected: datetime | None) -> None:
    writer = CommitLogWriter(tmp_path)
    writer.append(born_timestamp=millis)
    assert values(writer, "born_timestamp") == [expected]


def test_text_that_is_no_utf8_is_replaced_where_it_is_wrong(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path)
    writer.append(topic=b"good")
    writer.append(topic=b"b\xffd", properties=b"KEYS\x01\xfe\x02")
    assert values(writer, "topic") == ["good", "b�d"]
    assert values(writer, "keys") == [None, "�"]


def test_properties_as_stored_are_every_byte_of_them(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path)
    stored = [b"K\x01v\xff\x02K\x01w\x02Empty\x01\x02", b"", b"no separators", b"TAGS\x01a"]
    for each in stored:
        writer.append(properties=each)
    assert values(writer, "stored_properties") == stored


def test_a_crc_with_its_highest_bit_set_does_not_stop_the_reader(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path)
    writer.append(b"x")
    writer.append(b"y")
    path, position, _ = writer.records[0]
    with path.open("r+b") as file:
        file.seek(position + 8)
        file.write(b"\xff\xff\xff\xff")
    assert values(writer, "body_crc")[0] == -1
