"""One walk for all: few records and many, sound, damaged or cut short."""

from pathlib import Path

import pytest

from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.log_walk import FileWalk
from rocketbroker.codec.storefile.record_search import Found
from rocketbroker.codec.storefile.store_file import LogExtent, LogWindow
from rocketbroker.common.errors import StoreError
from tests.support.commit_log_writer import CommitLogWriter, overwrite

SIZE = 1 << 18
WINDOWS = [200, 5_000, 1 << 20]


class Bytes:
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def size(self) -> int:
        return len(self.data)

    def read_at(self, position: int, length: int) -> bytes:
        return self.data[position : position + length]

    def read_into(self, position: int, buffer: memoryview) -> int:
        found = self.read_at(position, len(buffer))
        buffer[: len(found)] = found
        return len(found)


@pytest.fixture
def writer(tmp_path: Path) -> CommitLogWriter:
    writer = CommitLogWriter(tmp_path, SIZE)
    writer.append_many(700)
    return writer


def places(writer: CommitLogWriter) -> list[int]:
    return [position for path, position, _ in writer.records if path == writer.records[0][0]]


def walk_of(
    path: Path, block: int = 1 << 20, *, high: int = SIZE, few: int = 0, check_bodies: bool = False
) -> FileWalk:
    window = LogWindow(Bytes(path.read_bytes()), LogExtent(0, SIZE, SIZE), block)
    return FileWalk(window, 0, high, few=few, check_bodies=check_bodies)


def positions(walk: FileWalk) -> list[int]:
    return [offset for stretch in walk for offset in stretch.offsets]


@pytest.mark.parametrize("block", WINDOWS)
@pytest.mark.parametrize("few", [0, 1, 64, 100_000])
@pytest.mark.parametrize("check_bodies", [False, True])
def test_windows_and_ways_to_find_records_make_no_difference(
    writer: CommitLogWriter, block: int, few: int, check_bodies: bool
) -> None:
    walk = walk_of(writer.records[0][0], block, few=few, check_bodies=check_bodies)
    expected = places(writer)
    assert positions(walk) == expected
    assert (walk.position, walk.found) == (writer.end, Found.BROKEN)
    assert walk.damage()[0] is AuditRule.LOG_HOLE


@pytest.mark.parametrize("block", WINDOWS)
def test_records_begin_before_the_high_mark(writer: CommitLogWriter, block: int) -> None:
    expected = places(writer)
    walk = walk_of(writer.records[0][0], block, high=expected[500] + 1)
    assert positions(walk) == expected[:501]
    assert (walk.position, walk.found) == (expected[501], Found.RECORD)


@pytest.mark.parametrize("few", [0, 64])
@pytest.mark.parametrize("number", [0, 30, 500])
@pytest.mark.parametrize(
    ("at", "rule"), [(4, AuditRule.RECORD_MAGIC), (30, AuditRule.RECORD_POSITION), (8, AuditRule.RECORD_CRC)]
)
def test_a_walk_stops_at_damage_and_resumes_at_the_next_record(
    writer: CommitLogWriter, number: int, at: int, rule: AuditRule, few: int
) -> None:
    expected = places(writer)
    overwrite(writer.records[0][0], expected[number] + at, b"?")
    walk = walk_of(writer.records[0][0], few=few, check_bodies=True)
    assert positions(walk) == expected[:number]
    assert (walk.position, walk.found, walk.damage()[0]) == (expected[number], Found.BROKEN, rule)
    assert walk.next_record(SIZE) == expected[number + 1]
    walk.position = expected[number + 1]
    assert positions(walk) == expected[number + 1 :]


def test_the_cause_is_known_with_the_last_stretch(writer: CommitLogWriter) -> None:
    overwrite(writer.records[0][0], places(writer)[600] + 4, b"?")
    walk = walk_of(writer.records[0][0], 20_000)
    causes = [walk.found for _ in walk]
    assert causes == [None] * (len(causes) - 1) + [Found.BROKEN]


def test_a_stretch_gives_its_records_one_by_one(writer: CommitLogWriter) -> None:
    data, found = writer.records[0][0].read_bytes(), 0
    for stretch in walk_of(writer.records[0][0], 50_000):
        for number, offset in enumerate(stretch.offsets):
            record = bytes(stretch[number])
            assert record == data[offset : offset + len(record)]
            assert len(record) == int.from_bytes(record[:4], "big")
            found += 1
        assert stretch.end_offset == stretch.last_offset + len(stretch[len(stretch) - 1])
        assert stretch.first(1).offsets == stretch.offsets[:1]
    assert found == len(writer.records)


def test_memory_is_bounded_by_the_block_and_the_longest_record(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path, SIZE)
    for size in (10, 60_000, 10, 900):
        writer.append(b"x" * size)
    walk = walk_of(writer.records[0][0], 1_000)
    assert max(len(stretch.data) for stretch in walk) == max(size for _, _, size in writer.records)


class Shrunk(Bytes):
    """A file that was cut short once its records were looked at."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        return super().read_into(position, buffer[:50])


def test_a_file_that_became_shorter_is_an_error(writer: CommitLogWriter) -> None:
    window = LogWindow(Shrunk(writer.records[0][0].read_bytes()), LogExtent(0, SIZE, SIZE), 1 << 20)
    with pytest.raises(StoreError, match="became shorter while it was read"):
        positions(FileWalk(window, 0, SIZE))
