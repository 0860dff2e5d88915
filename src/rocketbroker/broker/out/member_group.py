"""Live brokers of a name, by GET_BROKER_MEMBER_GROUP (BrokerOuterAPI.syncBrokerMemberGroup)."""

import asyncio

from rocketbroker.codec.remoting.bodies.route import GetBrokerMemberGroupResponseBody
from rocketbroker.codec.remoting.headers.namesrv import GetBrokerMemberGroupRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import CodecError, RemotingTimeoutError
from rocketbroker.transport.remoting_client import RemotingClient

# Addresses by broker id.
Members = dict[int, str]


async def fetch_members(
    client: RemotingClient, config: BrokerConfig, name_server: str, timeout_s: float = 3.0
) -> Members:
    """Return the live brokers of this broker's name, as one name server knows them.

    Args:
        client: sends the request.
        config: name of broker and cluster.
        name_server: address of the name server.
        timeout_s: limit of connecting and asking together.

    Raises:
        RemotingError: The name server does not answer.
        CodecError: It rejects the request, or answers something else.
    """
    header = GetBrokerMemberGroupRequestHeader(config.broker_cluster_name, config.broker_name)
    try:
        async with asyncio.timeout(timeout_s):
            answer = await client.invoke(name_server, request(RequestCode.GET_BROKER_MEMBER_GROUP, header), timeout_s)
    except TimeoutError:
        raise RemotingTimeoutError(f"{name_server} does not answer within {timeout_s:g} s") from None
    if answer.code != ResponseCode.SUCCESS:
        raise CodecError(f"GET_BROKER_MEMBER_GROUP is answered by {answer.code} {(answer.remark or '')[:200]}")
    group = GetBrokerMemberGroupResponseBody.decode(answer.body or b"{}").broker_member_group
    return {} if group is None else dict(group.broker_addrs)
