import pytest

from rocketbroker.analytics.files.store_root import store_roots
from rocketbroker.analytics.log.log_progress import LogProgress
from tests.support.commit_log_writer import CommitLogWriter, overwrite


@pytest.fixture
def writer(tmp_path):
    made = CommitLogWriter(tmp_path, file_size=1 << 14)
    made.append_many(150)
    return made


def progress(writer):
    (root,) = store_roots(writer.root)
    return LogProgress(root)


def begins(writer):
    return [int(path.name) + position for path, position, _ in writer.records]


def test_an_empty_log_is_at_its_begin(tmp_path):
    log = progress(CommitLogWriter(tmp_path))
    assert (log.begin, log.written_end, log.end(), log.name_at(0)) == (0, 0, 0, "")


def test_the_end_is_behind_the_last_whole_record(writer):
    log = progress(writer)
    assert log.begin == 0
    for start in (0, begins(writer)[3], begins(writer)[-1], writer.end):
        assert log.end(start) == writer.end


def test_a_record_that_is_being_written_does_not_count(writer):
    path, position, size = writer.records[-1]
    whole = path.read_bytes()
    for written in range(size):
        path.write_bytes(whole[: position + written].ljust(writer.file_size, b"\0"))
        assert progress(writer).end(begins(writer)[-5]) == begins(writer)[-1], written
    path.write_bytes(whole)
    assert progress(writer).end() == writer.end


def test_a_record_without_properties_ends_in_zeros_that_are_its_own(tmp_path):
    writer = CommitLogWriter(tmp_path)
    writer.append(b"x", b"T", b"")
    log = progress(writer)
    assert log.end() == writer.end
    assert log.written_end >= writer.end


def test_damage_within_the_log_is_passed(writer):
    path, position, _ = writer.records[-10]
    overwrite(path, position + 4, b"????")
    assert progress(writer).end(begins(writer)[-20]) == writer.end


def test_damage_at_the_end_is_not_passed(writer):
    path, position, _ = writer.records[-1]
    overwrite(path, position + 4, b"????")
    assert progress(writer).end() == begins(writer)[-1]


def test_files_before_the_last_one_are_full(tmp_path):
    writer = CommitLogWriter(tmp_path, file_size=1 << 12)
    writer.append_many(40)
    last = int(writer.records[-1][0].name)
    first_of_last = begins(writer).index(last)
    path, _, size = writer.records[first_of_last]
    path.write_bytes(path.read_bytes()[: size - 10].ljust(writer.file_size, b"\0"))
    assert last > 0
    assert progress(writer).end(0) == last


@pytest.mark.parametrize("most_bytes", [1, 700, 5_000, 1 << 14, 40_000, 1 << 40])
def test_steps_end_where_records_begin_and_reach_the_end(writer, most_bytes):
    log = progress(writer)
    end, at, longest = log.end(), 0, max(size for *_, size in writer.records)
    ends = (begin + size for begin, (*_, size) in zip(begins(writer), writer.records, strict=True))
    possible = {*begins(writer), *ends, *(file.base for file in log.files)}
    while at < end:
        after = log.within(at, end, most_bytes)
        assert at < after <= end
        assert after in possible
        assert after - at <= max(most_bytes, longest)
        at = after
    assert log.within(at, end, most_bytes) == end


def test_steps_pass_a_file_of_nothing_but_damage(writer):
    name = sorted(writer.directory.iterdir())[1]
    name.write_bytes(b"?" * writer.file_size)
    log = progress(writer)
    at, steps = 0, 0
    while at < log.end():
        at, steps = log.within(at, log.end(), 3_000), steps + 1
        assert steps < 200
    assert at == writer.end


def test_names_are_those_of_the_files(writer):
    log = progress(writer)
    assert log.name_at(0) == "0" * 20
    assert log.name_at((1 << 14) + 5) == f"{1 << 14:020d}"
    assert log.name_at(1 << 40) == log.files[-1].name.rpartition("/")[2]
