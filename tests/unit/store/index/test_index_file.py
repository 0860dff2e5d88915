import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rocketbroker.codec.storefile.index_file_layout import IndexHeader, entry_position
from rocketbroker.common.errors import StoreError, StoreFullError
from rocketbroker.store.index.index_file import MOST_BACK_MS, IndexFile
from rocketbroker.store.logfile.mapped_file import MappedFile
from tests.support.damage import overwrite
from tests.support.slow_index import SlowIndex, hits, java_hash
from tests.support.stores import ALWAYS, open_below

NAME = "20261121095923270"
SLOTS, ENTRIES = 7, 40
NOW = 1_795_255_162_876


@pytest.fixture
def file(tmp_path: Path) -> Iterator[IndexFile]:
    made = IndexFile(tmp_path / NAME, SLOTS, ENTRIES)
    yield made
    made.close()


def hash_of(key: str) -> int:
    return abs(java_hash(key))


def put(file: IndexFile, *keys: tuple[str, int, int]) -> None:
    names, offsets, times = zip(*keys, strict=True)
    file.put_keys(
        np.array([hash_of(name) for name in names], np.int32), np.array(offsets, np.int64), np.array(times, np.int64)
    )


def slow(*keys: tuple[str, int, int]) -> bytes:
    index = SlowIndex(SLOTS, ENTRIES)
    for key in keys:
        index.put(*key)
    (data,) = index.files
    return bytes(data)


def test_a_batch_has_the_bytes_of_its_keys_one_by_one(file: IndexFile):
    # Seven slots for thirty keys: chains within the batch, with keys that are equal, and from batch to batch.
    keys = [(f"k{number % 11}", 100 * number, NOW + 700 * number) for number in range(30)]

    put(file, *keys[:1])
    put(file, *keys[1:20])
    put(file, *keys[20:])

    assert file.file.path.read_bytes() == slow(*keys)
    assert file.room == ENTRIES - 31


def test_room_is_one_less_than_its_entries(file: IndexFile):
    assert file.room == ENTRIES - 1


def test_time_differences_are_held_between_zero_and_the_most_an_int_takes(file: IndexFile):
    keys = [("a", 0, NOW), ("b", 1, NOW - 5000), ("c", 2, NOW + (1 << 45))]

    put(file, *keys)

    assert file.file.path.read_bytes() == slow(*keys)


def test_keys_are_found_newest_first(file: IndexFile):
    put(file, *[("same", number, NOW + number) for number in range(10)], ("other", 99, NOW))

    assert hits(file.chain(hash_of("same"), 0, 2**62), 4) == [9, 8, 7, 6]
    assert hits(file.chain(hash_of("same"), 0, 2**62)) == list(range(9, -1, -1))
    assert hits(file.chain(hash_of("missing"), 0, 2**62)) == []


def test_a_time_range_takes_whole_seconds(file: IndexFile):
    put(file, *[("k", number, NOW + 1000 * number) for number in range(5)])

    assert hits(file.chain(hash_of("k"), NOW + 2000, NOW + 3000)) == [3, 2]
    assert hits(file.chain(hash_of("k"), NOW + 2999, NOW + 2999)) == [2]
    assert file.covers(NOW + 4000, NOW + 9000)
    assert file.covers(0, NOW)
    assert not file.covers(NOW + 4001, NOW + 9000)
    assert not file.covers(0, NOW - MOST_BACK_MS - 1)


def test_times_that_go_back_a_little_are_found(file: IndexFile):
    put(file, ("k", 0, NOW), ("k", 1, NOW - MOST_BACK_MS), ("k", 2, NOW + 5000), ("k", 3, NOW + 4000))

    assert file.covers(0, NOW - MOST_BACK_MS)
    assert 1 in hits(file.chain(hash_of("k"), 0, NOW - MOST_BACK_MS))
    assert file.covers(NOW + 5000, ALWAYS)
    assert hits(file.chain(hash_of("k"), NOW + 5000, ALWAYS)) == [2]
    assert file.header.end_timestamp == NOW + 5000
    file.cut(4)
    assert file.header.end_timestamp == NOW + 5000


@pytest.mark.parametrize(
    ("times", "count"),
    [
        ([0, 0, 5000], 3),
        ([0, 5000, 4000, 3999], 3),
        ([0, 5000, 4500, 3900], 3),
        ([0] * 60, ENTRIES - 1),
        ([-9000], 1),
    ],
)
def test_a_file_takes_keys_until_the_clock_was_set_back(file: IndexFile, times: list[int], count: int):
    stored = np.array(times, np.int64) + NOW

    assert file.fitting(stored) == count


def test_a_file_takes_no_key_of_a_message_much_older_than_those_it_has(file: IndexFile):
    put(file, ("a", 0, NOW), ("b", 1, NOW + 5000))

    assert file.fitting(np.array([NOW + 5000 - MOST_BACK_MS - 1], np.int64)) == 0
    assert file.fitting(np.array([NOW + 5000 - MOST_BACK_MS, NOW + 9000], np.int64)) == 2


def test_times_among_the_first_entries_may_go_back(tmp_path: Path):
    file = IndexFile(tmp_path / NAME, SLOTS, 400)
    times = np.array([0, 60_000, 30_000, 31_000, -1000, 59_000], np.int64) + NOW

    # The first entry has number 1, and from number 4 on times are in order.
    assert file.fitting(times) == 3
    assert file.fitting(times[[0, 4, 1, 5]]) == 4
    assert file.fitting(np.array([NOW, NOW - MOST_BACK_MS - 1])) == 1, "before the first one"
    put(file, *[("k", number, int(time)) for number, time in enumerate(times[:3])])
    assert file.fitting(times[3:]) == 0
    put(file, ("k", 3, NOW + 60_000))

    assert hits(file.chain(hash_of("k"), NOW + 60_000, ALWAYS)) == [3, 1]
    assert hits(file.chain(hash_of("k"), NOW, NOW + 1000)) == [0]
    file.close()


def test_a_damaged_chain_ends_instead_of_going_round(file: IndexFile):
    put(file, ("k", 1, NOW), ("k", 2, NOW))
    first = 40 + SLOTS * 4 + 20
    overwrite(file.file, first + 16, (2).to_bytes(4, "big"))

    assert hits(file.chain(hash_of("k"), 0, 2**62)) == [2, 1]


def test_a_query_goes_no_further_back_than_its_time_range(file: IndexFile, monkeypatch):
    put(file, *[("k", number, NOW + 1000 * number) for number in range(20)])
    reads = counted_reads(monkeypatch)

    assert hits(file.chain(hash_of("k"), NOW + 17_000, NOW + 18_000)) == [18, 17]

    # The slot, and the entries of 19 to 15: times may go back by a second.
    assert len(reads) == 6


def test_a_query_that_is_abandoned_ends_with_what_it_has(file: IndexFile, monkeypatch):
    put(file, *[("k", number, NOW) for number in range(20)])
    pread = os.pread

    def reading(fd: int, size: int, position: int) -> bytes:
        file.given_up = len(reads) == 4
        reads.append(position)
        return pread(fd, size, position)

    reads: list[int] = []
    monkeypatch.setattr(os, "pread", reading)

    assert hits(file.chain(hash_of("k"), 0, 2**62)) == [19, 18, 17, 16]


def test_a_query_sees_whole_entries_while_keys_are_entered(file: IndexFile, monkeypatch):
    put(file, ("k", 1, NOW), ("k", 2, NOW))
    pread = os.pread
    numbers = iter(range(3, 20))

    def reading(fd: int, size: int, position: int) -> bytes:
        put(file, ("k", next(numbers), NOW))
        return pread(fd, size, position)

    monkeypatch.setattr(os, "pread", reading)

    assert hits(file.chain(hash_of("k"), 0, 2**62)) == [3, 2, 1]


def test_a_slot_never_names_an_entry_that_is_not_whole(file: IndexFile, monkeypatch):
    found: list[list[int]] = []
    writing = MappedFile.writing

    @contextlib.contextmanager
    def asking(mapped: MappedFile, start: int, end: int) -> Iterator[memoryview]:
        """Ask for the key as soon as its slot is written."""
        with writing(mapped, start, end) as view:
            yield view
            found.append(hits(file.chain(hash_of("k"), 0, 2**62)))

    put(file, ("k", 1, NOW))
    monkeypatch.setattr(MappedFile, "writing", asking)

    put(file, ("k", 2, NOW), ("k", 3, NOW))

    assert found == [[3, 2, 1]]


def test_a_slot_that_is_ahead_of_the_header_makes_no_entry_follow_itself(file: IndexFile):
    put(file, ("k", 1, NOW))
    before = bytes(file.file.buffer[:40])
    put(file, ("k", 2, NOW))
    # A kill came between the slot and the header.
    overwrite(file.file, 0, before)
    file.header = file.header._replace(index_count=file.header.index_count - 1)

    put(file, ("k", 3, NOW))

    assert hits(file.chain(hash_of("k"), 0, 2**62)) == [3]


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions that are read from now on."""
    reads: list[int] = []
    pread = os.pread

    def reading(fd: int, size: int, position: int) -> bytes:
        reads.append(position)
        return pread(fd, size, position)

    monkeypatch.setattr(os, "pread", reading)
    return reads


def test_it_is_the_same_after_a_restart(tmp_path: Path):
    keys = [(f"k{number % 5}", number, NOW) for number in range(20)]
    file = IndexFile(tmp_path / NAME, SLOTS, ENTRIES)
    put(file, *keys[:10])
    file.sync()
    file.close()

    again = IndexFile(tmp_path / NAME, SLOTS, ENTRIES)
    put(again, *keys[10:])

    assert (tmp_path / NAME).read_bytes() == slow(*keys)
    again.delete()
    assert not (tmp_path / NAME).exists()


def test_settings_of_another_size_are_rejected(tmp_path: Path):
    IndexFile(tmp_path / NAME, SLOTS, ENTRIES).close()

    with pytest.raises(StoreError, match="files of this kind are set to"):
        IndexFile(tmp_path / NAME, SLOTS + 1, ENTRIES)


def test_a_full_disk_leaves_no_file_and_nothing_open(tmp_path: Path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    before = open_below(tmp_path)

    with pytest.raises(StoreFullError):
        IndexFile(tmp_path / NAME, SLOTS, ENTRIES)

    assert not (tmp_path / NAME).exists()
    assert open_below(tmp_path) == before


def test_a_cut_file_has_the_bytes_of_one_that_never_had_more(file: IndexFile):
    keys = [(f"k{number % 7}", number, NOW + number * 1000) for number in range(15)]
    put(file, *keys)

    assert file.cut(9) == 6

    header = file.header
    assert (header.index_count, header.end_phy_offset) == (10, 8)
    # Entries know seconds only.
    assert NOW + 8000 <= header.end_timestamp < NOW + 9000
    expected = bytearray(slow(*keys[:9]))
    found = bytearray(file.file.buffer[: entry_position(10, SLOTS)])
    expected[8:16] = found[8:16] = bytes(8)
    assert found == expected[: len(found)]
    put(file, *keys[9:])
    assert bytes(file.file.buffer) == slow(*keys)


def test_all_can_be_cut(file: IndexFile):
    put(file, ("a", 5, NOW), ("b", 6, NOW))

    assert file.cut(5) == 2

    assert bytes(file.file.buffer[: entry_position(1, SLOTS)]) == IndexHeader().encode() + bytes(4 * SLOTS + 20)
    assert file.header.index_count == 1
    put(file, ("a", 7, NOW))
    assert hits(file.chain(hash_of("a"), 0, ALWAYS)) == [7]


def test_what_a_power_loss_left_of_the_entries_after_the_cut_does_not_matter(file: IndexFile):
    keys = [(f"k{number % 7}", number, NOW) for number in range(15)]
    put(file, *keys)
    for number in (11, 13, 14):
        at = entry_position(number, SLOTS)
        overwrite(file.file, at, bytes(20))
    overwrite(file.file, 40, b"\x7f" * 20)

    assert file.cut(9) == 6

    assert [hits(file.chain(hash_of(f"k{number}"), 0, ALWAYS)) for number in range(7)] == [
        [7, 0],
        [8, 1],
        [2],
        [3],
        [4],
        [5],
        [6],
    ]


@pytest.mark.parametrize(
    "slots", range(3, 8), ids=lambda slots: f"parted_behind_byte_{(512 - entry_position(0, slots)) % 20}"
)
def test_an_entry_of_which_one_sector_was_lost_does_not_matter(tmp_path: Path, slots: int):
    # Offsets of which the upper half tells something as well.
    keys = [(f"k{number % 7}", (1 << 32) + (number - 20 << 20) + 4711, NOW) for number in range(39)]
    for known in range(1, len(keys)):
        for sector in range(2):
            made = IndexFile(tmp_path / f"202611210959{known:02}{sector}", slots, ENTRIES)
            put(made, *keys[:known])
            before = bytes(made.file.buffer)
            put(made, *keys[known:])
            begin = max(512 * sector, entry_position(0, slots))
            overwrite(made.file, begin, before[begin : 512 * (sector + 1)])

            assert made.cut(keys[known][1]) == len(keys) - known, f"{known} were on disk, sector {sector} was lost"

            assert made.header.end_phy_offset == keys[known - 1][1]
            made.close()


def test_only_what_changed_is_synced(file: IndexFile, monkeypatch):
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    put(file, ("a", 5, NOW))

    file.sync()
    file.sync()
    assert len(synced) == 1
    put(file, ("a", 6, NOW))
    file.sync()
    assert len(synced) == 2


def test_a_failed_sync_is_retried(file: IndexFile, monkeypatch):
    def refuse(fd: int) -> None:
        raise OSError(5, "Input/output error")

    put(file, ("a", 5, NOW))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", refuse)
        with pytest.raises(OSError, match="Input/output"):
            file.sync()

    assert file.changed
