from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.codec.storefile.consume_queue_layout import ENTRY
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.checked_reader import CheckedReader
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult, GetMessageStatus, Selection
from rocketbroker.store.read.queue_reader import QueueReader
from tests.support.damage import entry_place, record_place
from tests.support.fakes import FakeClock
from tests.support.stores import V6_HOST, fetch, make_store, message, pulled

SIZE = 200


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[MessageStore]:
    made = make_store(tmp_path / "store", clock)
    await made.start()
    yield made
    await made.stop()


def put(store: MessageStore, count: int, size: int = SIZE, **fields) -> None:
    for _ in range(count):
        properties = fields.get("properties", b"")
        body = bytes(size - 96 - len(properties))
        assert store.appender.put_message(message(body, **fields)).size == size
    store.appender.dispatch()


def get(
    store: MessageStore, offset: int, max_msgs: int = 32, max_bytes: int = 1 << 20, matches=None
) -> GetMessageResult:
    return fetch(store, "Topic", 0, offset, max_msgs, max_bytes, matches=matches)


def change(store: MessageStore, **settings: int) -> None:
    """Change settings while the store runs."""
    apply_updates([store.config], {name: str(value) for name, value in settings.items()})


def reader(store: MessageStore, memory_bytes: int) -> QueueReader:
    checked_reader = CheckedReader(store.commit_log, store.damage_log, ThreadPoolExecutor())
    return QueueReader(store.commit_log, store.config, memory_bytes, checked_reader)


def select(store: MessageStore, memory_bytes: int, offset: int, max_msgs: int) -> Selection:
    """Select from a log of which ``memory_bytes`` count as in memory."""
    request = GetMessageRequest("Topic", 0, offset, max_msgs, 1 << 20)
    return reader(store, memory_bytes).select(store.queues.queues_of("Topic")[0], request)


def offsets(result: GetMessageResult) -> list[int]:
    body = pulled(result)
    assert len(body) == result.total_size
    found = [found.queue_offset for found in decode_messages(body)]
    assert len(found) == result.message_count
    return found


class TestStatus:
    def test_a_queue_that_never_was(self, store: MessageStore):
        assert get(store, 5) == GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)

    def test_a_queue_without_messages(self, store: MessageStore):
        store.queues.find_or_create("Topic", 0)

        assert get(store, 5) == GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)

    @pytest.mark.parametrize(
        ("offset", "status", "following"),
        [
            (0, GetMessageStatus.OFFSET_TOO_SMALL, 2),
            (5, GetMessageStatus.OFFSET_OVERFLOW_ONE, 5),
            (6, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 5),
            (-1, GetMessageStatus.OFFSET_TOO_SMALL, 2),
        ],
    )
    def test_an_offset_outside_the_queue_is_answered_with_the_next_offset(
        self, store: MessageStore, offset: int, status, following: int
    ):
        put(store, 5)
        store.queues.correct_min_offsets(2 * SIZE)

        assert get(store, offset) == GetMessageResult(status, following, 2, 5)

    def test_at_the_end_of_a_queue_whose_messages_have_all_expired_a_consumer_waits(self, store: MessageStore):
        put(store, 5)
        store.queues.correct_min_offsets(5 * SIZE)

        assert get(store, 5) == GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, 5, 5, 5)
        assert get(store, 4).status is GetMessageStatus.OFFSET_TOO_SMALL

    def test_messages_that_the_log_no_longer_has_are_skipped(self, store: MessageStore):
        put(store, 400)
        store.commit_log.queue.files.pop(0).delete()
        first = store.commit_log.min_offset
        missing = [entry for entry in store.queues.queues_of("Topic")[0].entries(0, 60) if entry[0] < first]

        result = get(store, 0)

        assert len(missing) == 60
        assert (result.status, result.next_begin_offset) == (GetMessageStatus.MESSAGE_WAS_REMOVING, 32)


class TestNewMessages:
    """Reads by ``read_new``, which takes only the common case."""

    @pytest.fixture
    def mixed(self, store: MessageStore) -> ConsumeQueueInterface:
        """Return a queue over several files of the log, with neighbours and messages that lie apart."""
        for number in range(300):
            put(store, 1 + number % 3)
            put(store, number % 2, queue_id=1)
        return store.queues.queues_of("Topic")[0]

    @pytest.mark.parametrize("max_msgs", [1, 2, 32, 100])
    @pytest.mark.parametrize("max_bytes", [SIZE - 1, 5 * SIZE, 1 << 20])
    def test_they_are_those_that_a_selection_finds(
        self, store: MessageStore, mixed: ConsumeQueueInterface, max_msgs: int, max_bytes: int
    ):
        log, whole, found = store.commit_log, reader(store, 1 << 30), 0
        for offset in range(mixed.max_offset):
            request = GetMessageRequest("Topic", 0, offset, max_msgs, max_bytes)
            new = whole.read_new(mixed, request)
            if new is None:
                continue
            found += 1
            selection = whole.select(mixed, request)
            assert [bytes(each) for each in new.buffers] == [bytes(each) for each in log.slices(selection.ranges)]
            assert (new.status, new.next_begin_offset) == (selection.status, selection.next_begin_offset)
            assert new.message_count == selection.message_count
            assert new.total_size == sum(map(len, new.buffers))
            assert (new.min_offset, new.max_offset) == (0, mixed.max_offset)
        assert (found > 0) == (max_bytes >= SIZE)

    def test_none_is_read_that_is_not_in_memory_or_not_trusted(self, store: MessageStore, mixed: ConsumeQueueInterface):
        last = mixed.max_offset - 4
        request = GetMessageRequest("Topic", 0, last, 4, 1 << 20)

        assert reader(store, 10 * SIZE).read_new(mixed, request) is not None
        assert reader(store, 3 * SIZE).read_new(mixed, request) is None
        mixed.trusted_from = last + 1
        assert reader(store, 10 * SIZE).read_new(mixed, request) is None

    def test_none_is_read_from_two_files_or_from_a_lost_one(self, store: MessageStore, mixed: ConsumeQueueInterface):
        whole = reader(store, 1 << 30)
        requests = [GetMessageRequest("Topic", 0, offset, 2, 1 << 20) for offset in range(mixed.max_offset - 1)]

        crossing = [request for request in requests if whole.read_new(mixed, request) is None]

        assert len(crossing) == len(store.commit_log.queue.files) - 1 > 1
        store.commit_log.queue.files.pop(0).delete()
        assert whole.read_new(mixed, requests[0]) is None


class TestLimits:
    def test_neighbours_are_one_range(self, store: MessageStore):
        put(store, 3)
        put(store, 1, queue_id=1)
        put(store, 2)

        result = get(store, 0)

        assert [len(buffer) for buffer in result.buffers] == [3 * SIZE, 2 * SIZE]
        assert offsets(result) == [0, 1, 2, 3, 4]
        assert (result.status, result.next_begin_offset) == (GetMessageStatus.FOUND, 5)

    def test_ranges_do_not_span_the_files_of_the_log(self, store: MessageStore):
        put(store, 340)

        result = get(store, 310)

        assert offsets(result) == list(range(310, 340))
        assert len(result.buffers) == 2

    def test_a_pull_ends_with_the_queues_file(self, store: MessageStore):
        put(store, 70)

        assert get(store, 50).next_begin_offset == 60
        assert offsets(get(store, 60)) == list(range(60, 70))

    @pytest.mark.parametrize(("asked", "given"), [(1, 1), (31, 31), (32, 32), (40, 32)])
    def test_the_count_in_memory(self, store: MessageStore, asked: int, given: int):
        put(store, 50)

        assert offsets(get(store, 3, asked)) == list(range(3, 3 + given))

    @pytest.mark.parametrize(("asked", "given"), [(1, 1), (SIZE, 1), (2 * SIZE - 1, 1), (2 * SIZE, 2), (1 << 20, 5)])
    def test_the_bytes_asked_for_and_one_message_at_least(self, store: MessageStore, asked: int, given: int):
        put(store, 5)

        result = get(store, 0, max_bytes=asked)

        assert (result.message_count, result.next_begin_offset) == (given, given)

    def test_the_settings_for_memory(self, store: MessageStore):
        put(store, 20)
        change(store, maxTransferBytesOnMessageInMemory=3 * SIZE)
        assert get(store, 0).message_count == 3
        change(store, maxTransferCountOnMessageInMemory=2)
        assert get(store, 0).message_count == 2

    def test_the_settings_for_the_disk(self, store: MessageStore, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(MappedFile, "is_cached", lambda *_arguments: False)
        put(store, 20)

        assert select(store, 10 * SIZE, 0, 32).message_count == 8
        change(store, maxTransferBytesOnMessageInDisk=3 * SIZE)
        assert select(store, 10 * SIZE, 0, 32).message_count == 3
        assert select(store, 10 * SIZE, 10, 32).message_count == 10

    def test_messages_far_back_in_the_page_cache_are_read_at_once(
        self, store: MessageStore, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(MappedFile, "is_cached", lambda *_arguments: True)
        put(store, 40)

        assert select(store, 10 * SIZE, 0, 40).message_count == 32

    @pytest.mark.proves("Damage", "before delivery to a consumer")
    def test_messages_far_back_are_not_trusted(self, store: MessageStore):
        put(store, 20)
        entry_place(store, 2).write(bytes(20))

        far, near = (select(store, 10 * SIZE, offset, 4) for offset in (0, 10))

        assert far.unchecked is not None
        assert [record[0] for record in far.unchecked.expected] == [0, 1, 3, 4]
        assert far.next_begin_offset == 5
        assert (near.unchecked, near.message_count) == (None, 4)


class TestFilter:
    def test_only_matching_messages_are_given(self, store: MessageStore):
        for number in range(10):
            put(store, 1, properties=b"TAGS\x01%s\x02" % (b"a" if number % 3 == 0 else b"b"))

        result = get(store, 0, matches={tags_code("a")}.__contains__)

        assert offsets(result) == [0, 3, 6, 9]
        assert (result.status, result.next_begin_offset) == (GetMessageStatus.FOUND, 10)

    def test_a_full_pull_continues_after_its_last_message(self, store: MessageStore):
        for number in range(10):
            put(store, 1, properties=b"TAGS\x01%s\x02" % (b"a" if number % 3 == 0 else b"b"))
        wanted = {tags_code("a")}.__contains__

        assert get(store, 0, 2, matches=wanted).next_begin_offset == 4
        assert get(store, 0, max_bytes=2 * SIZE, matches=wanted).next_begin_offset == 6
        assert offsets(get(store, 6, matches=wanted)) == [6, 9]

    def test_nothing_matches_within_what_is_looked_at(self, store: MessageStore):
        put(store, 55)
        change(store, maxFilterMessageSize=40 * 20)

        result = get(store, 5, matches={1}.__contains__)

        assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 45)
        change(store, maxTransferCountOnMessageInMemory=50)
        assert get(store, 5, 50, matches={1}.__contains__).next_begin_offset == 55

    @pytest.mark.parametrize("trusted_from", [0, 60])
    def test_a_pull_for_any_number_of_messages_compares_few_tags(self, store: MessageStore, trusted_from: int):
        put(store, 60)
        change(store, maxFilterMessageSize=5 * 20)
        store.queues.queues_of("Topic")[0].trusted_from = trusted_from
        compared: list[int] = []

        def matches(code: int) -> bool:
            compared.append(code)
            return False

        for settings, most in (
            ({}, 32),
            ({"maxTransferCountOnMessageInMemory": 7}, 8),
            ({"maxTransferCountOnMessageInDisk": 1}, 7),
            ({"maxTransferCountOnMessageInMemory": 2}, 5),
        ):
            compared.clear()
            change(store, **settings)
            assert get(store, 1, 2**31 - 1, matches=matches).next_begin_offset == 1 + most
            assert len(compared) <= 2 * most, "a tag not known yet is compared in the record too"


class TestTime:
    @pytest.fixture
    def times(self, store: MessageStore, clock: FakeClock) -> list[int]:
        """Messages 0..2 at one time, 3..4 ten seconds later, 5 at once after."""
        start = clock.time_ms()
        put(store, 3)
        clock.advance(10)
        put(store, 2)
        clock.advance(0.001)
        put(store, 1)
        return [start, start + 10_000, start + 10_001]

    @pytest.mark.parametrize(
        ("which", "shift", "lower", "upper"),
        [
            (0, -1, 0, 0),
            (0, 0, 0, 2),
            (0, 1, 3, 2),
            (1, -1, 3, 2),
            (1, 0, 3, 4),
            (2, 0, 5, 5),
            (2, 1, 6, 5),
        ],
    )
    async def test_offsets_by_time(self, store: MessageStore, times, which: int, shift: int, lower: int, upper: int):
        asked = times[which] + shift

        assert (await store.queries.offset_in_queue_by_time("Topic", 0, asked)) == lower
        assert (await store.queries.offset_in_queue_by_time("Topic", 0, asked, "LOWER")) == lower
        assert (await store.queries.offset_in_queue_by_time("Topic", 0, asked, "UPPER")) == upper

    async def test_a_queue_without_messages_begins_at_zero(self, store: MessageStore):
        store.queues.find_or_create("Topic", 0)

        for boundary in ("LOWER", "UPPER"):
            assert (await store.queries.offset_in_queue_by_time("Topic", 0, 1, boundary)) == 0
            assert (await store.queries.offset_in_queue_by_time("Nowhere", 0, 1, boundary)) == 0

    async def test_expired_messages_are_never_the_answer(self, store: MessageStore, times):
        store.queues.correct_min_offsets(2 * SIZE)

        for boundary in ("LOWER", "UPPER"):
            assert (await store.queries.offset_in_queue_by_time("Topic", 0, 0, boundary)) == 2

    async def test_store_times_are_read_on_a_thread(self, store: MessageStore, times):
        places = [("Topic", 0, -1), ("Topic", 0, 3), ("Nowhere", 0, 0)]

        assert await store.queries.store_timestamps(places) == [-1, times[1], -1]

    def test_store_times_are_reported(self, store: MessageStore, times):
        assert [store.queries.message_store_timestamp("Topic", 0, at) for at in (-1, 0, 2, 3, 5, 6)] == [
            -1,
            times[0],
            times[0],
            times[1],
            times[2],
            -1,
        ]
        assert store.queries.earliest_message_time("Topic", 0) == times[0]
        assert store.queries.earliest_message_time("Topic", 9) == -1

    @pytest.mark.parametrize("damaged", [[0], [1], [2], [3], [4], [5], [0, 1, 2], [2, 3], [1, 2, 3, 4]])
    async def test_damaged_messages_break_no_search(self, store: MessageStore, times, damaged: list[int]):
        for number in damaged:
            record_place(store, number)[0].write(bytes(40))

        assert [store.queries.message_store_timestamp("Topic", 0, number) for number in damaged] == [-1] * len(damaged)
        for asked in (times[0] - 1, times[0], times[0] + 1, times[1], times[2], times[2] + 1):
            # Who goes on there gets the right message, behind the damaged ones.
            right = next((n for n in range(6) if times[(n > 2) + (n > 4)] >= asked and n not in damaged), 6)
            found = await store.queries.offset_in_queue_by_time("Topic", 0, asked)
            assert set(range(found, right)) <= set(damaged), asked
            assert found <= right

    async def test_absurd_entries_break_no_search(self, store: MessageStore, times):
        for number, entry in enumerate([(0, 0, 0), (-1, 10, 0), (2**62, 2**31 - 1, 0)], 1):
            entry_place(store, number).write(ENTRY.pack(*entry))

        assert [store.queries.message_store_timestamp("Topic", 0, number) for number in (1, 2, 3)] == [-1] * 3
        assert await store.queries.offset_in_queue_by_time("Topic", 0, times[1]) in {1, 2, 3, 4}
        assert await store.queries.offset_in_queue_by_time("Topic", 0, times[2]) == 5


async def test_store_times_of_ipv6_records(tmp_path: Path, clock: FakeClock):
    store = make_store(tmp_path / "store", clock, store_host=V6_HOST)
    await store.start()
    store.appender.put_message(message(born_host=V6_HOST, store_host=V6_HOST))
    store.appender.put_message(message(store_host=V6_HOST))
    store.appender.dispatch()

    assert [store.queries.message_store_timestamp("Topic", 0, at) for at in (0, 1)] == [clock.time_ms()] * 2
    await store.stop()
