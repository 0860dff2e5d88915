"""QUERY_SUBSCRIPTION_BY_CONSUMER (345): the subscription of a group to a topic (AdminBrokerProcessor)."""

from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.codec.remoting.bodies.client import QuerySubscriptionResponseBody
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import QuerySubscriptionByConsumerRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.support.name_check import check_known_group, check_known_topic


class QuerySubscriptionByConsumerProcessor:
    """Answers the subscription of the group's clients, or none if the group has no client."""

    def __init__(self, consumers: ConsumerManager) -> None:
        self._consumers = consumers

    def process(
        self, _connection: Connection, command: RemotingCommand[QuerySubscriptionByConsumerRequestHeader]
    ) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if a name is illegal.
        """
        group, topic = command.header.group, command.header.topic
        check_known_group(group)
        if topic is None:
            return response(body=QuerySubscriptionResponseBody(group=group).encode())
        check_known_topic(topic)
        found = self._consumers.find_subscription_data(group, topic)
        return response(body=QuerySubscriptionResponseBody(found.data if found else None, group, topic).encode())
