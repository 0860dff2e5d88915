"""HTTP ports with TLS: one port for both, limits before the handshake, and certificates that are renewed."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType

import aiohttp
import pytest
from aiohttp import web

from rocketbroker.common.address_server_client import fetch_name_servers
from rocketbroker.common.config.tls_settings import TlsSettings
from rocketbroker.common.errors import RemotingError
from rocketbroker.transport.http_port import with_tls
from rocketbroker.transport.tls_transport import RemotingTls
from tests.support.ports import LOOPBACK
from tests.support.tls_files import TlsFiles

LONG = "127.0.0.1:9876;" * 4_000


@pytest.fixture
async def files(tmp_path: Path) -> TlsFiles:
    return await asyncio.to_thread(TlsFiles, tmp_path)


class Port:
    """A port of aiohttp that answers the length of each body, or a page without one."""

    def __init__(self, files: TlsFiles, mode: str, **more: str) -> None:
        self.tls = RemotingTls(TlsSettings.model_validate(files.of_server(mode=mode, **more)))

    async def __aenter__(self) -> "Port":
        async def answer(request: web.BaseRequest) -> web.Response:
            return web.Response(text=str(len(await request.read())) if request.can_read_body else LONG)

        self.server = web.Server(answer)
        self._listener = await asyncio.get_running_loop().create_server(
            with_tls(self.server, self.tls.server), LOOPBACK, 0
        )
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        await self.server.shutdown(1)


@asynccontextmanager
async def session() -> AsyncIterator[Callable[..., aiohttp.client._RequestContextManager]]:
    async with aiohttp.ClientSession() as opened:
        yield opened.request


async def test_a_port_takes_both_kinds_of_connections(files: TlsFiles):
    async with Port(files, "permissive") as port, session() as ask:
        for scheme in ("http", "https"):
            url = f"{scheme}://{LOOPBACK}:{port.port}/"
            for size in (1, 1 << 20):
                async with ask("POST", url, data=bytes(size), ssl=files.context()) as answer:
                    assert await answer.text() == str(size)
            async with ask("GET", url, ssl=files.context()) as answer:
                assert await answer.text() == LONG


async def test_a_port_that_enforces_tls_closes_plain_connections(files: TlsFiles):
    async with Port(files, "enforcing") as port:
        assert port.tls.server is not None
        with pytest.raises(RemotingError, match="address server http://"):
            await fetch_name_servers(f"http://{LOOPBACK}:{port.port}/")
        assert port.tls.server.failed >= 1  # aiohttp tries again
        found = await fetch_name_servers(f"https://{LOOPBACK}:{port.port}/", files.context())
        assert found == ["127.0.0.1:9876"] * 4_000
        # Without the authority nobody can verify the certificate.
        with pytest.raises(RemotingError, match="certificate verify failed"):
            await fetch_name_servers(f"https://{LOOPBACK}:{port.port}/")


async def test_a_port_that_demands_certificates_of_clients_serves_no_other(files: TlsFiles):
    demands = {"need_client_auth": "require", "trustCertPath": str(files.ca)}
    async with Port(files, "enforcing", **demands) as port:
        url = f"https://{LOOPBACK}:{port.port}/"
        with pytest.raises(RemotingError, match="address server https://"):
            await fetch_name_servers(url, files.context())
        assert await fetch_name_servers(url, files.context("client")) == ["127.0.0.1:9876"] * 4_000


async def test_a_connection_counts_before_its_first_byte(files: TlsFiles):
    async with Port(files, "enforcing") as port:
        _, writer = await asyncio.open_connection(LOOPBACK, port.port)
        async with asyncio.timeout(10):
            while not port.server.connections:  # noqa: ASYNC110 - nothing signals the change
                await asyncio.sleep(0.005)
        writer.close()
        await writer.wait_closed()


async def test_a_changed_certificate_is_used_for_new_connections(files: TlsFiles):
    async with Port(files, "permissive") as port:
        seen = [await asyncio.to_thread(ssl.get_server_certificate, (LOOPBACK, port.port))]
        files.write("server", files.authority.issue("other", [LOOPBACK]))
        await port.tls.renew()
        seen.append(await asyncio.to_thread(ssl.get_server_certificate, (LOOPBACK, port.port)))
    assert seen[0] != seen[1]
