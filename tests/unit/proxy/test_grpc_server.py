"""The port, by gRPC's own client: both transports, methods, limits, cancelled calls, and the end."""

import asyncio
import gzip
import queue
import re
import secrets
import socket
import ssl
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Never

import grpc
import pytest
import uvloop
from google.protobuf.message import Message

from rocketbroker.auth.access_copy import AccessCopy
from rocketbroker.auth.request_guard import Checks, RequestGuard
from rocketbroker.auth.request_rights import RequestRights
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.common import event_log
from rocketbroker.common.certificates import (
    ServerCertificate,
    load_certificate,
    load_issuers,
    self_signed_certificate,
)
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import BrokerResponseError, ConfigError
from rocketbroker.proxy import messaging_pb2 as pb
from rocketbroker.proxy import relayed_handshake
from rocketbroker.proxy.call_context import OK, CallContext, StatusError
from rocketbroker.proxy.call_guard import CallGuard
from rocketbroker.proxy.grpc_server import SERVICE, GrpcLimits, GrpcServer, Tls, methods_of
from rocketbroker.proxy.messaging_service import MessagingService
from rocketbroker.transport.peer_limits import ConnectionLimits
from tests.support.fakes import FakeClock
from tests.support.grpc_calls import METADATA, method
from tests.support.http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    begun_call,
    frame,
    frames,
    headers_of,
)
from tests.support.proxy_brokers import FakeBrokers
from tests.support.tls_files import TlsFiles
from tests.support.waiting import turns

MAX_BODY_SIZE = ProxyConfig().max_message_size
CERTIFICATE, OTHER_CERTIFICATE = (self_signed_certificate(SystemClock()) for _ in range(2))
LARGE = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Service(MessagingService):
    """The service with further methods, one for each way to reply."""

    def __init__(self, brokers: FakeBrokers) -> None:
        super().__init__(brokers, pb.Endpoints())
        self.contexts: list[CallContext] = []
        self.polls: list[asyncio.Future[list[pb.ReceiveMessageResponse]]] = []
        self.poll_ended: queue.Queue[bool] = queue.Queue()

    def send_message(  # type: ignore[override]  # a reply at hand
        self, request: pb.SendMessageRequest, context: CallContext
    ) -> pb.SendMessageResponse:
        self.contexts.append(context)
        body = request.messages[0].body
        if len(body) > MAX_BODY_SIZE:
            raise StatusError(pb.MESSAGE_BODY_TOO_LARGE, f"{len(body)} bytes")
        return pb.SendMessageResponse(status=OK, entries=[pb.SendResultEntry(offset=len(body))])

    def receive_message(  # type: ignore[override]  # a future, or replies at hand
        self, request: pb.ReceiveMessageRequest, context: CallContext
    ) -> list[pb.ReceiveMessageResponse] | Awaitable[list[pb.ReceiveMessageResponse]]:
        if request.batch_size:
            messages = [pb.Message(body=b"%d" % n * 100_000) for n in range(request.batch_size)]
            parts = [pb.ReceiveMessageResponse(message=each) for each in messages]
            return [pb.ReceiveMessageResponse(status=OK), *parts]
        poll: asyncio.Future[list[pb.ReceiveMessageResponse]] = asyncio.get_running_loop().create_future()
        poll.add_done_callback(lambda done: self.poll_ended.put(done.cancelled()))
        self.polls.append(poll)
        return poll

    async def ack_message(self, request: pb.AckMessageRequest, context: CallContext) -> pb.AckMessageResponse:
        await asyncio.sleep(0)
        if not request.entries:
            raise ValueError("no entries")
        return pb.AckMessageResponse(status=OK)


class Running:
    """A server on a loop of its own thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: GrpcLimits | None = None,
        certificate: ServerCertificate | None = CERTIFICATE,
        *,
        plain: bool = True,
        host: str = "127.0.0.1",
        reload: Callable[[], ServerCertificate] | None = None,
    ) -> None:
        self.loop = loop
        self.brokers = FakeBrokers()
        self.brokers.add_topic("Orders", read_queue_nums=2, write_queue_nums=2)
        self.service = Service(self.brokers)
        self.server = GrpcServer(
            self.service,
            host=host,
            tls=None if certificate is None else Tls(certificate, plain, reload),
            limits=limits,
        )
        self.thread = threading.Thread(target=loop.run_forever)
        self.thread.start()
        self.run(self.server.start())
        self.address = join_address(host, self.server.port)

    def run(self, work: Awaitable[object]) -> None:
        done: Future[object] = asyncio.run_coroutine_threadsafe(work, self.loop)  # type: ignore[arg-type]  # coroutine
        done.result(20)

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def channel(self, *, tls: bool) -> grpc.Channel:
        if not tls:
            return grpc.insecure_channel(self.address, options=LARGE)
        trusted = grpc.ssl_channel_credentials(CERTIFICATE.chain)
        options = [*LARGE, ("grpc.ssl_target_name_override", "localhost")]
        return grpc.secure_channel(self.address, trusted, options=options)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    with Running(request.param()) as running:
        yield running


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def channel(running: Running, request: pytest.FixtureRequest) -> Iterator[grpc.Channel]:
    with running.channel(tls=request.param) as channel:
        yield channel


def send(size: int) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(messages=[pb.Message(body=bytes(size))])


def test_methods_that_the_service_has_are_served():
    all_methods = set(pb.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name)

    assert set(methods_of(MessagingService(FakeBrokers(), pb.Endpoints()))) == all_methods - {"Telemetry"}


def test_unary_calls_over_both_transports(running: Running, channel: grpc.Channel):
    route = method(channel, "QueryRoute")(pb.QueryRouteRequest(topic=pb.Resource(name="Orders")))
    sent = [method(channel, "SendMessage")(send(size)) for size in (1, 100_000, MAX_BODY_SIZE)]
    acked = method(channel, "AckMessage")(pb.AckMessageRequest(entries=[pb.AckMessageEntry()]))

    assert (route.status.code, len(route.message_queues)) == (pb.OK, 2)
    assert [each.entries[0].offset for each in sent] == [1, 100_000, MAX_BODY_SIZE]
    assert acked.status.code == pb.OK
    context = running.service.contexts[0]
    assert (context.client_id, context.language, context.namespace) == ("client-1", "PYTHON", "")
    assert context.peer.startswith("127.0.0.1:")
    assert context.deadline is not None
    assert 0 < context.deadline - running.loop.time() < 21, "gRPC rounds a timeout up"


def test_many_calls_at_a_time(channel: grpc.Channel):
    call = channel.unary_unary(
        f"/{SERVICE}/SendMessage", pb.SendMessageRequest.SerializeToString, pb.SendMessageResponse.FromString
    )
    sent = [call.future(send(size), timeout=20, metadata=METADATA) for size in range(300)]

    assert [each.result().entries[0].offset for each in sent] == list(range(300))


@pytest.mark.parametrize("running", [uvloop.new_event_loop], indirect=True)
def test_calls_that_come_while_the_loop_is_busy_wait(running: Running):
    stopped, goes_on = threading.Event(), threading.Event()

    def block() -> None:
        stopped.set()
        goes_on.wait(20)

    with running.channel(tls=False) as channel:
        assert method(channel, "SendMessage")(send(1)).status.code == pb.OK
        running.loop.call_soon_threadsafe(block)
        stopped.wait(20)
        call = channel.unary_unary(
            f"/{SERVICE}/SendMessage", pb.SendMessageRequest.SerializeToString, pb.SendMessageResponse.FromString
        )
        # The relay stands still as well; what is in the buffers has more than 1,000 calls.
        sent = [call.future(send(1), timeout=60, metadata=METADATA) for _ in range(2000)]
        goes_on.set()
        assert {each.result().status.code for each in sent} == {pb.OK}


@pytest.mark.parametrize("running", [uvloop.new_event_loop], indirect=True)
def test_a_large_body_is_refused_in_the_reply(running: Running):
    with running.channel(tls=False) as channel:
        reply = method(channel, "SendMessage")(send(40 << 20))

    assert (reply.status.code, reply.status.message) == (pb.MESSAGE_BODY_TOO_LARGE, f"{40 << 20} bytes")


def test_a_stream_of_replies(channel: grpc.Channel):
    parts = list(method(channel, "ReceiveMessage")(pb.ReceiveMessageRequest(batch_size=8)))

    assert parts[0].status.code == pb.OK
    assert [part.message.body for part in parts[1:]] == [b"%d" % n * 100_000 for n in range(8)]


def wait_for(done: Callable[[], object]) -> None:
    until = time.monotonic() + 20
    while not done():
        assert time.monotonic() < until
        time.sleep(0.001)


def poll(running: Running, channel: grpc.Channel, timeout: float = 20) -> Any:
    """Return a long poll that the server holds."""
    held = len(running.service.polls)
    call = method(channel, "ReceiveMessage")(pb.ReceiveMessageRequest(), timeout=timeout)
    wait_for(lambda: len(running.service.polls) > held)
    return call


def test_a_long_poll_is_answered_later(running: Running, channel: grpc.Channel):
    call = poll(running, channel)
    reply = [pb.ReceiveMessageResponse(status=pb.Status(code=pb.MESSAGE_NOT_FOUND))]
    running.loop.call_soon_threadsafe(running.service.polls[0].set_result, reply)

    assert [part.status.code for part in call] == [pb.MESSAGE_NOT_FOUND]


def test_a_cancelled_long_poll_ends_at_the_server(running: Running, channel: grpc.Channel):
    poll(running, channel).cancel()

    assert running.service.poll_ended.get(timeout=10)


def test_a_long_poll_ends_with_its_connection(running: Running):
    with running.channel(tls=False) as channel:
        poll(running, channel)

    assert running.service.poll_ended.get(timeout=10)


def test_a_long_poll_ends_at_its_deadline(running: Running):
    with running.channel(tls=False) as channel:
        call = poll(running, channel, timeout=1)
        assert running.service.poll_ended.get(timeout=10)
        with pytest.raises(grpc.RpcError) as raised:
            list(call)

    assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_clients_that_do_not_take_their_messages_get_no_more():
    with (
        Running(uvloop.new_event_loop(), GrpcLimits(max_unsent_bytes=1)) as running,
        running.channel(tls=False) as slow,
        running.channel(tls=False) as other,
    ):
        receive = method(other, "ReceiveMessage")
        unread = method(slow, "ReceiveMessage")(pb.ReceiveMessageRequest(batch_size=300))
        wait_for(lambda: running.server._unsent_bytes)
        [refused] = receive(pb.ReceiveMessageRequest(batch_size=1))
        assert len(list(unread)) == 301
        wait_for(lambda: not running.server._unsent_bytes)
        taken = list(receive(pb.ReceiveMessageRequest(batch_size=1)))

    assert refused.status.code == pb.TOO_MANY_REQUESTS
    assert refused.status.message.endswith("bytes of messages; receive again later")
    assert taken[0].status.code == pb.OK


def test_errors_are_in_the_reply(channel: grpc.Channel):
    unknown = method(channel, "QueryRoute")(pb.QueryRouteRequest(topic=pb.Resource(name="Unknown")))
    early = method(channel, "Heartbeat")(pb.HeartbeatRequest())
    failed = method(channel, "AckMessage")(pb.AckMessageRequest())
    nameless = method(channel, "SendMessage")(send(1), metadata=())
    [receipt] = method(channel, "ReceiveMessage")(pb.ReceiveMessageRequest(), metadata=())

    assert unknown.status.code == pb.TOPIC_NOT_FOUND
    assert early.status.code == pb.UNRECOGNIZED_CLIENT_TYPE
    assert (failed.status.code, failed.status.message) == (pb.INTERNAL_SERVER_ERROR, "ValueError: no entries")
    assert nameless.status.code == receipt.status.code == pb.CLIENT_ID_REQUIRED


def test_refusals_are_logged_with_their_code(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(event_log, "_PERIOD_S", 1e9)
    caplog.set_level("INFO", "rocketbroker.proxy.grpc_server")
    with Running(uvloop.new_event_loop()) as running, running.channel(tls=False) as channel:
        port = running.server.port
        for _ in range(3):
            method(channel, "QueryRoute")(pb.QueryRouteRequest(topic=pb.Resource(name="Unknown")))
        method(channel, "QueryRoute")(pb.QueryRouteRequest(topic=pb.Resource(name="Orders")))
        list(method(channel, "ReceiveMessage")(pb.ReceiveMessageRequest(), metadata=()))
        call = poll(running, channel)
        empty = [pb.ReceiveMessageResponse(status=pb.Status(code=pb.MESSAGE_NOT_FOUND))]
        running.loop.call_soon_threadsafe(running.service.polls[0].set_result, empty)
        list(call)
        commands = Commands(pb.TelemetryCommand(settings=pb.Settings()))
        with pytest.raises(grpc.RpcError):
            next(method(channel, "Telemetry")(commands))
        commands.close()

    lines = [re.sub(r"127.0.0.1:\d+", "HERE", each) for each in caplog.messages]
    assert f"127.0.0.1:{port} for TLS and plain text" in caplog.text
    assert lines == [
        "gRPC port: listening on HERE for TLS and plain text",
        (
            "gRPC port: QueryRoute of client-1 at HERE: TOPIC_NOT_FOUND (40402): No topic route info for topic: Unknown"
            "; rejected since the last such line: 1"
        ),
        (
            "gRPC port: ReceiveMessage of a client without an id at HERE: CLIENT_ID_REQUIRED (40017): client id cannot "
            "be empty: send it as metadata x-mq-client-id; rejected since the last such line: 1"
        ),
        (
            "gRPC port: Telemetry of client-1 at HERE: INVALID_ARGUMENT: there is no publishing or subscription data "
            "in settings; rejected since the last such line: 1"
        ),
        "gRPC port: stopping; open calls end",
    ]


@pytest.mark.parametrize(
    ("path", "request_bytes", "status"),
    [
        (f"/{SERVICE}/PullMessage", b"", grpc.StatusCode.UNIMPLEMENTED),
        (f"/{SERVICE}/GetOffset", b"", grpc.StatusCode.UNIMPLEMENTED),
        (f"/{SERVICE}/QueryOffset", b"", grpc.StatusCode.UNIMPLEMENTED),
        (f"/{SERVICE}/UpdateOffset", b"", grpc.StatusCode.UNIMPLEMENTED),
        (f"/{SERVICE}/SyncLiteSubscription", b"", grpc.StatusCode.UNIMPLEMENTED),
        ("/other.Service/SendMessage", b"", grpc.StatusCode.UNIMPLEMENTED),
        (f"/{SERVICE}/SendMessage", b"\xff", grpc.StatusCode.INTERNAL),
        (f"/{SERVICE}/ReceiveMessage", b"\xff", grpc.StatusCode.INTERNAL),
    ],
)
def test_calls_that_gRPC_refuses(running: Running, path: str, request_bytes: bytes, status: grpc.StatusCode):  # noqa: N802
    with running.channel(tls=False) as channel:
        unary: Any = channel.unary_unary(path)
        with pytest.raises(grpc.RpcError) as raised:
            unary(request_bytes, timeout=20, metadata=METADATA)

    assert raised.value.code() == status


def test_a_message_beyond_the_limit_ends_the_call():
    limits = GrpcLimits(max_message_size=1000)
    with Running(asyncio.new_event_loop(), limits) as running, running.channel(tls=False) as channel:
        with pytest.raises(grpc.RpcError, match="larger than max") as raised:
            method(channel, "SendMessage")(send(1001))
        assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert method(channel, "SendMessage")(send(900)).status.code == pb.OK


# -- telemetry


class Commands:
    """Commands of a client, one after the other, until they are closed."""

    def __init__(self, *commands: pb.TelemetryCommand) -> None:
        self._queue: queue.Queue[pb.TelemetryCommand | None] = queue.Queue()
        for command in commands:
            self._queue.put(command)

    def close(self) -> None:
        self._queue.put(None)

    def __iter__(self) -> "Commands":
        return self

    def __next__(self) -> pb.TelemetryCommand:
        command = self._queue.get()
        if command is None:
            raise StopIteration
        return command


PRODUCER = pb.TelemetryCommand(
    settings=pb.Settings(client_type=pb.PRODUCER, publishing=pb.Publishing(topics=[pb.Resource(name="Orders")]))
)


def test_settings_are_answered_and_the_stream_stays_open(running: Running, channel: grpc.Channel):
    commands = Commands(PRODUCER, PRODUCER)
    stream = method(channel, "Telemetry")(commands)

    assert [next(stream).settings.publishing.max_body_size for _ in range(2)] == [MAX_BODY_SIZE] * 2
    assert method(channel, "Heartbeat")(pb.HeartbeatRequest()).status.code == pb.OK
    [client] = running.service._clients._clients.values()
    assert [each.stream is None for each in running.service._clients._clients.values()] == [False]
    commands.close()
    assert list(stream) == []
    assert client.stream is None
    assert method(channel, "NotifyClientTermination")(pb.NotifyClientTerminationRequest()).status.code == pb.OK


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        (pb.Settings(), grpc.StatusCode.INVALID_ARGUMENT),
        (pb.Settings(subscription=pb.Subscription(group=pb.Resource(name="none"))), grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_wrong_settings_fail_the_stream(channel: grpc.Channel, settings: pb.Settings, status: grpc.StatusCode):
    commands = Commands(pb.TelemetryCommand(settings=settings))
    with pytest.raises(grpc.RpcError) as raised:
        next(method(channel, "Telemetry")(commands))
    commands.close()

    assert raised.value.code() == status


def test_a_broken_broker_fails_the_stream(running: Running):
    async def broken(group: str) -> None:
        raise BrokerResponseError(1, "the disk is gone")

    running.brokers.subscription_group_config = broken  # type: ignore[assignment, method-assign]  # as meant
    commands = Commands(
        pb.TelemetryCommand(settings=pb.Settings(subscription=pb.Subscription(group=pb.Resource(name="g"))))
    )
    with running.channel(tls=False) as channel, pytest.raises(grpc.RpcError, match="the disk is gone") as raised:
        next(method(channel, "Telemetry")(commands))
    commands.close()

    assert raised.value.code() == grpc.StatusCode.INTERNAL


def test_a_stream_without_a_client_id_is_refused_in_the_reply(running: Running):
    commands = Commands(PRODUCER)
    with running.channel(tls=False) as channel:
        stream = method(channel, "Telemetry")(commands, metadata=())
        assert [each.status.code for each in stream] == [pb.CLIENT_ID_REQUIRED]
        commands.close()


def test_a_client_that_does_not_read_its_commands_loses_its_stream(running: Running, caplog: pytest.LogCaptureFixture):
    commands = Commands(PRODUCER)
    with running.channel(tls=False) as channel:
        stream = method(channel, "Telemetry")(commands)
        assert next(stream).HasField("settings")
        [client] = running.service._clients._clients.values()
        verify = pb.TelemetryCommand(
            verify_message_command=pb.VerifyMessageCommand(message=pb.Message(body=bytes(500_000)))
        )

        def fill() -> None:
            while client.stream is not None and client.stream.is_open:  # type: ignore[attr-defined]  # as it is here
                client.stream.send(verify)

        running.loop.call_soon_threadsafe(fill)
        wait_for(lambda: client.stream is None)
        with pytest.raises(grpc.RpcError) as raised:
            list(stream)
        commands.close()

    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert f"client-1 at {client.remote_address} does not read its commands; ending its stream" in caplog.messages


def test_a_stream_ends_with_its_client(running: Running):
    commands = Commands(PRODUCER)
    with running.channel(tls=True) as channel:
        assert next(method(channel, "Telemetry")(commands)).HasField("settings")
        [client] = running.service._clients._clients.values()
        assert client.stream is not None
    wait_for(lambda: client.stream is None)
    commands.close()


# -- connections


def connect(running: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.server.port))


def is_closed(sock: socket.socket) -> bool:
    """Wait until the server closes a connection."""
    sock.settimeout(20)
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def test_pings_are_answered_however_often(running: Running):
    with connect(running) as sock:
        sock.sendall(PREFACE + frame(SETTINGS) + b"".join(frame(PING, bytes([n] * 8)) for n in range(50)))
        received = frames(sock)
        assert answered_pings(received, 50) == [bytes([n] * 8) for n in range(50)]
        sock.sendall(frame(PING, b"one more"))
        assert answered_pings(received, 1) == [b"one more"]


def answered_pings(received: Iterator[tuple[int, int, bytes]], count: int) -> list[bytes]:
    """Return the next answers to pings; fail at a GOAWAY."""
    found: list[bytes] = []
    while len(found) < count:
        kind, flags, payload = next(received)
        assert kind != GOAWAY
        if kind == PING and flags & 1:
            found.append(payload)
    return found


def test_the_limit_on_calls_is_announced():
    with Running(uvloop.new_event_loop(), GrpcLimits(max_calls=77)) as running, connect(running) as sock:
        sock.sendall(PREFACE + frame(SETTINGS))
        kind, _, payload = next(frames(sock))

    assert kind == SETTINGS
    settings = {payload[n : n + 2]: int.from_bytes(payload[n + 2 : n + 6]) for n in range(0, len(payload), 6)}
    assert settings[b"\x00\x03"] == 77, "SETTINGS_MAX_CONCURRENT_STREAMS"


def test_incomplete_requests_take_bounded_memory(caplog: pytest.LogCaptureFixture):
    limits = GrpcLimits(connections=ConnectionLimits(max_held_bytes=200_000))
    with (
        Running(uvloop.new_event_loop(), limits) as running,
        running.channel(tls=False) as channel,
        connect(running) as sock,
    ):
        sock.sendall(PREFACE + frame(SETTINGS))
        relay = running.server._relay
        assert relay is not None
        for n in range(12):
            sock.sendall(begun_call(2 * n + 1, 100 << 20, bytes(15_000)))
        wait_for(lambda: relay.held_bytes > 180_000)
        for size in (1, 9_000, 10):
            assert method(channel, "SendMessage")(send(size)).status.code == pb.OK
        with suppress(ConnectionError):
            for n in range(12, 14):
                sock.sendall(begun_call(2 * n + 1, 100 << 20, bytes(15_000)))
        assert is_closed(sock)
        assert sum("(maxHeldBytes)" in each for each in caplog.messages) == 1
        assert method(channel, "SendMessage")(send(1)).status.code == pb.OK


def held_bytes(running: Running) -> int:
    assert running.server._relay is not None
    return running.server._relay.held_bytes


@pytest.mark.parametrize("running", [uvloop.new_event_loop], indirect=True)
@pytest.mark.parametrize("size", [0, 1_000, 200_000])
@pytest.mark.parametrize("token_size", [0, 3_000])
def test_calls_leave_nothing_that_looks_incomplete(running: Running, channel: grpc.Channel, size: int, token_size: int):
    call = channel.unary_unary(
        f"/{SERVICE}/SendMessage", pb.SendMessageRequest.SerializeToString, pb.SendMessageResponse.FromString
    )
    for _ in range(100):
        # A token that HPACK cannot shorten, and another one for each call.
        token = ("x-mq-session-token", secrets.token_urlsafe(token_size)[:token_size])
        call(send(size), timeout=20, metadata=(*METADATA, token))

    assert held_bytes(running) < 500, "less than a call"


def test_a_compressed_call_does_not_hide_what_its_connection_holds():
    with Running(uvloop.new_event_loop()) as running, connect(running) as sock:
        sock.sendall(PREFACE + frame(SETTINGS) + begun_call(1, 100_000, bytes(10_000)))
        wait_for(lambda: held_bytes(running) > 10_000)
        data = gzip.compress(send(900_000).SerializeToString())
        header = b"\1" + len(data).to_bytes(4)
        sock.sendall(frame(HEADERS, headers_of("SendMessage", grpc_encoding="gzip"), 3, END_HEADERS))
        sock.sendall(frame(DATA, header + data, 3, END_STREAM))
        ended = next(payload for kind, flags, payload in frames(sock) if kind == HEADERS and flags & END_STREAM)
        assert b"Compression algorithm" in ended
        assert held_bytes(running) > 10_000


@pytest.mark.parametrize("running", [uvloop.new_event_loop], indirect=True)
def test_replies_leave_nothing_that_looks_incomplete(running: Running, channel: grpc.Channel):
    receive = method(channel, "ReceiveMessage")
    for _ in range(5):
        assert len(list(receive(pb.ReceiveMessageRequest(batch_size=100)))) == 101

    assert held_bytes(running) < 1000, "window updates for 95 MB"


@pytest.mark.parametrize("running", [uvloop.new_event_loop], indirect=True)
@pytest.mark.parametrize("max_open_calls", [1, 50_000])
@pytest.mark.parametrize("name", ["SendMessage", "ReceiveMessage", "Telemetry", "PullMessage"])
def test_refused_calls_leave_nothing_that_looks_incomplete(
    running: Running, channel: grpc.Channel, max_open_calls: int, name: str
):
    running.server._limits = GrpcLimits(max_open_calls=max_open_calls)
    open_call = poll(running, channel)
    call: Any = channel.unary_unary(f"/{SERVICE}/{name}")
    for _ in range(50):
        with pytest.raises(grpc.RpcError) as raised:
            call(b"\xff" * 100_000, metadata=METADATA, timeout=20)
        if max_open_calls > 1:
            is_known = name in methods_of(running.service) or name == "Telemetry"
            assert raised.value.code() == (grpc.StatusCode.INTERNAL if is_known else grpc.StatusCode.UNIMPLEMENTED)
        else:
            assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert raised.value.details() == "the limit of 1 open call (grpcMaxOpenCalls) is reached; try again later"
    assert held_bytes(running) < 500
    open_call.cancel()


@pytest.mark.parametrize("running", [uvloop.new_event_loop], indirect=True)
def test_calls_without_a_client_id_leave_nothing_that_looks_incomplete(running: Running, channel: grpc.Channel):
    command = pb.TelemetryCommand(settings=pb.Settings(user_agent=pb.UA(hostname="x" * 100_000)))
    for _ in range(50):
        commands = Commands(command)
        [reply] = method(channel, "Telemetry")(commands, metadata=())
        commands.close()
        assert reply.status.code == pb.CLIENT_ID_REQUIRED
        assert method(channel, "SendMessage")(send(100_000), metadata=()).status.code == pb.CLIENT_ID_REQUIRED
    assert held_bytes(running) < 500


def test_open_calls_have_a_limit():
    with (
        Running(uvloop.new_event_loop(), GrpcLimits(max_open_calls=2)) as running,
        running.channel(tls=False) as channel,
    ):
        polls = [poll(running, channel) for _ in range(2)]
        with pytest.raises(grpc.RpcError) as raised:
            method(channel, "SendMessage")(send(1))
        assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        polls[0].cancel()
        assert running.service.poll_ended.get(timeout=10)
        wait_for(lambda: served(channel))


def served(channel: grpc.Channel) -> bool:
    """Return true if a call is answered."""
    try:
        return bool(method(channel, "SendMessage")(send(1)).status.code == pb.OK)
    except grpc.RpcError:
        return False


def test_calls_that_never_send_their_request_are_refused_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rocketbroker.proxy.grpc_server._REFUSED_S", 0.1)
    with (
        Running(uvloop.new_event_loop(), GrpcLimits(max_open_calls=2)) as running,
        running.channel(tls=False) as channel,
        connect(running) as sock,
    ):
        sock.sendall(PREFACE + frame(SETTINGS))
        for n in range(5):
            sock.sendall(begun_call(2 * n + 1, 100, bytes(10)))
        received = frames(sock)
        ended = 0
        while ended < 3:
            kind, flags, _ = next(received)
            ended += kind == HEADERS and bool(flags & END_STREAM)
        wait_for(lambda: running.server.open_calls == 2)
        with pytest.raises(grpc.RpcError, match="the limit of 2 open calls"):
            method(channel, "SendMessage")(send(1))
        sock.shutdown(socket.SHUT_RDWR)
        wait_for(lambda: served(channel))


@pytest.mark.parametrize("name", ["SendMessage", "ReceiveMessage", "Telemetry"])
def test_a_call_whose_request_is_late_fails_and_leaves_room(name: str, caplog: pytest.LogCaptureFixture):
    limits = GrpcLimits(max_open_calls=2, connections=ConnectionLimits(frame_timeout_s=0.2))
    with (
        Running(uvloop.new_event_loop(), limits) as running,
        running.channel(tls=False) as channel,
        connect(running) as sock,
    ):
        sock.sendall(PREFACE + frame(SETTINGS) + frame(HEADERS, headers_of(name), 1, END_HEADERS))
        sock.sendall(begun_call(3, 100, bytes(10), name))
        received, ended = frames(sock), list[bytes]()
        while len(ended) < 2:
            kind, flags, payload = next(received)
            if kind == HEADERS and flags & END_STREAM:
                ended.append(payload)
        assert all(b"the request was not complete within 0.2 s" in each for each in ended)
        wait_for(lambda: served(channel))

    assert f"gRPC port: {name} of 127.0.0.1:" in caplog.text
    assert "DEADLINE_EXCEEDED: the request was not complete within 0.2 s" in caplog.text


def test_a_telemetry_stream_stays_open_after_its_first_command():
    limits = GrpcLimits(connections=ConnectionLimits(frame_timeout_s=0.5))
    with Running(uvloop.new_event_loop(), limits) as running, running.channel(tls=False) as channel:
        commands = Commands(PRODUCER)
        stream = method(channel, "Telemetry")(commands)
        assert next(stream).HasField("settings")
        call = poll(running, channel, timeout=1.0)  # longer than the limit
        with pytest.raises(grpc.RpcError):
            list(call)
        commands._queue.put(PRODUCER)
        assert next(stream).HasField("settings")
        commands.close()


def test_a_call_without_a_request_fails(running: Running):
    with running.channel(tls=False) as channel:
        for name in ("SendMessage", "ReceiveMessage"):
            call: Any = channel.stream_stream(f"/{SERVICE}/{name}")
            with pytest.raises(grpc.RpcError, match="the call ended without a request") as raised:
                list(call(iter(()), metadata=METADATA, timeout=20))
            assert raised.value.code() == grpc.StatusCode.INTERNAL
        wait_for(lambda: running.server.open_calls == 0)


def test_idle_connections_are_closed():
    with Running(uvloop.new_event_loop(), GrpcLimits(max_idle_s=0.5)) as running, connect(running) as sock:
        sock.sendall(PREFACE + frame(SETTINGS))
        assert is_closed(sock)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\x00" * 100, PREFACE + b"\xff" * 64]
)
def test_other_bytes_close_their_connection_alone(running: Running, data: bytes):
    with running.channel(tls=False) as channel:
        assert method(channel, "SendMessage")(send(1)).status.code == pb.OK
        with connect(running) as sock:
            sock.sendall(data)
            assert is_closed(sock)
        assert method(channel, "SendMessage")(send(1)).status.code == pb.OK
        relay = running.server._relay
        assert relay is not None
        wait_for(lambda: len(relay._ends) == 2)


def has_certificate(running: Running, expected: ServerCertificate) -> bool:
    return ssl.get_server_certificate(("127.0.0.1", running.server.port)) == expected.chain.decode()


def test_a_certificate_is_looked_for_soon_after_a_failure_and_on_a_thread(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rocketbroker.proxy.grpc_server._RELOAD_RETRY_S", 0.01)
    threads = []

    def reload() -> ServerCertificate:
        threads.append(threading.current_thread())
        if len(threads) < 3:
            raise ConfigError("the key is not the certificate's")
        return OTHER_CERTIFICATE

    with Running(uvloop.new_event_loop(), reload=reload) as running:
        wait_for(lambda: has_certificate(running, OTHER_CERTIFICATE))
        assert running.thread not in threads
        running.run(running.server.stop())
        running.run(running.server.start())
        assert has_certificate(running, OTHER_CERTIFICATE), "from the first handshake after a restart on"

    assert caplog.text.count("the certificate stays as it is") == 1


def test_a_certificate_is_replaced_while_connections_stay(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    found: list[ServerCertificate | ConfigError] = [CERTIFICATE]

    def reload() -> ServerCertificate:
        if isinstance(found[-1], ConfigError):
            raise found[-1]
        return found[-1]

    with Running(uvloop.new_event_loop(), reload=reload) as running, running.channel(tls=True) as channel:
        assert method(channel, "SendMessage")(send(1)).status.code == pb.OK
        for each in (CERTIFICATE, ConfigError("no file"), OTHER_CERTIFICATE, OTHER_CERTIFICATE):
            found.append(each)
            running.run(running.server._renew_certificate(reload, 1))
            if isinstance(each, ConfigError):
                wait_for(lambda: "no file" in caplog.text)
            else:
                wait_for(partial(has_certificate, running, each))
        assert method(channel, "SendMessage")(send(1)).status.code == pb.OK, "on its old connection"

    assert caplog.messages.count("gRPC port: the certificate stays as it is: no file") == 1
    assert caplog.messages.count("gRPC port: the certificate has been replaced (tlsCertPath)") == 1


def call_with(running: Running, files: TlsFiles) -> object:
    """Return the status of a call by a client that shows a certificate; an error of grpcio if it is not admitted."""
    pair = [(files.folder / f"client.{kind}").read_bytes() for kind in ("key", "pem")]
    trusted = grpc.ssl_channel_credentials(files.authority.chain, *pair)
    options = [("grpc.ssl_target_name_override", "localhost")]
    with grpc.secure_channel(running.address, trusted, options=options) as channel:
        return method(channel, "SendMessage")(send(1)).status.code


def test_no_certificate_is_admitted_by_issuers_with_a_revocation_list(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    files = TlsFiles(tmp_path, ["localhost"])
    made = load_certificate(tmp_path / "server.pem", tmp_path / "server.key")

    def reload() -> ServerCertificate:
        return made._replace(client_issuers=load_issuers(files.ca))

    with Running(uvloop.new_event_loop(), certificate=reload(), reload=reload) as running:
        assert call_with(running, files) == pb.OK
        files.ca.write_bytes(files.authority.chain + files.revocation_list())
        for _ in range(2):
            running.run(running.server._renew_certificate(reload, 1))
            with pytest.raises(grpc.RpcError) as raised:
                call_with(running, files)
            assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
        files.ca.write_bytes(files.authority.chain)
        running.run(running.server._renew_certificate(reload, 1))
        assert call_with(running, files) == pb.OK

    [line] = [each for each in caplog.messages if "new TLS connections are rejected" in each]
    assert "set tlsTrustCertPath in rmq-proxy.json to a file without any and restart" in line
    assert "mqadmin updateUser -s disable" in line


def test_a_port_for_tls_alone_has_limits_too(caplog: pytest.LogCaptureFixture):
    limits = GrpcLimits(connections=ConnectionLimits(max_connections=1))
    with Running(uvloop.new_event_loop(), limits, plain=False) as running:
        with connect(running) as sock:
            sock.sendall(PREFACE)
            assert is_closed(sock)
            assert "closing, as it has no TLS; connect by TLS, or set grpcPlainTextEnable=true" in caplog.text
        with running.channel(tls=True) as channel:
            assert method(channel, "SendMessage")(send(1)).status.code == pb.OK
            with connect(running) as sock:
                assert is_closed(sock)
    assert "1 connections are open and the limit is 1 (maxConnections)" in caplog.text


def test_half_a_handshake_is_closed_in_time_and_a_whole_one_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    with Running(uvloop.new_event_loop()) as running:
        relay = running.server._relay
        assert relay is not None
        with running.channel(tls=True) as channel:
            assert method(channel, "SendMessage")(send(1)).status.code == pb.OK
            assert (relay.handshakes.begun, relay.handshakes._running) == (1, 0)
            monkeypatch.setattr(relayed_handshake, "HANDSHAKE_TIMEOUT_S", 0.05)
            with connect(running) as sock:
                sock.sendall(b"\x16\3\1\2\0\1")
                assert is_closed(sock)
            assert "its handshake took longer than 0.05 s" in caplog.text
            assert (relay.handshakes.begun, relay.handshakes._running) == (2, 0)
            assert method(channel, "SendMessage")(send(2)).status.code == pb.OK


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_that_leaves_after_its_handshake_has_not_failed(version: ssl.TLSVersion, running: Running):
    relay = running.server._relay
    assert relay is not None
    context = ssl.create_default_context(cadata=CERTIFICATE.chain.decode())
    context.set_alpn_protocols(["h2"])
    context.maximum_version = version
    for number in range(1, 4):
        with context.wrap_socket(connect(running), server_hostname="localhost"):
            pass  # it does not wait for what the server says
        wait_for(lambda: relay.handshakes.begun == number and not relay._ends)  # noqa: B023
    assert (running.server.failed_handshakes, relay.failed.count) == (0, 0)


def test_a_client_that_leaves_within_its_handshake_has_failed(running: Running):
    relay = running.server._relay
    assert relay is not None
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context = ssl.create_default_context()
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    for last in (b"", b"\x17\3\3\0\x40" + bytes(64), b"\x17\3\3\0\x40"):
        with connect(running) as sock:
            sock.sendall(hello)
            assert sock.recv(1)
            sock.sendall(last)
        wait_for(lambda: not relay._ends)
    assert running.server.failed_handshakes == relay.handshakes.begun == 3


@pytest.mark.parametrize(("certificate", "plain"), [(None, True), (CERTIFICATE, False)])
def test_a_port_of_one_kind(certificate: ServerCertificate | None, plain: bool):
    tls = certificate is not None
    with Running(uvloop.new_event_loop(), certificate=certificate, plain=plain) as running:
        with running.channel(tls=tls) as channel:
            assert method(channel, "SendMessage")(send(1)).status.code == pb.OK
            assert running.service.contexts[0].peer.startswith("127.0.0.1:")
        with running.channel(tls=not tls) as channel, pytest.raises(grpc.RpcError) as raised:
            method(channel, "SendMessage")(send(1))
        assert raised.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("certificate", [None, CERTIFICATE])
def test_an_ipv6_client_is_known_by_its_address(certificate: ServerCertificate | None):
    with Running(uvloop.new_event_loop(), certificate=certificate, host="::1") as running:
        with running.channel(tls=False) as channel:
            assert method(channel, "SendMessage")(send(1)).status.code == pb.OK
        assert running.service.contexts[0].peer.startswith("[::1]:")


@pytest.mark.parametrize("begun", [b"", b"P", b"\x16", PREFACE[:10]])
@pytest.mark.parametrize("certificate", [None, CERTIFICATE])
def test_a_connection_that_does_not_go_on_is_closed(
    begun: bytes, certificate: ServerCertificate | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rocketbroker.proxy.grpc_server._FIRST_BYTE_S", 0.2)
    with Running(uvloop.new_event_loop(), certificate=certificate) as running, connect(running) as sock:
        sock.sendall(begun)
        assert is_closed(sock)


@pytest.mark.parametrize("certificate", [None, CERTIFICATE])
def test_a_port_has_one_server(certificate: ServerCertificate | None):
    with Running(uvloop.new_event_loop(), certificate=certificate) as running:
        port = running.server.port
        second = GrpcServer(running.service, host="127.0.0.1", port=port, tls=running.server._tls)
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            running.run(second.start())
        with running.channel(tls=False) as channel:
            assert method(channel, "SendMessage")(send(1)).status.code == pb.OK


# -- start and stop


def test_a_stop_ends_open_calls(running: Running):
    commands = Commands(PRODUCER)
    with running.channel(tls=False) as channel:
        stream = method(channel, "Telemetry")(commands)
        next(stream)
        call = poll(running, channel)
        began = time.monotonic()
        running.run(running.server.stop())
        assert time.monotonic() - began < 10
        for each in (call, stream):
            with pytest.raises(grpc.RpcError) as raised:
                list(each)
            # grpcio says either of a call that a server ends.
            assert raised.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
        commands.close()

    assert running.service.poll_ended.get(timeout=10)
    assert len(running.server._tasks) == 0


def test_a_stop_does_not_wait_for_a_slow_reader(running: Running):
    with running.channel(tls=False) as channel:
        unread = method(channel, "ReceiveMessage")(pb.ReceiveMessageRequest(batch_size=300))
        wait_for(lambda: running.server._unsent_bytes)
        began = time.monotonic()
        running.run(running.server.stop())
        assert time.monotonic() - began < 10
        with pytest.raises(grpc.RpcError):
            list(unread)

    assert running.server._unsent_bytes == 0


def test_a_stop_of_grpcio_that_does_not_end_is_not_waited_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    with Running(uvloop.new_event_loop(), GrpcLimits(max_stop_s=0.1)) as running:
        carrier: Any = running.server._server

        class Hanging:
            async def stop(self, _grace: float | None) -> None:
                await asyncio.Event().wait()

        monkeypatch.setattr(running.server, "_server", Hanging())
        running.run(running.server.stop())
        running.run(carrier.stop(None))
        with pytest.raises(ConnectionRefusedError):
            connect(running)

    assert "gRPC port: calls did not end within 0.1 s (grpcShutdownTimeSeconds)" in caplog.messages


def test_clients_connect_again_after_a_restart(running: Running):
    with running.channel(tls=False) as channel:
        assert method(channel, "SendMessage")(send(1)).status.code == pb.OK
        running.run(running.server.stop())
        running.run(running.server.start())
        wait = grpc.channel_ready_future(channel)
        wait.result(timeout=20)
        assert method(channel, "SendMessage")(send(1)).status.code == pb.OK


def test_a_server_does_not_depend_on_the_loop_of_another():
    with Running(uvloop.new_event_loop()) as first:
        second = Running(asyncio.new_event_loop())
        with first.channel(tls=False) as channel:
            assert method(channel, "SendMessage")(send(1)).status.code == pb.OK
    assert first.loop.is_closed()
    with second, second.channel(tls=False) as channel:
        assert method(channel, "SendMessage")(send(1)).status.code == pb.OK


async def test_a_server_and_its_client_on_one_loop():
    server = GrpcServer(Service(FakeBrokers()), host="127.0.0.1")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = channel.unary_unary(
                f"/{SERVICE}/SendMessage", pb.SendMessageRequest.SerializeToString, pb.SendMessageResponse.FromString
            )
            replies = await asyncio.gather(*(call(send(n), metadata=METADATA) for n in range(100)))
    finally:
        await server.stop()

    assert [each.entries[0].offset for each in replies] == list(range(100))


# -- refusals that wait


class Data(bytes):
    """Bytes of a request that note when they are freed."""

    freed = 0

    def __del__(self) -> None:
        Data.freed += 1


class UnsignedCall:
    """A call of grpcio with one request."""

    def __init__(self, request: bytes) -> None:
        self._requests = [Data(request)]

    async def read(self) -> Any:
        return self._requests.pop() if self._requests else grpc.aio.EOF

    async def write(self, _reply: bytes) -> None:
        """Drop a reply."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return METADATA

    def time_remaining(self) -> None:
        return None

    def peer(self) -> str:
        return "ipv4:127.0.0.1:5"


class NotingGuard(CallGuard):
    """A guard that keeps the requests that it checked."""

    def __init__(self, guard: RequestGuard) -> None:
        super().__init__(guard)
        self.checked: list[Message] = []

    def check(self, metadata: Mapping[str, str | bytes], request: Message, peer: str) -> str | asyncio.Future[Never]:
        self.checked.append(request)
        return super().check(metadata, request, peer)


def behaviours_of(server: GrpcServer) -> dict[str, Any]:
    behaviours: dict[str, Any] = {"Telemetry": server._telemetry}
    for name, found in methods_of(server._service).items():
        behaviours[name] = (server._stream if found.is_stream else server._unary)(name, found)
    return behaviours


@pytest.mark.parametrize("name", ["SendMessage", "ReceiveMessage", "Telemetry"])
async def test_a_call_whose_refusal_waits_keeps_neither_its_bytes_nor_its_request(name: str):
    checks = RequestGuard(AccessCopy(), RequestRights("C"), FakeClock(), Checks())
    for _ in range(6):
        checks.refusals.failed_attempts.failed("127.0.0.1")
    guard = NotingGuard(checks)
    server = GrpcServer(Service(FakeBrokers()), guard=guard)
    request = pb.TelemetryCommand(settings=pb.Settings(user_agent=pb.UA(hostname="h" * 1000)))
    data = {"SendMessage": send(1000), "ReceiveMessage": pb.ReceiveMessageRequest(), "Telemetry": request}[name]
    freed = Data.freed
    waiting = asyncio.create_task(behaviours_of(server)[name](None, UnsignedCall(data.SerializeToString())))
    await turns(3)
    assert len(checks.refusals.late_answers) == 1
    assert Data.freed == freed + 1
    # Not within the assertion, which would keep it, too.
    references = sys.getrefcount(guard.checked[0])
    assert references <= 2, "by the list here and the argument alone"
    checks.refusals.late_answers.stop()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await server.stop()


@pytest.mark.parametrize("name", ["SendMessage", "ReceiveMessage", "Telemetry"])
async def test_a_call_that_access_control_refuses_has_one_line(name: str, caplog: pytest.LogCaptureFixture):
    server = GrpcServer(
        Service(FakeBrokers()), guard=CallGuard(RequestGuard(AccessCopy(), RequestRights("C"), FakeClock(), Checks()))
    )
    data = {"SendMessage": send(1), "ReceiveMessage": pb.ReceiveMessageRequest(), "Telemetry": pb.TelemetryCommand()}
    await behaviours_of(server)[name](None, UnsignedCall(data[name].SerializeToString()))
    await server.stop()
    [line] = caplog.messages
    assert f"call of {name.replace('Telemetry', 'TelemetryCommand')} from 127.0.0.1:5: " in line
