"""GET_PRODUCER_CONNECTION_LIST (204): the clients of a producer group."""

from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.codec.remoting.bodies.client import ProducerConnection
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import GetProducerConnectionListRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.answer_encoder import AnswerEncoder
from rocketbroker.processor.admin.client_connections import client_connections
from rocketbroker.processor.support.name_check import check_known_group


class GetProducerConnectionListProcessor:
    """Answers the producers that sent a heartbeat for the group."""

    def __init__(self, producers: ProducerManager, encoder: AnswerEncoder) -> None:
        self._encoder = encoder
        self._producers = producers

    async def process(
        self, _connection: Connection, command: RemotingCommand[GetProducerConnectionListRequestHeader]
    ) -> Command:
        """Answer the request; SYSTEM_ERROR for a group without clients, as in RocketMQ.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal.
        """
        group = command.header.producer_group
        check_known_group(group)
        channels = self._producers.groups.get(group)
        if channels is None:
            return response(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        body = ProducerConnection(client_connections(channels.values()))
        return response(body=await self._encoder.encode(body, len(channels)))
