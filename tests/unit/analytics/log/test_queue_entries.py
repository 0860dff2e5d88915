"""The entries of one queue."""

import struct
from pathlib import Path

import pytest

from rocketbroker.analytics.files.store_files import open_folder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log import queue_entries
from rocketbroker.analytics.log.queue_entries import CheckedQueue, QueueNotWholeError
from tests.support.commit_log_writer import overwrite
from tests.support.consume_queue_writer import write_queues


def entries(first: int, count: int) -> list[dict[str, object]]:
    return [
        {"topic": "T", "queue_id": 0, "queue_offset": number, "physical_offset": number * 1_000 + 500, "size": 300}
        for number in range(first, first + count)
    ]


def files_of(root: Path) -> CheckedQueue:
    return CheckedQueue(open_folder(StoreRoot("b", str(root))), "T", 0)


def file_at(root: Path, entry: int) -> tuple[Path, int]:
    return root / "consumequeue" / "T" / "0" / f"{entry // 100 * 2_000:020d}", entry % 100 * 20


@pytest.mark.parametrize(("first", "count"), [(0, 1), (0, 100), (0, 250), (130, 200), (200, 5)])
def test_all_that_was_written_without_fillers_and_zeros(tmp_path: Path, first: int, count: int) -> None:
    write_queues(tmp_path, entries(first, count))
    found = files_of(tmp_path).whole()
    assert found.first == first
    assert found.offsets.tolist() == [number * 1_000 + 500 for number in range(first, first + count)]
    assert set(found.sizes.tolist()) == {300}
    assert files_of(tmp_path).newest() == ((first + count - 1) * 1_000 + 500, 300)


@pytest.mark.parametrize(("first", "count"), [(0, 1), (0, 100), (0, 250), (130, 200), (200, 5)])
@pytest.mark.parametrize("most", [1, 7, 100, 1_000])
def test_blocks_have_the_same_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, count: int, most: int
) -> None:
    monkeypatch.setattr(queue_entries, "_BLOCK", most)
    write_queues(tmp_path, entries(first, count))
    whole, found = files_of(tmp_path).whole(), list[tuple[int, int, int]]()
    for block in files_of(tmp_path).blocks():
        assert 0 < len(block) <= most
        numbers = range(block.first, block.first + len(block))
        found += zip(numbers, block.offsets.tolist(), block.sizes.tolist(), strict=True)
    numbers = range(whole.first, whole.first + len(whole))
    assert found == list(zip(numbers, whole.offsets.tolist(), whole.sizes.tolist(), strict=True))


@pytest.mark.parametrize("most", [1, 7, 100, 1_000])
def test_every_few_entries_and_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(queue_entries, "_BLOCK", most)
    write_queues(tmp_path, entries(0, 250))
    offsets = files_of(tmp_path).whole().offsets.tolist()
    found = set(files_of(tmp_path).every(32, 5).tolist())
    assert {*offsets[5::32], offsets[-1]} <= found <= set(offsets)
    assert len(files_of(tmp_path / "none").every(32, 5)) == 0


def test_blocks_end_at_the_first_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_entries, "_BLOCK", 10)
    write_queues(tmp_path, entries(0, 250))
    overwrite(*file_at(tmp_path, 28), bytes(40))
    assert [len(block) for block in files_of(tmp_path).blocks()] == [10, 10, 8]
    assert max(files_of(tmp_path).every(1, 0).tolist()) == 27 * 1_000 + 500


def test_blocks_that_do_not_follow_each_other_are_rejected(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(queue_entries, "_BLOCK", 10)
    write_queues(tmp_path, entries(0, 250))
    for number in range(20, 30):
        overwrite(*file_at(tmp_path, number), struct.pack(">qiq", (number - 15) * 1_000, 300, 0))
    with pytest.raises(QueueNotWholeError, match="T/0: entries do not point to records in log order"):
        list(files_of(tmp_path).blocks())


def test_a_range_over_files(tmp_path: Path) -> None:
    write_queues(tmp_path, entries(0, 250))
    files = files_of(tmp_path)
    assert files.range(90, 210).offsets.tolist() == [number * 1_000 + 500 for number in range(90, 210)]
    assert files.capacity == 300
    with pytest.raises(QueueNotWholeError, match="T/0: entries do not point to records in log order"):
        files.range(290, 310)


def test_a_queue_without_files_has_nothing(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    assert (len(files.whole()), files.newest(), files.capacity) == (0, None, 0)


@pytest.mark.parametrize(
    "entry",
    [
        struct.pack(">qiq", 0, 0, 0),
        struct.pack(">qiq", 50_500, 0, 0),
        struct.pack(">qiq", 50_500, -5, 0),
        struct.pack(">qiq", -1, 300, 0),
        struct.pack(">qiq", 50_500, 1_200, 0),
        struct.pack(">qiq", 49_600, 300, 0),
        struct.pack(">qiq", 1 << 40, 300, 0),
    ],
)
@pytest.mark.parametrize("number", [50, 249])
def test_an_entry_that_is_not_as_it_should_be_has_the_queue_refused(tmp_path: Path, entry: bytes, number: int) -> None:
    write_queues(tmp_path, entries(0, 250))
    may_be_last = entry[:8] in {struct.pack(">q", 1 << 40), bytes(8)} or entry[8:12] == struct.pack(">i", 1_200)
    number = 50 if may_be_last else number
    overwrite(*file_at(tmp_path, number), entry)
    with pytest.raises(QueueNotWholeError, match="T/0: entries do not point to records in log order"):
        files_of(tmp_path).whole()


def test_a_file_that_lacks_between_others_has_the_queue_refused(tmp_path: Path) -> None:
    write_queues(tmp_path, entries(0, 250))
    file_at(tmp_path, 100)[0].unlink()
    with pytest.raises(QueueNotWholeError, match="T/0: a file is missing after consumequeue/T/0/0"):
        files_of(tmp_path)
