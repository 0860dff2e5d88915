"""Notifications of messages to pop, the number of held pops, and the roll-back of a RocksDB that is not there."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.codec.message.pop_info import pop_retry_topic
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.handler import HELD
from rocketbroker.codec.remoting.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import RemotingCommand, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.notification import NotificationRequests
from rocketbroker.processor.support.pop_checks import PopChecks
from tests.support.fakes import FakeConnection
from tests.support.pop_broker import TOPIC, PopBroker
from tests.support.running import running


class Asked:
    """Requests to a broker, over one connection."""

    def __init__(self, broker: PopBroker, config: BrokerConfig) -> None:
        self.broker, self.connection = broker, FakeConnection()
        self.notifications = PopLongPollingService(config)
        self.requests = NotificationRequests(
            checks=PopChecks(config, broker.store.config, broker.topics, broker.groups),
            topics=broker.topics,
            queues=broker.store.queues,
            offsets=broker.offsets,
            orders=broker.orders,
            notifications=self.notifications,
            polling=broker.polling,
            clock=broker.clock,
        )

    def notify(self, poll_time: int = 0, queue_id: int = -1, **fields: object) -> object:
        """Ask whether there is a message; return the answer's header, or HELD."""
        header = NotificationRequestHeader("G", TOPIC, queue_id, poll_time, 0, **fields)  # type: ignore[arg-type]
        answer = self.requests.notification(self.connection, request(RequestCode.NOTIFICATION, header))
        return answer.header if isinstance(answer, RemotingCommand) else answer


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    """A broker with topic T of two queues."""
    async with running(PopBroker(tmp_path / "store")) as broker:
        yield Asked(broker, broker.config)


YES, NO = NotificationResponseHeader(has_msg=True), NotificationResponseHeader(has_msg=False)


async def test_there_is_a_message_until_it_is_popped(asked: Asked):
    assert asked.notify() == NO
    asked.broker.send(queue_id=1)
    assert (asked.notify(), asked.notify(queue_id=1), asked.notify(queue_id=0)) == (YES, YES, NO)
    await asked.broker.pop()
    assert asked.notify() == NO


async def test_a_message_that_returned_counts(asked: Asked):
    retry_topic = pop_retry_topic(TOPIC, "G")
    asked.broker.topics.update(TopicConfig(retry_topic, 1, 1))
    asked.broker.send(topic=retry_topic)
    assert (asked.notify(), asked.notify(order=True)) == (YES, NO)


async def test_a_blocked_queue_has_no_message_for_another_attempt(asked: Asked):
    for _ in range(2):
        asked.broker.send(queue_id=0)
    await asked.broker.pop(queue_id=0, order=True, attempt_id="a")
    assert asked.notify(order=True, attempt_id="b") == NO
    assert asked.notify(order=True, attempt_id="a") == YES


async def test_a_request_waits_for_a_message(asked: Asked):
    assert asked.notify(poll_time=10_000) is HELD
    asked.broker.send(queue_id=1)
    asked.notifications.arriving(TOPIC, 1, 1, 0)
    await asyncio.sleep(0.01)

    ((_, answer),) = asked.connection.answers
    assert answer.header == YES


async def test_a_full_service_says_so(asked: Asked):
    small = BrokerConfig(pop_polling_size=1)
    full = Asked(asked.broker, small)
    assert full.notify(poll_time=10_000) is HELD
    assert full.notify(poll_time=10_000) == NotificationResponseHeader(has_msg=False, polling_full=True)
    full.notifications.on_close(full.connection)


async def test_the_number_of_held_pops(asked: Asked):
    header = PollingInfoRequestHeader("G", TOPIC, -1)
    answer = asked.requests.polling_info(asked.connection, request(RequestCode.POLLING_INFO, header))
    assert answer.header == PollingInfoResponseHeader(0)


def test_nothing_is_rolled_back(tmp_path: Path):
    asked = Asked(PopBroker(tmp_path / "store"), BrokerConfig())
    answer = asked.requests.pop_rollback(asked.connection, request(RequestCode.POP_ROLLBACK))
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("topic", "queue_id", "group", "code"),
    [
        ("No", -1, "G", ResponseCode.TOPIC_NOT_EXIST),
        (TOPIC, 9, "G", ResponseCode.INVALID_PARAMETER),
        (TOPIC, -1, "Stopped", ResponseCode.NO_PERMISSION),
    ],
)
async def test_what_a_pop_is_refused(asked: Asked, topic: str, queue_id: int, group: str, code: ResponseCode):
    asked.broker.groups.update(SubscriptionGroupConfig("Stopped", consume_enable=False))
    header = PollingInfoRequestHeader(group, topic, queue_id)
    with pytest.raises(BrokerResponseError) as refused:
        asked.requests.polling_info(asked.connection, request(RequestCode.POLLING_INFO, header))
    assert refused.value.code == code
