import errno

import pytest

from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.admin.unused_topic_remover import UnusedTopicRemover
from tests.support.stores import message


@pytest.fixture
def remover(parts, store):
    return UnusedTopicRemover(parts.topic_configs, parts.offsets, store.deletion, parts.stats)


def fill(parts, store, topic):
    store.appender.put_message(message(topic=topic))
    store.appender.dispatch()
    parts.offsets.commit("g", topic, 0, 1)
    parts.stats.topic_put(topic).add(1, 100)


async def test_topics_that_are_in_the_table_or_the_systems_own_stay(parts, store, remover):
    for topic in ("Kept", "Gone", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC"):
        fill(parts, store, topic)
    parts.topic_configs.update(TopicConfig("Kept"))
    assert await remover.remove(["Kept", "Gone", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC"]) == {"Gone"}
    assert store.queues.topics == {"Kept", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC"}
    assert "Gone@g" not in parts.offsets.table
    assert parts.stats.view("TOPIC_PUT_NUMS", "Gone") is None
    assert parts.offsets.query("g", "Kept", 0) == 1


async def test_consumers_of_a_recreated_topic_skip_nothing(parts, store, remover):
    fill(parts, store, "T")
    await remover.remove({"T"})
    fill(parts, store, "T")
    assert (store.queues.min_offset_in_queue("T", 0), store.queues.max_offset_in_queue("T", 0)) == (0, 1)
    assert parts.offsets.query("other", "T", 0) == -1


async def test_a_disk_that_refuses_is_named_with_the_topic(parts, store, remover, monkeypatch):
    fill(parts, store, "T")

    async def refuse(_topics):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(store.deletion, "delete_topics", refuse)
    with pytest.raises(BrokerResponseError) as caught:
        await remover.remove({"T"})
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert caught.value.remark == "the queues of topic T cannot be removed: [Errno 30] Read-only file system"
    assert parts.offsets.query("g", "T", 0) == 1
