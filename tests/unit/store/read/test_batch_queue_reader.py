"""Pulls from queues of batches."""

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rocketbroker.client.core.pull_result import unwrap_inner_batches
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.raw_records import PropertyBlocks
from rocketbroker.codec.message.tags_code import tags_code_bytes
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.store.commitlog.put_message import PutMessageStatus
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.read.get_message import GetMessageResult, GetMessageStatus
from tests.support.damage import Place
from tests.support.fakes import FakeClock
from tests.support.stores import Waiter, batch, crash_copy, fetch, inner_batch, make_store, message, pulled

COUNTS = (3, 1, 2, 4, 1)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    made = make_store(tmp_path / "store", FakeClock(), batch_topics=["Batches"])
    await made.start()
    yield made
    await made.stop()


def put_all(store: MessageStore) -> None:
    """Records of 3, 1, 2, 4 and 1 messages, whose bodies are their queue offsets."""
    number = 0
    for count in COUNTS:
        bodies = [b"%d" % each for each in range(number, number + count)]
        if count == 1:
            result = store.appender.put_message(message(bodies[0], "Batches", properties={"TAGS": "T"}))
        else:
            result = store.appender.put_inner_batch(inner_batch(*bodies), count)
        assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, number)
        number += count
    store.appender.dispatch()


def pull(store: MessageStore, offset: int, max_msgs: int = 32, **how) -> tuple[list[int], GetMessageResult]:
    """The bodies as numbers."""
    result = fetch(store, "Batches", 0, offset, max_msgs, **how)
    if result.status is not GetMessageStatus.FOUND:
        return [], result
    found = unwrap_inner_batches(decode_messages(pulled(result)))
    assert [each.queue_offset for each in found] == [int(each.body) for each in found]
    return [each.queue_offset for each in found], result


@pytest.mark.proves(
    "Request and reply, batches, types of messages",
    "topics of batch consume queues (`queue.type=BatchCQ`): a batch is one record, which clients take "
    "apart; kept over stops, kills and lost folders, and by Apache's broker in turn",
)
async def test_a_batch_is_returned_whole_even_from_its_middle(store: MessageStore):
    put_all(store)
    assert pull(store, 0)[0] == list(range(11))
    assert pull(store, 2)[0] == list(range(11))
    assert pull(store, 3)[0] == list(range(3, 11))
    assert pull(store, 8)[0] == [6, 7, 8, 9, 10]
    for max_msgs, upto in ((1, 3), (3, 3), (4, 4), (5, 4), (6, 6), (9, 6), (10, 10)):
        found, result = pull(store, 0, max_msgs)
        assert (found, result.next_begin_offset) == (list(range(upto)), upto)
    assert fetch(store, "Batches", 0, 0, 32, 1).next_begin_offset == 3, "one at least"


async def test_outside_of_the_queue(store: MessageStore):
    put_all(store)
    for offset, status, then in (
        (-1, GetMessageStatus.OFFSET_TOO_SMALL, 0),
        (11, GetMessageStatus.OFFSET_OVERFLOW_ONE, 11),
        (12, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 11),
    ):
        result = pull(store, offset)[1]
        assert (result.status, result.next_begin_offset, result.max_offset) == (status, then, 11)


async def test_tags_are_those_of_the_record(store: MessageStore):
    put_all(store)
    found, result = pull(store, 0, matches={tags_code_bytes(b"T")}.__contains__)
    assert (found, result.next_begin_offset) == ([3, 10], 11)
    found, result = pull(store, 4, matches={tags_code_bytes(b"X")}.__contains__)
    assert found == []
    assert result.next_begin_offset == 11


async def test_a_pull_for_any_number_of_messages_examines_few_records(store: MessageStore):
    put_all(store)
    apply_updates([store.config], {"maxFilterMessageSize": "20", "maxTransferCountOnMessageInMemory": "8"})
    pull(store, 0, matches={tags_code_bytes(b"X")}.__contains__)  # the tags of the records are known from now on
    for max_msgs, upto in ((1, 3), (2**31 - 1, 6)):
        result = pull(store, 0, max_msgs, matches={tags_code_bytes(b"X")}.__contains__)[1]
        assert (result.next_begin_offset, result.message_count) == (upto, 0)


class Wants:
    """A filter that wants messages with tags."""

    is_quick = True

    def is_matched_by_commit_log(
        self, properties: PropertyBlocks, is_over: Callable[[], bool] | None = None
    ) -> list[bool]:
        return [b"TAGS" in each for each in properties.raws()]


async def test_a_filter_on_properties_looks_at_the_record(store: MessageStore):
    put_all(store)
    found, result = pull(store, 0, message_filter=Wants())
    assert (found, result.next_begin_offset) == ([3, 10], 11)
    found, result = pull(store, 0, 1, message_filter=Wants())
    assert (found, result.next_begin_offset) == ([3], 10)


async def test_a_damaged_record_costs_its_batch_and_no_other(store: MessageStore):
    put_all(store)
    entry = store.queues.queues_of("Batches")[0].entry(4)
    assert entry is not None
    Place(store.commit_log.queue.files[0].path, entry[0] + 95).flip(0)
    assert pull(store, 0)[0] == [0, 1, 2, 3, 6, 7, 8, 9, 10]


async def test_what_the_log_has_no_more_is_skipped(store: MessageStore):
    put_all(store)
    queue = store.queues.queues_of("Batches")[0]
    entry = queue.entry(3)
    assert entry is not None
    queue.correct_min_offset(entry[0])
    assert (queue.min_offset, pull(store, 0)[1].status) == (3, GetMessageStatus.OFFSET_TOO_SMALL)
    assert pull(store, 3)[0] == list(range(3, 11))


async def test_offsets_without_a_message_are_skipped(store: MessageStore):
    put_all(store)
    queue = store.queues.queues_of("Batches")[0]
    queue.cut(6)
    queue.max_offset = queue.next_offset = 8  # as when the log lost what came next
    result = pull(store, 6)[1]
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.OFFSET_FOUND_NULL, 8)
    store.appender.put_inner_batch(inner_batch(b"8", b"9"), 2)
    store.appender.dispatch()
    assert pull(store, 4)[0] == [4, 5, 8, 9]
    assert pull(store, 6)[0] == [8, 9]


async def test_messages_of_an_ordinary_batch_are_records_of_their_own(store: MessageStore):
    result = store.appender.put_messages(message(b"", "Batches"), batch(b"0", b"1", b"2"))
    store.appender.dispatch()
    assert result.queue_offset == 0
    put = store.appender.put_inner_batch(inner_batch(b"3", b"4"), 2)
    store.appender.dispatch()
    assert put.queue_offset == 3
    assert pull(store, 1, 2)[0] == [1, 2]
    assert pull(store, 0)[0] == [0, 1, 2, 3, 4]


async def test_a_batch_for_a_topic_of_single_messages_is_rejected(store: MessageStore):
    result = store.appender.put_inner_batch(inner_batch(b"0", b"1", topic="Plain"), 2)
    assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert "topic Plain has no queue.type=BatchCQ" in result.reason
    assert store.commit_log.max_offset == 0


async def test_held_pulls_are_notified(tmp_path: Path):
    waiter = Waiter()
    store = make_store(tmp_path / "store", listener=waiter, batch_topics=["Batches"])
    await store.start()
    put_all(store)
    await store.stop()
    assert [heard[:2] for heard in waiter.heard] == [("Batches", 0)] * len(COUNTS)
    assert [heard[2] > base for heard, base in zip(waiter.heard, (0, 3, 4, 6, 10), strict=True)] == [True] * 5


async def test_times_are_those_of_the_record(tmp_path: Path):
    clock = FakeClock()
    store = make_store(tmp_path / "store", clock, batch_topics=["Batches"])
    await store.start()
    times = []
    for count in (3, 2):
        times.append(clock.time_ms())
        store.appender.put_inner_batch(inner_batch(*[b"x"] * count), count)
        clock.advance(10)
    store.appender.dispatch()
    assert [store.queries.message_store_timestamp("Batches", 0, at) for at in range(6)] == [times[0]] * 3 + [
        times[1]
    ] * 2 + [-1]
    assert [await store.queries.offset_in_queue_by_time("Batches", 0, each) for each in (0, *times)] == [0, 0, 3]
    assert await store.queries.offset_in_queue_by_time("Batches", 0, times[1] + 1) == 5
    assert await store.queries.offset_in_queue_by_time("Batches", 0, times[1] - 1, "UPPER") == 2
    await store.stop()


@pytest.mark.proves("When the store is opened", "3. queues of batches")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", [(), ("batchconsumequeue",), ("batchconsumequeue", "consumequeue", "index")])
async def test_offsets_are_the_same_after_a_start(tmp_path: Path, clean: bool, lost: tuple[str, ...]):
    store = make_store(tmp_path / "first", batch_topics=["Batches"])
    await store.start()
    put_all(store)
    store.appender.put_message(message(b"other", "Plain"))
    store.appender.dispatch()
    crash_copy(tmp_path / "first", tmp_path / "killed")
    await store.stop()
    root = tmp_path / ("first" if clean else "killed")
    (entries,) = (tmp_path / "first" / "batchconsumequeue" / "Batches" / "0").iterdir()
    before = entries.read_bytes()
    for folder in lost:
        shutil.rmtree(root / folder, ignore_errors=True)

    again = make_store(root, batch_topics=["Batches"])
    await again.start()
    assert (again.queues.min_offset_in_queue("Batches", 0), again.queues.max_offset_in_queue("Batches", 0)) == (0, 11)
    assert pull(again, 0)[0] == list(range(11))
    (key,) = (await again.queries.query_message("Batches", "U", 1, 0, 1 << 60)).records[:1]
    assert b"INNER_NUM" in key
    assert again.appender.put_inner_batch(inner_batch(b"11", b"12"), 2).queue_offset == 11
    again.appender.dispatch()
    assert pull(again, 11)[0] == [11, 12]
    await again.stop()
    after = (root / "batchconsumequeue" / "Batches" / "0" / entries.name).read_bytes()
    assert after[: 5 * 46] == before[: 5 * 46]


async def test_a_topic_that_is_deleted_and_made_again_restarts(store: MessageStore, tmp_path: Path):
    put_all(store)
    assert await store.deletion.delete_topics({"Batches"}) == 1
    assert store.queues.queues_of("Batches") == {}
    put_all(store)
    assert pull(store, 0)[0] == list(range(11))
    store.queues.remove_retired()
    assert [each.name for each in (tmp_path / "store" / "batchconsumequeue").iterdir()] == ["Batches"]
    crash_copy(tmp_path / "store", tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "batchconsumequeue")
    again = make_store(tmp_path / "killed", batch_topics=["Batches"])
    await again.start()
    assert pull(again, 0)[0] == list(range(11))
    await again.stop()
