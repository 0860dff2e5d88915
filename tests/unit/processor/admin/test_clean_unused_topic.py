import logging

from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.processor.admin.clean_unused_topic import CleanUnusedTopicProcessor
from rocketbroker.processor.admin.unused_topic_remover import UnusedTopicRemover
from tests.support.processor_calls import call_async
from tests.support.stores import message


async def test_queues_of_topics_that_do_not_exist_go(parts, store, caplog, tmp_path):
    for topic in ("Kept", "Gone", "GoneToo"):
        store.appender.put_message(message(topic=topic))
    store.appender.dispatch()
    parts.topic_configs.update(TopicConfig("Kept"))
    remover = UnusedTopicRemover(parts.topic_configs, parts.offsets, store.deletion, parts.stats)
    processor = CleanUnusedTopicProcessor(store.queues, remover)

    with caplog.at_level(logging.WARNING):
        assert await call_async(processor.process) == (0, None, {}, b"")
        assert await call_async(processor.process) == (0, None, {}, b"")

    assert "unused topics cleaned by 127.0.0.1:50000: Gone, GoneToo" in caplog.text
    assert "unused topics cleaned by 127.0.0.1:50000: none" in caplog.text
    store.queues.remove_retired()
    assert [path.name for path in (tmp_path / "store" / "consumequeue").iterdir()] == ["Kept"]
