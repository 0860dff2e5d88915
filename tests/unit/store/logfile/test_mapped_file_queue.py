from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue

SIZE = 4096


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[MappedFileQueue]:
    made = MappedFileQueue(tmp_path / "files", SIZE, 1024)
    yield made
    made.close()


def names(queue: MappedFileQueue) -> list[int]:
    return sorted(int(path.name) for path in queue.directory.iterdir())


def fill(queue: MappedFileQueue, count: int) -> None:
    for number in range(count):
        file = queue.create_next()
        file.ensure_allocated(SIZE)
        file.write(0, SIZE, bytes([number + 1]) * SIZE)


def test_an_empty_queue_has_no_directory_and_no_bytes(queue: MappedFileQueue):
    queue.load()

    assert not queue.directory.exists()
    assert (queue.min_offset, queue.max_offset, queue.max_file_end, queue.find(0)) == (0, 0, 0, None)


def test_files_follow_each_other_from_where_the_first_begins(queue: MappedFileQueue):
    first = queue.create_next(8 * SIZE)
    second = queue.create_next()
    first.wrote = SIZE
    second.wrote = 10

    assert names(queue) == [8 * SIZE, 9 * SIZE]
    assert (queue.min_offset, queue.max_offset, queue.max_file_end) == (8 * SIZE, 9 * SIZE + 10, 10 * SIZE)
    assert queue.find(8 * SIZE - 1) is None
    assert queue.find(9 * SIZE - 1) is first
    assert queue.find(9 * SIZE) is second
    assert queue.find(10 * SIZE) is None


def test_loading_takes_all_files_as_written_and_skips_other_names(queue: MappedFileQueue):
    fill(queue, 3)
    (queue.directory / "lost+found").mkdir()
    (queue.directory / "123").write_text("")
    again = MappedFileQueue(queue.directory, SIZE)

    again.load()

    assert [file.file_from_offset for file in again.files] == [0, SIZE, 2 * SIZE]
    assert all(file.wrote == file.flushed == SIZE for file in again.files)
    again.close()


def test_a_file_of_no_bytes_at_all_is_removed(queue: MappedFileQueue):
    fill(queue, 1)
    (queue.directory / f"{SIZE:020d}").touch()
    again = MappedFileQueue(queue.directory, SIZE)

    again.load()

    assert names(again) == [0]
    again.close()


def test_a_missing_middle_file_is_named(queue: MappedFileQueue):
    fill(queue, 3)
    queue.files[1].path.unlink()
    again = MappedFileQueue(queue.directory, SIZE)

    with pytest.raises(StoreError, match=rf"{SIZE:020d} is missing"):
        again.load()

    again.close()


def test_a_wrong_size_is_rejected(queue: MappedFileQueue):
    fill(queue, 1)
    again = MappedFileQueue(queue.directory, SIZE * 2)

    with pytest.raises(StoreError, match=f"has {SIZE} bytes, but files of this kind are set to {SIZE * 2}"):
        again.load()


def test_truncate_removes_whole_files_and_zeroes_the_rest(queue: MappedFileQueue):
    fill(queue, 3)

    queue.truncate(SIZE + 100)

    assert names(queue) == [0, SIZE]
    assert (queue.max_offset, queue.files[-1].flushed) == (SIZE + 100, 0)
    assert queue.files[1].path.read_bytes() == b"\x02" * 100 + bytes(SIZE - 100)


def test_truncate_at_a_files_begin_removes_it(queue: MappedFileQueue):
    fill(queue, 2)

    queue.truncate(SIZE)

    assert names(queue) == [0]
    assert queue.max_offset == SIZE
    assert queue.files[0].path.read_bytes() == b"\x01" * SIZE


def test_truncate_to_nothing_keeps_an_empty_first_file(queue: MappedFileQueue):
    fill(queue, 2)

    queue.truncate(0)

    assert names(queue) == [0]
    assert queue.max_offset == 0
    assert not any(queue.files[0].path.read_bytes())


def test_who_reads_while_it_is_truncated_keeps_files_and_bytes(queue: MappedFileQueue):
    fill(queue, 3)
    files, last = queue.files, queue.files[2]
    piece = last.buffer[:10]

    queue.truncate(SIZE)

    assert [file.file_from_offset for file in files] == [0, SIZE, 2 * SIZE]
    assert bytes(piece) == bytes(last.read_at(0, 10)) == bytes(last.buffer[:10]) == b"\x03" * 10


def test_a_file_that_the_disk_keeps_stays_in_the_list(queue: MappedFileQueue, monkeypatch: pytest.MonkeyPatch):
    fill(queue, 3)
    kept, refused = queue.files[1], OSError("refused")
    unlink = LocalFileSystem.unlink

    def refuse(file_system: LocalFileSystem, path: Path) -> None:
        if path == kept.path:
            raise refused
        unlink(file_system, path)

    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "unlink", refuse)
        with pytest.raises(OSError, match="refused"):
            queue.truncate(100)
    assert names(queue) == [file.file_from_offset for file in queue.files] == [0, SIZE]
    queue.truncate(100)

    assert names(queue) == [0]
    assert queue.max_offset == 100


def test_delete_all_leaves_nothing(queue: MappedFileQueue):
    fill(queue, 2)

    queue.delete_all()

    assert not queue.directory.exists()
    assert queue.files == []


def test_delete_all_leaves_what_was_set_aside(queue: MappedFileQueue):
    fill(queue, 2)
    aside = queue.directory / "00000000000000000000.damaged"
    aside.touch()

    queue.delete_all()

    assert list(queue.directory.iterdir()) == [aside]
    assert queue.files == []


def test_the_first_file_is_taken_out_and_the_last_one_never(queue: MappedFileQueue):
    fill(queue, 3)
    first, second, last = before = queue.files

    queue.take_out(second)
    assert queue.files is before
    queue.take_out(first)

    assert (queue.files, before) == ([second, last], [first, second, last])
    assert (queue.min_offset, queue.max_offset) == (SIZE, 3 * SIZE)
    assert queue.find(SIZE - 1) is None
    assert queue.find(SIZE) is second
    queue.take_out(second)
    queue.take_out(last)
    assert queue.files == [last]


def test_what_a_killed_process_left_is_rewritten(tmp_path: Path):
    queue = MappedFileQueue(tmp_path / "files", SIZE)
    for _ in range(3):
        file = queue.create_next()
        file.wrote = file.flushed = SIZE

    queue.unsynced_from(SIZE + 100)

    assert [(file.flushed, file.to_write_again) for file in queue.files] == [(SIZE, False), (100, True), (0, True)]
    queue.close()
