"""The port of the 5.x SDKs: grpcio carries the calls, and the methods of a service answer them."""

import asyncio
import logging
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError, Message
from grpc import aio

from rocketbroker.auth.authorization import AccessRules
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.common.certificates import CertificateAuthority, RevocationListError, ServerCertificate
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import ConfigError, shown
from rocketbroker.common.event_log import RefusalLog
from rocketbroker.common.histogram import Histogram
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.proxy import messaging_pb2
from rocketbroker.proxy.call_context import CallContext, StatusError, call_context, status_of
from rocketbroker.proxy.call_guard import CallGrant, CallGuard
from rocketbroker.proxy.first_byte_relay import FirstByteRelay
from rocketbroker.proxy.messaging_pb2 import Code, Status, TelemetryCommand
from rocketbroker.proxy.messaging_service import MessagingService
from rocketbroker.proxy.telemetry_call import MAX_UNSENT, TelemetryCall
from rocketbroker.transport.peer_limits import DEFAULT_LIMITS, ConnectionLimits
from rocketbroker.transport.remoting_server import ALL_ADDRESSES

log = logging.getLogger(__name__)

#: Name of the service on the wire; the package of messaging.proto is another.
SERVICE = "apache.rocketmq.v2.MessagingService"
#: Bounds of the times of calls, in seconds; receives wait for messages.
CALL_BOUNDS_S = (0.001, 0.003, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0)
_CHECK_S = 10.0
_FIRST_BYTE_S = 20.0
_LONGEST_SOCKET_PATH = 90  # the system's limit is about 104 bytes
# Replies to a receive that are no refusal.
_NO_REFUSALS = frozenset({Code.OK, Code.MESSAGE_NOT_FOUND})
_OK = Code.OK
# Calls beyond the limit whose requests are read before they are refused, and the time for that.
_MOST_REFUSED = 1024
_MOST_PENDING = 10_000  # each takes about 13 KiB
_REFUSED_S = 5.0
_RELOAD_RETRY_S = 5.0
_NO_COMPRESSION = 1  # the bit of "identity"
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")

# Reply of a unary method, or all replies of ReceiveMessage; what must wait is awaitable.
Reply = Message | list[Message]
Handler = Callable[[Any, CallContext], Reply | Awaitable[Reply]]
Call = aio.ServicerContext[bytes, bytes]
# A method to grpcio: an iterator of requests, which nobody uses, and the call.
Behaviour = Callable[[AsyncIterator[bytes], Call], Awaitable[Any]]


class Method(NamedTuple):
    """A method with one request.

    Attributes:
        request: type of the request.
        refusal: type of the reply, which has a status.
        handler: method of the service.
        is_stream: there may be several replies.
    """

    request: type[Message]
    refusal: Callable[..., Message]
    handler: Handler
    is_stream: bool


def methods_of(service: MessagingService) -> dict[str, Method]:
    """Return the methods of the service by their names on the wire, except for Telemetry."""
    found = {}
    for each in messaging_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods:
        handler = getattr(service, _CAPITAL.sub("_", each.name).lower(), None)
        if handler is not None and not each.client_streaming:
            request, reply = (getattr(messaging_pb2, kind.name) for kind in (each.input_type, each.output_type))
            found[each.name] = Method(request, reply, handler, each.server_streaming)
    return found


class GrpcLimits(NamedTuple):
    """Limits on what clients may cost.

    Attributes:
        max_message_size: bytes of a request (grpcMaxInboundMessageSize).
        max_calls: calls that a connection may have at a time (grpcMaxConcurrentCallsPerConnection).
        max_open_calls: calls and streams of all connections (grpcMaxOpenCalls).
        max_idle_s: seconds without a call after which a connection is closed, and a client without a stream is
            forgotten (grpcClientIdleTimeMills).
        max_unsent_bytes: replies of ReceiveMessage that clients have not taken; above it, no more are begun.
        max_stop_s: seconds that a stop waits for calls to end (grpcShutdownTimeSeconds).
        connections: limits on connections and incomplete requests of a port with TLS.
    """

    max_message_size: int = 130 << 20
    max_calls: int = 2**31 - 1
    max_open_calls: int = 50_000
    max_idle_s: float = 120.0
    max_unsent_bytes: int = 512 << 20
    max_stop_s: float = 30.0
    connections: ConnectionLimits = DEFAULT_LIMITS

    def options(self) -> list[tuple[str, Any]]:
        """Return the options of grpcio."""
        return [
            ("grpc.so_reuseport", 0),  # two servers on one port must not share its clients
            ("grpc.max_receive_message_length", self.max_message_size),
            ("grpc.max_concurrent_streams", self.max_calls),
            # A request that grpcio unpacks looks larger than the bytes that came in for it (`_read`): by tiny ones a
            # connection would hide what it holds. No SDK compresses whole requests.
            ("grpc.compression_enabled_algorithms_bitset", _NO_COMPRESSION),
            # By default grpcio cancels calls at random beyond 1,000 pending.
            ("grpc.server.max_pending_requests", _MOST_PENDING),
            ("grpc.server.max_pending_requests_hard_limit", _MOST_PENDING),
            ("grpc.max_connection_idle_ms", round(self.max_idle_s * 1000)),
            ("grpc.server_handshake_timeout_ms", round(_FIRST_BYTE_S * 1000)),
            # A connection whose client is gone, or has stopped to read, is found by pings.
            ("grpc.keepalive_time_ms", 60_000),
            ("grpc.keepalive_timeout_ms", 60_000),  # a slow link has sent much before it sends the ping
            ("grpc.http2.max_pings_without_data", 0),
            # Java pings every 300 s without calls, the least that grpcio allows: a moment early would end all calls.
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_ping_strikes", 0),
        ]


class Tls(NamedTuple):
    """TLS of a port.

    Attributes:
        certificate: what clients see.
        plain: serve plain text as well.
        reload: returns the certificate as it is now, on any thread; connections begun later get a new one.
        reload_s: seconds between two calls of it; fewer after one that failed.
    """

    certificate: ServerCertificate
    plain: bool = True
    reload: Callable[[], ServerCertificate] | None = None
    reload_s: float = 3600.0


def _in_grpc(certificate: ServerCertificate) -> grpc.ServerCertificateConfiguration:
    pair = (certificate.key, certificate.chain)
    return grpc.ssl_server_certificate_configuration([pair], certificate.client_issuers or None)


class GrpcServer:
    """Accept connections, plain or encrypted, and answer their calls by the methods of a service.

    Args:
        service: answers the calls.
        host: address to bind; empty for all addresses.
        port: port to bind; 0 picks a free one, which ``port`` then holds.
        tls: for clients that use TLS; without it the port has plain text alone.
        limits: limits on clients.
        guard: check of calls; without it, all are served.
    """

    def __init__(
        self,
        service: MessagingService,
        *,
        host: str = "",
        port: int = 0,
        tls: Tls | None = None,
        limits: GrpcLimits | None = None,
        guard: CallGuard | None = None,
    ) -> None:
        self._guard = guard
        self.host, self.port = host, port
        self._tls = tls
        # What handshakes are to get, written by the event loop, and what grpcio has, written by its thread alone.
        self._certificate = None if tls is None else tls.certificate
        self._fetched = self._certificate
        self._certificate_error = ""
        self._limits = limits or GrpcLimits()
        self._service = service
        self._tasks = TaskOwner("GrpcServer")
        self._server: aio.Server | None = None
        self._relay: FirstByteRelay | None = None
        self._folder: Path | None = None
        self.open_calls = 0
        # Times of calls for metrics, by method and code of the reply; None while nobody asks for them.
        self.calls: dict[tuple[str, str], Histogram] | None = None
        self._unsent_bytes = 0
        # Open streams of clients, those that are to be checked by new policies, and true while that is done.
        self._streams: set[TelemetryCall] = set()
        self._unchecked: set[TelemetryCall] = set()
        self._is_checking = False
        self._refusals: defaultdict[str, RefusalLog] = defaultdict(partial(RefusalLog, log))

    async def start(self) -> None:
        """Bind the port and accept connections.

        Raises:
            ConfigError: The address cannot be bound; the text names the address and the cause.
        """
        handlers: dict[str, Any] = {
            name: grpc.stream_stream_rpc_method_handler(self._count(self._stream(name, method)))
            if method.is_stream
            else grpc.stream_unary_rpc_method_handler(self._count(self._unary(name, method)))
            for name, method in methods_of(self._service).items()
        }
        handlers["Telemetry"] = grpc.stream_stream_rpc_method_handler(self._count(self._telemetry))
        other: Any = grpc.stream_stream_rpc_method_handler(self._count(self._unimplemented))
        self._server = aio.server(
            options=self._limits.options(),
            maximum_concurrent_rpcs=self._limits.max_open_calls + _MOST_REFUSED,
            compression=grpc.Compression.NoCompression,
        )
        self._server.add_generic_rpc_handlers((_Handlers(handlers, other),))
        try:
            if self._tls is not None:
                await self._start_relayed(self._server, self._tls)
            else:
                # Plain text alone needs no relay, so it has none of the relay's limits.
                self._bind(self._server)
                await self._server.start()
        except BaseException:
            await self.stop()
            raise
        kinds = "plain text" if self._tls is None else "TLS and plain text" if self._tls.plain else "TLS"
        log.info("gRPC port: listening on %s for %s", join_address(self.host or ALL_ADDRESSES, self.port), kinds)
        self._tasks.every(min(_CHECK_S, self._limits.max_idle_s), self._forget_silent, "forget_silent")
        if self._guard is not None:
            self._guard.on_change(self._rules_changed)
        if self._tls is not None and self._tls.reload is not None:
            renew = partial(self._renew_certificate, self._tls.reload, self._tls.reload_s)
            self._tasks.whenever(renew, self._tls.reload_s, "renew_certificate")

    def _bind(self, server: aio.Server) -> None:
        address = join_address(self.host or ALL_ADDRESSES, self.port)
        try:
            self.port = server.add_insecure_port(address)
        except RuntimeError as error:
            # The cause is in the log that grpcio writes to the standard error stream, not in its error.
            text = f"cannot listen on {address}: in use, or no address of this host; choose another grpcServerPort"
            raise ConfigError(text) from error

    async def _start_relayed(self, server: aio.Server, tls: Tls) -> None:
        self._folder = folder = Path(tempfile.mkdtemp(prefix="mq-grpc-"))
        if len(str(folder)) > _LONGEST_SOCKET_PATH:
            raise ConfigError(f"{folder} is too long for the address of a socket; set TMPDIR to a shorter folder")
        plain, tls_socket = folder / "plain" if tls.plain else None, folder / "tls"
        if plain is not None:
            server.add_insecure_port(f"unix:{plain}")
        server.add_secure_port(f"unix:{tls_socket}", self._credentials(tls))
        await server.start()
        relay = FirstByteRelay(self.host, self.port, folder, plain, tls_socket, _FIRST_BYTE_S, self._limits.connections)
        self._relay = relay
        await relay.start()
        self.port = relay.port

    async def stop(self) -> None:
        """Stop accepting, end open calls, and close all connections, in a limited time."""
        if self._relay is not None:
            await self._relay.stop_accepting()
        if self._server is not None:
            server, self._server = self._server, None
            log.info("gRPC port: stopping; open calls end")
            try:
                await asyncio.wait_for(server.stop(None), self._limits.max_stop_s)
            except TimeoutError:
                log.warning(
                    "gRPC port: calls did not end within %g s (grpcShutdownTimeSeconds)", self._limits.max_stop_s
                )
        await self._tasks.stop()
        if self._relay is not None:
            await self._relay.stop()
            self._relay = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _credentials(self, tls: Tls) -> grpc.ServerCredentials:
        self._fetched = certificate = self._certificate or tls.certificate
        fetch: Any = self._fetch_certificate  # None means that nothing is new, which its type leaves out
        demands = bool(certificate.client_issuers)
        return grpc.dynamic_ssl_server_credentials(_in_grpc(certificate), fetch, demands)

    def _fetch_certificate(self) -> grpc.ServerCertificateConfiguration | None:
        """Return a certificate that grpcio does not have; it asks before each handshake, on a thread of its own."""
        found = self._certificate
        if found is None or found is self._fetched:
            return None
        self._fetched = found
        return _in_grpc(found)

    async def _renew_certificate(self, reload: Callable[[], ServerCertificate], reload_s: float) -> float:
        """Take the certificate of the files if they have another one; return the seconds until the next look."""
        try:
            # Not on the event loop: a disk may be slow, and an encrypted key takes long to open.
            found = await asyncio.get_running_loop().run_in_executor(None, reload)
        except ConfigError as error:
            if self._certificate_error != str(error):
                self._certificate_error = str(error)
                if isinstance(error, RevocationListError):
                    self._reject_tls()
                    log.warning("gRPC port: new TLS connections are rejected, and the next start fails: %s", error)
                else:
                    log.warning("gRPC port: the certificate stays as it is: %s", error)
            # Whoever replaces two files has one of them there first.
            return min(_RELOAD_RETRY_S, reload_s)
        self._certificate_error = ""
        if found != self._certificate:
            self._certificate = found
            log.info("gRPC port: the certificate has been replaced (tlsCertPath)")
        return reload_s

    def _reject_tls(self) -> None:
        """Admit no certificate of a client from the next handshake on.

        The operator has revoked some, and grpcio cannot tell which. It cannot be told to refuse all either: they must
        have an issuer that nobody has, as its key is gone.
        """
        if self._certificate is not None:
            nobody = CertificateAuthority(SystemClock()).chain
            self._certificate = self._certificate._replace(client_issuers=nobody)

    def _forget_silent(self) -> None:
        self._service.forget_silent(asyncio.get_running_loop().time() - self._limits.max_idle_s)

    @property
    def failed_handshakes(self) -> int | None:
        """Number of connections that ended before they were served, ``None`` without TLS."""
        return None if self._relay is None else self._relay.failed_handshakes

    @property
    def rejected_connections(self) -> Mapping[str, int]:
        """Number of rejected connections by cause; none without TLS."""
        return {} if self._relay is None else self._relay.rejected_connections

    # -- calls

    # grpcio would read the one request of a unary call itself, count calls, and refuse those that are too many or for
    # no method. But it tells nobody whose call it refuses, and the bytes of its request would count as held for as long
    # as the connection lives: a client that often gets such a refusal would look like one that never completes a
    # request. So each call is a stream to grpcio, and the first thing that happens to it is here.

    def _count(self, behave: Behaviour) -> Behaviour:
        """Return a behaviour of calls that are counted from their headers to their end; those beyond the limit fail."""

        async def counted(requests: AsyncIterator[bytes], call: Call) -> Any:
            is_refused = self.open_calls >= self._limits.max_open_calls
            self.open_calls += 1
            try:
                if is_refused:
                    await self._refuse(call)
                return await behave(requests, call)
            finally:
                self.open_calls -= 1

        return counted

    async def _refuse(self, call: Call) -> None:
        await self._read_and_drop(call)
        most = self._limits.max_open_calls
        calls = "open call" if most == 1 else "open calls"
        text = f"the limit of {most:,} {calls} (grpcMaxOpenCalls) is reached; try again later"
        self._refusals["calls"].add(f"gRPC port: a call of {self._peer(call)[1]}: RESOURCE_EXHAUSTED: {text}")
        await call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    async def _unimplemented(self, _requests: AsyncIterator[bytes], call: Call) -> None:
        await self._read_and_drop(call)
        await call.abort(grpc.StatusCode.UNIMPLEMENTED, "this server does not have the method")

    async def _read_and_drop(self, call: Call) -> None:
        """Read the request of a call that is to fail, which is then known to be held no more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_REFUSED_S):
                await self._read(call)

    async def _read(self, call: Call, *, is_first: bool = True) -> bytes | None:
        """Return a request of a call, or None if there is no further one; it is held no longer."""
        data: Any = await call.read()
        if data is aio.EOF:
            return None
        path, _ = self._peer(call)
        if path and self._relay is not None:
            metadata = (call.invocation_metadata() or ()) if is_first else ()
            self._relay.handled(path, len(data) + sum(len(name) + len(value) for name, value in metadata))
        return cast("bytes", data)

    async def _read_first(self, name: str, call: Call) -> bytes | None:
        """Return the first request of a call as ``_read`` does; fail a call that does not complete it in time.

        Until then nothing is known of the call but its headers, and it takes one of grpcMaxOpenCalls.
        """
        longest_s = self._limits.connections.frame_timeout_s
        try:
            async with asyncio.timeout(longest_s):
                return await self._read(call)
        except TimeoutError:
            code, text = grpc.StatusCode.DEADLINE_EXCEEDED, f"the request was not complete within {longest_s:g} s"
            self._refusals[name].add(f"gRPC port: {name} of {self._peer(call)[1]}: {code.name}: {text}")
            await call.abort(code, text)

    async def _read_request(self, name: str, call: Call) -> bytes:
        """Return the request of a call that has one."""
        data = await self._read_first(name, call)
        if data is None:
            await call.abort(grpc.StatusCode.INTERNAL, "the call ended without a request")
        return data

    def _context(self, call: Call) -> CallContext:
        left = cast("float | None", call.time_remaining())
        deadline = None if left is None else asyncio.get_running_loop().time() + left
        path, peer = self._peer(call)
        if path and path == peer:
            # grpcio cancels the calls of a connection that is lost, but it may have begun one just before.
            raise asyncio.CancelledError
        return call_context(dict(call.invocation_metadata() or ()), peer, deadline)

    def _peer(self, call: Call) -> tuple[str, str]:
        """Return the path that a connection is relayed from, if it is, and ``ip:port`` of its client, else the path.

        grpcio has either as ``unix:path`` or ``ipv4:ip:port``.
        """
        kind, _, address = call.peer().partition(":")
        if kind == "unix" and self._relay is not None:
            return address, self._relay.client_of(address)
        return "", unquote(address)

    def _refused(self, name: str, call: Call, status: Status) -> None:
        """Log a refusal, a line in a while for each method: clients determine their number.

        Those of access control have a line already, from the moment of the decision: their answers may wait.
        """
        client_id = dict(call.invocation_metadata() or ()).get("x-mq-client-id", "a client without an id")
        code = f"{Code.Name(status.code)} ({status.code})"
        text = f"gRPC port: {name} of {shown(str(client_id))} at {self._peer(call)[1]}: {code}: {status.message}"
        self._refusals[name].add(text)

    def _called(self, name: str, code: int, began: float) -> None:
        """Count a call, from its request to its reply."""
        if self.calls is not None:
            key = name, Code.Name(code).lower() if code in Code.values() else str(code)
            times = self.calls.get(key)
            if times is None:
                times = self.calls[key] = Histogram(CALL_BOUNDS_S)
            times.add(asyncio.get_running_loop().time() - began)

    def _unary(self, name: str, method: Method) -> Behaviour:
        """Return the behaviour of a method with one reply.

        Bytes in and out: grpcio answers and logs a request that cannot be decoded as an error of the server.
        """

        async def answer(_requests: AsyncIterator[bytes], call: Call) -> bytes:
            data = await self._read_request(name, call)
            began = asyncio.get_running_loop().time()
            is_logged = False
            try:
                request, context = method.request.FromString(data), self._context(call)
                if self._guard is not None:
                    metadata = dict(call.invocation_metadata() or ())
                    user = self._guard.check(metadata, request, context.peer)
                    if isinstance(user, asyncio.Future):
                        del data, request
                        await user
                    context.user = user
                    context.refusal = partial(self._guard.refusal, metadata, peer=context.peer)
                reply: Any = method.handler(request, context)
                if not isinstance(reply, Message):
                    reply = await reply
            except DecodeError as error:
                await call.abort(grpc.StatusCode.INTERNAL, f"the request is no {method.request.__name__}: {error}")
            except Exception as error:  # noqa: BLE001 - answered, and logged by status_of unless it is a refusal
                began += getattr(error, "delay_s", 0.0)
                is_logged = getattr(error, "is_logged", False)
                reply = method.refusal(status=status_of(error))
            self._called(name, reply.status.code, began)
            if reply.status.code != _OK and not is_logged:
                entries = getattr(reply, "entries", ())
                refused = next((each.status for each in entries if each.status.code != _OK), reply.status)
                self._refused(name, call, refused)
            result: bytes = reply.SerializeToString()
            return result

        return answer

    def _stream(self, name: str, method: Method) -> Behaviour:
        """Return the behaviour of ReceiveMessage."""

        async def answer(_requests: AsyncIterator[bytes], call: Call) -> None:
            replies: Sequence[Any]
            request: Any = None
            grant: CallGrant | None = None
            is_logged = False
            data = await self._read_request(name, call)
            began = asyncio.get_running_loop().time()
            try:
                context = self._context(call)
                self._check_unsent()
                request = method.request.FromString(data)
                if self._guard is not None:
                    metadata = dict(call.invocation_metadata() or ())
                    user = self._guard.check(metadata, request, context.peer)
                    if isinstance(user, asyncio.Future):
                        data, request = b"", None
                        await user
                    context.user = user
                    grant = context.grant = CallGrant(self._guard, metadata, request, context.peer)
                reply: Any = method.handler(request, context)
                replies = reply if isinstance(reply, list) else await reply
                if grant is not None and (refusal := grant.refusal()) is not None:
                    # The user lost the right while the call waited: others of the group get what it popped.
                    self._service.not_taken(request, replies, context)
                    raise refusal  # noqa: TRY301 - as any other refusal
            except DecodeError as error:
                await call.abort(grpc.StatusCode.INTERNAL, f"the request is no {method.request.__name__}: {error}")
            except Exception as error:  # noqa: BLE001 - as above
                began += getattr(error, "delay_s", 0.0)
                is_logged = getattr(error, "is_logged", False)
                replies = [method.refusal(status=status_of(error))]
            self._called(name, replies[0].status.code, began)
            if replies[0].status.code not in _NO_REFUSALS and not is_logged:
                self._refused(name, call, replies[0].status)
            size, written = sum(each.ByteSize() for each in replies), 0
            self._unsent_bytes += size
            path, _ = self._peer(call)
            if path and self._relay is not None:
                self._relay.replied(path, size)
            try:
                for each in replies:
                    await call.write(each.SerializeToString())
                    written += 1
            finally:
                self._unsent_bytes -= size
                if request is not None and written < len(replies):
                    # The client has gone: others of its group need not wait for the invisible time.
                    self._service.not_taken(request, replies[written:], context)

        return answer

    def _check_unsent(self) -> None:
        if self._unsent_bytes >= self._limits.max_unsent_bytes:
            text = f"clients have not taken {self._unsent_bytes:,} bytes of messages; receive again later"
            raise StatusError(Code.TOO_MANY_REQUESTS, text)

    async def _telemetry(self, _requests: AsyncIterator[bytes], call: Call) -> None:
        # Before the call can be refused, or what it sent would count as held.
        unread = [await self._read_first("Telemetry", call)]
        try:
            context = self._context(call)
        except StatusError as error:  # the one refusal in the body of this method
            status = status_of(error)
            self._refused("Telemetry", call, status)
            await call.write(TelemetryCommand(status=status).SerializeToString())
            return
        stream = TelemetryCall(call, self._tasks, context)
        self._streams.add(stream)
        try:
            failed = await self._handle_commands(unread, call, context, stream)
        finally:
            self._streams.discard(stream)
            stream.is_open = False
            self._service.telemetry_closed(context, stream)
        # grpcio cannot end a stream amid a write. A client that never reads keeps this, and no more commands.
        await stream.sent()
        if stream.is_lost:
            # grpcio would send headers again with the status, and log that it cannot.
            raise asyncio.CancelledError
        if failed is not None:
            code, text = failed
            self._refusals["Telemetry"].add(
                f"gRPC port: Telemetry of {shown(context.client_id)} at {context.peer}: {code.name}: {text}"
            )
            await call.abort(code, text)

    def _rules_changed(self, _rules: AccessRules) -> None:
        # A check under way meets the newest rules at each stream that it has not seen.
        if self._streams and self._server is not None:
            self._unchecked = set(self._streams)
            if not self._is_checking:
                self._is_checking = True
                self._tasks.start(self._check_streams(), "check_streams")

    async def _check_streams(self) -> None:
        """End the streams of clients that may not have them by the new policies."""
        assert self._guard is not None
        try:
            while self._unchecked:
                stream = self._unchecked.pop()
                call, context = stream.call, stream.context
                if stream.is_open:
                    refusal = self._guard.refusal(dict(call.invocation_metadata() or ()), stream.settings, context.peer)
                    if refusal is not None:
                        status = status_of(refusal)
                        if not refusal.is_logged:
                            self._refused("Telemetry", call, status)
                        self._service.telemetry_refused(context, stream)
                        stream.end(TelemetryCommand(status=status))
                # Streams may be tens of thousands.
                await asyncio.sleep(0)
        finally:
            self._is_checking = False

    async def _handle_commands(
        self, unread: list[bytes | None], call: Call, context: CallContext, stream: TelemetryCall
    ) -> tuple[grpc.StatusCode, str] | None:
        """Handle the commands of a client one after the other; return what fails the stream, or None at its end.

        ``unread`` has the first one, and is emptied: nothing of a command stays while the next one is awaited.
        """
        try:
            while (data := unread.pop()) is not None:
                command = TelemetryCommand.FromString(data)
                if self._guard is not None:
                    try:
                        user = self._guard.check(dict(call.invocation_metadata() or ()), command, context.peer)
                        if isinstance(user, asyncio.Future):
                            del data, command
                            await user
                        context.user = user
                    except StatusError as error:
                        status = status_of(error)
                        if not error.is_logged:
                            self._refused("Telemetry", call, status)
                        stream.send(TelemetryCommand(status=status))
                        return None
                    if command.HasField("settings"):
                        stream.settings = command
                await self._service.telemetry(command, context, stream)
                del data, command
                unread.append(await self._read(call, is_first=False))
        except asyncio.CancelledError:
            if stream.is_refused:
                return None
            if not stream.is_overfull:
                raise
            return grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {MAX_UNSENT:,} bytes of commands were not read"
        except DecodeError as error:
            return grpc.StatusCode.INTERNAL, f"the command is no TelemetryCommand: {error}"
        except StatusError as error:
            return grpc.StatusCode.INVALID_ARGUMENT, str(error)
        except Exception as error:  # noqa: BLE001 - answered, and logged by status_of
            status = status_of(error)
            is_clients = Code.BAD_REQUEST <= status.code < Code.INTERNAL_ERROR
            return grpc.StatusCode.INVALID_ARGUMENT if is_clients else grpc.StatusCode.INTERNAL, status.message
        return None


class _Handlers(grpc.GenericRpcHandler):
    """Methods of the service by their paths, and what answers all other paths."""

    def __init__(self, handlers: dict[str, Any], other: Any) -> None:
        self._handlers = {f"/{SERVICE}/{name}": handler for name, handler in handlers.items()}
        self._other = other

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a call."""
        return self._handlers.get(handler_call_details.method, self._other)
