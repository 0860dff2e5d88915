"""Our client and our mqadmin work with our own name server and broker, as they do with Apache's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from rocketbroker.app.launch.dev_server import DevServer
from rocketbroker.client.consumer.pull_consumer import PullConsumer
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from tests.support.client_scenario import NUMBER, check_messages, consume, produce, run_scenario
from tests.support.ports import free_ports
from tests.support.running import running


@pytest.fixture
async def server() -> AsyncIterator[DevServer]:
    async with running(DevServer(0, 0)) as server:
        yield server


async def test_messages_go_through_the_wire(server: DevServer):
    ids = await produce(server.namesrv_addr)
    check_messages(await consume(server.namesrv_addr, NUMBER + 2), ids)


@pytest.mark.long
async def test_client_and_mqadmin_run_the_whole_scenario(server: DevServer):
    await run_scenario(server.namesrv_addr, server.broker_addr)


async def test_the_client_survives_a_restart_of_both_servers(tmp_path: Path):
    ports = free_ports(), free_ports(-2, 1)
    server = DevServer(*ports, tmp_path / "store")
    try:
        await server.start()
        async with (
            asyncio.timeout(200),
            Producer("PG", server.namesrv_addr, retry_times_when_send_failed=50) as producer,
            PullConsumer("CG", server.namesrv_addr) as consumer,
        ):
            await producer.send(Message("T", b"0"))
            async with aclosing(consumer.iterate("T")) as messages:
                assert (await anext(messages)).body == b"0"
                await server.stop()
                server = DevServer(*ports, tmp_path / "store")
                await server.start()
                for number in range(1, 20):
                    await producer.send(Message("T", b"%d" % number), timeout_s=60)
                bodies = [(await anext(messages)).body for _ in range(19)]
    finally:
        await server.stop()
    assert sorted(map(int, bodies)) == list(range(1, 20))
