"""Our client and our mqadmin work with our own name server and broker, as they do with Apache's."""

from collections.abc import AsyncIterator

import pytest

from rocketbroker.app.dev_server import DevServer
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


async def test_the_whole_story(server: DevServer):
    await run_scenario(server.namesrv_addr, server.broker_addr)
