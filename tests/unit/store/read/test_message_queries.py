"""Records that an offset of a client leads to."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.common.errors import StoreError
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.read import message_queries
from tests.support.fakes import FakeClock
from tests.support.stores import inner_batch, make_store, message, put_forged


def put(store: MessageStore, topic: str, body: bytes = b"body") -> int:
    result = store.appender.put_message(message(body, topic))
    store.appender.dispatch()
    return result.physical_offset


async def found(store: MessageStore, offset: int) -> bytes | None:
    """The same by both ways."""
    record = store.queries.queued_message(offset)
    assert await store.queries.read_queued_message(offset) == record
    return record


async def test_a_message_of_any_queue_is_found(store: MessageStore):
    for topic in ("Topic", RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC, "%RETRY%g", "%DLQ%g"):
        offset = put(store, topic)
        assert await found(store, offset) == store.commit_log.record(offset) is not None


async def test_a_record_with_a_batch_is_found(tmp_path: Path):
    batch_store = make_store(tmp_path / "batches", batch_topics=["Batches"])
    await batch_store.start()
    batch_store.appender.put_inner_batch(inner_batch(b"one", b"two"), 2)
    offset = batch_store.appender.put_inner_batch(inner_batch(b"three", b"four"), 2).physical_offset
    batch_store.appender.dispatch()

    assert await found(batch_store, offset) == batch_store.commit_log.record(offset) is not None
    await batch_store.stop()


async def test_where_no_record_begins_there_is_none(store: MessageStore):
    offset = put(store, "Topic")

    for wrong in (offset + 1, -1, 2**62):
        assert await found(store, wrong) is None


async def test_one_that_somebody_wrote_into_a_body_is_not_found(store: MessageStore):
    record = store.commit_log.record(put(store, "Topic"))
    assert record is not None

    forged = put_forged(store, record)

    assert store.commit_log.record(forged) is not None, "it looks like a record, its own offset included"
    assert await found(store, forged) is None


async def test_nor_one_for_a_queue_or_a_place_in_it_that_is_not_there(store: MessageStore):
    record = store.commit_log.record(put(store, "Topic"))
    assert record is not None

    for start, end, value in ((12, 16, 7), (20, 28, 1), (20, 28, 2**62)):
        wrong = record[:start] + value.to_bytes(end - start, "big") + record[end:]
        assert await found(store, put_forged(store, wrong)) is None


async def test_one_that_is_in_no_queue_yet_is_not_found(store: MessageStore):
    offset = store.appender.put_message(message()).physical_offset
    assert await found(store, offset) is None

    store.appender.dispatch()
    assert await found(store, offset) is not None


async def test_messages_of_a_deleted_topic_are_not_found_even_if_it_is_recreated(store: MessageStore):
    offset = put(store, "Topic")
    await store.deletion.delete_topics({"Topic"})
    assert await found(store, offset) is None

    anew = put(store, "Topic")
    assert await found(store, offset) is None
    assert await found(store, anew) is not None


@pytest.fixture
async def long_chain(tmp_path: Path) -> AsyncIterator[MessageStore]:
    """One message with the key ``k``, 2,000 newer ones with the same key, and one with another."""
    clock = FakeClock()
    made = make_store(tmp_path / "long", clock, max_index_num=10_000)
    await made.start()
    made.appender.put_message(message(b"first", properties={"KEYS": "k"}))
    clock.advance(60)
    for _ in range(2_000):
        made.appender.put_message(message(b"later", properties={"KEYS": "k"}))
    made.appender.put_message(message(b"other", properties={"KEYS": "o"}))
    made.appender.dispatch()
    yield made
    await made.stop()


TOPIC = "Topic"


async def test_a_short_query_does_not_wait_for_a_long_one(long_chain: MessageStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(message_queries, "ENTRIES_AT_A_TIME", 10)
    ended = []

    async def query(key: str, end_ms: int) -> None:
        result = await long_chain.queries.query_message(TOPIC, key, 64, 0, end_ms)
        assert len(result.records) == 1
        ended.append(key)

    first_ms = long_chain.queries.earliest_message_time(TOPIC, 0)
    await asyncio.gather(query("k", first_ms + 1_000), query("o", 2**62))
    assert ended == ["o", "k"]


async def test_a_query_that_looks_at_too_many_entries_is_rejected(
    long_chain: MessageStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(message_queries, "ENTRIES_AT_A_TIME", 10)
    monkeypatch.setitem(long_chain.config.__dict__, "max_index_entries_per_query", 1_000)
    first_ms = long_chain.queries.earliest_message_time(TOPIC, 0)
    with pytest.raises(StoreError, match=r"maxIndexEntriesPerQuery: 0 messages were found in 1,000 entries"):
        await long_chain.queries.query_message(TOPIC, "k", 64, 0, first_ms + 1_000)
    assert len((await long_chain.queries.query_message(TOPIC, "k", 64, 0, 2**62)).records) == 64
