from pathlib import Path

import pytest

from rocketbroker.codec.message.message_encoder import encode_blank
from rocketbroker.store.commit_log_walker import FileWalk, first_store_timestamp
from rocketbroker.store.mapped_file import MappedFile
from tests.support.commit_log_writer import CommitLogWriter, overwrite

FILE = 4096


def opened(path: Path) -> MappedFile:
    return MappedFile(path, FILE)


@pytest.fixture
def writer(tmp_path: Path) -> CommitLogWriter:
    return CommitLogWriter(tmp_path, FILE)


def walk_over(path: Path, position: int = 0, *, check_crc: bool = True) -> tuple[FileWalk, list[int]]:
    file = opened(path)
    walk = FileWalk(file, position, check_crc=check_crc)
    offsets = [message.commit_log_offset for message in walk]
    file.close()
    return walk, offsets


def test_it_reads_up_to_the_blank_and_is_complete(writer: CommitLogWriter):
    while writer.end < FILE:
        writer.append(b"b" * 300)
    first = [position for path, position, _ in writer.records if int(path.name) == 0]

    walk, offsets = walk_over(writer.records[0][0])

    assert offsets == first
    assert (walk.complete, walk.position, walk.damage) == (True, FILE, "")


def test_it_stops_without_damage_where_nothing_was_written(writer: CommitLogWriter):
    writer.append()
    writer.append()

    walk, offsets = walk_over(writer.records[0][0])

    assert len(offsets) == 2
    assert (walk.complete, walk.position, walk.damage) == (False, writer.end, "")


def test_offsets_of_a_second_file_are_those_of_the_log(writer: CommitLogWriter):
    while writer.end < FILE + 500:
        writer.append(b"b" * 300)

    _, offsets = walk_over(writer.records[-1][0])

    assert offsets[0] == FILE


def test_it_begins_at_a_position(writer: CommitLogWriter):
    writer.append()
    writer.append()
    path, position, _ = writer.records[1]

    assert walk_over(path, position)[1] == [position]


@pytest.mark.parametrize(
    ("at", "data", "damage"),
    [
        (4, b"\0\0\0\1", "magic code 0x00000001 is unknown"),
        (0, b"\x7f\xff\xff\xff", "totalSize is 2147483647"),
        (28, b"\0\0\0\0\0\0\0\1", "says that it lies at 1"),
        (88, b"X", "bodyCRC"),
        (84, b"\0\0\xff\xff", "bodyLength is 65535"),
    ],
)
def test_damage_is_named_and_ends_the_walk_before_it(writer: CommitLogWriter, at: int, data: bytes, damage: str):
    writer.append()
    writer.append(b"second")
    path, position, _ = writer.records[1]
    overwrite(path, position + at, data)

    walk, offsets = walk_over(path)

    assert offsets == [0]
    assert (walk.complete, walk.position) == (False, position)
    assert damage in walk.damage


def test_without_the_check_a_changed_body_passes(writer: CommitLogWriter):
    writer.append()
    overwrite(writer.records[0][0], 88, b"X")

    assert walk_over(writer.records[0][0], check_crc=False)[1] == [0]


def test_a_blank_that_does_not_reach_the_end_is_damage(writer: CommitLogWriter):
    writer.append()
    overwrite(writer.records[0][0], writer.end, encode_blank(100))

    walk, _ = walk_over(writer.records[0][0])

    assert not walk.complete
    assert walk.damage == f"a BLANK claims 100 bytes, {FILE - writer.end} are left"


def test_the_first_store_time_is_that_of_the_first_record(writer: CommitLogWriter):
    writer.append(store_timestamp=123)
    writer.append(store_timestamp=456)
    file = opened(writer.records[0][0])

    assert first_store_timestamp(file) == 123
    file.close()


def test_a_file_of_zeros_has_no_first_store_time(tmp_path: Path):
    file = opened(tmp_path / f"{0:020d}")

    assert first_store_timestamp(file) is None
    file.close()
