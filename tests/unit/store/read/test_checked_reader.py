"""Files that changed on disk while the broker was down: a consumer gets the sound messages and none other."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.codec.message.message_decoder import BODY_POSITION, decode_messages
from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.codec.storefile.consume_queue_layout import ENTRY
from rocketbroker.common.errors import StoreError
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.read import checked_reader
from rocketbroker.store.read.checked_reader import CachedWindows, ColdRead, DamageLog, LogRead, file_of
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult, UncheckedMessages
from tests.support.damage import entry_place, pulls, record_place
from tests.support.fakes import FakeClock
from tests.support.stores import V6_HOST, completed, fetch, make_store, message, open_log, pulled


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]


def test_a_damaged_place_is_logged_once(caplog: pytest.LogCaptureFixture):
    found = DamageLog()
    for _ in range(3):
        found.report("/store/commitlog/0", 100, "zeros")
    found.report("/store/commitlog/0", 200, "zeros")
    found.report("/store/commitlog/1", 100, "zeros")

    assert found.count == len(lines(caplog)) == 3
    assert lines(caplog)[0] == (
        "/store/commitlog/0 is damaged at 100: zeros. Stop the broker and run `mqstore check` on its store"
    )


def test_the_cache_is_bounded(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checked_reader, "_MOST_LOGGED", 5)
    found = DamageLog()
    for position in range(20):
        found.report("/store/commitlog/0", position, "zeros")
    found.report("/store/commitlog/0", 0, "zeros")

    assert found.count == 20
    assert len(lines(caplog)) == 6
    assert "further ones are counted but not logged" in lines(caplog)[-1]


MIB = 1 << 20


class Kernel:
    """A file of the log of which the page cache has what lies before ``cached``."""

    def __init__(self, begin: int, cached: int, wrote: int = 4 * MIB) -> None:
        self.file_from_offset = begin
        self.wrote = wrote
        self.cached = cached
        self.asked: list[tuple[int, int]] = []

    def is_cached(self, start: int, end: int) -> bool:
        self.asked.append((start, end))
        return end <= self.cached


class TestHolds:
    def test_a_window_is_asked_for_once_a_second(self):
        clock = FakeClock()
        windows, kernel = CachedWindows(clock.monotonic), Kernel(0, 4 * MIB)

        for start in range(MIB, MIB + 5000, 1000):
            assert windows.holds(kernel, start, start + 1000)
        assert kernel.asked == [(MIB, 2 * MIB)]

        clock.advance(1.1)
        assert windows.holds(kernel, MIB, MIB + 1)
        assert kernel.asked == [(MIB, 2 * MIB)] * 2

    def test_what_is_in_part_in_the_cache_is_asked_for_exactly(self):
        windows, kernel = CachedWindows(FakeClock().monotonic), Kernel(0, 1000)

        assert windows.holds(kernel, 0, 1000)
        assert not windows.holds(kernel, 0, 1001)
        assert kernel.asked == [(0, MIB), (0, 1000), (0, MIB), (0, 1001)]

    def test_a_range_may_reach_into_the_next_window(self):
        windows, kernel = CachedWindows(FakeClock().monotonic), Kernel(0, MIB + 10)

        assert not windows.holds(kernel, MIB - 10, MIB + 20)
        assert kernel.asked == [(0, MIB), (MIB, 2 * MIB), (MIB - 10, MIB + 20)]

    def test_nothing_is_asked_about_what_is_not_written_yet(self):
        windows, kernel = CachedWindows(FakeClock().monotonic), Kernel(0, 5000, wrote=5000)

        assert windows.holds(kernel, 100, 200)
        assert kernel.asked == [(0, 5000)]

    def test_files_are_distinguished(self):
        windows, first, second = CachedWindows(FakeClock().monotonic), Kernel(0, 4 * MIB), Kernel(4 * MIB, 0)

        assert windows.holds(first, 0, 10)
        assert not windows.holds(second, 0, 10)


SIZE = 4096


@pytest.fixture
def log(tmp_path: Path):
    """Three files, each byte of which is the number of its file."""
    with open_log(tmp_path / "commitlog", SIZE) as found:
        for number in range(3):
            file = found.queue.create_next()
            file.ensure_allocated(SIZE)
            file.write(0, SIZE, bytes([number]) * SIZE)
        yield found


def test_ranges_are_read_back_to_back(log: CommitLog):
    read = LogRead(log, [(10, 3), (SIZE + 10, 2), (20, 1)])

    assert read.read() == b"\0\0\0\1\1\0"


def test_a_range_may_continue_in_the_next_file(log: CommitLog):
    assert LogRead(log, [(SIZE - 2, 4), (2 * SIZE - 1, 2)]).read() == b"\0\0\1\1\1\2"


def test_zeros_stand_for_a_file_that_was_removed(log: CommitLog):
    log.queue.files.pop(0)

    assert LogRead(log, [(10, 3), (SIZE, 2)]).read() == b"\0\0\0\1\1"
    assert file_of(log, 10) is None


def test_a_file_that_is_removed_meanwhile_is_read_all_the_same(log: CommitLog):
    read = LogRead(log, [(SIZE + 10, 3)])
    log.queue.files.pop(1).remove()

    assert read.read() == b"\1\1\1"


def test_a_log_that_is_closed_is_an_error(log: CommitLog):
    files, log.queue.files = log.queue.files, []
    with pytest.raises(StoreError, match="closed"):
        LogRead(log, [(10, 3)])
    log.queue.files = files


def test_a_disk_that_cannot_be_read_is_named(log: CommitLog, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_arguments: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.preadv", refuse)
    read = LogRead(log, [(10, 3)])

    with pytest.raises(StoreError, match=r"cannot read .*00000000000000000000 at 10: Input/output error"):
        read.read()


COUNT = 400
# A record has about so many bytes.
SIZE_CHECKED_READER = 1000
TAGS = ("red", "green", "blue")


def tags_of(number: int) -> str:
    return TAGS[number % 3]


def body_of(number: int) -> bytes:
    return b"%d" % number * 20


async def filled(root: Path, **settings: Any) -> MessageStore:
    """A store that was stopped with messages of two queues in turn, and opened again."""
    store = make_store(root, **settings)
    await store.start()
    for number in range(COUNT):
        for queue_id in (0, 1):
            properties = {"TAGS": tags_of(number), "FILL": "f" * 850}
            store.appender.put_message(message(body_of(number), queue_id=queue_id, properties=properties))
    store.appender.dispatch()
    await store.stop()
    again = make_store(root, **settings)
    await again.start()
    return again


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    made = await filled(tmp_path / "store")
    yield made
    await made.stop()


def sound(*but: int, wanted: Sequence[str] = TAGS) -> list[tuple[int, bytes]]:
    return [(n, body_of(n)) for n in range(COUNT) if n not in but and tags_of(n) in wanted]


async def test_sound_messages_are_given_as_they_were_stored(store: MessageStore):
    assert pulls(store) == sound()
    assert pulls(store, max_msgs=1) == sound()
    assert pulls(store, max_bytes=3 * SIZE_CHECKED_READER) == sound()
    assert store.damage_log.count == 0


async def test_messages_stored_since_are_not_read_to_be_checked(store: MessageStore):
    store.appender.put_message(message(b"new"))
    store.appender.dispatch()

    last = fetch(store, "Topic", 0, COUNT - 1)
    assert (last.message_count, last.next_begin_offset) == (1, COUNT)
    record_place(store, COUNT)[0].flip(BODY_POSITION * 8)
    new = fetch(store, "Topic", 0, COUNT)
    assert pulled(new)[BODY_POSITION : BODY_POSITION + 3] == b"oew"


async def test_sound_messages_in_the_page_cache_need_no_second_look(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
):
    def second_look(offset: int, max_bytes: int = 1 << 20) -> tuple[bool, int]:
        request = GetMessageRequest("Topic", 0, offset, 16, max_bytes)
        selection = store.reader.select(store.queues.queues_of("Topic")[0], request)
        return selection.unchecked is not None, selection.message_count

    monkeypatch.setattr(MappedFile, "is_cached", lambda *_arguments: True)
    assert second_look(0) == (False, 16)
    assert second_look(0, 5 * SIZE_CHECKED_READER) == (False, 5)
    assert second_look(0, 1) == (True, 1)
    record_place(store, 15)[0].flip(88 * 8)
    assert second_look(0) == (True, 16)
    assert second_look(0, 5 * SIZE_CHECKED_READER) == (False, 5)
    store.fetcher.checked_reader.cached.forget()
    monkeypatch.setattr(MappedFile, "is_cached", lambda *_arguments: False)
    assert second_look(0, 5 * SIZE_CHECKED_READER) == (True, 5)


class TestRecords:
    @pytest.mark.proves("Damage", "before delivery to a consumer")
    async def test_no_flipped_bit_of_the_head_gives_a_wrong_message(self, store: MessageStore):
        place, _ = record_place(store, 70)
        left_out = 0
        for bit in range(88 * 8):
            place.flip(bit)
            found = pulls(store, 64, 96)
            place.flip(bit)
            kept = {number for number, _ in found}
            assert kept >= {*range(64, 96)} - {70}, bit
            assert all(body == body_of(number) for number, body in found), bit
            left_out += 70 not in kept
        # totalSize, magic, bodyCRC but its sign, queueId, queueOffset, physicalOffset, two bits of sysFlag, bodyLength.
        assert left_out == 8 * 4 * 5 + 8 * 16 + 2
        assert pulls(store) == sound()

    @pytest.mark.proves("Damage", "before delivery to a consumer")
    async def test_no_flipped_bit_after_the_head_gives_a_wrong_body(self, store: MessageStore):
        place, size = record_place(store, 70)
        covered = 88 + len(body_of(70)) + len(b"\x05Topic") + 2
        for bit in range(88 * 8, covered * 8):
            place.flip(bit)
            assert 70 not in dict(pulls(store, 64, 96)), bit
            place.flip(bit)
        assert size > covered
        assert pulls(store) == sound()

    @pytest.mark.parametrize("length", [8, 200, SIZE_CHECKED_READER])
    async def test_a_zeroed_record_is_left_out(self, store: MessageStore, length: int):
        record_place(store, 70)[0].write(bytes(length))

        assert pulls(store) == sound(70)

    async def test_a_zeroed_range_takes_what_lies_in_it(self, store: MessageStore):
        first, behind = record_place(store, 10)[0], record_place(store, 30)[0]
        assert first.path == behind.path
        first.write(bytes(behind.position - first.position))

        assert pulls(store) == sound(*range(10, 30))

    async def test_a_foreign_record_at_the_place_is_left_out(self, store: MessageStore):
        place, size = record_place(store, 70)
        place.write(record_place(store, 72)[0].read(size))

        assert pulls(store) == sound(70)

    async def test_records_with_ipv6_hosts_are_checked(self, tmp_path: Path):
        made = make_store(tmp_path / "six", store_host=V6_HOST)
        await made.start()
        for number in range(3):
            made.appender.put_message(message(body_of(number), born_host=V6_HOST, store_host=V6_HOST))
        made.appender.dispatch()
        await made.stop()
        store = make_store(tmp_path / "six", store_host=V6_HOST)
        await store.start()

        place, _ = record_place(store, 1)
        assert [number for number, _ in pulls(store, 0, 3)] == [0, 1, 2]
        for bit in ((88 + 24) * 8, (84 + 24) * 8):
            place.flip(bit)
            assert pulls(store, 0, 3) == [(0, body_of(0)), (2, body_of(2))]
            place.flip(bit)
        await store.stop()


class TestEntries:
    @pytest.mark.proves("Damage", "before delivery to a consumer")
    async def test_no_flipped_bit_of_an_entry_gives_a_wrong_message(self, store: MessageStore):
        place = entry_place(store, 70)
        for bit in range(12 * 8):
            place.flip(bit)
            assert pulls(store, 64, 96) == sound()[64:70] + sound()[71:96], bit
            place.flip(bit)

    async def test_a_flipped_tags_code_hides_no_message(self, store: MessageStore):
        place = entry_place(store, 70)
        wanted = {tags_code(tags_of(70))}.__contains__
        for bit in range(12 * 8, 20 * 8):
            place.flip(bit)
            assert pulls(store, matches=wanted) == sound(wanted=[tags_of(70)]), bit
            assert pulls(store) == sound()
            place.flip(bit)

    async def test_a_tags_code_that_is_not_the_messages_brings_nothing(self, store: MessageStore):
        place = entry_place(store, 70)
        place.write(ENTRY.pack(0, 0, tags_code(tags_of(71)))[12:], 12)

        assert pulls(store, matches={tags_code(tags_of(71))}.__contains__) == sound(wanted=[tags_of(71)])
        assert store.damage_log.count == 1

    async def test_zeroed_entries_are_skipped_in_few_pulls(self, store: MessageStore):
        # All of the second file, and the first of the third.
        entry_place(store, 60).write(bytes(60 * 20))
        entry_place(store, 120).write(bytes(20))

        result = fetch(store, "Topic", 0, 60)
        assert (result.message_count, result.next_begin_offset) == (0, 120)
        assert pulls(store) == sound(*range(60, 121))
        assert pulls(store, matches={tags_code("red")}.__contains__) == sound(*range(60, 121), wanted=["red"])

    @pytest.mark.parametrize(
        ("offset", "size"),
        [
            (0, 0),
            (-1, SIZE_CHECKED_READER),
            (-(2**63), -(2**31)),
            (2**63 - 1, 2**31 - 1),
            (0, 2**31 - 1),
            (65000, SIZE_CHECKED_READER),
            (5, 60000),
        ],
    )
    async def test_absurd_entries_are_skipped(self, store: MessageStore, offset: int, size: int):
        entry_place(store, 70).write(ENTRY.pack(offset, size, 0))

        assert pulls(store) == sound(70)

    async def test_an_entry_of_another_message_is_skipped(self, store: MessageStore):
        entry = store.queues.queues_of("Topic")[0].entry(80)
        assert entry is not None
        entry_place(store, 70).write(ENTRY.pack(*entry))

        assert pulls(store) == sound(70)


class TestReports:
    async def test_damage_is_reported_once_with_its_place(self, store: MessageStore, caplog: pytest.LogCaptureFixture):
        place, _ = record_place(store, 70)
        place.flip(88 * 8)
        entry_place(store, 80).write(bytes(20))

        for _ in range(3):
            pulls(store)

        texts = sorted(one.getMessage() for one in caplog.records if one.levelno == logging.ERROR)
        assert len(texts) == store.damage_log.count == 2
        assert f"{place.path} is damaged at {place.position}: message 70 of queue 0 of Topic" in texts[0]
        assert "bodyCRC" in texts[0]
        entry = entry_place(store, 80)
        assert f"{entry.path} is damaged at {entry.position}: message 80 of queue 0 of Topic" in texts[1]
        assert all("mqstore check" in text for text in texts)


class TestReading:
    async def test_the_thread_reads_what_the_loop_does(self, store: MessageStore, monkeypatch: pytest.MonkeyPatch):
        record_place(store, 3)[0].flip(88 * 8)
        warm = fetch(store, "Topic", 0, 0)
        monkeypatch.setattr(MappedFile, "is_cached", lambda *_arguments: False)
        store.fetcher.checked_reader.cached.forget()

        cold = await completed(read_later(store, 0))

        assert pulled(cold) == pulled(warm)
        assert (cold.message_count, cold.total_size) == (warm.message_count, warm.total_size) == (31, len(pulled(cold)))
        assert cold.next_begin_offset == warm.next_begin_offset == 32

    async def test_a_pull_of_much_is_left_to_the_thread(self, tmp_path: Path):
        sizes: Any = {"mapped_file_size_commit_log": 1 << 22}
        made = make_store(tmp_path / "big", **sizes)
        await made.start()
        made.appender.put_message(message(bytes(1 << 20)))
        made.appender.dispatch()
        await made.stop()
        store = make_store(tmp_path / "big", **sizes)
        await store.start()

        result = await completed(read_later(store, 0, 1 << 22))

        assert len(pulled(result)) == result.total_size > 1 << 20
        await store.stop()

    async def test_messages_whose_file_is_removed_are_left_out_without_a_report(
        self, store: MessageStore, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(MappedFile, "is_cached", lambda *_arguments: False)
        reading = read_later(store, 20)
        store.commit_log.queue.files.pop(0).delete()

        result = await completed(reading)

        kept = [one.queue_offset for one in decode_messages(pulled(result))]
        assert kept
        assert kept == list(range(kept[0], 52))
        assert store.damage_log.count == 0

    async def test_nothing_is_skipped_while_the_log_is_closed(self, store: MessageStore):
        queue = store.queues.queues_of("Topic")[0]
        expected = queue.expected_record(20)
        assert expected is not None
        messages = UncheckedMessages(queue, [expected], [expected[1:3]], expected[2])
        files, store.commit_log.queue.files = store.commit_log.queue.files, []

        with pytest.raises(StoreError, match="closed"):
            store.fetcher.checked_reader.read(messages)
        store.commit_log.queue.files = files

    async def test_reads_at_once_share_nothing(self, store: MessageStore, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(MappedFile, "is_cached", lambda *_arguments: False)
        record_place(store, 70)[0].flip(88 * 8)
        first, second, again = read_later(store, 60), read_later(store, 66), read_later(store, 60)

        results = await asyncio.gather(*map(completed, (again, second, first)))

        numbers = [[one.queue_offset for one in decode_messages(pulled(result))] for result in results]
        assert numbers[0] == numbers[2] == [number for number in range(60, 92) if number != 70]
        assert numbers[1] == [number for number in range(66, 98) if number != 70]
        assert [result.next_begin_offset for result in results] == [92, 98, 92]

    async def test_a_read_that_nobody_waits_for_is_not_made(self, store: MessageStore, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(MappedFile, "is_cached", lambda *_arguments: False)
        record_place(store, 3)[0].flip(88 * 8)

        read_later(store, 0)

        assert store.damage_log.count == 0


def read_later(store: MessageStore, offset: int, max_bytes: int = 1 << 20) -> ColdRead[GetMessageResult]:
    """Begin a read that has to wait for the disk."""
    found = store.fetcher.fetch(GetMessageRequest("Topic", 0, offset, 32, max_bytes))
    assert isinstance(found, ColdRead)
    return found
