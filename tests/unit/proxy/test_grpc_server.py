"""The port, by gRPC's own client: both transports, methods, limits, cancelled calls, and the end."""

import asyncio
import queue
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import grpc
import uvloop

from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.proxy import messaging_pb2 as pb
from rocketbroker.proxy.call_context import CallContext, StatusError
from rocketbroker.proxy.certificates import ServerCertificate, self_signed_certificate
from rocketbroker.proxy.grpc_server import SERVICE, GrpcLimits, GrpcServer, methods_of
from rocketbroker.proxy.messaging_service import MAX_BODY_SIZE, OK, MessagingService
from tests.support.proxy_brokers import FakeBrokers

CERTIFICATE = self_signed_certificate(SystemClock())
METADATA = (("x-mq-client-id", "client-1"), ("x-mq-language", "PYTHON"), ("x-mq-namespace", ""))
LARGE = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Service(MessagingService):
    """The service with further methods, one for each way to reply."""

    def __init__(self, brokers: FakeBrokers) -> None:
        super().__init__(brokers, pb.Endpoints())
        self.contexts: list[CallContext] = []
        self.polls: list[asyncio.Future[list[pb.ReceiveMessageResponse]]] = []
        self.poll_ended: queue.Queue[bool] = queue.Queue()

    def send_message(self, request: pb.SendMessageRequest, context: CallContext) -> pb.SendMessageResponse:
        self.contexts.append(context)
        body = request.messages[0].body
        if len(body) > MAX_BODY_SIZE:
            raise StatusError(pb.MESSAGE_BODY_TOO_LARGE, f"{len(body)} bytes")
        return pb.SendMessageResponse(status=OK, entries=[pb.SendResultEntry(offset=len(body))])

    def receive_message(
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
    ) -> None:
        self.loop = loop
        self.brokers = FakeBrokers()
        self.brokers.add_topic("Orders", read_queue_nums=2, write_queue_nums=2)
        self.service = Service(self.brokers)
        self.server = GrpcServer(
            self.service, host="127.0.0.1", certificate=certificate, plain=plain, limits=limits
        )
        self.thread = threading.Thread(target=loop.run_forever)
        self.thread.start()
        self.run(self.server.start())
        self.address = f"127.0.0.1:{self.server.port}"

    def run(self, work: Awaitable[object]) -> None:
        done: Future[object] = asyncio.run_coroutine_threadsafe(work, self.loop)  # type: ignore[arg-type]  # coroutine
        done.result(20)

    def stop(self) -> None:
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
    running = Running(request.param())
    yield running
    running.stop()


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def channel(running: Running, request: pytest.FixtureRequest) -> Iterator[grpc.Channel]:
    with running.channel(tls=request.param) as channel:
        yield channel


def method(channel: grpc.Channel, name: str) -> Callable[..., Any]:
    """Return a method of the service in values."""
    described = pb.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name[name]
    request, reply = (getattr(pb, kind.name) for kind in (described.input_type, described.output_type))
    kind = (
        f"{'stream' if described.client_streaming else 'unary'}_{'stream' if described.server_streaming else 'unary'}"
    )
    call = getattr(channel, kind)(f"/{SERVICE}/{name}", request.SerializeToString, reply.FromString)
    return lambda request, metadata=METADATA: call(request, timeout=20, metadata=metadata)


def send(size: int) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(messages=[pb.Message(body=bytes(size))])


def test_methods_that_the_service_has_are_served():
    assert set(methods_of(MessagingService(FakeBrokers(), pb.Endpoints()))) == {
        "Heartbeat",
        "NotifyClientTermination",
        "QueryRoute",
    }


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
def test_a_large_body_is_refused_in_the_reply(running: Running):
    with running.channel(tls=False) as channel:
        reply = method(channel, "SendMessage")(send(40 << 20))

    assert (reply.status.code, reply.status.message) == (pb.MESSAGE_BODY_TOO_LARGE, f"{40 << 20} bytes")


def test_a_stream_of_replies(channel: grpc.Channel):
    parts = list(method(channel, "ReceiveMessage")(pb.ReceiveMessageRequest(batch_size=8)))

    assert parts[0].status.code == pb.OK
    assert [part.message.body for part in parts[1:]] == [b"%d" % n * 100_000 for n in range(8)]


def poll(running: Running, channel: grpc.Channel) -> Any:
    """Return a long poll that the server holds."""
    held = len(running.service.polls)
    call = method(channel, "ReceiveMessage")(pb.ReceiveMessageRequest())
    until = time.monotonic() + 10
    while len(running.service.polls) == held:
        assert time.monotonic() < until
        time.sleep(0.001)
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


@pytest.mark.parametrize(
    ("path", "request_bytes", "status"),
    [
        (f"/{SERVICE}/PullMessage", b"", grpc.StatusCode.UNIMPLEMENTED),
        (f"/{SERVICE}/EndTransaction", b"", grpc.StatusCode.UNIMPLEMENTED),
        ("/other.Service/SendMessage", b"", grpc.StatusCode.UNIMPLEMENTED),
        (f"/{SERVICE}/SendMessage", b"\xff", grpc.StatusCode.INTERNAL),
    ],
)
def test_calls_that_gRPC_refuses(running: Running, path: str, request_bytes: bytes, status: grpc.StatusCode):  # noqa: N802
    with running.channel(tls=False) as channel:
        unary: Any = channel.unary_unary(path)
        with pytest.raises(grpc.RpcError) as raised:
            unary(request_bytes, timeout=20, metadata=METADATA)

    assert raised.value.code() == status


def test_a_message_beyond_the_limit_ends_the_call():
    running = Running(asyncio.new_event_loop(), GrpcLimits(max_message_size=1000))
    try:
        with running.channel(tls=False) as channel:
            with pytest.raises(grpc.RpcError, match="larger than max") as raised:
                method(channel, "SendMessage")(send(1001))
            assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert method(channel, "SendMessage")(send(900)).status.code == pb.OK
    finally:
        running.stop()


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
    [client] = running.service._clients.values()
    assert [each.stream is None for each in running.service._clients.values()] == [False]
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


# -- connections


def closed(sock: socket.socket) -> bytes:
    """Return what the server sends before it closes the connection."""
    sock.settimeout(20)
    received = b""
    try:
        while part := sock.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    return received


def test_a_stop_ends_open_calls(running: Running):
    with running.channel(tls=False) as channel:
        call = poll(running, channel)
        running.run(running.server.stop())
        with pytest.raises(grpc.RpcError) as raised:
            list(call)

    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    assert running.service.poll_ended.get(timeout=10)
