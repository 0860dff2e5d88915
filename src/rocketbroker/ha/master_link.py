"""One connection of a slave to the HA port of its master."""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple, Self, cast

from rocketbroker.codec.ha_frames import REPORT, LogPart, TransferReader
from rocketbroker.common.errors import RemotingConnectError, RemotingSendError, RemotingTimeoutError
from rocketbroker.ha.ha_handshake import HANDSHAKE_S, HAAccess, HandshakeError, SlaveHandshake, no_answer
from rocketbroker.transport.remoting_client import split_address
from rocketbroker.transport.tls_transport import CurrentContext, open_connection

_CONNECT_TIMEOUT_S: Final = 3.0
_BUFFER: Final = 2 << 20
# Room that a read event needs, since one may follow the pause of reading.
_SPARE: Final = 64 << 10


class LinkSecurity(NamedTuple):
    """Protection of connections to a master.

    Attributes:
        tls: returns the settings of TLS for the next connection; ``None`` for plain text.
        access: what both ends prove; ``None`` to send reports at once, as Apache's slave does.
    """

    tls: CurrentContext | None = None
    access: HAAccess | None = None


UNPROTECTED: Final = LinkSecurity()


class MasterLink(asyncio.BufferedProtocol):
    """An open connection; ``connect`` makes one.

    The kernel fills one buffer while the bytes in the other are taken: what arrives meanwhile is taken together, and
    not copied before.

    Args:
        silence_s: time without bytes after which the master counts as dead.
    """

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._transfers = TransferReader()
        self._transport: asyncio.Transport | None = None
        self._filling, self._taken = memoryview(bytearray(_BUFFER)), memoryview(bytearray(_BUFFER))
        self._filled, self._limit = 0, _BUFFER - _SPARE
        self._is_paused = False
        self._arrived = asyncio.Event()
        # Reason why no more bytes come, empty while they do.
        self._lost = ""

    @classmethod
    async def connect(cls, address: str, silence_s: float, security: LinkSecurity = UNPROTECTED) -> Self:
        """Connect to ``host:port``, and shake hands.

        Raises:
            RemotingConnectError: The address does not accept connections.
            HandshakeError: The master does not prove that it knows the inner credentials, or rejects this slave.
        """
        host, port = split_address(address)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                link = cls(silence_s)
                await open_connection(link, host, port, security.tls)
        except TimeoutError:
            raise RemotingConnectError(f"{address} does not answer within {_CONNECT_TIMEOUT_S:g} s") from None
        except (OSError, UnicodeError) as error:
            raise RemotingConnectError(f"connect to {address} failed: {error}") from error
        if security.access is not None and security.access.is_required:
            try:
                await link._shake_hands(SlaveHandshake(security.access))
            except HandshakeError as error:
                link.close()
                raise HandshakeError(f"{address}: {error}") from None
            except BaseException:
                link.close()
                raise
        return link

    async def _shake_hands(self, handshake: SlaveHandshake) -> None:
        """Prove this slave to the master, and let it prove itself.

        Raises:
            HandshakeError: It does not.
        """
        self._write(handshake.introduction)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                while not handshake.is_over:
                    while not self._filled and not self._lost:
                        await self._arrived.wait()
                    if not self._filled:
                        raise HandshakeError(
                            "the master has ended the handshake; its log says why, such as other "
                            "innerClientAuthenticationCredentials"
                        )
                    data, self._filled = bytes(self._filling[: self._filled]), 0
                    self._arrived.clear()
                    answer, rest = handshake.feed(data)
                    self._write(answer)
                    self._filling[: len(rest)], self._filled = rest, len(rest)
        except TimeoutError:
            raise HandshakeError(no_answer(f"has not answered within {HANDSHAKE_S:g} s")) from None

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (asyncio)."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep the reason, and wake ``read`` (asyncio)."""
        self._transport = None
        closed = "the master has closed the connection; its log says why"
        self._lost = self._lost or (closed if exc is None else f"the connection to the master is lost: {exc}")
        self._arrived.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory to read into (asyncio)."""
        return self._filling[self._filled : max(self._limit, self._filled + _SPARE)]

    def buffer_updated(self, nbytes: int) -> None:
        """Count the bytes that were read, and pause at the limit (asyncio)."""
        self._filled += nbytes
        self._arrived.set()
        if self._filled > self._limit - _SPARE and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def report(self, offset: int) -> None:
        """Report the end of the own log; the first report asks the master to begin there."""
        self._write(REPORT.pack(offset))

    async def read(self, most: int) -> Sequence[LogPart]:
        """Return the bytes of the master's log that have arrived; the memory is valid until the next call.

        Args:
            most: bytes after which the next ones stay in the socket, until the next call.

        Raises:
            RemotingSendError: The master has closed the connection.
            RemotingTimeoutError: The master is silent.
            CodecError: The bytes are not those of a master.
        """
        if not self._filled:
            await self._wait()
        data, self._filled = self._filling[: self._filled], 0
        self._filling, self._taken = self._taken, self._filling
        self._limit = min(max(most, 2 * _SPARE), _BUFFER - _SPARE)
        self._arrived.clear()
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return self._transfers.feed(data)

    async def _wait(self) -> None:
        if not self._lost:
            try:
                async with asyncio.timeout(self._silence_s):
                    await self._arrived.wait()
            except TimeoutError:
                raise RemotingTimeoutError(f"the master is silent for {self._silence_s:g} s") from None
        if not self._filled:
            raise RemotingSendError(self._lost)

    def drop(self, reason: str) -> None:
        """Close the connection; ``read`` raises an error with the reason."""
        self._lost = reason
        self._arrived.set()
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()
