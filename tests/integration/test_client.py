"""Our client and our mqadmin work with our own name server and broker, as they do with Apache's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from rocketbroker.app.dev_server import DevServer
from rocketbroker.client.message import Message
from rocketbroker.client.producer import Producer
from rocketbroker.client.pull_consumer import PullConsumer
from tests.support.client_scenario import NUMBER, check_messages, consume, produce, run_scenario


@pytest.fixture
async def server() -> AsyncIterator[DevServer]:
    server = DevServer(0, 0)
    await server.start()
    yield server
    await server.stop()


async def test_messages_go_through_the_wire(server: DevServer):
    ids = await produce(server.namesrv_addr)
    check_messages(await consume(server.namesrv_addr, NUMBER + 2), ids)


async def test_client_and_mqadmin_run_the_whole_scenario(server: DevServer):
    await run_scenario(server.namesrv_addr, server.broker_addr)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def test_the_client_survives_a_restart_of_both_servers(tmp_path: Path):
    server = DevServer(0, 0, tmp_path / "store")
    await server.start()
    namesrv_addr, ports = server.namesrv_addr, (port_of(server.namesrv_addr), port_of(server.broker_addr))
    try:
        async with (
            asyncio.timeout(60),
            Producer("PG", namesrv_addr, retry_times_when_send_failed=50) as producer,
            PullConsumer("CG", namesrv_addr) as consumer,
        ):
            await producer.send(Message("T", b"0"))
            async with aclosing(consumer.iterate("T")) as messages:
                assert (await anext(messages)).body == b"0"
                await server.stop()
                server = DevServer(*ports, tmp_path / "store")
                await server.start()
                for number in range(1, 20):
                    await producer.send(Message("T", b"%d" % number), timeout_s=20)
                bodies = [(await anext(messages)).body for _ in range(19)]
    finally:
        await server.stop()
    assert sorted(map(int, bodies)) == list(range(1, 20))
