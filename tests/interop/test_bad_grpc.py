"""Malformed input against the gRPC port of a running broker: it is refused, and leaves nothing behind."""

import asyncio
import json
import queue
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

pytest.importorskip("grpc", reason="the extra grpc is not installed")

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.proxy import messaging_pb2 as pb
from rocketbroker.proxy.grpc_server import SERVICE
from tests.support.grpc_calls import metadata_of, method
from tests.support.grpc_script import (
    ack,
    change,
    end,
    forward,
    message,
    prepare,
    publishing,
    receive,
    resource,
    subscribing,
    with_properties,
)
from tests.support.grpc_servers import SETTINGS, GrpcServer
from tests.support.http2_frames import (
    ACK,
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    NO_WINDOW,
    PING,
    PREFACE,
    RST_STREAM,
    begun_call,
    frame,
    headers_of,
)
from tests.support.http2_frames import SETTINGS as SETTINGS_FRAME
from tests.support.our_servers import OurServer, OurServers, launch_serving, socket_count
from tests.support.ports import LOOPBACK, free_ports

METHODS = pb.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name
SERVED = sorted(set(METHODS) - {"PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription"})
# Polls end at once, and clients and connections without a call are forgotten after a second.
PROXY = {"grpcClientConsumerMinLongPollingTimeoutMillis": 0, "grpcClientIdleTimeMills": 1000}
HOLDER = "holder"
NOW = Duration()
MEMORY = 64 << 20


class Target(NamedTuple):
    """A broker with its gRPC port and a consumer, and the handle of a message that the consumer holds."""

    broker: OurServer
    namesrv: str
    endpoints: str
    handle: str

    @property
    def port(self) -> int:
        return int(self.endpoints.rpartition(":")[2])

    def connect(self) -> socket.socket:
        return socket.create_connection((LOOPBACK, self.port), timeout=20)


class State(NamedTuple):
    """State that bad input must not change."""

    sockets: int
    log_end: str
    in_flight: int
    producers: int
    consumers: list[str]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    home = tmp_path_factory.mktemp("ours")
    (home / "rmq-proxy.json").write_text(json.dumps(PROXY))
    servers = OurServers(home)
    try:
        namesrv, port = servers.namesrv(), free_ports(2)
        settings: dict[str, str | int] = {
            "grpcServerEnable": "true",
            "grpcServerPort": port,
            "proxyConfigPath": f"{home}/rmq-proxy.json",
        }
        # Groups are made by whoever names one; here only those of an administrator are there.
        settings |= {"autoCreateSubscriptionGroup": "false", "autoCreateTopicEnable": "false"}
        broker = launch_serving(servers, namesrv, SETTINGS | settings)
        endpoints = f"{LOOPBACK}:{port}"
        prepare(GrpcServer("ours", namesrv.address, broker.address, endpoints, {}))
        commands: queue.Queue[pb.TelemetryCommand | None] = queue.Queue()
        commands.put(pb.TelemetryCommand(settings=subscribing("billing")))
        with grpc.insecure_channel(endpoints) as channel:
            stream = method(channel, "Telemetry")(iter(commands.get, None), metadata=metadata_of(HOLDER), timeout=None)
            assert next(stream).status.code == pb.OK
            sent = method(channel, "SendMessage")(pb.SendMessageRequest(messages=[message("Single", 1)]))
            assert sent.status.code == pb.OK
            found = list(method(channel, "ReceiveMessage")(receive(), metadata=metadata_of(HOLDER)))
            handle = next(each.message for each in found if each.HasField("message")).system_properties.receipt_handle
            yield Target(broker, namesrv.address, endpoints, handle)
            commands.put(None)
        assert servers.errors() == []
        assert broker.process.poll() is None
    finally:
        servers.close()


@pytest.fixture(scope="module")
def first_state(target: Target) -> State:
    """Return the state once the clients of the preparation are forgotten."""
    return wait_for_state(target, lambda now: now.consumers == [HOLDER] and not now.producers)


def wait_for_state(target: Target, reached: Callable[[State], bool]) -> State:
    """Return the state once it is reached."""
    deadline = time.monotonic() + 20
    while not reached(now := state(target)):
        assert time.monotonic() < deadline, now
        time.sleep(0.05)
    return now


@pytest.fixture(autouse=True)
def unchanged(target: Target, first_state: State) -> Iterator[None]:
    """Check that a bystander is served after a test, and that nothing is left of it."""
    memory = target.broker.rss_bytes()
    yield
    with grpc.insecure_channel(target.endpoints) as channel:
        route = method(channel, "QueryRoute")(pb.QueryRouteRequest(topic=resource("Orders")))
        assert route.status.code == pb.OK
        beat = pb.HeartbeatRequest(client_type=pb.PUSH_CONSUMER, group=resource("billing"))
        assert method(channel, "Heartbeat")(beat, metadata=metadata_of(HOLDER)).status.code == pb.OK
    wait_for_state(target, lambda now: now.sockets <= first_state.sockets and now[1:] == first_state[1:])
    assert target.broker.rss_bytes() - memory < MEMORY


def state(target: Target) -> State:
    """Ask the broker."""

    async def ask() -> State:
        async with AdminClient(target.namesrv) as admin:
            stats = await admin.examine_consume_stats("billing", None, "Single")
            info = await admin.fetch_broker_runtime_stats(target.broker.address)
            producers = await admin.get_all_producer_info(target.broker.address)
            consumers = await admin.examine_consumer_connection_info("billing")
            return State(
                sockets,
                info["commitLogMaxOffset"],
                sum(each.pop_in_flight or 0 for each in stats.offset_table.values()),
                sum(len(each) for each in producers.data.values()),
                sorted(each.client_id for each in consumers.connection_set),
            )

    sockets = socket_count(target.broker)
    return asyncio.run(ask())


# -- requests

YEAR, NEGATIVE = Duration(seconds=31_536_000), Duration(seconds=-1)
ANY_HANDLE = f"0 {time.time_ns() // 1_000_000} 86400000 0 0 broker-a 0 50 1"  # of an offset that nobody popped
EXPIRED = "0 1 60000 0 0 broker-a 0 0 0"
Q = "ReceiveMessage"
TAKES_NONE: dict[str, Any] = {"long_polling_timeout": NOW}

CASES: dict[str, tuple[str, Any, str]] = {
    "33 messages": (Q, receive("Orders", batch_size=33, **TAKES_NONE), "MESSAGE_NOT_FOUND"),
    "the most messages": (Q, receive("Orders", batch_size=2**31 - 1, **TAKES_NONE), "MESSAGE_NOT_FOUND"),
    "no messages": (Q, receive("Orders", batch_size=0, **TAKES_NONE), "BAD_REQUEST"),
    "less than no messages": (Q, receive("Orders", batch_size=-1, **TAKES_NONE), "BAD_REQUEST"),
    "a negative poll": (Q, receive("Orders", long_polling_timeout=NEGATIVE), "MESSAGE_NOT_FOUND"),
    "an invisible time of 0": (Q, receive("Orders", invisible_duration=NOW, **TAKES_NONE), "ILLEGAL_INVISIBLE_TIME"),
    "an invisible time of a year": (
        Q,
        receive("Orders", invisible_duration=YEAR, **TAKES_NONE),
        "ILLEGAL_INVISIBLE_TIME",
    ),
    "a receive by an unknown group": (Q, receive("Orders", "strangers", **TAKES_NONE), "CONSUMER_GROUP_NOT_FOUND"),
    "a receive of an unknown topic": (Q, receive("Unknown", **TAKES_NONE), "TOPIC_NOT_FOUND"),
    "an ack of an unknown message": ("AckMessage", ack(ANY_HANDLE), "INTERNAL_SERVER_ERROR"),
    "an ack by an expired handle": ("AckMessage", ack(EXPIRED), "INVALID_RECEIPT_HANDLE"),
    "an ack of nothing": ("AckMessage", ack(), "INTERNAL_SERVER_ERROR"),
    "an ack by another group": ("AckMessage", ack("HANDLE", group="ordered"), "OK"),
    "an ack of another topic": ("AckMessage", ack("HANDLE", topic="Orders"), "OK"),
    "4,097 acks": ("AckMessage", ack(*[ANY_HANDLE] * 4097), "BAD_REQUEST"),
    "a change to a year": ("ChangeInvisibleDuration", change("HANDLE", YEAR.seconds), "ILLEGAL_INVISIBLE_TIME"),
    "a change to the past": ("ChangeInvisibleDuration", change("HANDLE", -1), "ILLEGAL_INVISIBLE_TIME"),
    "a change of an unknown message": ("ChangeInvisibleDuration", change(ANY_HANDLE, 60), "INTERNAL_SERVER_ERROR"),
    "a forward by an expired handle": ("ForwardMessageToDeadLetterQueue", forward(EXPIRED), "INVALID_RECEIPT_HANDLE"),
    "an end of an unknown transaction": ("EndTransaction", end("nonsense", pb.COMMIT), "INTERNAL_SERVER_ERROR"),
    "a recall of nothing": (
        "RecallMessage",
        pb.RecallMessageRequest(topic=resource("Later"), recall_handle="nonsense"),
        "INTERNAL_SERVER_ERROR",
    ),
}  # fmt: skip
SENDS: dict[str, tuple[pb.Message, str]] = {
    "5 MiB": (message("Orders", 1, bytes(5 << 20)), "MESSAGE_BODY_TOO_LARGE"),
    "129 properties": (with_properties(1, **{f"p{n}": "x" for n in range(129)}), "MESSAGE_PROPERTIES_TOO_LARGE"),
    "a topic for ordered messages": (message("Steps", 1), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    "a topic for delayed messages": (message("Later", 1), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    "an ordered message to a normal topic": (
        message("Orders", 1, message_group="g", message_type=pb.FIFO),
        "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
    ),
    "an unknown topic": (message("Unknown", 1), "TOPIC_NOT_FOUND"),
}
CASES |= {
    f"a send of {name}": ("SendMessage", pb.SendMessageRequest(messages=[sent]), code)
    for name, (sent, code) in SENDS.items()
}


@pytest.mark.parametrize("name", CASES)
def test_a_bad_request_is_refused_or_does_nothing(target: Target, name: str):
    method_name, request, code = CASES[name]
    if "HANDLE" in str(request):
        request = type(request).FromString(request.SerializeToString())
        with_handle = request.entries[0] if method_name == "AckMessage" else request
        with_handle.receipt_handle = target.handle
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(target.endpoints, options=options) as channel:
        reply = method(channel, method_name)(request, metadata=metadata_of("stranger"))
        status = (next(iter(reply)) if method_name == Q else reply).status

    assert pb.Code.Name(status.code) == code, status.message


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("metadata", [(), (("x-mq-client-id", ""),)])
def test_a_call_without_a_client_id_is_refused(target: Target, name: str, metadata: tuple[tuple[str, str], ...]):
    request = pb.TelemetryCommand(settings=publishing("Orders")) if METHODS[name].client_streaming else None
    described = getattr(pb, METHODS[name].input_type.name)
    with grpc.insecure_channel(target.endpoints) as channel:
        reply = method(channel, name)(iter([request]) if request else described(), metadata=metadata)
        status = (next(iter(reply)) if METHODS[name].server_streaming else reply).status

    assert status.code == pb.CLIENT_ID_REQUIRED


# -- generated requests

NAMES = ["", "no blank", "Unknown", "TBW102", "CID_RMQ_SYS_x", "x" * 300, "\0", "é", "%", "../x"]
TEXTS = [*NAMES, ANY_HANDLE, EXPIRED, "nonsense", "0 " * 9, "djEgVG9waWMgYnJva2VyIDEgMQ=="]
NUMBERS = [0, 1, -1, 33, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]


def generated(number: random.Random, kind: type[Message], depth: int = 0) -> Any:
    """Return a request whose fields have extreme values; names are those of nothing that exists."""
    made = kind()
    for each in kind.DESCRIPTOR.fields:
        if number.random() < 0.3 or depth > 4:
            continue
        values = [_value(number, each, depth) for _ in range(number.choice([1, 1, 3]) if each.is_repeated else 1)]
        target = getattr(made, each.name)
        with suppress(ValueError):  # beyond the range of its type
            if each.message_type is not None and each.message_type.GetOptions().map_entry:
                target[number.choice(TEXTS)] = number.choice(TEXTS)
            elif each.is_repeated:
                target.extend(values)
            elif each.message_type is not None:
                target.CopyFrom(values[0])
            else:
                setattr(made, each.name, values[0])
    return made


def _value(number: random.Random, field: Any, depth: int) -> Any:
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            return None
        known = {"google.protobuf.Duration": Duration, "google.protobuf.Timestamp": Timestamp}
        return generated(
            number, known.get(field.message_type.full_name) or getattr(pb, field.message_type.name), depth + 1
        )
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return number.choice(NAMES if field.name == "name" else TEXTS)
        case FieldDescriptor.TYPE_BYTES:
            return number.randbytes(number.choice([0, 10, 5000]))
        case FieldDescriptor.TYPE_BOOL:
            return number.random() < 0.5
        case FieldDescriptor.TYPE_FLOAT | FieldDescriptor.TYPE_DOUBLE:
            return number.choice([0.0, -1.0, float("nan"), float("inf")])
        case FieldDescriptor.TYPE_ENUM:
            return number.choice([*field.enum_type.values_by_number, 77])
    return number.choice(NUMBERS)


def mutated(number: random.Random, data: bytes) -> bytes:
    """Return bytes that differ from a request in some places."""
    changed = bytearray(data)
    for _ in range(number.randint(1, 4)):
        at = number.randint(0, len(changed))
        match number.randrange(4):
            case 0:
                del changed[at : at + number.randint(1, 20)]
            case 1:
                changed[at:at] = number.randbytes(number.randint(1, 20))
            case 2 if at < len(changed):
                changed[at] ^= 1 << number.randrange(8)
            case _:
                changed[at:at] = changed[: number.randint(0, 50)]
    return bytes(changed)


REFUSALS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT}


@pytest.mark.parametrize("count", [40, pytest.param(1_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", SERVED)
def test_generated_requests_are_answered_and_do_nothing(target: Target, name: str, count: int):
    number = random.Random(f"{name} {count}")
    request, reply = (getattr(pb, kind.name) for kind in (METHODS[name].input_type, METHODS[name].output_type))
    codes: set[int] = set()
    with grpc.insecure_channel(target.endpoints) as channel:
        call: Any = channel.unary_stream(f"/{SERVICE}/{name}", response_deserializer=reply.FromString)
        for index in range(count):
            data = generated(number, request).SerializeToString()
            if index % 2:
                data = mutated(number, data)
            try:
                for each in call(data, metadata=metadata_of(number.choice(["stranger", "other"])), timeout=30):
                    codes.add(each.status.code)
            except grpc.RpcError as error:
                if error.code() not in REFUSALS:
                    pytest.fail(f"{data.hex()}: {error}")

    assert codes - {pb.OK} or name in {"Telemetry", "NotifyClientTermination"}
    log = target.broker.text()
    assert "a call failed" not in log


# -- connections


def streams_that_are_not_read(count: int) -> bytes:
    settings = pb.TelemetryCommand(settings=publishing("Orders")).SerializeToString()
    return NO_WINDOW + b"".join(
        begun_call(2 * n + 1, len(settings), settings, "Telemetry", x_mq_client_id=f"client-{n}") for n in range(count)
    )


def resets(count: int) -> bytes:
    """Return calls that are cancelled as soon as they begin (CVE-2023-44487)."""
    return PREFACE + frame(SETTINGS_FRAME) + b"".join(
        frame(HEADERS, headers_of("SendMessage"), 2 * n + 1, END_HEADERS) + frame(RST_STREAM, CANCEL, 2 * n + 1)
        for n in range(count)
    )  # fmt: skip


OPENED = PREFACE + frame(SETTINGS_FRAME)
QUESTION = frame(PING, b"the last")
ANSWER = frame(PING, b"the last", flags=ACK)
# Bytes of a client, and bytes that the server sends before the client ends the connection; None if the server ends it.
CONNECTIONS: dict[str, tuple[Callable[[], bytes], bytes | None]] = {
    "HTTP/1.1": (lambda: b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", None),
    "a frame of remoting": (lambda: bytes.fromhex("0000006f00000063") + b'{"code":310,"opaque":1}', None),
    "a broken TLS handshake": (lambda: b"\x16\x03\x01\x02\x00" + bytes(512), None),
    "a TLS handshake that ends": (lambda: b"\x16\x03\x01", b""),
    "zeros": (lambda: bytes(100_000), None),
    "random bytes": (lambda: random.Random(1).randbytes(100_000), None),
    "a preface that ends": (lambda: PREFACE[:20], b""),
    "a frame that ends": (
        lambda: OPENED + frame(HEADERS, headers_of("SendMessage"), 1, END_HEADERS)[:20],
        frame(SETTINGS_FRAME, flags=ACK),
    ),
    "a frame of 16 MiB": (
        lambda: OPENED + (2**24 - 1).to_bytes(3) + bytes([DATA, 0]) + (1).to_bytes(4) + bytes(1000),
        None,
    ),
    "data without a call": (lambda: OPENED + frame(DATA, bytes(100), 1) + QUESTION, ANSWER),
    "headers that are no HPACK": (lambda: OPENED + frame(HEADERS, b"\xff" * 100, 1, END_HEADERS), None),
    "headers without an end": (
        lambda: OPENED + frame(HEADERS, b"", 1) + frame(CONTINUATION, b"", 1) * 10_000,
        None,
    ),
    "headers that are large": (
        lambda: OPENED + frame(HEADERS, headers_of("Heartbeat", a="x" * 120) * 100, 1, END_HEADERS),
        None,
    ),
    "a message that is compressed and is not": (
        lambda: (
            OPENED
            + frame(HEADERS, headers_of("Heartbeat"), 1, END_HEADERS)
            + frame(DATA, b"\1" + (4).to_bytes(4) + b"zzzz", 1, END_STREAM)
        ),
        b"Compression bit set but no encoding configured",
    ),
    "a request that ends": (lambda: OPENED + begun_call(1, 1 << 20, bytes(1000)) + QUESTION, ANSWER),
    "a request of 4 GiB": (
        lambda: OPENED + begun_call(1, 2**32 - 1, bytes(1000)),
        b"Received message larger than max (4294967295 vs. 136314880)",
    ),
    "requests that are not complete": (
        lambda: OPENED + b"".join(begun_call(2 * n + 1, 1 << 20, bytes(1000)) for n in range(500)) + QUESTION,
        ANSWER,
    ),
    "calls that are reset": (lambda: resets(1000) + QUESTION, ANSWER),
    "pings": (lambda: OPENED + frame(PING, bytes(8)) * 5000 + QUESTION, ANSWER),
    "settings": (lambda: PREFACE + frame(SETTINGS_FRAME) * 5000 + QUESTION, ANSWER),
}


def answered(sock: socket.socket, data: bytes, reply: bytes | None) -> bytes:
    """Return what the server sends up to a reply, or to the end of the connection."""
    found = b""
    with suppress(ConnectionError):
        sock.sendall(data)
        while (reply is None or reply not in found) and (part := sock.recv(65536)):
            found += part
    return found


@pytest.mark.parametrize("name", CONNECTIONS)
def test_a_bad_connection_leaves_nothing(target: Target, name: str):
    data, reply = CONNECTIONS[name]
    for _ in range(3):
        with target.connect() as sock:
            assert (reply or b"") in answered(sock, data(), reply)


@pytest.mark.long
def test_streams_that_are_never_read_leave_nothing(target: Target, first_state: State):
    for _ in range(3):
        with target.connect() as sock:
            sock.sendall(streams_that_are_not_read(500))
            wait_for_state(target, lambda now: now.producers == first_state.producers + 500)
        wait_for_state(target, lambda now: now.producers == first_state.producers)
