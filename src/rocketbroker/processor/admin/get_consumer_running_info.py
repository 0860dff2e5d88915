"""GET_CONSUMER_RUNNING_INFO (307): the state that a consumer reports (AdminBrokerProcessor.getConsumerRunningInfo)."""

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import GetConsumerRunningInfoRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.processor.admin.call_consumer import ConsumerCalls
from rocketbroker.processor.support.name_check import check_known_group


class GetConsumerRunningInfoProcessor:
    """Passes the request on to the client that it names."""

    def __init__(self, calls: ConsumerCalls) -> None:
        self._calls = calls

    async def process(
        self, _connection: Connection, command: RemotingCommand[GetConsumerRunningInfoRequestHeader]
    ) -> Command:
        """Answer with the client's answer.

        Raises:
            BrokerResponseError: The client is not connected or does not answer; INVALID_PARAMETER if the group is
                illegal.
        """
        header = command.header
        check_known_group(header.consumer_group)
        question = request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return await self._calls.call(header.consumer_group, header.client_id, question)
