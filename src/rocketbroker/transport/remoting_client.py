"""Connecting endpoint: one connection for each address, opened on first use (NettyRemotingClient)."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple
from weakref import WeakSet

from rocketbroker.codec.remoting.bound_signature import NONCE_CODE
from rocketbroker.codec.remoting.frame import FRAME_MAX_LENGTH, MAX_HEADER_LENGTH, encode_frame
from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, Command, request, to_ext_fields
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RemotingConnectError, RemotingError
from rocketbroker.transport.connection import RemotingConnection
from rocketbroker.transport.endpoint import Endpoint, EndpointHooks
from rocketbroker.transport.frame_writer import SharedWriter
from rocketbroker.transport.outgoing_requests import ANOTHER_LOOP, MAX_OPAQUE
from rocketbroker.transport.peer_limits import ConnectionLimits
from rocketbroker.transport.tls_transport import CurrentContext, open_connection

log = logging.getLogger(__name__)


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port``; an IPv6 host may have brackets.

    Raises:
        RemotingConnectError: The port is missing or out of range.
    """
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise RemotingConnectError(f"{address!r} is not an address; use host:port, such as 127.0.0.1:9876")
    return host.strip("[]"), int(port)


# Seconds after which a connection without an answer has proved useful, since one-way requests have none.
_USEFUL_S = 5.0
# Seconds before a connect after one useless connection, and at most; each further one doubles the pause.
_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 1.0


class _Dialled(NamedTuple):
    """Connection attempt: its address, and the time of its beginning."""

    address: str
    began: float


class _Useless(NamedTuple):
    """Connections to an address that were lost one after the other before they proved useful."""

    number: int
    next_at: float


_clients: WeakSet["RemotingClient"] = WeakSet()


def _mark_forked() -> None:
    for client in _clients:
        client.is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)


class RemotingClient:
    """Send requests to addresses and serve the requests that arrive over the same connections.

    Args:
        routes: handlers of requests from servers, such as NOTIFY_CONSUMER_IDS_CHANGED.
        connect_timeout_s: limit of a connection attempt, in seconds.
        frame_max_length: limit of a frame's length field, in bytes.
        on_close: called when a connection is closed or lost, with True if it had proved useful.
        before_request: called with each request before it is sent, for example to sign it (RPCHook).
        bind: returns what is called instead on a connection whose server gave it this nonce.
        tls: returns the settings of TLS for the next connection; None for plain ones.

    Attributes:
        is_forked: this process was forked from the one that has the connections.
    """

    def __init__(
        self,
        routes: dict[int, Route] | None = None,
        *,
        connect_timeout_s: float = 3.0,
        frame_max_length: int = FRAME_MAX_LENGTH,
        on_close: Callable[[Connection, bool], None] | None = None,
        before_request: Callable[[Command], None] | None = None,
        bind: Callable[[str], Callable[[Command], None]] | None = None,
        tls: CurrentContext | None = None,
    ) -> None:
        self.is_forked = False
        _clients.add(self)
        self._connect_timeout_s = connect_timeout_s
        #: Settings of TLS of the next connection; ``None`` for plain text.
        self.tls = tls
        # An answer to a batch holds the ids of all its messages in the header.
        limits = ConnectionLimits(
            frame_max_length, max_header_length=MAX_HEADER_LENGTH, max_request_body_size=frame_max_length
        )
        hooks = EndpointHooks(on_close=self._closed, before_request=before_request)
        self._endpoint = Endpoint("client", routes or {}, limits, hooks, throttles=False)
        self._on_close = on_close
        self._bind = bind
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_watching = False
        self._is_closed = False
        self._connections: dict[str, RemotingConnection] = {}
        self._writers: dict[str, SharedWriter] = {}
        # Connection attempts under way; all who need an address wait for the same one, each within its own limit.
        self._attempts: dict[str, asyncio.Task[RemotingConnection | RemotingConnectError]] = {}
        self._dialled: dict[Connection, _Dialled] = {}
        # A balancer without a backend, or a broker at its limit, takes connections and drops them. The pause before the
        # next one ends only with a connection that has proved useful: each loss wakes those who connect again.
        self._useless: dict[str, _Useless] = {}
        self._on_loss: dict[str, Callable[[], None]] = {}

    async def connect(self, address: str, timeout_s: float | None = None) -> RemotingConnection:
        """Return the connection to an address; open one if needed.

        Raises:
            RemotingConnectError: The address does not accept connections, or not in time; or this client is closed, or
                belongs to another process or event loop.
        """
        if self.is_forked:
            raise RemotingConnectError(
                f"connect to {address} failed: the connections belong to the process that this one was forked from; "
                "make a client after the fork"
            )
        self._check_open(address)
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        self._check_loop(address)
        attempt = self._attempts.get(address)
        if attempt is None:
            attempt = self._attempts[address] = self._endpoint.tasks.start(self._attempt(address), f"connect {address}")
        done, _ = await asyncio.wait([attempt], timeout=timeout_s)
        if not done:
            raise RemotingConnectError(f"connect to {address} failed: no answer within {timeout_s or 0.0:.3g} s")
        if attempt.cancelled():
            raise _closed_error(address)
        result = attempt.result()
        if isinstance(result, RemotingConnectError):
            # Each waiter raises an error of its own: a traceback belongs to one.
            raise RemotingConnectError(str(result)) from result.__cause__
        return result

    async def _attempt(self, address: str) -> RemotingConnection | RemotingConnectError:
        """Open the connection to an address; return the error, which has any number of readers, none included."""
        try:
            useless = self._useless.get(address)
            if useless is not None:
                await asyncio.sleep(useless.next_at - asyncio.get_running_loop().time())
            connection = await self._open(address)
        except RemotingConnectError as error:
            return error
        finally:
            del self._attempts[address]
        self._connections[address] = connection
        return connection

    def on_loss(self, address: str, call: Callable[[], None] | None) -> None:
        """Call a function whenever a connection to an address is closed or lost; None for no function."""
        if call is None:
            self._on_loss.pop(address, None)
        else:
            self._on_loss[address] = call

    def is_connected(self, address: str) -> bool:
        """Return true if the connection to an address is open."""
        connection = self._connections.get(address)
        return connection is not None and connection.is_open

    def _check_open(self, address: str) -> None:
        if self._is_closed:
            raise _closed_error(address)

    def _check_loop(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RemotingConnectError(f"connect to {address} failed: {ANOTHER_LOOP}")

    async def _open(self, address: str) -> RemotingConnection:
        host, port = split_address(address)
        self._check_open(address)
        if not self._is_watching:
            self._is_watching = True
            self._endpoint.watch()
        loop = asyncio.get_running_loop()
        writer = SharedWriter(loop)
        connection = RemotingConnection(self._endpoint, writer)
        self._dialled[connection] = _Dialled(address, loop.time())
        made = False
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await open_connection(connection, host, port, self.tls)
                if self._bind is not None:
                    await self._bind_to(connection, self._bind)
            made = True
        except TimeoutError as error:
            text = f"connect to {address} failed: no answer within {self._connect_timeout_s:g} s"
            raise RemotingConnectError(text) from error
        except RemotingError as error:
            raise RemotingConnectError(f"connect to {address} failed: {error}") from error
        except OSError as error:
            raise RemotingConnectError(f"connect to {address} failed: {error.strerror or error}") from error
        except UnicodeError as error:
            # An empty host label, or one over 63 bytes, fails before any DNS query.
            raise RemotingConnectError(f"connect to {address} failed: {host!r} is not a host name ({error})") from error
        finally:
            if not made:
                self._dialled.pop(connection, None)
                connection.close("it could not be used")
        if self._is_closed:
            connection.close("the client stops")
        self._check_open(address)
        self._writers[address] = writer
        return connection

    async def _bind_to(self, connection: RemotingConnection, bind: Callable[[str], Callable[[Command], None]]) -> None:
        """Bind the signatures of a connection to it, if its server can do that."""
        answer = await connection.invoke(request(NONCE_CODE), self._connect_timeout_s)
        nonce = (to_ext_fields(answer.header) or {}).get("nonce", "")
        if answer.code == ResponseCode.SUCCESS and nonce:
            connection.before_request = bind(nonce)
        else:
            # A server that demands more refuses what follows.
            log.info("%s does not bind signatures to connections: %s", connection.remote_address, answer.remark)

    def _closed(self, connection: Connection) -> None:
        """Note the end of a connection; one without a use lengthens the pause before the next one to its address."""
        dialled = self._dialled.pop(connection, None)
        proved = isinstance(connection, RemotingConnection) and connection.was_answered
        if dialled is not None:
            now = asyncio.get_running_loop().time()
            proved = proved or now - dialled.began >= _USEFUL_S
            known = self._useless.pop(dialled.address, None)
            if not proved and not self._is_closed:
                number = known.number + 1 if known is not None else 1
                pause_s = min(_FIRST_PAUSE_S * 2 ** (number - 1), _LAST_PAUSE_S)
                self._useless[dialled.address] = _Useless(min(number, 10), now + pause_s)
            if dialled.address in self._on_loss:
                self._on_loss[dialled.address]()
        if self._on_close is not None:
            self._on_close(connection, proved)

    def send_from_thread(self, address: str, command: Command) -> bool:
        """Send a one-way request from another thread while the event loop is blocked.

        Return false if there is no open connection, or the peer is behind.
        """
        writer = self._writers.get(address)
        if writer is None:
            return False
        command.opaque = next(self._endpoint.opaque) & MAX_OPAQUE
        command.flag |= FLAG_ONEWAY
        connection = self._connections.get(address)
        if connection is not None and connection.before_request is not None:
            connection.before_request(command)
        return writer.write_from_thread(encode_frame(command))

    def invoke(self, address: str, command: Command, timeout_s: float = 3.0) -> Coroutine[Any, Any, Command]:
        """Send a request and wait for its answer.

        Raises:
            RemotingConnectError: The address does not accept connections.
            RemotingSendError: The connection was lost before the answer arrived.
            RemotingTimeoutError: No answer arrived in time.
        """
        connection = self._connections.get(address)
        if connection is None or self.is_forked or not connection.is_open:
            return self._connect_and_invoke(address, command, timeout_s)
        return connection.invoke(command, timeout_s)

    async def _connect_and_invoke(self, address: str, command: Command, timeout_s: float) -> Command:
        loop = asyncio.get_running_loop()
        began = loop.time()
        connection = await self.connect(address, timeout_s)
        return await connection.invoke(command, timeout_s - (loop.time() - began))

    async def invoke_oneway(self, address: str, command: Command, timeout_s: float | None = None) -> None:
        """Send a one-way request at once: the caller may block the event loop or exit.

        Raises:
            RemotingConnectError: The address does not accept connections, or not in time.
        """
        connection = await self.connect(address, timeout_s)
        connection.send_oneway(command)
        self._writers[address].flush()

    def close_address(self, address: str) -> None:
        """Close the connection to an address, if any."""
        writer = self._writers.pop(address, None)
        if writer is not None:
            writer.flush()
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close("no longer needed")
        self._useless.pop(address, None)

    async def stop(self) -> None:
        """Close all connections, give up those under way, and end all tasks; do nothing in a forked process."""
        if self.is_forked:
            return
        self._is_closed = True
        for writer in self._writers.values():
            writer.flush()
        self._writers.clear()
        self._connections.clear()
        await self._endpoint.stop("the client stops")


def _closed_error(address: str) -> RemotingConnectError:
    return RemotingConnectError(f"connect to {address} failed: the client is closed; make a new one")
