"""GET_CONSUMER_LIST_BY_GROUP (38): the clients of a group (ConsumerManageProcessor.getConsumerListByGroup)."""

from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import GetConsumerListByGroupRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import shown


class GetConsumerListByGroupProcessor:
    """Answers the ids of a group's clients, by which they share the queues."""

    def __init__(self, consumers: ConsumerManager) -> None:
        self._consumers = consumers

    def process(
        self, _connection: Connection, command: RemotingCommand[GetConsumerListByGroupRequestHeader]
    ) -> Command:
        """Answer the request; SYSTEM_ERROR for a group without clients, as in RocketMQ."""
        group = command.header.consumer_group
        info = self._consumers.group_info(group)
        if info is None:
            return response(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {shown(group)}", {})
        return response(header={}, body=info.encoded_client_ids())
