"""Reads by a filter on properties: where the messages come from, the limits, and how a read goes on."""

import os
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from rocketbroker.codec.filter.sql_filter import compiled
from rocketbroker.codec.message.message_decoder import BODY_POSITION, decode_messages
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.read import checked_reader, filtered_reader
from rocketbroker.store.read.checked_reader import ColdRead
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult, GetMessageStatus
from tests.support.stores import QUEUE_FILE, V6_HOST, count_as_far_back, fetch, make_store, message, pulled

PER_FILE = QUEUE_FILE // 20


@pytest.fixture(autouse=True)
def _long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give filters the time for all messages, however busy the machine is."""
    for module in (checked_reader, filtered_reader):
        monkeypatch.setattr(module, "FILTER_TURN_S", 60.0)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    """Small files, so that queue and log have several."""
    found = make_store(tmp_path / "store", max_filter_message_size=20 * 40)
    await found.start()
    yield found
    await found.stop()


def put(store: MessageStore, numbers: Sequence[int], queue_id: int = 0, **fields: object) -> None:
    for number in numbers:
        properties = {"KEYS": "k", "n": str(number)}
        store.appender.put_message(message(b"%d" % number, "T", queue_id, properties=properties, **fields))
    store.appender.dispatch()


def read(
    store: MessageStore, text: str, offset: int = 0, max_msgs: int = 32, size: int = 1 << 20, *, ahead: bool = False
) -> GetMessageResult:
    return fetch(store, "T", 0, offset, max_msgs, size, message_filter=compiled(text), scans_ahead=ahead)


def numbers_of(result: GetMessageResult) -> list[int]:
    return [int(each.body) for each in decode_messages(pulled(result), decompress=False)]


def drained(store: MessageStore, text: str, max_msgs: int = 32, *, ahead: bool = False) -> list[int]:
    """All that match, by as many pulls as it takes."""
    found: list[int] = []
    offset, end = 0, store.queues.max_offset_in_queue("T", 0)
    while offset < end:
        result = read(store, text, offset, max_msgs, ahead=ahead)
        given = numbers_of(result)
        assert len(given) == result.message_count <= max_msgs
        assert result.next_begin_offset > offset
        found += given
        offset = result.next_begin_offset
    return found


async def reopened(store: MessageStore) -> MessageStore:
    """The store after a stop and a start: nothing in it is trusted."""
    await store.stop()
    again = make_store(Path(store.config.store_path_root_dir), max_filter_message_size=20 * 40)
    await again.start()
    return again


def change(store: MessageStore, **settings: int) -> None:
    """Change settings while the store runs."""
    apply_updates([store.config], {name: str(value) for name, value in settings.items()})


@pytest.mark.parametrize("trusted_from", [0, 60])
def test_a_pull_for_any_number_of_messages_examines_few(store: MessageStore, trusted_from: int):
    put(store, range(60))
    store.queues.queues_of("T")[0].trusted_from = trusted_from
    change(store, maxFilterMessageSize=20 * 5)

    assert read(store, "n = -1", 0, 2**31 - 1).next_begin_offset == 32
    change(store, maxTransferCountOnMessageInMemory=4)
    assert read(store, "n = -1", 0, 2**31 - 1).next_begin_offset == 8
    change(store, maxTransferCountOnMessageInDisk=1)
    assert read(store, "n = -1", 0, 2**31 - 1).next_begin_offset == 5


COUNT = 250


@pytest.mark.proves("Filters", "SQL92: the right messages and no others, over a restart of the broker")
@pytest.mark.parametrize("kind", ["new", "far back", "old"])
async def test_the_right_messages_in_their_order_and_no_others(store: MessageStore, kind: str):
    for number in range(COUNT):
        put(store, [number])
        put(store, [number] * 2, queue_id=1)
    if kind == "far back":
        count_as_far_back(store)
    opened = await reopened(store) if kind == "old" else store

    assert len(opened.commit_log.queue.files) > 1
    assert COUNT > 2 * PER_FILE
    for text, wanted in (
        ("n = '249'", [249]),
        ("n > 47 AND n < 190", list(range(48, 190))),
        ("n IS NULL", []),
        ("TRUE", list(range(COUNT))),
    ):
        assert drained(opened, text) == wanted
        assert drained(opened, text, max_msgs=3) == wanted
        change(opened, maxFilterMessageSize=20 * 10)
        assert drained(opened, text, ahead=True) == wanted
        assert drained(opened, text, max_msgs=3, ahead=True) == wanted
        change(opened, maxFilterMessageSize=20 * 40)
    await opened.stop()


async def test_a_read_examines_a_limited_number_of_messages(store: MessageStore):
    put(store, range(50))
    result = read(store, "n = 45")
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 40)
    result = read(store, "n = 45", 40)
    assert (numbers_of(result), result.next_begin_offset) == ([45], 50)


@pytest.mark.parametrize(
    ("text", "found", "next_offset"),
    [
        # As many as are asked for, however few of the messages that needs.
        ("n >= 0", list(range(4)), 4),
        ("n = 2 OR n = 30 OR n = 31 OR n = 32 OR n = 33", [2, 30, 31, 32], 33),
        # Eight passes of five messages.
        ("n = 2", [2], 40),
        ("n = 45", [], 40),
    ],
)
async def test_a_read_that_scans_ahead_makes_more_passes(
    store: MessageStore, text: str, found: list[int], next_offset: int
):
    change(store, maxFilterMessageSize=20 * 5)
    put(store, range(50))
    request = GetMessageRequest("T", 0, 0, 4, 1 << 20, message_filter=compiled(text), scans_ahead=True)
    result = store.fetcher.fetch(request)
    assert isinstance(result, GetMessageResult)

    assert (numbers_of(result), result.next_begin_offset) == (found, next_offset)
    assert result.message_count == len(found)
    status = GetMessageStatus.FOUND if found else GetMessageStatus.NO_MATCHED_MESSAGE
    assert result.status is status


async def test_a_read_that_scans_ahead_begins_no_pass_after_its_time(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
):
    change(store, maxFilterMessageSize=20 * 5)
    put(store, range(50))
    read(store, "n = 3", max_msgs=4)  # so that the results are known
    monkeypatch.setattr(filtered_reader, "FILTER_TURN_S", 0.0)

    result = read(store, "n = 3", max_msgs=4, ahead=True)

    assert (numbers_of(result), result.next_begin_offset) == ([3], 5)


async def test_the_first_pass_examines_as_many_messages_as_the_last_read_got_past(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
):
    change(store, maxFilterMessageSize=20 * 8)
    put(store, range(50))
    read(store, "n = 3", ahead=True)
    monkeypatch.setattr(filtered_reader, "FILTER_TURN_S", 0.0)

    assert read(store, "n = 3", max_msgs=1, ahead=True).next_begin_offset == 50


async def test_the_first_pass_of_a_filter_does_not_depend_on_other_filters(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
):
    change(store, maxFilterMessageSize=20 * 8)
    monkeypatch.setattr(filtered_reader, "_MOST_KNOWN", 2)
    put(store, range(50))
    known = store.fetcher._filtered_reader._first_passes

    read(store, "n = 3", ahead=True)
    read(store, "n >= 0", max_msgs=1, ahead=True)

    assert known == {compiled("n = 3"): 50, compiled("n >= 0"): 1}, (
        "a read that has enough gets past fewer than it examined"
    )
    read(store, "n = 4", ahead=True)
    assert list(known) == [compiled("n = 4")]


async def test_the_last_messages_of_a_queue_are_filtered_at_once(store: MessageStore):
    put(store, range(50))
    request = GetMessageRequest("T", 0, 10, 32, 1 << 20, message_filter=compiled("n = 45"), scans_ahead=True)
    result = store.fetcher.fetch(request)
    assert isinstance(result, GetMessageResult)
    assert numbers_of(result) == [45]


@pytest.mark.parametrize("kind", ["new", "old"])
async def test_limits_of_a_read(store: MessageStore, kind: str):
    put(store, range(30))
    opened = await reopened(store) if kind == "old" else store
    result = read(opened, "n > 9", max_msgs=4)
    assert (numbers_of(result), result.next_begin_offset) == ([10, 11, 12, 13], 14)
    one = read(opened, "n = 10")
    size = len(pulled(one))
    result = read(opened, "n > 9", size=3 * size)
    assert (numbers_of(result), result.next_begin_offset) == ([10, 11, 12], 13)
    result = read(opened, "n > 9", size=1)
    assert numbers_of(result) == [10], "one in any case"
    change(opened, maxFilterMessageSize=20 * 5)
    result = read(opened, "n > 9", size=3 * size, max_msgs=5, ahead=True)
    expected = ([10, 11, 12], 13) if kind == "new" else ([], 5)
    assert (numbers_of(result), result.next_begin_offset) == expected
    await opened.stop()


@pytest.mark.parametrize(
    ("offset", "status", "moved_to"),
    [
        (5, GetMessageStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 5),
        (-1, GetMessageStatus.OFFSET_TOO_SMALL, 0),
    ],
)
def test_an_offset_outside_the_queue(store: MessageStore, offset: int, status: GetMessageStatus, moved_to: int):
    put(store, range(5))
    result = read(store, "TRUE", offset)
    assert (result.status, result.next_begin_offset, result.max_offset) == (status, moved_to, 5)


def test_a_queue_that_is_not_there(store: MessageStore):
    assert read(store, "TRUE").status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE


async def test_hosts_of_ipv6(store: MessageStore):
    put(store, range(3), born_host=V6_HOST)
    put(store, range(3, 6))
    assert drained(store, "n > 1 AND n < 5") == [2, 3, 4]


async def test_damaged_messages_are_left_out_and_reported_once_each(store: MessageStore):
    put(store, range(30))
    opened = await reopened(store)
    for number in (3, 12):
        entry = opened.queues.queues_of("T")[0].entry(number)
        assert entry is not None
        os.pwrite(opened.commit_log.queue.files[0].fd, b"?", entry[0] + BODY_POSITION)

    assert drained(opened, "n > 10 AND n < 15") == [11, 13, 14]
    assert opened.damage_log.count == 2, "a damaged message that does not match is reported too"
    await opened.stop()


async def test_messages_that_are_not_in_the_page_cache_are_filtered_on_a_thread(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
):
    put(store, range(30))
    opened = await reopened(store)
    monkeypatch.setattr("rocketbroker.store.logfile.mapped_file.MappedFile.is_cached", lambda *_arguments: False)
    waiting = opened.fetcher.fetch(GetMessageRequest("T", 0, 0, 32, 1 << 20, message_filter=compiled("n > 25")))
    assert isinstance(waiting, ColdRead)
    result = await waiting

    assert numbers_of(result) == [26, 27, 28, 29]
    assert (result.message_count, result.next_begin_offset) == (4, 30)
    await opened.stop()


async def test_new_messages_are_filtered_on_a_thread_by_a_slow_filter(store: MessageStore):
    put(store, range(50))
    slow = " OR ".join(f"n = {number} OR m{number} = 1" for number in (3, 7, 45, 46, 47, 48, 49, 51))
    waiting = store.fetcher.fetch(GetMessageRequest("T", 0, 0, 32, 1 << 20, message_filter=compiled(slow)))
    assert isinstance(waiting, ColdRead)
    result = await waiting

    assert (numbers_of(result), result.next_begin_offset) == ([3, 7], 40)


@pytest.mark.parametrize("kind", ["new", "old"])
async def test_a_read_ends_at_the_message_that_it_is_too_late_for(
    store: MessageStore, kind: str, monkeypatch: pytest.MonkeyPatch
):
    put(store, range(50))
    opened = await reopened(store) if kind == "old" else store
    ticks = count()
    for module in (checked_reader, filtered_reader):
        monkeypatch.setattr(module, "perf_counter", lambda: float(next(ticks)))
        monkeypatch.setattr(module, "FILTER_TURN_S", 4.0)

    result = read(opened, f"n > 1 OR {kind} = 1")

    # One look at the time before each message but the first, on the event loop.
    assert (numbers_of(result), result.next_begin_offset) == ([2, 3], 4)
    await opened.stop()


async def test_old_messages_of_which_none_matches(store: MessageStore):
    put(store, range(30))
    opened = await reopened(store)
    result = read(opened, "n > 100")
    assert numbers_of(result) == []
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 30)
    await opened.stop()
