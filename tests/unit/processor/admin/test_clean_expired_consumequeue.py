import logging

import pytest

from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.admin.clean_expired_consumequeue import CleanExpiredConsumequeueProcessor
from rocketbroker.processor.admin.unused_topic_remover import UnusedTopicRemover
from tests.support.processor_calls import call_async
from tests.support.stores import message


class Cleaning:
    """Stands for a log that begins where it is said."""

    def __init__(self, store, begin, refused: str):
        self.store = store
        self.begin = begin
        self.refused = refused

    async def clean_expired_consume_queue(self) -> str:
        self.store.queues.correct_min_offsets(self.begin)
        return self.refused


def processor_for(parts, store, begin, refused=""):
    remover = UnusedTopicRemover(parts.topic_configs, parts.offsets, store.deletion, parts.stats)
    return CleanExpiredConsumequeueProcessor(Cleaning(store, begin, refused), store.queues, remover)


async def test_queues_go_whose_topic_is_gone_and_whose_messages_are_too(parts, store, caplog):
    for topic in ("OldAndGone", "OldAndKept", "HalfOld"):
        store.appender.put_message(message(topic=topic))
    begin = store.appender.put_message(message(topic="HalfOld", queue_id=1)).physical_offset
    store.appender.dispatch()
    parts.topic_configs.update(TopicConfig("OldAndKept"))

    with caplog.at_level(logging.WARNING):
        answer = await call_async(processor_for(parts, store, begin).process)

    assert answer == (0, None, {}, b"")
    assert store.queues.topics == {"OldAndKept", "HalfOld"}
    assert (store.queues.min_offset_in_queue("OldAndKept", 0), store.queues.max_offset_in_queue("OldAndKept", 0)) == (
        1,
        1,
    )
    assert "expired queues cleaned by 127.0.0.1:50000; removed topics: ['OldAndGone']" in caplog.text


async def test_a_failed_removal_is_answered_and_the_rest_is_done(parts, store):
    store.appender.put_message(message(topic="Gone"))
    begin = store.appender.put_message(message(topic="Kept")).physical_offset
    store.appender.dispatch()

    with pytest.raises(BrokerResponseError) as caught:
        await call_async(processor_for(parts, store, begin, "files that could not be removed: 1").process)

    assert (caught.value.code, caught.value.remark) == (1, "files that could not be removed: 1; the rest is cleaned")
    assert store.queues.topics == {"Kept"}


async def test_while_all_messages_are_there_nothing_goes(parts, store):
    store.appender.put_message(message(topic="Gone"))
    store.appender.dispatch()

    assert await call_async(processor_for(parts, store, 0).process) == (0, None, {}, b"")

    assert store.queues.topics == {"Gone"}
