from pathlib import Path

import pytest

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.persist.missing_table_report import MissingTableReport
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.config import BrokerConfig
from tests.support.fakes import FakeClock
from tests.support.stores import make_store, message


@pytest.mark.parametrize("in_use", [False, True])
async def test_a_lost_table_of_a_used_store_is_reported_and_each_is_written(tmp_path: Path, caplog, in_use: bool):
    store = make_store(tmp_path / "store")
    await store.start()
    if in_use:
        store.appender.put_message(message())
        store.appender.dispatch()
    written: list[object] = []
    offsets = ConsumerOffsetManager(tmp_path / "consumerOffset.json", FakeClock(), written.append)
    topics = TopicConfigManager(tmp_path / "topics.json", BrokerConfig(), FakeClock(), written.append)
    replace_contents(topics.path, topics.encode())
    for table in (offsets, topics):
        table.load()

    await MissingTableReport((offsets, topics), store.commit_log, store.queues, offsets.query).start()

    told = [record.getMessage() for record in caplog.records if "is missing" in record.getMessage()]
    assert len(told) == in_use
    assert all(text.startswith(f"{offsets.path} is missing and has no backup") for text in told)
    assert written == [offsets]
    await store.stop()


async def test_popped_messages_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    store = make_store(tmp_path / "store")
    await store.start()
    for _ in range(2):
        store.appender.put_message(message(b"check point", "rmq_sys_REVIVE_LOG_C", 3))
    store.appender.dispatch()
    offsets = ConsumerOffsetManager(tmp_path / "consumerOffset.json", FakeClock())
    offsets.commit("CID_RMQ_SYS_REVIVE_GROUP", "rmq_sys_REVIVE_LOG_C", 3, 0)

    await MissingTableReport((), store.commit_log, store.queues, offsets.query).start()

    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("POP: queue 3 of rmq_sys_REVIVE_LOG_C has 1 records of messages that consumers popped")
    await store.stop()
