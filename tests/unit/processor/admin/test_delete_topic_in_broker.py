import errno

import pytest

from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.admin import DeleteTopicRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.processor.admin.delete_topic_in_broker import DeleteTopicInBrokerProcessor
from tests.support.processor_calls import call_async, recorded, refusal_async
from tests.support.stores import message


@pytest.fixture
def processor(parts, store):
    return DeleteTopicInBrokerProcessor(parts.topic_configs, parts.offsets, store.deletion, parts.stats)


def fill(parts, store, topic):
    parts.topic_configs.update(TopicConfig(topic))
    store.appender.put_message(message(topic=topic))
    store.appender.dispatch()
    parts.offsets.commit("g", topic, 0, 1)
    parts.stats.topic_put(topic).add(1, 100)


async def test_all_that_is_known_of_a_topic_goes(parts, store, processor, tmp_path):
    fill(parts, store, "T")
    fill(parts, store, "Other")
    assert await call_async(processor.process, DeleteTopicRequestHeader("T")) == (0, None, {}, b"")
    assert parts.topic_configs.select("T") is None
    assert parts.offsets.table == {"Other@g": {0: 1}}
    assert store.queues.max_offset_in_queue("T", 0) == 0
    assert parts.stats.view("TOPIC_PUT_NUMS", "T") is None
    assert parts.stats.view("TOPIC_PUT_NUMS", "Other").stats_minute.sum == 1
    store.queues.remove_retired()
    assert [path.name for path in (tmp_path / "store" / "consumequeue").iterdir()] == ["Other"]


async def test_a_topic_of_the_same_name_begins_at_0(parts, store, processor):
    fill(parts, store, "T")
    await call_async(processor.process, DeleteTopicRequestHeader("T"))
    fill(parts, store, "T")
    assert store.queues.max_offset_in_queue("T", 0) == 1
    store.queues.remove_retired()
    assert store.queries.message_store_timestamp("T", 0, 0) == parts.clock.time_ms()


async def test_recorded_requests(processor):
    for command, theirs in recorded(215, DeleteTopicRequestHeader):
        assert await call_async(processor.process, command.header) == theirs


async def test_a_topic_that_the_disk_keeps_stays(parts, store, processor, monkeypatch):
    fill(parts, store, "T")

    def refuse(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(LocalFileSystem, "rename", refuse)
    code, remark = await refusal_async(processor.process, DeleteTopicRequestHeader("T"))
    assert code == ResponseCode.SYSTEM_ERROR
    assert "topic T cannot be removed" in remark
    assert "Read-only file system" in remark
    assert parts.topic_configs.select("T") is not None
    assert parts.offsets.query("g", "T", 0) == store.queues.max_offset_in_queue("T", 0) == 1


@pytest.mark.parametrize("topic", ["../consumequeue", "..", "", " ", "a/b", "t" * 128, "TBW102", "DefaultCluster"])
async def test_bad_names_touch_nothing(parts, store, processor, topic):
    fill(parts, store, "T")
    topics = dict(parts.topic_configs.topics)
    code, remark = await refusal_async(processor.process, DeleteTopicRequestHeader(topic))
    assert code == ResponseCode.INVALID_PARAMETER
    assert remark
    assert parts.topic_configs.topics == topics
    assert store.queues.max_offset_in_queue("T", 0) == 1
