"""One connection of a slave to the HA port of its master."""

import asyncio
from collections.abc import Sequence
from typing import Final, Self

from rocketbroker.codec.ha_frames import REPORT, LogPart, TransferReader
from rocketbroker.common.errors import RemotingConnectError, RemotingSendError, RemotingTimeoutError
from rocketbroker.transport.remoting_client import split_address

_CONNECT_TIMEOUT_S: Final = 3.0
# Bytes kept before they are read, half of the most: more stay in the socket.
_BUFFERED: Final = 1 << 20


class MasterLink:
    """An open connection; ``connect`` makes one.

    Args:
        reader: bytes from the master.
        writer: reports to the master.
        silence_s: time without bytes after which the master counts as dead.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._silence_s = silence_s
        self._transfers = TransferReader()

    @classmethod
    async def connect(cls, address: str, silence_s: float) -> Self:
        """Connect to ``host:port``.

        Raises:
            RemotingConnectError: The address does not accept connections.
        """
        host, port = split_address(address)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                streams = await asyncio.open_connection(host, port, limit=_BUFFERED)
        except TimeoutError:
            raise RemotingConnectError(f"{address} does not answer within {_CONNECT_TIMEOUT_S:g} s") from None
        except (OSError, UnicodeError) as error:
            raise RemotingConnectError(f"connect to {address} failed: {error}") from error
        return cls(*streams, silence_s)

    def report(self, offset: int) -> None:
        """Report the end of the own log; the first report asks the master to begin there."""
        self._writer.write(REPORT.pack(offset))

    async def read(self, most: int) -> Sequence[LogPart]:
        """Return the next bytes of the master's log, ``most`` with their headers.

        Raises:
            RemotingSendError: The master has closed the connection.
            RemotingTimeoutError: The master is silent.
            CodecError: The bytes are not those of a master.
        """
        try:
            async with asyncio.timeout(self._silence_s):
                data = await self._reader.read(most)
        except TimeoutError:
            raise RemotingTimeoutError(f"the master is silent for {self._silence_s:g} s") from None
        except OSError as error:
            raise RemotingSendError(f"the connection to the master is lost: {error}") from error
        if not data:
            raise RemotingSendError("the master has closed the connection; its log says why")
        return self._transfers.feed(data)

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()
