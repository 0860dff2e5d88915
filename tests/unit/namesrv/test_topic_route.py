"""Routes that clients receive for a topic."""

import json
import tracemalloc
from collections.abc import Callable

import pytest

from rocketbroker.codec.remoting.bodies.route import BrokerData, QueueData
from rocketbroker.common.config import NamesrvConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.namesrv.broker_table import BrokerTable
from rocketbroker.namesrv.topic_queue_table import TopicQueueTable
from rocketbroker.namesrv.topic_route import LARGEST_BODY, EncodedAnswers, TopicRoutes


def test_an_answer_is_made_once_until_something_changes() -> None:
    made: list[str] = []

    def make(name: str) -> Callable[[], bytes]:
        def answer() -> bytes:
            made.append(name)
            return name.encode()

        return answer

    answers = EncodedAnswers()

    def ask() -> list[str]:
        made.clear()
        assert answers.route("T", 1, make("T")) == b"T"
        assert answers.route("U", 1, make("U")) == b"U"
        assert answers.list("topics", make("topics")) == b"topics"
        return list(made)

    assert ask() == ["T", "U", "topics"]
    assert ask() == []
    answers.forget_topics(["T", "unknown"])
    assert ask() == ["T", "topics"]
    answers.forget()
    assert ask() == ["T", "U", "topics"]


def test_forms_of_a_route_differ() -> None:
    answers = EncodedAnswers()
    assert answers.route("T", 1, lambda: b"one") == b"one"
    assert answers.route("T", 2, lambda: b"two") == b"two"
    assert answers.route("T", 1, lambda: None) == b"one"
    answers.forget_topics(["T"])
    assert answers.route("T", 1, lambda: None) is None
    assert answers.size == 0


def test_they_take_bounded_memory() -> None:
    answers = EncodedAnswers(most_bytes=1000)
    for number in range(100):
        answers.route(f"{number // 3}", number, lambda: bytes(100))
        answers.list(number, lambda: bytes(50))
        answers.forget_topics([f"{number // 2}"])
        routes = (answers.route(f"{each // 3}", each, lambda: None) or b"" for each in range(number + 1))
        lists = (answers.list(each, bytes) for each in range(number + 1))
        assert sum(map(len, routes)) + sum(map(len, lists)) == answers.size <= 1000


def test_one_that_no_frame_holds_is_rejected() -> None:
    with pytest.raises(BrokerResponseError, match="more than a frame can carry; ask for a part of it"):
        EncodedAnswers().list("a", lambda: bytes(LARGEST_BODY + 1))


SYNC_TOPIC = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"


def routes(addresses: dict[int, str], perm: int = 6, *, acting: bool = False, support: str = "false") -> TopicRoutes:
    brokers = BrokerTable()
    group = BrokerData("C", "broker-a", addresses, enable_acting_master=acting)
    brokers.by_name["broker-a"] = group
    answers = EncodedAnswers()
    queues = TopicQueueTable(answers.forget_topics)
    for topic in ("T", SYNC_TOPIC):
        queues.put(topic, QueueData("broker-a", 1, 1, perm))
    queues.put("orphan", QueueData("broker-gone", 1, 1, perm))
    return TopicRoutes(NamesrvConfig.model_validate({"supportActingMaster": support}), brokers, queues, answers)


def seen(table: TopicRoutes, topic: str = "T") -> dict[int, str]:
    route = table.pickup(topic)
    assert route is not None
    return route.broker_datas[0].broker_addrs


def test_broker_ids_are_quoted_for_those_who_read_standard_json_only() -> None:
    table = routes({0: "h:0"})
    standard = table.encoded("T", standard_json=True)
    bare = table.encoded("T", standard_json=False)
    assert standard is not None
    assert bare is not None
    assert json.loads(standard)["brokerDatas"][0]["brokerAddrs"] == {"0": "h:0"}
    assert b'"brokerAddrs":{0:"h:0"}' in bare


def test_a_topic_without_a_known_broker_has_no_route() -> None:
    table = routes({0: "h:0"})
    for topic in ("unknown", "orphan"):
        assert table.pickup(topic) is None
        assert table.encoded(topic, standard_json=True) is None
        assert table.encoded(topic, standard_json=True, order_topic_conf="broker-a:1") is None


def test_unknown_topics_take_no_memory() -> None:
    table = routes({0: "h:0"})
    tracemalloc.start()
    for number in range(5_000):
        table.encoded(f"unknown-{number}", standard_json=True)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 50_000


def test_the_order_configuration_is_sent_to_masters() -> None:
    table = routes({0: "h:0"})
    plain = table.encoded("T", standard_json=True)
    ordered = table.encoded("T", standard_json=True, order_topic_conf="broker-a:1")
    assert ordered is not None
    assert json.loads(ordered)["orderTopicConf"] == "broker-a:1"
    assert table.encoded("T", standard_json=True) == plain


def test_a_slave_stands_in_for_a_lost_master() -> None:
    table = routes({1: "h:1", 2: "h:2"}, perm=4, acting=True, support="true")
    assert seen(table) == {0: "h:1", 2: "h:2"}
    assert seen(table, SYNC_TOPIC) == {1: "h:1", 2: "h:2"}


def test_a_slave_does_not_stand_in() -> None:
    addresses = {1: "h:1"}
    assert seen(routes(addresses, perm=4, acting=True, support="false")) == addresses
    assert seen(routes(addresses, perm=4, acting=False, support="true")) == addresses
    assert seen(routes(addresses, perm=6, acting=True, support="true")) == addresses
    both = {0: "h:0", 1: "h:1"}
    assert seen(routes(both, perm=4, acting=True, support="true")) == both
