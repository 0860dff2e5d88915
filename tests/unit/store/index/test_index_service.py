import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.storefile.index_file_layout import key_hash_of
from rocketbroker.common.errors import StoreFullError
from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.store.index import index_service
from rocketbroker.store.index.index_service import IndexService
from rocketbroker.store.queue.consume_queue import ConsumeQueue
from rocketbroker.store.queue.dispatch_request import IndexKeys
from tests.support.slow_index import SlowIndex, hits
from tests.support.stores import ALWAYS, refuse

SLOTS, ENTRIES = 5, 8
NOW = 1_795_255_162_876
# Of a log that holds all messages.
END = 1000


class Index:
    """A service whose new files bear one name after the other, and what it said of full ones."""

    def __init__(self, directory: Path) -> None:
        self.names = iter(f"2026112109592{number:04d}" for number in range(1000))
        self.service = IndexService(directory, SLOTS, ENTRIES, lambda: next(self.names))
        self.queue = ConsumeQueue("T", 0, directory / "cq", 200)

    def add(
        self,
        offset: int,
        unique_key: str = "",
        keys: str = "",
        tags: str = "",
        stored: int = NOW,
        *,
        flush: bool = True,
    ) -> None:
        found = (tags.encode() or None, unique_key.encode() or None, keys.encode() or None, False)
        self.service.add([(self.queue, 0, offset, 0, 0, stored, found)])
        if flush:
            self.service.flush()

    def query(self, key: str, max_num: int = 99, begin: int = 0, end: int = ALWAYS, *, tag: bool = False) -> list[int]:
        self.service.flush()
        return hits(self.service.search("T", key, begin, end, tag=tag), max_num)

    @property
    def bytes(self) -> list[bytes]:
        return [file.file.path.read_bytes() for file in self.service.files]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    made = Index(tmp_path / "index")
    yield made
    made.service.close()


MESSAGES = [
    (0, "U0", "a b", "tagA"),
    (100, "U1", "", "tagA"),
    (200, "U2", "  a   a ", ""),
    (300, "", "é 漢字 \U0001f600", "tagB"),
    (400, "", "", ""),
    (500, "U5", "tab\tis no blank", "tagA || tagB"),
]


@pytest.mark.parametrize("flush_each", [True, False])
def test_files_have_the_bytes_of_keys_entered_one_by_one(index: Index, flush_each: bool):
    slow = SlowIndex(SLOTS, ENTRIES)
    for number, (offset, unique_key, keys, tags) in enumerate(MESSAGES):
        stored = NOW + 600 * number
        slow.put_message("T", offset, stored, unique_key, keys, tags)
        index.add(offset, unique_key, keys, tags, stored, flush=flush_each)

    index.service.flush()

    assert len(slow.files) == 3
    assert index.bytes == [bytes(data) for data in slow.files]
    assert [file.header.index_count for file in index.service.files[:2]] == [ENTRIES, ENTRIES]


@pytest.mark.parametrize("stored", [-1, -(10**15), -(1 << 63)])
def test_keys_of_a_message_stored_before_1970_are_entered_and_found(index: Index, stored: int):
    index.add(0, "U0", stored=stored)
    index.add(100, "U1", stored=NOW)
    index.add(200, "U2", stored=stored)

    assert [index.query(f"U{number}", begin=stored) for number in range(3)] == [[0], [100], [200]]
    assert all(file.header.begin_timestamp >= 0 for file in index.service.files)


def test_a_message_is_found_by_each_of_its_keys_and_by_its_tags(index: Index):
    for message in MESSAGES:
        index.add(*message)

    assert index.query("U1") == [100]
    assert index.query("a") == [200, 0]
    assert index.query("漢字") == [300]
    assert index.query("\U0001f600") == [300]
    assert index.query("tab\tis") == [500]
    assert index.query("tab") == []
    assert index.query("tagA", tag=True) == [100, 0]
    assert index.query("tagA") == []
    assert hits(index.service.search("Other", "a", 0, ALWAYS)) == []


def test_waiting_keys_are_found_after_a_flush(index: Index):
    index.add(7, "U", flush=False)
    assert index.service.waiting == 1
    assert hits(index.service.search("T", "U", 0, ALWAYS)) == []

    index.service.flush()

    assert hits(index.service.search("T", "U", 0, ALWAYS)) == [7]
    assert index.service.waiting == 0


def test_files_are_asked_newest_first_within_the_time_range(index: Index):
    for number in range(20):
        index.add(number, keys="k", stored=NOW + 1000 * number)
    assert len(index.service.files) == 3

    assert index.query("k", 9) == list(range(19, 10, -1))
    assert index.query("k", begin=NOW + 5000, end=NOW + 8000) == [8, 7, 6, 5]
    assert index.query("k", begin=NOW + 30_000) == []
    assert index.service.last_update == (NOW + 19_000, 19)


@pytest.mark.parametrize("flush_each", [True, False])
def test_messages_are_found_in_their_time_range_after_the_clock_was_set_back(index: Index, flush_each: bool):
    for number, seconds in enumerate([0, 3600, 3601, 0, 1, 2, 7200]):
        index.add(number, keys="k", stored=NOW + 1000 * seconds, flush=flush_each)

    assert index.query("k") == [6, 5, 4, 3, 2, 1, 0]
    assert index.query("k", end=NOW + 1000) == [4, 3, 0]
    assert index.query("k", begin=NOW + 2000) == [6, 5, 2, 1]
    assert index.query("k", begin=NOW + 3_600_000, end=NOW + 3_601_000) == [2, 1]
    assert all(file.header.begin_timestamp <= file.header.end_timestamp for file in index.service.files)


def test_names_of_files_rise_even_when_the_clock_stands(tmp_path: Path):
    service = IndexService(tmp_path, SLOTS, 2, lambda: "20261121095923270")
    queue = ConsumeQueue("T", 0, tmp_path / "cq", 200)
    for number in range(3):
        service.add([(queue, number, number, 0, 0, NOW, (None, b"U", None, False))])
    service.flush()

    assert [file.file.path.name[-3:] for file in service.files] == ["270", "271", "272"]
    service.close()


def test_loaded_files_continue_and_known_messages_are_skipped(index: Index, tmp_path: Path):
    slow = SlowIndex(SLOTS, ENTRIES)
    for number in range(10):
        slow.put_message("T", number, NOW, f"U{number}", None, None)
    for number in range(6):
        index.add(number, f"U{number}")
    again = Index(tmp_path / "index")
    (tmp_path / "index" / "notes.txt").write_text("")

    again.service.load()
    assert again.service.end_physical_offset == 5
    for number in range(10):
        again.add(number, f"U{number}")

    assert again.bytes == [bytes(data) for data in slow.files]
    again.service.close()


@pytest.mark.parametrize(("offset", "files", "count"), [(20, 3, 0), (19, 3, 1), (14, 2, 6), (10, 2, 10), (0, 0, 20)])
def test_keys_from_an_offset_on_are_forgotten_and_entered_again(
    index: Index, tmp_path: Path, offset: int, files: int, count: int
):
    for number in range(20):
        index.add(number, f"U{number}", stored=NOW + number)
    expected = index.bytes
    again = Index(tmp_path / "index")
    again.service.load()

    assert again.service.cut(offset) == count

    assert len(again.service.files) == files
    assert [again.query(f"U{number}") for number in range(20)] == [[n] if n < offset else [] for n in range(20)]
    again.names = iter(f"2026112109593{number:04d}" for number in range(9))
    for number in range(20):
        again.add(number, f"U{number}", stored=NOW + number)
    assert [again.query(f"U{number}") for number in range(20)] == [[number] for number in range(20)]
    assert again.bytes == expected
    again.service.close()


def test_a_file_may_go_once_the_log_begins_after_its_last_message(index: Index):
    service = index.service
    for number in range(ENTRIES * 2):
        index.add(number * 10, f"u{number}")
    first, second, last = service.files
    before = service.files

    assert service.first_file_before(first.header.end_phy_offset) is None
    assert service.first_file_before(first.header.end_phy_offset + 1) is first
    service.take_out(second)
    assert service.files is before
    service.take_out(first)
    assert (service.files, before) == ([second, last], [first, second, last])
    assert index.query("u0") == []
    assert index.query("u7") == [70]
    service.take_out(second)
    assert service.first_file_before(ALWAYS) is None
    for file in (first, second):
        file.close()


def test_a_file_that_the_disk_keeps_is_cut_off_the_next_time(index: Index, tmp_path: Path, monkeypatch):
    for number in range(20):
        index.add(number, f"U{number}", stored=NOW + number)
    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "unlink", refuse(errno.EIO))
        with pytest.raises(OSError, match="Input/output error"):
            index.service.cut(14)

    index.service.cut(14)

    assert (index.query("U13"), index.query("U14")) == ([13], [])
    assert sorted(path.name for path in (tmp_path / "index").iterdir() if path.is_file()) == index.service.file_names


def test_a_message_whose_keys_lie_in_two_files_loses_all_or_none(index: Index, tmp_path: Path):
    for number in range(6):
        index.add(number, f"U{number}", stored=NOW + number)
    index.add(6, "U6", "first second", stored=NOW + 6)
    assert len(index.service.files) == 2
    again = Index(tmp_path / "index")
    again.service.load()

    assert again.service.cut(7) == 0
    assert again.query("second") == [6]
    assert again.service.cut(6) == 3
    assert (again.query("U6"), again.query("second"), again.query("U5")) == ([], [], [5])
    again.add(6, "U6", "first second", stored=NOW + 6)
    assert again.query("second") == [6]
    again.service.close()


def test_a_sync_does_not_speak_for_keys_that_come_while_it_runs(index: Index, monkeypatch: pytest.MonkeyPatch):
    index.add(0, "U0", stored=NOW)
    (file,) = index.service.files
    sync = file.sync

    def sync_and_add() -> None:
        sync()
        index.add(100, "U1", stored=NOW + 9)

    monkeypatch.setattr(file, "sync", sync_and_add)
    before = index.service.sync()
    monkeypatch.undo()
    assert before == NOW, "the last one came after its file was synced"
    assert index.service.sync() == NOW + 9


@pytest.mark.proves("The steps of a message", "5. checkpoint")
def test_a_sync_tells_up_to_which_message_all_keys_are_on_disk(index: Index):
    assert index.service.sync() == 0
    index.add(0, "U0", stored=NOW)
    index.add(1, stored=NOW + 1)
    index.add(2, "U2", stored=NOW + 2, flush=False)

    assert index.service.sync() == NOW + 1
    index.service.flush()
    assert index.service.sync() == NOW + 2


def test_a_cut_takes_keys_that_wait_and_the_time_of_those_that_were_entered(index: Index):
    for number in range(6):
        index.add(number, f"U{number}", stored=NOW + number, flush=number < 4)

    assert index.service.cut(5) == 1
    assert index.service.sync() == 0
    index.service.flush()
    assert index.service.sync() == NOW + 4
    assert index.service.cut(2) == 3
    assert index.service.sync() == 0

    assert [index.query(f"U{number}") for number in range(6)] == [[0], [1], [], [], [], []]
    index.add(2, "V2", stored=NOW - 50)
    assert index.query("V2") == [2]
    assert index.service.sync() == NOW - 50


def test_a_full_disk_keeps_the_keys_for_the_next_try(index: Index, monkeypatch):
    index.add(0, "U0")

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for number in range(1, 12):
        index.add(number, f"U{number}", flush=False)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", refuse)
        for _ in range(3):
            with pytest.raises(StoreFullError):
                index.service.flush()
    assert index.service.waiting == 5
    assert len(list(index.service.files[0].file.path.parent.iterdir())) == 1

    assert [index.query(f"U{number}") for number in range(12)] == [[number] for number in range(12)]


def test_further_keys_of_a_message_count(index: Index):
    index.add(0, "U0", "a", flush=False)
    assert index.service.waiting == 1

    index.add(1, "U1", " ".join(f"key-{number}" for number in range(200)), flush=False)

    assert index.service.waiting == 1 + 200
    index.service._hash_all()
    assert index.service.waiting == 2 + 201


def test_messages_that_wait_for_an_index_out_of_service_are_hashed(index: Index, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(index_service, "AT_ONCE", 4)
    monkeypatch.setattr(index_service, "_MOST_UNHASHED", 8)
    found = (None, b"U", None, False)

    index.service.add([(index.queue, 0, offset, 0, 0, NOW, found) for offset in range(3 * 4 + 3)])

    assert (len(index.service._requests), index.service.waiting) == (7, 15)
    many = (None, None, b" ".join([b"key"] * 50), False)
    index.service.add([(index.queue, 0, 15, 0, 0, NOW, many)])
    assert (len(index.service._requests), index.service.waiting) == (0, 15 + 50)


def test_a_part_has_as_many_keys_however_many_a_message_has(index: Index, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(index_service, "AT_ONCE", 4)
    for offset, keys in enumerate(["a b", "c d", "e", "f g h i j", "k", "l"]):
        index.add(offset, "", keys, flush=False)
    entered = []

    while index.service.waiting:
        index.service.flush(1)
        entered.append(index.service.end_physical_offset)

    assert entered == [1, 2, 3, 5]
    assert [index.query(key) for key in "abcdefghijkl"] == [[0], [0], [1], [1], [2], *[[3]] * 5, [4], [5]]


def keys_of(texts: list[str], first: int) -> IndexKeys:
    """A key for each message, which lie at consecutive offsets of the log, and a last one without."""
    hashes = [key_hash_of(java_hash(f"T#{text}")) for text in texts]
    offsets = np.arange(first, first + len(texts))
    return IndexKeys(np.array(hashes, np.int32), offsets, np.full(len(texts), NOW), NOW + 5)


def test_keys_that_were_hashed_before_follow_messages_that_wait(index: Index):
    index.add(0, "U0", flush=False)
    index.service.add_keys(keys_of([f"U{number}" for number in range(1, 12)], 1))
    index.service.add_keys(keys_of([], 12))
    index.add(13, "U13", stored=NOW + 6, flush=False)
    assert index.service.waiting == 13

    assert [index.query(f"U{number}") for number in range(12)] == [[number] for number in range(12)]
    assert index.query("U13") == [13]
    assert index.service.waiting == 0
    assert index.service.sync() == NOW + 6


def test_the_last_message_is_reported_though_it_has_no_key(index: Index):
    index.service.add_keys(keys_of([], 12))
    index.service.flush()

    assert index.service.sync() == NOW + 5


def test_a_full_disk_keeps_hashed_keys_from_where_it_refused_them(index: Index, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    index.add(0, "U0", stored=NOW)
    index.service.add_keys(keys_of([f"U{number}" for number in range(1, 12)], 1))
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(StoreFullError):
            index.service.flush()
    assert index.service.waiting == 5
    assert index.service.sync() == 0, "the clock may have been set back since"

    assert [index.query(f"U{number}") for number in range(12)] == [[number] for number in range(12)]
    assert index.service.sync() == NOW + 5


def test_an_empty_index_knows_nothing(index: Index):
    index.service.load()

    assert index.query("k") == []
    assert index.service.last_update == (0, 0)
    assert index.service.end_physical_offset == -1
