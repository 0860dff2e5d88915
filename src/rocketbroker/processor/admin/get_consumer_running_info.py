"""GET_CONSUMER_RUNNING_INFO (307): what a consumer says of itself (AdminBrokerProcessor.getConsumerRunningInfo)."""

from rocketbroker.broker.consumer_manager import ConsumerManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.client import GetConsumerRunningInfoRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.processor.admin.call_consumer import call_consumer
from rocketbroker.processor.name_check import check_known_group


class GetConsumerRunningInfoProcessor:
    """Passes the request on to the client that it names."""

    def __init__(self, consumers: ConsumerManager) -> None:
        self._consumers = consumers

    async def process(
        self, _connection: Connection, command: RemotingCommand[GetConsumerRunningInfoRequestHeader]
    ) -> Command:
        """Answer as the client does.

        Raises:
            BrokerResponseError: the client is not there or does not answer, or INVALID_PARAMETER for an illegal group.
        """
        header = command.header
        check_known_group(header.consumer_group)
        question = request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return await call_consumer(self._consumers, header.consumer_group, header.client_id, question)
