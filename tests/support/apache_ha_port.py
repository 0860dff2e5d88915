"""HA port of an Apache master, which sends heartbeats at an offset that its log does not have."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from rocketbroker.codec.ha_frames import REPORT, TRANSFER_HEADER
from tests.support.ports import LOOPBACK
from tests.support.stores import LOG_FILE


@asynccontextmanager
async def apache_ha_port(log: bytes, begin: int) -> AsyncIterator[str]:
    """Serve a log whose files before ``begin`` were removed; yield the address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (offset,) = REPORT.unpack(await reader.readexactly(REPORT.size))
        offset = offset or len(log) - len(log) % LOG_FILE
        data = log[offset:] if offset >= begin else b""
        writer.write(TRANSFER_HEADER.pack(offset, len(data)) + data)
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    try:
        yield f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
