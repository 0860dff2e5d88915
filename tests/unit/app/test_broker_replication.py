"""Answers of a synchronous master: which messages wait for slaves, and what is said when none has them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.broker_replication import bind_ha
from rocketbroker.app.dev_broker import broker_settings
from rocketbroker.codec.message.message_batch import encode_batch
from rocketbroker.codec.remoting.headers.send_message import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import ConfigError
from rocketbroker.transport.listening_sockets import close_sockets, port_of
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.ports import LOOPBACK, free_ports
from tests.support.running import running, stopping

LIMIT_S = 60
UNIQUE = "UNIQ_KEY\x01AC11000104D2DEADBEEF000000000001\x02"


class Sender:
    """Sends requests to a broker."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self._address = address

    async def send(self, properties: str = "", *, batch: bool = False) -> Command:
        header = SendMessageRequestHeader("PG", "T", "TBW102", 4, 0, 0, 0, 0, properties + UNIQUE, 0, batch=batch)
        body = encode_batch([(0, b"a", b""), (0, b"b", b"")]) if batch else b"body"
        return await self.ask(request(RequestCode.SEND_MESSAGE, header, body))

    async def ask(self, command: Command) -> Command:
        return await self._client.invoke(self._address, command, LIMIT_S)


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
async def alone(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Sender]:
    """A synchronous master whose slave is missing."""
    properties = {
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": "2",
        "slaveTimeout": "30",
        "flushDiskType": request.param,
    }
    broker = BrokerController.bind(broker_settings(0, tmp_path, "", properties=properties))
    async with running(broker), stopping(RemotingClient()) as client:
        yield Sender(client, f"{LOOPBACK}:{broker.port}")


@pytest.mark.parametrize(
    ("properties", "batch"),
    [
        ("", False),
        ("WAIT\x01true\x02", False),
        ("", True),
        ("DELAY\x013\x02", False),
        ("TIMER_DELAY_SEC\x0130\x02", False),
        ("TRAN_MSG\x01true\x02PGROUP\x01PG\x02", False),
    ],
    ids=["single", "waiting", "batch", "delayed", "timer", "half"],
)
async def test_a_message_that_no_slave_has_is_stored_and_answered_with_its_place(
    alone: Sender, properties: str, batch: bool
):
    answer = await alone.send(properties, batch=batch)

    assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert "not on 1 slaves within 30 ms (inSyncReplicas, slaveTimeout)" in (answer.remark or "")
    assert answer.header["queueOffset"] == "0"


async def test_a_message_that_does_not_want_to_wait_and_a_copy_of_the_broker_wait_for_no_slave(alone: Sender):
    sent = await alone.send("WAIT\x01false\x02")
    assert sent.code == ResponseCode.SUCCESS

    back = ConsumerSendMsgBackRequestHeader(0, "CG", 3)
    answer = await alone.ask(request(RequestCode.CONSUMER_SEND_MSG_BACK, back))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_many_sends_at_once_are_answered_each(alone: Sender):
    answers = await asyncio.gather(*(alone.send() for _ in range(30)))

    assert {answer.code for answer in answers} == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
    assert sorted(int(answer.header["queueOffset"]) for answer in answers) == list(range(30))


async def test_one_replica_is_the_master_alone_as_in_rocketmq(tmp_path: Path):
    broker = BrokerController.bind(broker_settings(0, tmp_path, "", properties={"brokerRole": "SYNC_MASTER"}))
    async with running(broker), stopping(RemotingClient()) as client:
        assert (await Sender(client, f"{LOOPBACK}:{broker.port}").send()).code == ResponseCode.SUCCESS


def test_the_ha_port_is_named_if_it_is_in_use(tmp_path: Path):
    port = free_ports(1)
    settings = broker_settings(port, tmp_path, "")
    held = bind_ha(settings, any_port=False)
    held[0].listen()
    try:
        assert port_of(held[0]) == port + 1
        with pytest.raises(ConfigError, match=rf"Port {port + 1} is for slaves \(haListenPort\)"):
            bind_ha(settings, any_port=False)
        other = bind_ha(settings, any_port=True)
        assert port_of(other[0]) not in {0, port + 1}
        close_sockets(other)
    finally:
        close_sockets(held)


def test_a_slave_has_no_ha_port(tmp_path: Path):
    properties = {"brokerRole": "SLAVE", "brokerId": "1"}
    assert bind_ha(broker_settings(0, tmp_path, "", properties=properties), any_port=True) == []
