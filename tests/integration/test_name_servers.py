"""Three name servers at once: one answers garbage, one is frozen, and broker and clients carry on."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from tests.support.our_servers import OurServers, make_topic
from tests.support.waiting import LIMIT_S


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[OurServers]:
    made = OurServers(tmp_path)
    yield made
    made.close()


@pytest.fixture
def garbage() -> Iterator[str]:
    """Address of a server that answers each connection with bytes that are no frame."""
    loop = asyncio.new_event_loop()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, name="garbage")
    thread.start()
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    server.close()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


async def topics_at(namesrv: str) -> list[str]:
    async with AdminClient(namesrv) as admin:
        return await admin.fetch_all_topic_list()


@pytest.mark.long
def test_garbage_and_a_frozen_name_server_stop_nobody(servers: OurServers, garbage: str):
    good, frozen = servers.namesrv(), servers.namesrv()
    frozen.freeze()
    every = f"{garbage};{frozen.address};{good.address}"
    settings = {"registerBrokerTimeoutMills": 1_000}

    broker = servers.launch_broker(every, None, settings)
    broker.wait_for("boot success")
    make_topic(broker.address, every, "T")
    assert "T" in asyncio.run(topics_at(good.address))

    frozen.thaw()

    async def wait() -> None:
        async with asyncio.timeout(LIMIT_S):
            while "T" not in await topics_at(frozen.address):  # noqa: ASYNC110 - another process knows
                await asyncio.sleep(0.05)

    asyncio.run(wait())
    broker.wait_for(f"not registered at name server {garbage}")
