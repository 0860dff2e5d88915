"""Brokers behind a gRPC front, for tests: routes and groups in tables, requests recorded."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field

from rocketbroker.codec.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.proxy.messaging_pb2 import Address, AddressScheme, Endpoints
from rocketbroker.proxy.service_manager import ProxyChannel

ENDPOINTS = Endpoints(scheme=AddressScheme.IPv4, addresses=[Address(host="127.0.0.1", port=8081)])


@dataclass
class FakeBrokers:
    """ServiceManager over tables.

    Attributes:
        topics: topics by name.
        groups: groups by name.
        broker_names: brokers of each topic.
        requests: what was invoked: channel, broker name, and command.
        answer: answer to each request.
        held: an answer that waits, for the next request.
        answers: answers by request code, for those that need another one; an error is raised.
        gone: channels that were closed.
        dropped: requests that nobody waits for.
        is_cluster: there may be more fronts.
    """

    topics: dict[str, TopicConfig] = field(default_factory=dict)
    groups: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    requests: list[tuple[ProxyChannel, str, Command]] = field(default_factory=list)
    answer: Command = field(default_factory=response)
    held: asyncio.Future[Command] | None = None
    answers: dict[int, Command | Exception] = field(default_factory=dict)
    gone: list[ProxyChannel] = field(default_factory=list)
    dropped: list[Command] = field(default_factory=list)
    broker_names: list[str] = field(default_factory=lambda: ["broker-a"])
    is_cluster: bool = False

    def add_topic(self, name: str, **settings: object) -> None:
        """Make a topic."""
        self.topics[name] = TopicConfig(topic_name=name, **settings)  # type: ignore[arg-type]  # any of its fields

    def add_group(self, name: str, **settings: object) -> None:
        """Make a consumer group."""
        self.groups[name] = SubscriptionGroupConfig(group_name=name, **settings)  # type: ignore[arg-type]  # as above

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return a route with the brokers."""
        config = await self.topic_config(topic)
        numbers = config.read_queue_nums, config.write_queue_nums, config.perm
        return TopicRouteData(
            queue_datas=[QueueData(name, *numbers) for name in self.broker_names],
            broker_datas=[BrokerData("DefaultCluster", name, {0: "127.0.0.1:10911"}) for name in self.broker_names],
        )

    async def topic_config(self, topic: str) -> TopicConfig:
        """Return a topic of the table."""
        if topic not in self.topics:
            raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info for topic: {topic}")
        return self.topics[topic]

    async def subscription_group_config(self, group: str) -> SubscriptionGroupConfig:
        """Return a group of the table."""
        if group not in self.groups:
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"the group {group} does not exist")
        return self.groups[group]

    def invoke(self, channel: ProxyChannel, broker_name: str, command: Command) -> Command | Awaitable[Command]:
        """Record a request and answer it."""
        self.requests.append((channel, broker_name, command))
        held, self.held = self.held, None
        if held is not None:
            return held
        answer = self.answers.get(command.code, self.answer)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def drop(self, channel: ProxyChannel, command: Command) -> None:
        """Record a request that nobody waits for."""
        self.dropped.append(command)

    def closed(self, channel: ProxyChannel) -> None:
        """Record a client that is gone."""
        self.gone.append(channel)

    def sent(self, code: int) -> list[Command]:
        """Return the requests with a code."""
        return [command for _, _, command in self.requests if command.code == code]
