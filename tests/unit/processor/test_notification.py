"""Notifications of messages to pop, the number of held pops, and the roll-back of a RocksDB that is not there."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.codec.message.pop_info import pop_retry_topic
from rocketbroker.codec.message.tags_code import tags_code
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
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.processor import notification
from rocketbroker.processor.notification import NotificationRequests
from rocketbroker.processor.support.pop_checks import PopChecks
from rocketbroker.store.read.checked_reader import FILTER_TURN_S, ColdRead
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult, GetMessageStatus
from rocketbroker.store.read.message_fetcher import MessageFetcher
from tests.support.fakes import FakeConnection
from tests.support.pop_broker import TOPIC, PopBroker
from tests.support.running import running
from tests.support.waiting import turns, until


class Asked:
    """Requests to a broker, over one connection."""

    def __init__(self, broker: PopBroker, config: BrokerConfig) -> None:
        self.broker, self.connection = broker, FakeConnection()
        self.notifications = PopLongPollingService(config)
        self.requests = NotificationRequests(
            checks=PopChecks(config, broker.store.config, broker.topics, broker.groups),
            topics=broker.topics,
            subscriptions=broker.subscriptions,
            fetcher=broker.store.fetcher,
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
async def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Asked]:
    """A broker with topic T of two queues, and with time to examine messages on a busy machine."""
    monkeypatch.setattr(notification, "FILTER_TURN_S", 60.0)
    async with running(PopBroker(tmp_path / "store")) as broker:
        yield Asked(broker, broker.config)


YES, NO = NotificationResponseHeader(has_msg=True), NotificationResponseHeader(has_msg=False)


async def test_there_is_a_message_until_it_is_popped(asked: Asked):
    assert asked.notify() == NO
    asked.broker.send(queue_id=1)
    assert (asked.notify(), asked.notify(queue_id=1), asked.notify(queue_id=0)) == (YES, YES, NO)
    await asked.broker.pop()
    assert asked.notify() == NO


async def test_a_request_that_waits_for_less_than_no_time_is_not_held(asked: Asked):
    assert asked.notify(poll_time=-1) == NO
    asked.broker.send()
    assert asked.notify(poll_time=-1) == YES


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
    await until(lambda: asked.connection.answers)

    ((_, answer),) = asked.connection.answers
    assert answer.header == YES


FILTERS: list[dict[str, Any]] = [{"exp_type": "TAG", "exp": "b || c"}, {"exp_type": "SQL92", "exp": "TAGS = 'b'"}]


@pytest.mark.parametrize("wanted", FILTERS, ids=["tags", "properties"])
async def test_messages_that_the_subscription_does_not_select_do_not_count(asked: Asked, wanted: dict[str, Any]):
    apply_updates([asked.broker.config], {"enablePropertyFilter": "true"})
    asked.broker.send(TAGS="a")
    assert (asked.notify(**wanted), asked.notify()) == (NO, YES)
    asked.broker.send(TAGS="b", queue_id=1)
    assert (asked.notify(**wanted), asked.notify(queue_id=0, **wanted)) == (YES, NO)


@pytest.mark.parametrize("wanted", FILTERS, ids=["tags", "properties"])
async def test_a_request_waits_for_a_message_that_its_subscription_selects(asked: Asked, wanted: dict[str, Any]):
    apply_updates([asked.broker.config], {"enablePropertyFilter": "true"})
    for at, tag in enumerate("aab"):
        asked.broker.send(TAGS=tag)
        if not at:
            assert asked.notify(poll_time=10_000, **wanted) is HELD
        else:
            asked.notifications.arriving(TOPIC, 0, at + 1, tags_code(tag))
            await turns()
        assert [answer.header for _, answer in asked.connection.answers] == [YES] * (tag == "b")


async def test_messages_of_half_a_subscription_are_all(asked: Asked):
    asked.broker.send(TAGS="a")
    assert [asked.notify(exp_type="TAG"), asked.notify(exp="b")] == [YES, YES]


@pytest.mark.parametrize("wanted", FILTERS, ids=["tags", "properties"])
async def test_messages_that_were_not_examined_count(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any]
):
    """A pop reads what is on disk, and gets past what takes longer than a turn."""
    apply_updates([asked.broker.config], {"enablePropertyFilter": "true"})
    for _ in range(2):
        asked.broker.send(TAGS="a")
    fetched: list[object] = [
        ColdRead(lambda: None),  # type: ignore[arg-type, return-value]
        GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, 1, 0, 2),
        GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, 2, 0, 2),
    ]
    monkeypatch.setattr(MessageFetcher, "fetch", lambda *_: fetched.pop(0))
    assert [asked.notify(queue_id=0, **wanted) for _ in range(3)] == [YES, YES, NO]


@pytest.mark.parametrize("wanted", FILTERS, ids=["tags", "properties"])
async def test_all_queues_are_examined_in_one_turn(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any]
):
    apply_updates([asked.broker.config], {"enablePropertyFilter": "true"})
    asked.broker.topics.update(TopicConfig(TOPIC, 9, 9))
    for queue_id in range(1, 9):
        asked.broker.send(TAGS="a", queue_id=queue_id)
    fetch, fetched = MessageFetcher.fetch, []

    def noted(fetcher: MessageFetcher, wish: GetMessageRequest) -> object:
        fetched.append(wish.queue_id)
        return fetch(fetcher, wish)

    monkeypatch.setattr(MessageFetcher, "fetch", noted)
    assert (asked.notify(**wanted), fetched) == (NO, [*range(1, 9)])
    fetched.clear()
    monkeypatch.setattr(notification, "FILTER_TURN_S", FILTER_TURN_S)
    passed = (number * FILTER_TURN_S / 4 for number in itertools.count())
    monkeypatch.setattr(notification, "perf_counter", lambda: next(passed))
    assert (asked.notify(**wanted), fetched) == (YES, [1, 2, 3])


async def test_an_unreadable_disk_is_told(asked: Asked, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> object:
        raise StoreError("no disk")

    asked.broker.send(TAGS="a")
    monkeypatch.setattr(MessageFetcher, "fetch", fail)
    with pytest.raises(BrokerResponseError, match="no disk") as refused:
        asked.notify(exp_type="TAG", exp="b")
    assert refused.value.code == ResponseCode.SYSTEM_ERROR


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
