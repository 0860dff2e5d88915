"""Allocation of a topic among the members that a broker names."""

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from rocketbroker.client.client_config import ClientConfig
from rocketbroker.client.client_instance import ClientInstance
from rocketbroker.client.errors import TopicRouteError
from rocketbroker.client.rebalance.allocate_message_queue import AllocateMessageQueueAveragely
from rocketbroker.client.rebalance.rebalance_impl import RebalanceImpl
from rocketbroker.codec.remoting.bodies.client import ConsumerData, GetConsumerListByGroupResponseBody, MessageModel
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from tests.support.scripted_server import ScriptedServer, name_server, route_of


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
