"""Brokers behind a gRPC front, for tests: routes and groups in tables, requests recorded."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field

from rocketbroker.codec.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.proxy.service_manager import ProxyChannel


@dataclass
class FakeBrokers:
    """ServiceManager over tables.

    Attributes:
        topics: topics by name.
        groups: groups by name.
        requests: what was invoked: channel, broker name, and command.
        answer: answer to each request.
        held: an answer that waits, for the next request.
    """

    topics: dict[str, TopicConfig] = field(default_factory=dict)
    groups: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    requests: list[tuple[ProxyChannel, str, Command]] = field(default_factory=list)
    answer: Command = field(default_factory=response)
    held: asyncio.Future[Command] | None = None

    def add_topic(self, name: str, **settings: object) -> None:
        """Make a topic."""
        self.topics[name] = TopicConfig(topic_name=name, **settings)  # type: ignore[arg-type]  # any of its fields

    def add_group(self, name: str, **settings: object) -> None:
        """Make a consumer group."""
        self.groups[name] = SubscriptionGroupConfig(group_name=name, **settings)  # type: ignore[arg-type]  # as above

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return a route with one broker."""
        config = await self.topic_config(topic)
        queues = QueueData("broker-a", config.read_queue_nums, config.write_queue_nums, config.perm)
        return TopicRouteData(
            queue_datas=[queues], broker_datas=[BrokerData("DefaultCluster", "broker-a", {0: "127.0.0.1:10911"})]
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
        return held if held is not None else self.answer
