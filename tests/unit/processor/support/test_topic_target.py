from types import SimpleNamespace

import pytest

from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.topic_target import TopicTarget, TopicTargets
from tests.support.fakes import FakeConnection


@pytest.fixture
def targets(parts: SimpleNamespace) -> TopicTargets:
    return TopicTargets(parts.config, parts.topic_configs, parts.stats, parts.clock)


def find(targets: TopicTargets, topic: str) -> TopicTarget:
    return targets.find(
        SendMessageRequestHeader("PG", topic, "TBW102", 4, 0, 0, 1_000, 7, ""), FakeConnection("127.0.0.1:5555")
    )


def test_a_topic_is_found_again_until_it_changes(parts: SimpleNamespace, targets: TopicTargets):
    first = find(targets, "T")
    assert find(targets, "T") is first
    parts.topic_configs.update(TopicConfig("T", 9, 9))

    assert find(targets, "T").queue_nums == 9


def test_only_an_ordered_topic_is_not_written_where_the_broker_may_not(parts: SimpleNamespace, targets: TopicTargets):
    parts.topic_configs.update(TopicConfig("Ordered", 4, 4, order=True))
    find(targets, "Ordered")
    apply_updates([parts.config], {"brokerPermission": "4"})
    assert find(targets, "Plain").queue_nums == 4, "routes lead its producers elsewhere"

    with pytest.raises(BrokerResponseError, match="its brokerPermission is 4") as error:
        find(targets, "Ordered")

    assert error.value.code == ResponseCode.NO_PERMISSION


def test_deleted_topics_are_forgotten(parts: SimpleNamespace, targets: TopicTargets):
    known = len(parts.topic_configs.topics)
    for number in range(known + 5):
        find(targets, f"T{number}")
        parts.topic_configs.delete(f"T{number}")

    assert len(targets._targets) <= known + 1


def test_sends_are_rejected_until_the_broker_accepts_them(parts: SimpleNamespace):
    begin = parts.clock.time_ms() + 5_000
    config = parts.config.model_copy(update={"start_accept_send_request_time_stamp": begin})
    targets = TopicTargets(config, parts.topic_configs, parts.stats, parts.clock)

    with pytest.raises(BrokerResponseError, match=f"unable to service, until {begin}") as error:
        find(targets, "T")
    assert error.value.code == ResponseCode.SYSTEM_ERROR
    assert parts.topic_configs.select("T") is None
    parts.clock.advance(5)

    assert find(targets, "T").config.topic_name == "T"
