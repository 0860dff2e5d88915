import asyncio

import pytest

from rocketbroker.broker.registration import topic_route_info_manager
from rocketbroker.broker.registration.topic_route_info_manager import TopicRouteInfoManager
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.route import MOST_QUEUES, QueueData, TopicRouteData
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import CodecError, RemotingConnectError

ROUTE = TopicRouteData(queue_datas=[QueueData("b", 2, 2, 6), QueueData("a", 1, 1, 4), QueueData("w", 2, 2, 2)])
QUEUES = [MessageQueue("T", "a", 0), MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)]


class NameServers:
    """Name servers by address; each has a route, none, or does not answer."""

    def __init__(self, **routes: TopicRouteData | None) -> None:
        self.routes = routes
        self.dead: set[str] = set()
        self.asked: list[str] = []

    async def invoke(self, address: str, command: Command, _timeout_s: float = 3.0) -> Command:
        self.asked.append(address)
        await asyncio.sleep(0)
        if address in self.dead:
            raise RemotingConnectError(f"{address} is dead")
        route = self.routes[address]
        if route is None or command.header.topic != "T":
            return response(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        return response(body=route.encode())


def manager_of(servers: NameServers) -> TopicRouteInfoManager:
    config = BrokerConfig(load_balance_poll_name_server_interval=100)
    return TopicRouteInfoManager(config, servers, lambda: list(servers.routes))  # type: ignore[arg-type]


def pass_time(manager: TopicRouteInfoManager) -> None:
    manager._known["T"].due = 0.0


async def test_the_first_name_server_that_has_the_route_counts():
    servers = NameServers(dead=ROUTE, lost=None, good=ROUTE, spare=ROUTE)
    servers.dead.add("dead")

    assert await manager_of(servers).fetch("T") == ROUTE
    assert servers.asked == ["dead", "lost", "good"]


async def test_without_a_route_the_last_reason_is_raised():
    servers = NameServers(lost=None)

    with pytest.raises(CodecError, match="lost answers 17 no such topic"):
        await manager_of(servers).fetch("T")
    with pytest.raises(CodecError, match="no name server is known"):
        await manager_of(NameServers()).fetch("T")


async def test_many_who_wait_for_a_topic_share_one_request():
    servers = NameServers(ns=ROUTE)
    manager = manager_of(servers)

    assert await asyncio.gather(*(manager.subscribe_queues("T") for _ in range(10))) == [QUEUES] * 10
    assert await manager.subscribe_queues("T") == QUEUES
    assert servers.asked == ["ns"]


async def test_a_changed_route_counts_after_the_interval():
    servers = NameServers(ns=ROUTE)
    manager = manager_of(servers)
    await manager.subscribe_queues("T")
    servers.routes["ns"] = TopicRouteData(queue_datas=ROUTE.queue_datas[1:])

    assert await manager.subscribe_queues("T") == QUEUES
    pass_time(manager)
    assert await manager.subscribe_queues("T") == QUEUES[:1]


async def test_name_servers_that_do_not_answer_leave_the_queues_as_they_were():
    servers = NameServers(ns=ROUTE)
    manager = manager_of(servers)
    await manager.subscribe_queues("T")
    servers.dead.add("ns")
    pass_time(manager)

    assert await manager.subscribe_queues("T") == QUEUES
    assert await manager.subscribe_queues("T") == QUEUES
    assert servers.asked == ["ns", "ns"], "not asked again at once"


async def test_an_unknown_topic_has_no_queues():
    manager = manager_of(NameServers(ns=ROUTE))

    assert await manager.subscribe_queues("U") is None


async def test_a_route_with_too_many_queues_is_none():
    route = TopicRouteData(queue_datas=[QueueData("b", MOST_QUEUES + 1, 1, 6)])

    with pytest.raises(CodecError, match="the route of topic T has over 65,536 queues to read"):
        route.subscribe_queues("T")
    assert await manager_of(NameServers(ns=route)).subscribe_queues("T") is None


async def test_of_many_topics_the_latest_are_remembered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(topic_route_info_manager, "_MOST_ROUTES", 3)
    manager = manager_of(NameServers(ns=ROUTE))
    for topic in ("T", "A", "B", "T", "C"):
        await manager.subscribe_queues(topic)

    assert list(manager._known) == ["B", "T", "C"]
