"""Slaves that a name server knows count at once, whatever the other name servers do."""

import asyncio

import pytest

from rocketbroker.broker.out import known_slaves
from rocketbroker.broker.out.known_slaves import KnownSlaves
from rocketbroker.codec.remoting.bodies.route import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from tests.support.running import running
from tests.support.waiting import until


class Client:
    """One name server answers, the other one is frozen; ``asked`` counts the requests."""

    def __init__(self) -> None:
        self.asked = 0

    async def invoke(self, address: str, _command: Command, _timeout_s: float) -> Command:
        self.asked += 1
        if address == "frozen":
            await asyncio.Event().wait()
        group = BrokerMemberGroup("c", "b", {0: "127.0.0.1:1", 1: "127.0.0.2:1", 2: "127.0.0.2:2"})
        return response(ResponseCode.SUCCESS, body=GetBrokerMemberGroupResponseBody(group).encode())


async def test_a_frozen_name_server_delays_no_answer_of_another():
    slaves = KnownSlaves(BrokerConfig(), Client(), lambda: ["frozen", "well"])  # type: ignore[arg-type]
    async with running(slaves):
        await until(lambda: slaves.hosts == ["127.0.0.2", "127.0.0.2"])


async def test_a_slave_that_has_just_connected_is_asked_for_soon(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(known_slaves, "_PERIOD_S", 3600.0)
    monkeypatch.setattr(known_slaves, "_PAUSE_S", 0.01)
    client = Client()
    slaves = KnownSlaves(BrokerConfig(), client, lambda: ["well"])  # type: ignore[arg-type]
    async with running(slaves):
        await until(lambda: client.asked == 1)
        slaves.look_again()
        await until(lambda: client.asked == 2)
