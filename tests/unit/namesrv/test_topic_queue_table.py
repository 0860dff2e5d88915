"""Queues of topics by broker."""

import pytest

from rocketbroker.codec.remoting.bodies.route import QueueData
from rocketbroker.codec.remoting.bodies.topic_config import TopicQueueMappingInfo
from rocketbroker.namesrv.topic_queue_table import SYS_FLAG_UNIT, SYS_FLAG_UNIT_SUB, TopicQueueTable


@pytest.fixture
def changes() -> list[list[str]]:
    return []


@pytest.fixture
def table(changes: list[list[str]]) -> TopicQueueTable:
    return TopicQueueTable(lambda topics: changes.append(sorted(topics)))


def queues(broker: str, perm: int = 6, flag: int = 0) -> QueueData:
    return QueueData(broker, 4, 4, perm, flag)


def test_equal_queues_are_no_change(table: TopicQueueTable, changes: list[list[str]]) -> None:
    table.put("T", queues("a"))
    table.put("T", queues("a"))
    assert len(changes) == 1
    table.put("T", queues("a", perm=4))
    assert len(changes) == 2
    assert table.queues("T")["a"].perm == 4


def test_a_topic_goes_with_its_last_queues(table: TopicQueueTable, changes: list[list[str]]) -> None:
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
    assert table.topics_of(["a"]) == ["T1", "T2"]
    table.delete_broker("a")
    assert table.topics() == ["T2"]
    assert table.topics_of(["a"]) == []


def test_permissions_change_on_one_broker_only(table: TopicQueueTable, changes: list[list[str]]) -> None:
    table.put("T", queues("a"))
    table.put("T", queues("b"))
    changes.clear()
    assert table.set_permission("a", lambda perm: perm & 4) == 1
    assert {name: data.perm for name, data in table.queues("T").items()} == {"a": 4, "b": 6}
    assert len(changes) == 1
    assert table.set_permission("unknown", lambda perm: perm) == 0


def test_topics_by_flag(table: TopicQueueTable) -> None:
    for topic, flag in (("plain", 0), ("unit", 1), ("sub", 2), ("both", 3)):
        table.put(topic, queues("a", flag=flag))
    assert table.topics_by_flag(with_flag=SYS_FLAG_UNIT) == ["unit", "both"]
    assert table.topics_by_flag(with_flag=SYS_FLAG_UNIT_SUB) == ["sub", "both"]
    assert table.topics_by_flag(with_flag=SYS_FLAG_UNIT_SUB, without_flag=SYS_FLAG_UNIT) == ["sub"]


def test_all_queues_of_a_broker_are_swapped_at_once(
    table: TopicQueueTable, changes: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    table.put("T", queues("b"))
    many = {f"T{number}": queues("a") for number in range(1000)}
    table.replace("a", dict(many))
    table.replace("a", dict(many))
    assert (len(table.queues_of("a")), len(changes), len(caplog.messages)) == (1000, 2, 2)
    assert "broker a has 1000 topics: 1000 new (T" in caplog.messages[1]
    assert len(caplog.messages[1]) < 200
    del many["T7"]
    table.replace("a", many)
    assert caplog.messages[2] == "broker a has 999 topics: 0 new, 1 removed (T7)"
    assert len(table.topics_of(["a", "b"])) == len(table.topics()) == 1000
    assert changes == [["T"], sorted([*many, "T7"]), ["T7"]]


def test_a_change_of_one_topic_names_that_topic(table: TopicQueueTable, changes: list[list[str]]) -> None:
    both = {"T": queues("a"), "U": queues("a")}
    table.replace("a", both)
    table.map("a", {"T": TopicQueueMappingInfo("a", {0: 0}, topic="T")})
    table.replace("a", {**both, "U": queues("a", perm=4)})
    table.delete("U")
    table.delete_broker("a")
    assert changes == [["T", "U"], ["T"], ["U"], ["U"], ["T"]]


def test_entries_are_topics_of_each_broker_and_logical_queues(table: TopicQueueTable) -> None:
    for broker in ("a", "b"):
        table.replace(broker, {"T": queues(broker), "U": queues(broker)})
    table.map("a", {"T": TopicQueueMappingInfo("a", {0: 0, 1: 1, 2: 2}, topic="T")})
    table.map("a", {})
    assert table.entries() == 7
    assert list(table.mappings("T")) == ["a"]
    table.delete_broker("a")
    assert (table.entries(), table.mappings("T")) == (2, {})


class _Name(str):
    """Name of a broker that counts its comparisons."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        _Name.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_the_removal_of_a_broker_searches_no_list_of_brokers(table: TopicQueueTable) -> None:
    names = [_Name(f"broker-{number}") for number in range(100)]
    for name in names:
        table.replace(name, {"T": queues(name)})
    _Name.comparisons = 0

    table.delete_broker(names[-1])

    assert _Name.comparisons <= 2
    assert list(table.queues("T")) == names[:-1]
