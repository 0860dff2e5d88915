"""Which brokers hold how many queues of which topic."""

import pytest

from rocketbroker.codec.remoting.bodies.route import QueueData
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.namesrv.topic_queue_table import (
    SYS_FLAG_UNIT,
    SYS_FLAG_UNIT_SUB,
    TopicQueueTable,
    queue_data,
)


@pytest.fixture
def changes() -> list[str]:
    return []


@pytest.fixture
def table(changes: list[str]) -> TopicQueueTable:
    return TopicQueueTable(changes.append)


def queues(broker: str, perm: int = 6, flag: int = 0) -> QueueData:
    return QueueData(broker, 4, 4, perm, flag)


def test_equal_queues_are_no_change(table: TopicQueueTable, changes: list[str]) -> None:
    table.put("T", queues("a"))
    table.put("T", queues("a"))
    assert changes == ["T"]
    table.put("T", queues("a", perm=4))
    assert changes == ["T", "T"]
    assert table.queues("T")["a"].perm == 4


def test_a_topic_goes_with_its_last_queues(table: TopicQueueTable, changes: list[str]) -> None:
    table.put("T", queues("a"))
    table.put("T", queues("b"))
    table.delete("T", ["a", "unknown"])
    assert list(table.queues("T")) == ["b"]
    table.delete("T", ["b"])
    assert table.topics() == []
    assert len(changes) == 4
    table.delete("T")
    table.delete("T", ["a"])
    assert len(changes) == 4


def test_a_topic_is_deleted_everywhere(table: TopicQueueTable) -> None:
    table.put("T", queues("a"))
    table.put("T", queues("b"))
    table.delete("T")
    assert table.topics() == []


def test_all_queues_of_a_broker_are_deleted(table: TopicQueueTable) -> None:
    table.put("T1", queues("a"))
    table.put("T2", queues("a"))
    table.put("T2", queues("b"))
    assert table.topics_of_broker("a") == ["T1", "T2"]
    table.delete_broker("a")
    assert table.topics() == ["T2"]
    assert table.topics_of_broker("a") == []


def test_permissions_change_on_one_broker_only(table: TopicQueueTable, changes: list[str]) -> None:
    table.put("T", queues("a"))
    table.put("T", queues("b"))
    changes.clear()
    assert table.set_permission("a", lambda perm: perm & 4) == 1
    assert {name: data.perm for name, data in table.queues("T").items()} == {"a": 4, "b": 6}
    assert changes == ["T"]
    assert table.set_permission("unknown", lambda perm: perm) == 0


def test_topics_by_flag(table: TopicQueueTable) -> None:
    for topic, flag in (("plain", 0), ("unit", 1), ("sub", 2), ("both", 3)):
        table.put(topic, queues("a", flag=flag))
    assert table.topics_by_flag(with_flag=SYS_FLAG_UNIT) == ["unit", "both"]
    assert table.topics_by_flag(with_flag=SYS_FLAG_UNIT_SUB) == ["sub", "both"]
    assert table.topics_by_flag(with_flag=SYS_FLAG_UNIT_SUB, without_flag=SYS_FLAG_UNIT) == ["sub"]


def test_queue_data_of_a_broker_that_may_not_be_written() -> None:
    config = TopicConfig("T", 3, 5, 7, topic_sys_flag=1)
    assert queue_data("a", config, writable=True) == QueueData("a", 3, 5, 7, 1)
    assert queue_data("a", config, writable=False) == QueueData("a", 3, 5, 5, 1)
