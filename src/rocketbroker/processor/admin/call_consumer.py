"""Passes a request on to a consumer and its answer back (AdminBrokerProcessor.callConsumer)."""

from rocketbroker.broker.consumer_manager import ConsumerManager
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, RemotingSendError, RemotingTimeoutError

# What Broker2Client gives a client to answer.
TIMEOUT_S = 10.0


async def call_consumer(consumers: ConsumerManager, group: str, client_id: str, command: Command) -> Command:
    """The client's answer to ``command``.

    Raises:
        BrokerResponseError: SYSTEM_ERROR, no such client is there or its connection was lost; CONSUME_MSG_TIMEOUT, it
            did not answer in 10 s.
    """
    channel = consumers.find_channel(group, client_id)
    if channel is None:
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
    try:
        answer = await channel.connection.invoke(command, TIMEOUT_S)
    except RemotingTimeoutError as error:
        remark = f"consumer <{group}> <{client_id}> Timeout: {error}"
        raise BrokerResponseError(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from error
    except RemotingSendError as error:
        remark = f"invoke consumer <{group}> <{client_id}> Exception: {error}"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark) from error
    return response(answer.code, answer.remark, answer.header, bytes(answer.body))
