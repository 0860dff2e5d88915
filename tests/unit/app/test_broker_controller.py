"""The broker's parts in order: ports, what is written at the end, what a failed start leaves."""

import json
from pathlib import Path

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.dev_server import LOOPBACK, DevServer, broker_settings
from rocketbroker.client.message import Message
from rocketbroker.client.producer import Producer
from rocketbroker.codec.message.message_id import decode_message_id
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import ConfigError
from rocketbroker.transport.remoting_client import RemotingClient


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def test_records_and_routes_carry_the_port_that_the_system_chose(tmp_path: Path):
    server = DevServer(0, 0, tmp_path)
    await server.start()
    try:
        port = port_of(server.broker_addr)
        async with Producer("PG", server.namesrv_addr) as producer:
            result = await producer.send(Message("T", b"x"))
        stored_at = decode_message_id(result.offset_msg_id)
        assert (stored_at.ip, stored_at.port) == (LOOPBACK, port)
        client = RemotingClient()
        for each in (port, port - 2):
            answer = await client.invoke(f"{LOOPBACK}:{each}", request(RequestCode.GET_BROKER_CONFIG), 5)
            lines = bytes(answer.body).decode().splitlines()
            assert {f"listenPort={port}", f"haListenPort={port + 1}"} <= set(lines)
        await client.stop()
    finally:
        await server.stop()


async def test_offsets_committed_while_it_stops_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    broker = BrokerController.bind(broker_settings(0, tmp_path, ""))
    await broker.start()
    stop_holding = broker.hold_service.stop

    async def commit_and_stop() -> None:
        broker.consumer_offsets.commit("G", "T", 0, 42)
        await stop_holding()

    monkeypatch.setattr(broker.hold_service, "stop", commit_and_stop)
    await broker.stop()

    table = (tmp_path / "config" / "consumerOffset.json").read_text().replace("{0:", '{"0":').replace("\t0:", '\t"0":')
    assert json.loads(table)["offsetTable"] == {"T@G": {"0": 42}}


async def test_a_start_that_fails_gives_the_ports_back(tmp_path: Path):
    config = tmp_path / "config"
    config.mkdir()
    (config / "topics.json").write_text("{")
    broker = BrokerController.bind(broker_settings(0, tmp_path, ""))
    port = broker.port
    with pytest.raises(ConfigError, match=r"topics\.json"):
        await broker.start()
    (config / "topics.json").unlink()

    again = BrokerController.bind(broker_settings(port, tmp_path, ""))
    await again.start()
    await again.stop()
