"""A TCP proxy on the loopback interface that holds bytes back, as a link does whose packets are lost.

TCP sends lost packets again. So a link that is cut holds its bytes until it is whole, and one that loses some packets
delays some of its bytes.
"""

import asyncio
import contextlib
import random
import socket
import threading
from types import TracebackType
from typing import Self

from tests.support.ports import LOOPBACK, free_ports

# Directions: with a connection, and against it.
FORWARD, BACK = "forward", "back"
_POLL_S = 0.01
_RETRANSMISSION_S = 0.2
_READ_SIZE = 1 << 16


class LinkProxy:
    """A port whose connections go to another port of this machine.

    Args:
        port: port to connect to.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._loss = {FORWARD: 0.0, BACK: 0.0}
        self._random = random.Random(port)
        self._pumps: set[asyncio.Task[None]] = set()
        self.port = free_ports()
        listening = socket.create_server((LOOPBACK, self.port))
        self._stopped = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=[self._run(listening)], name="link proxy"
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self._loop.close()

    def drop(self, direction: str, share: float) -> None:
        """Delay a share of the bytes of a direction; 1 holds all of them until ``heal``."""
        self._loss[direction] = share

    def heal(self) -> None:
        """Delay nothing any more."""
        self._loss = {FORWARD: 0.0, BACK: 0.0}

    async def _run(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._accept, sock=listening)
        await self._stopped.wait()
        server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_reader, to_writer = await asyncio.open_connection(LOOPBACK, self._target)
        except OSError:
            writer.close()
            return
        for pump in (self._pump(reader, to_writer, FORWARD), self._pump(to_reader, writer, BACK)):
            task = asyncio.create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(_READ_SIZE):
                    while (share := self._loss[direction]) >= 1:  # noqa: ASYNC110 - set by another thread
                        await asyncio.sleep(_POLL_S)
                    if self._random.random() < share:
                        await asyncio.sleep(_RETRANSMISSION_S)
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()
