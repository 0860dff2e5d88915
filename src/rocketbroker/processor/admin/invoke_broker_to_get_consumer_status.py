"""INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): offsets that the clients of a group report (Broker2Client)."""

import asyncio
from collections.abc import Sequence

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.consumer_manager import ASKS_FROM_VERSION, ConsumerManager
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.offset import GetConsumerStatusBody
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import GetConsumerStatusRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError, RemotingError
from rocketbroker.processor.support.name_check import check_known_group, check_known_topic
from rocketbroker.processor.support.request_body import MOST_VALUES

Header = GetConsumerStatusRequestHeader
Offsets = dict[MessageQueue, int]

# Time for each client to answer, as in Broker2Client.
TIMEOUT_S = 5.0
# Clients asked in one turn of the event loop.
_AT_A_TIME = 100


class InvokeBrokerToGetConsumerStatusProcessor:
    """Asks all clients, or the one named, by GET_CONSUMER_STATUS_FROM_CLIENT (221).

    The answer has the offsets of the clients that replied; the remark names the others.
    """

    def __init__(self, consumers: ConsumerManager) -> None:
        self._consumers = consumers

    async def process(self, _connection: Connection, command: RemotingCommand[Header]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER for an illegal name; SYSTEM_ERROR if there is no such
                client, one is too old, or none has answered.
        """
        header = command.header
        check_known_group(header.group)
        check_known_topic(header.topic)
        channels = self._channels(header)
        question = Header(header.topic, header.group)
        asked = (_ask(channel, question, index // _AT_A_TIME) for index, channel in enumerate(channels))
        answers = await asyncio.gather(*asked)
        by_client = {channel.client_id: answer for channel, answer in zip(channels, answers, strict=True)}
        found = {client_id: answer for client_id, answer in by_client.items() if isinstance(answer, dict)}
        silent = "; ".join(f"{client_id}: {why}" for client_id, why in by_client.items() if isinstance(why, str))
        if not found:
            remark = f"no client of group {header.group} has reported its offsets: {silent}"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
        return response(
            remark=f"clients that have not reported their offsets: {silent}" if silent else None,
            body=GetConsumerStatusBody(consumer_table=found).encode(),
        )

    def _channels(self, header: Header) -> Sequence[ClientChannelInfo]:
        info = self._consumers.group_info(header.group)
        if info is None:
            raise _refusal(f"No Any Consumer online in the consumer group: [{header.group}]")
        named = (header.client_addr or "").strip()
        channels = [channel for channel in info.channels.values() if not named or channel.client_id == named]
        if not channels:
            raise _refusal(f"The Consumer <{header.group}> <{named}> not online")
        for channel in channels:
            if channel.version < ASKS_FROM_VERSION:
                raise _refusal(
                    f"the client does not support this feature. version={channel.version} of {channel!r}; "
                    f"use {ASKS_FROM_VERSION} (V3_0_7_SNAPSHOT) or later"
                )
        return channels


async def _ask(channel: ClientChannelInfo, question: Header, turns: int) -> Offsets | str:
    """Return the offsets that a client reports, or its error; ask it after ``turns`` turns of the event loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
    command = request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, question)
    try:
        answer = await channel.connection.invoke(command, TIMEOUT_S)
        if answer.code == ResponseCode.SUCCESS:
            return GetConsumerStatusBody.decode(answer.body, most_values=MOST_VALUES).message_queue_table
    except (RemotingError, CodecError) as error:
        return str(error)
    return f"code {answer.code}, {answer.remark}"


def _refusal(remark: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
