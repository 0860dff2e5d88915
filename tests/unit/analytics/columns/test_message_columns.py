"""Values that are odd but stored."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rocketbroker.analytics import read_store
from tests.support.commit_log_writer import CommitLogWriter


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
