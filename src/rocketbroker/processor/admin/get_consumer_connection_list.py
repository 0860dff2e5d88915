"""GET_CONSUMER_CONNECTION_LIST (203): the clients of a consumer group and what they subscribe to."""

from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.codec.remoting.bodies.client import ConsumerConnection
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import GetConsumerConnectionListRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.answer_encoder import AnswerEncoder
from rocketbroker.processor.admin.client_connections import client_connections
from rocketbroker.processor.support.name_check import check_known_group


class GetConsumerConnectionListProcessor:
    """Answers the group as of its clients' last heartbeats; the remark names what they disagree about."""

    def __init__(self, consumers: ConsumerManager, encoder: AnswerEncoder) -> None:
        self._encoder = encoder
        self._consumers = consumers

    async def process(
        self, _connection: Connection, command: RemotingCommand[GetConsumerConnectionListRequestHeader]
    ) -> Command:
        """Answer the request; CONSUMER_NOT_ONLINE for a group without clients.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal.
        """
        group = command.header.consumer_group
        check_known_group(group)
        info = self._consumers.group_info(group)
        if info is None:
            return response(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        body = ConsumerConnection(
            connection_set=client_connections(info.channels.values()),
            subscription_table={topic: known.data for topic, known in info.subscription_table.items()},
            consume_type=info.consume_type,
            message_model=info.message_model,
            consume_from_where=info.consume_from_where,
        )
        return response(
            remark=info.client_subscriptions.conflict or None, body=await self._encoder.encode(body, len(info.channels))
        )
