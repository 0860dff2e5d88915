"""GET_SUBSCRIPTIONGROUP_CONFIG (352): one consumer group (AdminBrokerProcessor.getSubscriptionGroup)."""

from collections.abc import Awaitable

from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import GetSubscriptionGroupConfigRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.support.name_check import check_known_group
from rocketbroker.processor.support.table_change import answer_when_settled


class GetSubscriptionGroupConfigProcessor:
    """Answers the group; with ``autoCreateSubscriptionGroup`` it creates a missing one, as RocketMQ does."""

    def __init__(self, groups: SubscriptionGroupManager) -> None:
        self._groups = groups

    def process(
        self, _connection: Connection, command: RemotingCommand[GetSubscriptionGroupConfigRequestHeader]
    ) -> Command | Awaitable[Command]:
        """Answer the request; SUBSCRIPTION_GROUP_NOT_EXIST for a missing group.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal.
        """
        check_known_group(command.header.group)
        config = self._groups.find(command.header.group)
        if config is None:
            return response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return answer_when_settled([self._groups.settled(config.group_name)], response(body=config.encode()))
