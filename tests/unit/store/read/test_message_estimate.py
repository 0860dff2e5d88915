"""Number of messages that a filter by tags selects, counted or from a sample."""

import asyncio
from pathlib import Path

import pytest

from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_CQ_STORE_UNIT_SIZE
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.read.message_estimate import TaggedRange
from tests.support.running import running
from tests.support.stores import inner_batch, make_store, message

CODES = frozenset({tags_code("A"), tags_code("B")})


def put(store: MessageStore, *tags: str, topic: str = "Topic") -> None:
    """Store a message for each of these tags."""
    for each in tags:
        store.appender.put_message(message(b"", topic, properties={"TAGS": each} if each else {}))
    store.appender.dispatch()


async def estimate(store: MessageStore, begin: int, end: int, topic: str = "Topic") -> int:
    (count,) = await store.queries.estimate_message_counts([TaggedRange(topic, 0, begin, end, CODES)])
    return count


async def test_all_messages_of_a_short_range_are_counted_over_several_files(store: MessageStore):
    put(store, *["A", "C", "B", ""] * 30)

    queue = store.queues.find("Topic", 0)
    assert queue is not None
    assert len(queue.queue.files) > 1
    assert [await estimate(store, *each) for each in ((0, 120), (1, 2), (2, 3), (119, 200))] == [60, 0, 1, 0]


@pytest.mark.parametrize(("threshold", "expected"), [(1000, 60), (1, 80), (0, 120)])
async def test_the_rest_of_a_long_range_matches_as_often_as_its_sample(tmp_path: Path, threshold: int, expected: int):
    async with running(make_store(tmp_path, max_consume_queue_scan=40, sample_count_threshold=threshold)) as store:
        put(store, *["A", "C", "B", ""] * 10, *["C"] * 80)

        assert await estimate(store, 0, 120) == expected
        assert await estimate(store, 40, 120) == 0


async def test_a_range_whose_first_messages_were_removed_keeps_its_length(store: MessageStore):
    put(store, *["A"] * 10)
    queue = store.queues.find("Topic", 0)
    assert queue is not None
    queue.min_offset = 6

    assert [await estimate(store, *each) for each in ((0, 3), (0, 10), (7, 10))] == [3, 4, 3]


async def test_a_sample_stands_for_the_length_of_its_range_also_for_removed_messages(tmp_path: Path):
    async with running(make_store(tmp_path, max_consume_queue_scan=10)) as store:
        put(store, *["A", "C"] * 20)
        queue = store.queues.find("Topic", 0)
        assert queue is not None
        queue.min_offset = 20

        assert await estimate(store, 0, 40) == 20
        queue.min_offset = 32
        assert await estimate(store, 0, 40) == 4


async def test_other_queries_run_while_a_long_reading_is_estimated(store: MessageStore):
    put(store, "A")
    ranges = [TaggedRange("Topic", 0, 0, 20_000, CODES)] * 50
    reading = asyncio.create_task(store.queries.estimate_message_counts(ranges))
    await asyncio.sleep(0)
    await store.queries.store_timestamps([("Topic", 0, 0)])

    assert not reading.done()
    assert await reading == [1] * 50


async def test_messages_of_batches_count_and_not_their_records(tmp_path: Path):
    async with running(make_store(tmp_path, batch_topics=["Batches"])) as store:
        put(store, "A", "C", topic="Batches")
        store.appender.put_inner_batch(inner_batch(b"2", b"3"), 2)
        store.appender.dispatch()
        put(store, "B", topic="Batches")

        assert [await estimate(store, *each, "Batches") for each in ((0, 5), (0, 4), (3, 5))] == [2, 1, 1]


@pytest.mark.parametrize(
    ("scan", "threshold", "expected"),
    [(100, 100, [10, 19]), (4, 100, [10, 16]), (5, 100, [12, 20]), (100, 2, [12, 20]), (100, 0, [30, 28])],
)
async def test_batches_of_several_files_are_sampled_by_records(
    tmp_path: Path, scan: int, threshold: int, expected: list[int]
):
    async with running(
        make_store(
            tmp_path,
            batch_topics=["Batches"],
            max_consume_queue_scan=scan,
            sample_count_threshold=threshold,
            mapper_file_size_batch_consume_queue=3 * BATCH_CQ_STORE_UNIT_SIZE,
        )
    ) as store:
        for _ in range(10):
            put(store, "A", topic="Batches")
            store.appender.put_inner_batch(inner_batch(b"2", b"3"), 2)
            store.appender.dispatch()

        queue = store.queues.find("Batches", 0)
        assert queue is not None
        assert len(queue.queue.files) == 7
        without_tag = TaggedRange("Batches", 0, 2, 30, frozenset({0}))
        (of_batches,) = await store.queries.estimate_message_counts([without_tag])
        assert [await estimate(store, 0, 30, "Batches"), of_batches] == expected


async def test_a_queue_that_is_gone_has_no_messages(store: MessageStore):
    assert await estimate(store, 0, 10, "Gone") == 0
