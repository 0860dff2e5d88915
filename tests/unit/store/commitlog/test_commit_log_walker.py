from itertools import pairwise
from pathlib import Path

import pytest

from rocketbroker.codec.message.message_decoder import encode_blank
from rocketbroker.store.commitlog.commit_log_walker import LogWalk, leads_to_end, sound_until, store_timestamp_at
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from tests.support.commit_log_writer import V6_HOST, CommitLogWriter, overwrite

FILE = 4096
MANY = 1 << 18


def opened(writer: CommitLogWriter) -> MappedFileQueue:
    queue = MappedFileQueue(writer.directory, writer.file_size)
    queue.load()
    return queue


def offsets_of(writer: CommitLogWriter) -> list[int]:
    return [int(path.name) + position for path, position, _ in writer.records]


@pytest.fixture
def writer(tmp_path: Path) -> CommitLogWriter:
    return CommitLogWriter(tmp_path, FILE)


def walk_over(
    writer: CommitLogWriter, offset: int = 0, *, check_crc: bool = True, end: int | None = None, block: int = 0
) -> tuple[LogWalk, list[int]]:
    queue = opened(writer)
    walk = LogWalk(queue, offset, check_crc=check_crc, end=end, block=block)
    offsets = [offset for stretch in walk for offset in stretch.offsets]
    queue.close()
    return walk, offsets


@pytest.mark.parametrize("block", [0, 1, 1000, 50_000, 1 << 20])
def test_it_reads_file_after_file_and_stops_where_nothing_was_written(writer: CommitLogWriter, block: int):
    while writer.end < 3 * FILE + 500:
        writer.append(b"b" * 300)

    walk, offsets = walk_over(writer, block=block)

    assert offsets == offsets_of(writer)
    assert (walk.offset, walk.damage) == (writer.end, "")


def test_it_begins_at_an_offset_and_ends_at_one(writer: CommitLogWriter):
    for _ in range(4):
        writer.append()
    all_of_them = offsets_of(writer)

    walk, offsets = walk_over(writer, all_of_them[1], end=all_of_them[3])

    assert offsets == all_of_them[1:3]
    assert (walk.offset, walk.damage) == (all_of_them[3], "")


def test_many_records_of_all_kinds_are_found_as_few_are(tmp_path: Path):
    writer = CommitLogWriter(tmp_path, MANY)
    writer.append_many(3000)

    walk, offsets = walk_over(writer)

    assert offsets == offsets_of(writer)
    assert (walk.offset, walk.damage) == (writer.end, "")


DAMAGES = [
    (4, b"\0\0\0\1", "magic code 0x00000001"),
    (0, b"\x7f\xff\xff\xff", "totalSize is 2147483647"),
    (0, b"\xff\xff\xff\xff", "totalSize is -1"),
    (28, b"\0\0\0\0\0\0\0\1", "physicalOffset is 1"),
    (88, b"XYZ", "bodyCRC"),
    (84, b"\0\0\xff\xff", "is not the sum of the lengths"),
    (84, b"\x7f\xff\xff\xff", "is not the sum of the lengths"),
]


@pytest.mark.parametrize(("at", "data", "damage"), DAMAGES)
@pytest.mark.parametrize("count", [2, 300])
def test_damage_is_named_and_skipped(tmp_path: Path, at: int, data: bytes, damage: str, count: int):
    writer = CommitLogWriter(tmp_path, MANY)
    for number in range(count):
        writer.append(b"b" * 300 if number != 1 else b"second")
    writer.append(b"behind it")
    before, behind = offsets_of(writer)[count - 1], offsets_of(writer)[count]
    overwrite(writer.records[0][0], before + at, data)
    queue = opened(writer)
    walk = LogWalk(queue, 0, check_crc=True)

    found = sum(map(len, walk))

    assert (found, walk.offset) == (count - 1, before)
    assert damage in walk.damage
    assert walk.next_sound() == behind
    walk.offset = behind
    assert [stretch.offsets for stretch in walk] == [[behind]]
    assert (walk.offset, walk.damage, walk.next_sound()) == (writer.end, "", None)
    queue.close()


def test_zeros_are_skipped_to_the_next_record_in_this_file_or_another(writer: CommitLogWriter):
    while writer.end < 2 * FILE:
        writer.append(b"b" * 300)
    path, position, size = writer.records[2]
    overwrite(path, position, bytes(size))
    in_next_file = next(at for at in offsets_of(writer) if at >= FILE)
    queue = opened(writer)
    walk = LogWalk(queue, 0, check_crc=True)
    assert sum(map(len, walk)) == 2
    assert walk.why == "nothing is written there"

    assert walk.next_sound() == writer.records[3][1]

    overwrite(path, position, bytes(FILE - position))
    assert walk.next_sound() == in_next_file
    queue.close()


def test_a_record_within_a_damaged_body_is_not_taken_for_one(writer: CommitLogWriter):
    writer.append()
    forged = CommitLogWriter(writer.root / "forged", FILE)
    forged.end = writer.end + 88
    record = forged.append(b"forged")
    writer.append(record + b"rest")
    writer.append(b"behind it")
    path, position, _ = writer.records[1]
    overwrite(path, position + 88 + len(record), b"X")
    queue = opened(writer)
    walk = LogWalk(queue, 0, check_crc=True)
    assert sum(map(len, walk)) == 1

    assert walk.next_sound() == writer.records[2][1]
    queue.close()


@pytest.mark.parametrize("count", [2, 200])
def test_without_the_check_a_changed_body_passes(tmp_path: Path, count: int):
    writer = CommitLogWriter(tmp_path, MANY)
    for _ in range(count):
        writer.append()
    overwrite(writer.records[-1][0], writer.records[-1][1] + 88, b"X")

    assert len(walk_over(writer, check_crc=False)[1]) == count
    assert len(walk_over(writer)[1]) == count - 1


def test_a_blank_that_does_not_reach_the_end_is_damage(writer: CommitLogWriter):
    writer.append()
    overwrite(writer.records[0][0], writer.end, encode_blank(100))

    walk, _ = walk_over(writer)

    assert walk.damage == f"a BLANK claims 100 bytes, but {FILE - writer.end} are left in the file"


@pytest.mark.parametrize("count", [3, 200])
def test_the_first_record_after_a_time_and_an_offset(tmp_path: Path, count: int):
    writer = CommitLogWriter(tmp_path, MANY)
    for number in range(count):
        writer.append(store_timestamp=1000 + number, born_host=V6_HOST)
    offsets = offsets_of(writer)
    queue = opened(writer)

    def first_after(timestamp_ms: int, offset: int) -> int | None:
        walk = LogWalk(queue, 0, check_crc=False)
        return next((at for each in walk if (at := each.first_after(timestamp_ms, offset)) is not None), None)

    assert first_after(1000, 0) == offsets[1]
    assert first_after(0, offsets[2]) == offsets[2]
    assert first_after(0, offsets[1] + 1) == offsets[2]
    assert first_after(1000 + count - 2, 0) == offsets[-1]
    assert first_after(1000 + count, 0) is None
    assert first_after(0, writer.end) is None
    queue.close()


def test_the_store_time_at_an_offset(writer: CommitLogWriter):
    writer.append(store_timestamp=123)
    writer.append(store_timestamp=456, born_host=V6_HOST)
    queue = opened(writer)

    assert [store_timestamp_at(queue, offset) for offset in offsets_of(writer)] == [123, 456]
    assert store_timestamp_at(queue, writer.end) is None
    assert store_timestamp_at(queue, 1) is None
    assert store_timestamp_at(queue, FILE) is None
    queue.close()


def test_up_to_where_a_file_is_sound(writer: CommitLogWriter):
    while writer.end < FILE:
        writer.append(b"b" * 300)
    path, position, _ = writer.records[5]
    queue = opened(writer)
    file = queue.files[0]

    assert sound_until(file, 0, FILE) == (FILE, "")
    assert sound_until(file, 0, position) == (position, "")
    overwrite(path, position + 88, b"X")
    found, why = sound_until(file, 0, FILE)
    assert found == position
    assert "bodyCRC" in why
    assert sound_until(file, 0, position) == (position, "")
    queue.close()


@pytest.mark.parametrize("count", [6, 3000])
def test_a_record_that_goes_beyond_the_end_is_not_sound(tmp_path: Path, count: int):
    writer = CommitLogWriter(tmp_path, MANY)
    writer.append_many(count)
    queue, positions = opened(writer), [position for path, position, _ in writer.records if int(path.name) == 0]

    for position, behind in pairwise(positions[-3:]):
        for end in (position + 1, behind - 1):
            assert sound_until(queue.files[0], 0, end) == (position, "a record goes beyond the end of the log")
        assert sound_until(queue.files[0], 0, behind) == (behind, "")
    queue.close()


@pytest.mark.proves("Damage", "a record without a sector")
@pytest.mark.parametrize("count", [3, 200])
@pytest.mark.parametrize("is_lost", [True, False])
@pytest.mark.parametrize("inside", [1, 2, 3])
def test_a_sector_of_the_properties_that_is_not_on_disk_is_damage(
    tmp_path: Path, count: int, is_lost: bool, inside: int
):
    writer = CommitLogWriter(tmp_path, MANY)
    for number in range(count):
        writer.append(b"body", properties=b"KEYS\x01k%d\x02" % number)
    # The next record has this number of bytes in its last sector.
    value = (inside - writer.end - 91 - len(b"bodyTopicKEYS\x01\x02")) % 512
    writer.append(b"body", properties=b"KEYS\x01" + b"v" * value + b"\x02")
    path, position, length = writer.records[-1]
    writer.append()
    if is_lost:
        overwrite(path, position + length - (position + length) % 512, bytes(inside))

    walk, offsets = walk_over(writer)

    assert len(offsets) == (count if is_lost else count + 2)
    assert walk.damage == ("a sector of its topic or properties holds only zeros" if is_lost else "")
    assert not is_lost or walk.offset == position


@pytest.mark.parametrize("topic", [b"T", b"T" * 200])
@pytest.mark.parametrize("inside", [1, 2])
def test_a_record_without_properties_may_end_at_the_begin_of_a_sector(tmp_path: Path, topic: bytes, inside: int):
    writer = CommitLogWriter(tmp_path, MANY)
    size = len(writer.append(b"", topic, b""))
    writer.append(b"b" * ((inside - 2 * size) % 512), topic, b"")
    assert writer.end % 512 == inside

    walk, offsets = walk_over(writer)

    assert (len(offsets), walk.damage) == (2, "")


def test_records_from_an_offset_on_lead_to_the_end_if_one_begins_there_or_after_it(writer: CommitLogWriter):
    for _ in range(3):
        writer.append(b"b" * 300)
    starts, queue = offsets_of(writer), opened(writer)
    try:
        assert [leads_to_end(queue, begin, writer.end) for begin in (1, starts[2], starts[2] + 1)] == [
            True,
            True,
            False,
        ]
        assert not leads_to_end(queue, 1, starts[2] - 1)
    finally:
        queue.close()
