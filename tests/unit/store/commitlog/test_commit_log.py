import errno
import os
from pathlib import Path

import pytest

from rocketbroker.codec.message.message_decoder import (
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V1,
    RECORD_HEAD,
    decode_record,
    encode_record,
)
from rocketbroker.common.errors import StoreError, StoreFullError
from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner
from rocketbroker.store.queue.consume_queue import ConsumeQueue
from tests.support.stores import V4_HOST, V6_HOST, message, open_log

NOW = 1_795_255_162_876
FILE = 4096


def queue_for(tmp_path: Path, topic: str = "Topic") -> ConsumeQueue:
    return ConsumeQueue(topic, 0, tmp_path / "cq", 1200)


def expected_record(sent: MessageExtBrokerInner, queue_offset: int, offset: int, store_host: bytes) -> bytes:
    return encode_record(
        sent.queue_id,
        sent.flag,
        queue_offset,
        offset,
        sent.sys_flag,
        sent.born_timestamp,
        sent.born_host,
        NOW,
        store_host,
        sent.reconsume_times,
        sent.prepared_transaction_offset,
        sent.body,
        sent.topic.encode(),
        sent.properties,
    )


def append_sized(log: CommitLog, queue: ConsumeQueue, size: int, number: int = 0) -> int:
    """Append a record of exactly so many bytes; its offset."""
    body = bytes(size - 91 - len(queue.topic))
    offset, written = log.append(message(body, queue.topic), queue, number, NOW)
    assert written == size
    return offset


@pytest.mark.proves("The steps of a message", "1. record")
@pytest.mark.parametrize("topic", ["Topic", "T" * 127, "T" * 128, "é" * 64])
@pytest.mark.parametrize("born_host", [V4_HOST, V6_HOST], ids=["born4", "born6"])
@pytest.mark.parametrize("store_host", [V4_HOST, V6_HOST], ids=["store4", "store6"])
def test_a_record_has_the_encoders_bytes(tmp_path: Path, topic: str, born_host: bytes, store_host: bytes):
    sent = message(
        b"some body",
        topic,
        7,
        properties={"TAGS": "a"},
        born_host=born_host,
        store_host=store_host,
        flag=-2,
        born_timestamp=NOW - 5,
        reconsume_times=3,
        prepared_transaction_offset=1 << 40,
    )
    with open_log(tmp_path / "log", FILE, store_host) as log:
        queue = queue_for(tmp_path, topic)
        log.append(sent, queue, 0, NOW)
        offset, size = log.append(sent, queue, 5, NOW)

        expected = expected_record(sent, 5, offset, store_host)
        assert (offset, size) == (len(expected), len(expected))
        assert log.record(offset) == expected
        assert (log.min_offset, log.max_offset) == (0, 2 * size)


def test_a_record_that_leaves_room_for_a_blank_fits_and_one_byte_more_rolls(tmp_path: Path):
    for more, expected in ((0, 2000), (1, FILE)):
        with open_log(tmp_path / f"log{more}", FILE) as log:
            queue = queue_for(tmp_path)
            append_sized(log, queue, 2000)

            offset = append_sized(log, queue, FILE - 2000 - 8 + more)

            assert offset == expected


def test_the_rest_of_a_full_file_is_a_blank_and_the_next_file_follows(tmp_path: Path):
    with open_log(tmp_path / "log", FILE) as log:
        queue = queue_for(tmp_path)
        for number in range(5):
            append_sized(log, queue, 1500, number)

        first = (tmp_path / "log" / f"{0:020d}").read_bytes()
        assert first[3000:3008] == (FILE - 3000).to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big")
        assert [file.wrote for file in log.queue.files] == [FILE, FILE, 1500]
        assert [decode_record(log.record(at) or b"").queue_offset for at in (0, 1500, FILE, FILE + 1500)] == [
            0,
            1,
            2,
            3,
        ]


def test_the_flush_thread_never_finds_the_written_part_to_end_after_a_blank(tmp_path: Path, monkeypatch):
    seen: list[int] = []
    with open_log(tmp_path / "log", FILE) as log:
        queue = queue_for(tmp_path)
        monkeypatch.setattr(LocalFileSystem, "watcher", lambda *_: lambda *_: seen.append(log.queue.files[0].wrote))
        append_sized(log, queue, 3000)
        append_sized(log, queue, 1500)

        assert seen == [3000, 3000, FILE]


def test_a_file_filled_up_to_a_blank_of_8_bytes_is_whole(tmp_path: Path):
    with open_log(tmp_path / "log", FILE) as log:
        queue = queue_for(tmp_path)
        append_sized(log, queue, FILE - 8)

        assert append_sized(log, queue, 200) == FILE
        assert bytes(log.queue.files[0].buffer[-8:]) == b"\0\0\0\x08" + BLANK_MAGIC_CODE.to_bytes(4, "big")


def test_a_record_longer_than_a_file_is_rejected_and_nothing_is_written(tmp_path: Path):
    with open_log(tmp_path / "log", FILE) as log:
        queue = queue_for(tmp_path)
        append_sized(log, queue, 500)

        with pytest.raises(StoreError, match=r"4089 bytes.*4096.*mappedFileSizeCommitLog"):
            append_sized(log, queue, FILE - 7)
        with pytest.raises(StoreError, match="mappedFileSizeCommitLog"):
            log.reserve(FILE, [FILE])

        assert log.max_offset == 500
        assert append_sized(log, queue, 500) == 500


def test_reserved_records_lie_in_one_file(tmp_path: Path):
    with open_log(tmp_path / "log", FILE) as log:
        queue = queue_for(tmp_path)
        append_sized(log, queue, 3000)

        offset = log.reserve(1089, [1089])
        log.append_encoded(b"r" * 1089, offset)

        assert offset == FILE
        assert log.max_offset == FILE + 1089
        assert bytes(log.slice(offset, 1089) or b"") == b"r" * 1089


def test_slices_end_where_was_written(tmp_path: Path):
    with open_log(tmp_path / "log", FILE) as log:
        queue = queue_for(tmp_path)
        append_sized(log, queue, 500)

        assert log.slice(0, 501) is None
        assert log.slice(-1, 10) is None
        assert log.slice(FILE, 1) is None
        assert [len(view) for view in log.slices([(0, 200), (400, 200), (100, 400)])] == [200, 400]


@pytest.mark.parametrize("offset", [1, 499, 500, 100_000, -500])
def test_no_record_begins_elsewhere(tmp_path: Path, offset: int):
    with open_log(tmp_path / "log", FILE) as log:
        queue = queue_for(tmp_path)
        append_sized(log, queue, 500)

        assert log.record(offset) is None


def test_a_record_inside_a_body_is_not_taken_for_one(tmp_path: Path):
    inner = encode_record(0, 0, 0, 999, 0, 0, V4_HOST, NOW, V4_HOST, 0, 0, b"inner", b"Topic", b"")
    with open_log(tmp_path / "log", FILE) as log:
        log.append(message(inner), queue_for(tmp_path), 0, NOW)

        assert log.record(88) is None


def test_a_record_forged_for_its_place_gives_nothing_behind_it(tmp_path: Path):
    with open_log(tmp_path / "log", 1 << 16) as log:
        queue = queue_for(tmp_path)
        head = RECORD_HEAD.pack(
            20_000, MESSAGE_MAGIC_CODE_V1, 0, 0, 0, 0, 88, 0, 0, V4_HOST, NOW, V4_HOST, 0, 0, 19_000
        )
        log.append(message(head), queue, 0, NOW)
        for number in range(1, 300):
            log.append(message(b"another's"), queue, number, NOW)

        assert log.record(88) is None


def test_warming_up_makes_the_first_file_and_its_successor(tmp_path: Path):
    with open_log(tmp_path / "log", FILE) as log:
        log.warm_up()

        assert log.max_offset == 0
        assert log.queue.files[0].allocated == FILE
    assert sorted(int(path.name) for path in (tmp_path / "log").iterdir()) == [0, FILE]


def fill(log: CommitLog, queue: ConsumeQueue) -> None:
    """Append more than two files hold."""
    for number in range(2000):
        append_sized(log, queue, 1000, number)


@pytest.mark.proves("The steps of a message", "1. record")
def test_blocks_are_there_before_anything_is_stored_in_them(tmp_path: Path):
    with open_log(tmp_path / "log", 1 << 20, step=8192) as log:
        queue = queue_for(tmp_path)
        for number in range(1500):
            append_sized(log, queue, 1000, number)
            file = log.queue.files[-1]
            assert file.wrote + 8 <= file.allocated <= 1 << 20
        log.append_encoded(b"r" * 100_000, log.reserve(100_000, [100_000]))
        assert log.queue.files[-1].wrote <= log.queue.files[-1].allocated


@pytest.mark.proves("The steps of a message", "1. record")
def test_where_the_disk_has_no_blocks_nothing_is_stored(tmp_path: Path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_log(tmp_path / "log", 1 << 20, step=8192) as log:
        queue = queue_for(tmp_path)
        log.warm_up()
        monkeypatch.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(StoreFullError):
            fill(log, queue)
        end = log.max_offset
        for size in (1000, 200_000):
            with pytest.raises(StoreFullError):
                append_sized(log, queue, size)

        assert log.max_offset == end
        file = log.queue.find(end)
        assert file
        assert end % (1 << 20) <= file.allocated
        assert not any(file.buffer[file.wrote :])
        monkeypatch.undo()
        assert append_sized(log, queue, 1000) == end
