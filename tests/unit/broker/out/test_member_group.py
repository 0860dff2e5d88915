"""The live brokers of a name, as a name server answers them."""

import asyncio

import pytest

from rocketbroker.broker.out.member_group import fetch_members
from rocketbroker.codec.remoting.bodies.route import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from rocketbroker.codec.remoting.custom_header import to_ext_fields
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import CodecError, RemotingTimeoutError
from tests.support.golden_frames import requests_of

CONFIG = BrokerConfig(broker_name="broker-a", broker_cluster_name="DefaultCluster")


class Client:
    """Gives one answer, and keeps the last request."""

    def __init__(self, answer: Command) -> None:
        self._answer = answer
        self.asked: Command | None = None

    async def invoke(self, _address: str, command: Command, _timeout_s: float) -> Command:
        self.asked = command
        return self._answer


async def test_the_request_is_the_recorded_one():
    client = Client(response(body=GetBrokerMemberGroupResponseBody(BrokerMemberGroup("c", "b", {0: "a:1"})).encode()))

    assert await fetch_members(client, CONFIG, "ns") == {0: "a:1"}  # type: ignore[arg-type]
    recorded = requests_of(RequestCode.GET_BROKER_MEMBER_GROUP)[0].command()
    assert client.asked is not None
    assert to_ext_fields(client.asked.header) == recorded.header


@pytest.mark.parametrize("answer", [response(ResponseCode.SYSTEM_ERROR, "no"), response(body=b"garbage")])
async def test_another_answer_is_an_error(answer: Command):
    with pytest.raises(CodecError):
        await fetch_members(Client(answer), CONFIG, "ns")  # type: ignore[arg-type]


async def test_connecting_counts_towards_the_timeout():
    class Unreachable:
        async def invoke(self, _address: str, _command: Command, _timeout_s: float) -> Command:
            never: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
            return await never

    with pytest.raises(RemotingTimeoutError, match=r"ns does not answer within 0\.01 s"):
        await fetch_members(Unreachable(), CONFIG, "ns", 0.01)  # type: ignore[arg-type]


async def test_an_empty_answer_names_no_broker():
    assert await fetch_members(Client(response()), CONFIG, "ns") == {}  # type: ignore[arg-type]
