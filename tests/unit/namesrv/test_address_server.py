"""The static address server over HTTP."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from rocketbroker.common.errors import ConfigError
from rocketbroker.namesrv.address_server import AddressServer

SRC = Path(__file__).parents[3] / "src"
ADDRESSES = "192.0.2.1:9876;192.0.2.2:9876"


@pytest.fixture
async def server() -> AsyncIterator[AddressServer]:
    server = AddressServer("127.0.0.1", 0, lambda: ADDRESSES)
    await server.start()
    yield server
    await server.stop()


async def get(server: AddressServer, path: str) -> tuple[int, bytes]:
    def fetch() -> tuple[int, bytes]:
        try:
            with urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=60) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            with error:
                return error.code, b""

    return await asyncio.to_thread(fetch)


@pytest.mark.parametrize(
    "path", ["/rocketmq/nsaddr", "/rocketmq/nsaddr?nofix=1", "/rocketmq/nsaddr-unit_1?nofix=1", "/rocketmq/nsaddr-u%7C"]
)
async def test_the_addresses_are_the_whole_answer(server: AddressServer, path: str) -> None:
    assert await get(server, path) == (200, ADDRESSES.encode())


@pytest.mark.parametrize("path", ["/", "/rocketmq", "/rocketmq/nsaddr/", "/rocketmq/nsaddr-", "/rocketmq/nsaddrx"])
async def test_other_paths_are_not_found(server: AddressServer, path: str) -> None:
    assert (await get(server, path))[0] == 404


async def test_a_port_in_use_is_named(server: AddressServer) -> None:
    second = AddressServer("127.0.0.1", server.port, lambda: "")
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{server.port}: .*; change addressServerPort"):
        await second.start()


async def test_the_oldest_connection_is_closed_for_one_beyond_the_limit(
    server: AddressServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(AddressServer, "most_connections", 3)
    held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
    assert await get(server, "/rocketmq/nsaddr") == (200, ADDRESSES.encode())

    oldest, _ = held[0]
    assert await oldest.read() == b""
    assert "the address server: 3 connections are open, which is the limit" in caplog.text
    for _, writer in held:
        writer.close()


async def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    said = r"addressServerEnable=true needs the package 'aiohttp': pip install 'rocketbroker\[http\]'"
    with pytest.raises(ConfigError, match=said):
        await AddressServer("127.0.0.1", 0, lambda: "").start()


def test_aiohttp_is_loaded_only_when_it_is_on() -> None:
    code = "import sys, rocketbroker.namesrv.address_server; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(SRC)}, check=False).returncode == 0
