import random
from pathlib import Path

import pytest

from rocketbroker.codec.message.message_decoder import encode_blank, encode_record
from rocketbroker.common.errors import StoreError, StoreFullError
from rocketbroker.store.commitlog import commit_log_walker
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.commit_log_walker import RawRecords, whole_records
from rocketbroker.store.queue.consume_queue import ConsumeQueue
from tests.support.stores import V4_HOST, V6_HOST, message, open_log

FILE = 4096


def outcome(data: bytes, begin: int, free: int) -> RawRecords | str:
    try:
        found = whole_records(data, 0, begin, free)
    except StoreError as error:
        return str(error)
    ends = [begin, *(stretch.end_offset for stretch in found.stretches)]
    assert [stretch.begin_offset for stretch in found.stretches] == ends[:-1]
    assert ends[-1] <= begin + found.size
    return found._replace(stretches=())


def record(offset: int, stored: int = 7, born_host: bytes = V4_HOST, properties: bytes = b"") -> bytes:
    sys_flag = 0 if born_host == V4_HOST else 1 << 4
    return encode_record(0, 0, 0, offset, sys_flag, 0, born_host, stored, V4_HOST, 0, 0, b"body", b"Topic", properties)


def fill(log: CommitLog, queue: ConsumeQueue, count: int) -> None:
    for number in range(count):
        log.append(message(bytes([number]) * (number * 37 % 900)), queue, number, 1000 - number)


def bytes_of(log: CommitLog) -> bytes:
    return b"".join(file.path.read_bytes() for file in log.queue.files)[: log.max_offset - log.min_offset]


class TestWholeRecords:
    def test_a_record_that_is_not_whole_is_left(self):
        first, second = record(FILE, 9), record(FILE + 100, 5)
        assert len(first) == 100

        for length in range(201):
            found = whole_records((first + second)[:length], 0, FILE, FILE)
            assert found == (RawRecords(length // 100 * 100, [None, 9, 5][length // 100]))

    @pytest.mark.long
    @pytest.mark.parametrize("free", [1 << 20, 20_000])
    def test_many_records_are_found_like_few(self, monkeypatch: pytest.MonkeyPatch, free: int):
        begin = (1 << 20) - free
        parts, at = list[bytes](), begin
        for number in range(180):
            host = V6_HOST if number % 7 == 3 else V4_HOST
            parts.append(record(at, 1000 - number, host, b"P\x01" + bytes([65]) * (number % 40) + b"\x02"))
            at += len(parts[-1])
        data = b"".join(parts)
        for end in (*range(len(data) - 400, len(data) + 1), 300, free + 100):
            cut = data[:end]
            monkeypatch.setattr(commit_log_walker, "_MANY_BYTES", 1 << 30)
            wanted = outcome(cut, begin, free)
            monkeypatch.setattr(commit_log_walker, "_MANY_BYTES", 1)
            assert outcome(cut, begin, free) == wanted, end
        for at in range(0, 3000, 17):
            bad = bytearray(data)
            bad[at] ^= 0x40
            monkeypatch.setattr(commit_log_walker, "_MANY_BYTES", 1 << 30)
            wanted = outcome(bytes(bad), begin, free)
            monkeypatch.setattr(commit_log_walker, "_MANY_BYTES", 1)
            assert outcome(bytes(bad), begin, free) == wanted, at

    def test_store_times_follow_either_kind_of_address(self):
        assert whole_records(record(0, 4711, V6_HOST), 0, 0, FILE).earliest_ms == 4711

    def test_a_blank_ends_the_file_and_is_one_with_the_rest_of_it(self):
        data = record(FILE - 130) + encode_blank(30) + bytes(22) + record(FILE)

        assert whole_records(data[:129], 0, FILE - 130, 130) == RawRecords(100, 7)
        assert whole_records(data, 0, FILE - 130, 130) == RawRecords(130, 7)
        assert whole_records(data, 130, FILE, FILE) == RawRecords(100, 7)

    @pytest.mark.parametrize(
        "data",
        [
            record(1),
            bytes(100),
            b"\0\0\0\x10" + record(0)[4:],
            encode_blank(40) + bytes(100),
            record(0)[:4] + b"abcd" + record(0)[8:],
        ],
        ids=["other offset", "zeros", "too short", "blank amid a file", "other magic"],
    )
    def test_bytes_that_are_not_a_log_at_this_offset_are_rejected(self, data: bytes):
        with pytest.raises(
            StoreError, match="for 0 of the CommitLog are wrong: they do not begin with a record of that offset"
        ):
            whole_records(data, 0, 0, FILE)

    @pytest.mark.parametrize(
        ("at", "said"), [(89, "bodyCRC is 0x"), (87, "lengths in the record"), (92, "lengths in the record")]
    )
    def test_a_damaged_record_is_rejected_and_those_before_it_are_not(self, at: int, said: str):
        first, second = record(FILE, 9), bytearray(record(FILE + 100, 5))
        second[at] ^= 1

        assert whole_records(first + second, 0, FILE, FILE) == RawRecords(100, 9)
        with pytest.raises(StoreError, match=said):
            whole_records(first + second, 100, FILE + 100, FILE - 100)

    def test_a_record_never_takes_the_place_of_the_blank(self):
        with pytest.raises(StoreError, match="its file has 107 bytes left"):
            whole_records(record(FILE - 107), 0, FILE - 107, 107)


class TestAppendRaw:
    @pytest.mark.proves("A log that copies another's", "raw bytes")
    @pytest.mark.parametrize("most", [300, 5000, 100_000])
    def test_a_log_is_copied_byte_by_byte_whatever_the_parts(self, tmp_path: Path, most: int):
        queue = ConsumeQueue("Topic", 0, tmp_path / "cq", 1200)
        chance = random.Random(most)
        with open_log(tmp_path / "from", FILE) as source, open_log(tmp_path / "to", FILE) as copy:
            fill(source, queue, 40)
            data, sent, earliest = bytes_of(source), 0, []
            while copy.max_offset < len(data):
                sent = min(max(sent, copy.max_offset) + chance.randint(1, most), len(data))
                done = copy.append_raw(copy.max_offset, data[copy.max_offset : sent])
                earliest += [done.earliest_ms] if done.earliest_ms else []

            assert bytes_of(copy) == data
            assert len(copy.queue.files) == len(source.queue.files) > 3
            assert min(earliest) == 1000 - 39
            # A master by now.
            assert copy.append(message(b"new"), queue, 40, 5)[0] == len(data)

    def test_a_closed_file_is_not_closed_again(self, tmp_path: Path):
        queue = ConsumeQueue("Topic", 0, tmp_path / "cq", 1200)
        with open_log(tmp_path / "from", FILE) as source, open_log(tmp_path / "to", FILE) as copy:
            fill(source, queue, 40)
            copy.append_raw(0, bytes_of(source)[:FILE])

            assert copy.max_offset == FILE
            assert copy.append(message(b"new"), queue, 40, 5)[0] == FILE

    def test_bytes_for_another_place_are_rejected(self, tmp_path: Path):
        with open_log(tmp_path / "to", FILE) as copy:
            with pytest.raises(StoreError, match="it ends at 0"):
                copy.append_raw(100, record(100))
            assert copy.max_offset == 0

    def test_records_before_a_full_disk_stay(self, tmp_path: Path, monkeypatch):
        queue = ConsumeQueue("Topic", 0, tmp_path / "cq", 1200)
        with open_log(tmp_path / "from", FILE) as source, open_log(tmp_path / "to", FILE) as copy:
            fill(source, queue, 40)
            data = bytes_of(source)
            take = copy.allocate_service.take
            paths: list[Path] = []

            def full(path: Path, file_size: int, step: int):
                paths.append(path)
                if len(paths) == 3:
                    raise StoreFullError("no room")
                return take(path, file_size, step)

            monkeypatch.setattr(copy.allocate_service, "take", full)
            with pytest.raises(StoreFullError):
                append_all(copy, data)
            assert copy.max_offset == 2 * FILE
            append_all(copy, data)
            assert bytes_of(copy) == data

    def test_one_call_takes_the_records_of_one_file(self, tmp_path: Path):
        queue = ConsumeQueue("Topic", 0, tmp_path / "cq", 1200)
        with open_log(tmp_path / "from", FILE) as source, open_log(tmp_path / "to", FILE) as copy:
            fill(source, queue, 40)

            assert copy.append_raw(0, bytes_of(source)).end == FILE


def append_all(copy: CommitLog, data: bytes) -> None:
    while copy.max_offset < len(data):
        copy.append_raw(copy.max_offset, data[copy.max_offset :])


class TestBeginAt:
    def test_an_empty_log_begins_at_a_file_after_its_end(self, tmp_path: Path):
        queue = ConsumeQueue("Topic", 0, tmp_path / "cq", 1200)
        with open_log(tmp_path / "from", FILE) as source, open_log(tmp_path / "to", FILE) as copy:
            fill(source, queue, 40)
            data, begin = bytes_of(source), 2 * FILE
            copy.warm_up()

            copy.begin_at(begin)
            copy.begin_at(begin)

            assert (copy.min_offset, copy.max_offset) == (begin, begin)
            assert sorted(copy.queue.directory.iterdir()) == [copy.queue.path_of(begin)]
            append_all(copy, data)
            assert bytes_of(copy) == data[begin:]

    @pytest.mark.parametrize("offset", [100, FILE + 1])
    def test_an_offset_amid_a_file_is_rejected(self, tmp_path: Path, offset: int):
        with open_log(tmp_path / "to", FILE) as copy:
            copy.warm_up()
            with pytest.raises(StoreError, match=f"cannot begin at {offset}"):
                copy.begin_at(offset)

    def test_a_log_with_records_stays(self, tmp_path: Path):
        queue = ConsumeQueue("Topic", 0, tmp_path / "cq", 1200)
        with open_log(tmp_path / "to", FILE) as copy:
            fill(copy, queue, 1)
            end = copy.max_offset
            with pytest.raises(StoreError, match=f"has the offsets 0 to {end} and cannot begin at {FILE}"):
                copy.begin_at(FILE)
            assert copy.max_offset == end
