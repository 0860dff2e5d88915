"""Allocation of queues, against recorded answers of the Java client, and the pace of rebalances."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from rocketbroker.client.consumer.rebalance import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueConsistentHash,
    RebalanceImpl,
    RebalanceService,
)
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import AllocationError, OptionError, TopicRouteError
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import ConsumerData, GetConsumerListByGroupResponseBody, MessageModel
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from tests.support.rebalance_cases import ANSWERS, NUMBER, STRATEGIES, cases
from tests.support.scripted_server import ScriptedServer, name_server, route_of
from tests.support.waiting import until

QUEUES = [MessageQueue("T", "b", index) for index in range(5)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_strategy_gives_the_recorded_answers_of_java(strategy: str):
    answers = ANSWERS.read_text(encoding="utf-8").splitlines()
    assert len(answers) == NUMBER
    chosen = [(case, answer) for case, answer in zip(cases(), answers, strict=True) if case.strategy == strategy]
    assert len(chosen) == NUMBER // len(STRATEGIES)
    assert [case for case, answer in chosen if case.answer() != answer] == []


def test_averagely_gives_the_first_members_one_more():
    members = ["a", "b", "c"]
    shares = [AllocateMessageQueueAveragely().allocate(member, QUEUES, members) for member in members]
    assert [[queue.queue_id for queue in share] for share in shares] == [[0, 1], [2, 3], [4]]


def test_a_negative_number_of_virtual_nodes_is_rejected():
    with pytest.raises(OptionError, match="virtual_nodes is -1; give a whole number from 0"):
        AllocateMessageQueueConsistentHash(-1)


class Nowhere:
    def broker_room(self, _queue: MessageQueue) -> str:
        return "north"

    def consumer_room(self, _client_id: str) -> str:
        return ""


def test_a_member_without_a_room_is_named():
    strategy = AllocateMachineRoomNearby(AllocateMessageQueueAveragely(), Nowhere())
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"
    with pytest.raises(AllocationError, match="the machine room of a is empty"):
        strategy.allocate("a", QUEUES, ["a"])


class Stage:
    def __init__(self) -> None:
        self.client: ClientInstance
        self.members: list[list[str]] = []
        self.broker = ScriptedServer({RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._list})

    def _list(self, _fields: dict[str, str], _body: bytes) -> Command:
        if not self.members:
            return response(ResponseCode.SYSTEM_ERROR, "no consumer for this group")
        return response(body=GetConsumerListByGroupResponseBody(self.members.pop(0)).encode())

    def rebalance(self, model: MessageModel = MessageModel.CLUSTERING) -> RebalanceImpl:
        return RebalanceImpl(self.client, "CG", AllocateMessageQueueAveragely(), model)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        stage = Stage()
        await stack.enter_async_context(stage.broker)
        routes = {"T": route_of({"broker-b": stage.broker.address, "broker-a": stage.broker.address}, queues=2)}
        routes["Half"] = route_of({"broker-a": "127.0.0.1:1", "broker-b": stage.broker.address}, queues=2)
        names = await stack.enter_async_context(name_server(routes))
        stage.client = await stack.enter_async_context(ClientInstance(ClientConfig(names.address, instance_name="m")))
        stage.client.heartbeats.register_consumer(ConsumerData("CG"))
        yield stage


async def test_members_share_the_sorted_queues(stage: Stage):
    stage.members = [["z", stage.client.client_id, "0"]]
    allocated = await stage.rebalance().allocate("T")
    assert [(queue.broker_name, queue.queue_id) for queue in allocated] == [("broker-b", 0)]


@pytest.mark.parametrize("order", list(itertools.permutations(["0", "own", "z"])))
async def test_the_order_in_which_a_broker_names_the_members_is_no_matter(stage: Stage, order: tuple[str, ...]):
    stage.members = [[stage.client.client_id if name == "own" else name for name in order]]
    allocated = await stage.rebalance().allocate("T")
    assert [(queue.broker_name, queue.queue_id) for queue in allocated] == [("broker-b", 0)]


async def test_a_broadcasting_consumer_gets_all_queues(stage: Stage):
    assert len(await stage.rebalance(MessageModel.BROADCASTING).allocate("T")) == 4
    assert stage.broker.of(RequestCode.GET_CONSUMER_LIST_BY_GROUP) == []


async def test_a_member_that_the_broker_does_not_know_sends_a_heartbeat_and_asks_again(stage: Stage):
    stage.members = [["z"], [stage.client.client_id]]
    assert len(await stage.rebalance().allocate("T")) == 4
    stage.members = [["z"], ["z"]]
    assert await stage.rebalance().allocate("T") == []
    assert len(stage.broker.of(RequestCode.HEART_BEAT)) >= 2


async def test_an_unknown_group_or_topic_is_an_error(stage: Stage):
    with pytest.raises(BrokerResponseError, match="no consumer for this group"):
        await stage.rebalance().allocate("T")
    with pytest.raises(TopicRouteError):
        await stage.rebalance().allocate("U")


async def test_another_broker_is_asked_when_one_does_not_answer(stage: Stage):
    stage.members = [[stage.client.client_id]]
    assert len(await stage.rebalance().allocate("Half")) == 4


class Rebalances:
    def __init__(self, *results: bool | Exception) -> None:
        self.results = list(results)
        self.number = 0

    async def __call__(self) -> bool:
        self.number += 1
        await asyncio.sleep(0)
        result = self.results.pop(0) if self.results else True
        if isinstance(result, Exception):
            raise result
        return result


async def test_it_rebalances_regularly():
    rebalances = Rebalances()
    service = RebalanceService(rebalances, 0.01)
    await service.start()
    await until(lambda: rebalances.number >= 3)
    await service.stop()


async def test_it_rebalances_when_woken():
    rebalances = Rebalances()
    service = RebalanceService(rebalances, 300.0)
    await service.start()
    service.wakeup()
    await until(lambda: rebalances.number == 1)
    await service.stop()


async def test_an_incomplete_or_failed_one_is_repeated_soon(caplog: pytest.LogCaptureFixture):
    rebalances = Rebalances(False, False, ValueError("broken"), False)
    service = RebalanceService(rebalances, 300.0)
    await service.start()
    await service.now()
    assert rebalances.number == 1
    await until(lambda: rebalances.number == 5)
    await service.stop()
    assert "broken" in caplog.text
