"""A broker's paths of sends and pulls without network: all its parts, and a connection that drops answers."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings
from rocketbroker.app.launch.first_users import FirstUsers
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_batch import encode_batch
from rocketbroker.codec.message.message_id import encode_unique_id
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import Connection, Route, RunHandler
from rocketbroker.codec.remoting.header_template import HeaderTemplate, make_template
from rocketbroker.codec.remoting.headers.message import (
    FLAG_SUBSCRIPTION,
    FLAG_SUSPEND,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.request_signature import RequestSigner
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.processor.support.send_runs import SendRuns
from rocketbroker.store.message_store import MessageStore
from rocketbroker.transport.connection import RemotingConnection
from rocketbroker.transport.endpoint import Endpoint, EndpointHooks

TOPIC = "Profile"
GROUP = "bench_pull"
QUEUES = 8
USER = RequestSigner("bench", "bench-secret")
_PORT = 10911
_FRAME_HEAD = 8  # length and mark
_ANSWER_LENGTH = 300  # about the length of a real answer


class DroppingTransport(asyncio.Transport):
    """A transport that drops answers; ``taken`` counts their bytes, ``kept`` gets them if it is a list."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0
        self.kept: list[bytes] | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the peer address, the only information that a connection reads."""
        return ("127.0.0.1", 40000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: no write waits."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Drop one or more answers."""
        self.taken += len(data)
        if self.kept is not None:
            self.kept.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Drop the pieces of answers."""
        for data in list_of_data:
            self.write(data)

    def is_closing(self) -> bool:
        """Return false."""
        return False


@dataclass(frozen=True, slots=True)
class SendPath:
    """Parts of the send path that a profile calls one by one.

    Attributes:
        connection: a connection that runs the whole path.
        transport: its transport.
        bare_connection: a connection that only splits frames, matches headers and hands answers over.
        signed_connection: a connection that takes requests of users alone, such as ``USER``.
    """

    store: MessageStore
    route: Route
    runs: SendRuns
    connection: RemotingConnection
    transport: DroppingTransport
    bare_connection: RemotingConnection
    signed_connection: RemotingConnection


@asynccontextmanager
async def send_path(root: Path) -> AsyncIterator[SendPath]:
    """Run a store in ``root`` with RocketMQ's file sizes and yield the send path over it."""
    users = FirstUsers({"bench": "bench-secret"}, {"bench": {f"Topic:{TOPIC}": "Pub"}})
    broker = BrokerController(broker_settings(_PORT, root / "store", "", properties=users.properties))
    _write_tables(broker.topic_configs.path.parent)
    broker.topic_configs.load()
    broker.subscription_groups.load()
    routes, route = broker.routes, broker.routes[RequestCode.SEND_MESSAGE_V2]
    assert isinstance(route.runs, SendRuns)
    assert broker.access is not None
    await broker.store.start()
    try:
        await broker.access.start()
        await users.create(broker.access.store)
        transport = DroppingTransport()
        hooks = EndpointHooks(broker.store.appender.dispatch)
        connection = _connected(Endpoint("profile", routes, hooks=hooks, throttles=False), transport)
        bare = _connected(Endpoint("bare", {route.code: _bare(route)}, throttles=False), DroppingTransport())
        guarded = Endpoint("signed", broker.access.guard.routes(routes), hooks=hooks, throttles=False)
        signed = _connected(guarded, DroppingTransport())
        yield SendPath(broker.store, route, route.runs, connection, transport, bare, signed)
    finally:
        await broker.access.stop()
        await broker.store.stop()
        await broker.stop()


def _write_tables(folder: Path) -> None:
    """Write topic and group: a broker answers no send to a topic that is not on disk yet."""
    config, clock = BrokerConfig(), SystemClock()
    topics = TopicConfigManager(folder / "topics.json", config, clock)
    groups = SubscriptionGroupManager(folder / "subscriptionGroup.json", config, clock)
    topics.update(TopicConfig(TOPIC, QUEUES, QUEUES))
    groups.update(SubscriptionGroupConfig(GROUP))
    folder.mkdir(parents=True, exist_ok=True)
    topics.path.write_bytes(topics.encode())
    groups.path.write_bytes(groups.encode())


def _connected(endpoint: Endpoint, transport: DroppingTransport) -> RemotingConnection:
    connection = RemotingConnection(endpoint)
    connection.connection_made(transport)
    return connection


def read_event(connection: RemotingConnection, data: bytes) -> None:
    """Hand bytes to a connection as the event loop does."""
    rest = memoryview(data)
    while rest:
        room = connection.get_buffer(-1)
        part, rest = rest[: len(room)], rest[len(room) :]
        room[: len(part)] = part  # the copy that recv would make
        connection.buffer_updated(len(part))


def _bare(route: Route) -> Route:
    """Return a copy of the route without processing."""
    answer = bytes(_ANSWER_LENGTH)
    return Route(
        route.code, lambda _connection, _command: answer, route.header_type, takes_large_bodies=True, runs=_BareRuns()
    )


class _BareRuns(RunHandler):
    """Answers runs and does nothing else."""

    fields = SendRuns.fields
    fewest = SendRuns.fewest

    def accepts(self, command: Command) -> bool:
        return not command.flag

    def process(
        self, connection: Connection, command: Command, columns: Sequence[Sequence[bytes]], bodies: Sequence[memoryview]
    ) -> bytes:
        return bytes(_ANSWER_LENGTH * len(bodies))


def template_of(route: Route, frame: bytes) -> HeaderTemplate:
    """Return the template that a connection learns from a frame."""
    header = header_of(frame)
    template = make_template(bytes(header), route.decode_json(header), SendRuns.fields, route.decode_json)
    assert template is not None
    return template


def send_frame(number: int, body: bytes, signer: RequestSigner | None = None) -> bytes:
    """Return the send request of the Java client for a message with one key and one tag, signed if it has a signer."""
    properties = {"KEYS": f"sender-{number % 64}", "UNIQ_KEY": unique_id(number), "WAIT": "true", "TAGS": "T"}
    return request_frame(RequestCode.SEND_MESSAGE_V2, number, properties, body, signer)


def batch_frame(number: int, count: int, body: bytes) -> bytes:
    """Return the send request of the Java client for a batch of ``count`` messages with one tag each."""
    ids = [unique_id(each) for each in range(number * count, (number + 1) * count)]
    messages = [(0, body, encode_properties({"UNIQ_KEY": each, "WAIT": "true", "TAGS": "T"})) for each in ids]
    properties = {"WAIT": "true", "UNIQ_KEY": ids[0]}
    return request_frame(RequestCode.SEND_BATCH_MESSAGE, number, properties, encode_batch(messages))


def pull_frame(queue_id: int, offset: int, count: int, *, hold_ms: int = 0) -> bytes:
    """Return a pull request of the Java client for messages with any tags; it may be held for ``hold_ms``."""
    header = PullMessageRequestHeader(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=FLAG_SUBSCRIPTION | (FLAG_SUSPEND if hold_ms else 0),
        commit_offset=0,
        suspend_timeout_millis=hold_ms,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    return encode_frame(request(RequestCode.PULL_MESSAGE, header))


def unique_id(number: int) -> str:
    """Return the unique id of a message of the Java client."""
    return encode_unique_id(bytes([127, 0, 0, 1]), 4711, 0x1B28CDFA, number, number & 0xFFFF)


def request_frame(
    code: RequestCode, number: int, properties: dict[str, str], body: bytes, signer: RequestSigner | None = None
) -> bytes:
    """Return a send request of the Java client."""
    header = SendMessageRequestHeaderV2(
        producer_group="bench_producer",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=number % QUEUES,
        sys_flag=0,
        born_timestamp=SystemClock().time_ms(),
        flag=0,
        properties=encode_properties(properties).decode(),
        batch=code == RequestCode.SEND_BATCH_MESSAGE,
        broker_name="broker-a",
    )
    command = request(code, header, body)
    command.opaque = number + 1
    if signer is not None:
        signer.sign(command)
    return encode_frame(command)


def header_of(frame: bytes) -> memoryview:
    """Return the header of a frame."""
    length = int.from_bytes(frame[5:_FRAME_HEAD], "big")
    return memoryview(frame)[_FRAME_HEAD : _FRAME_HEAD + length]


def body_of(frame: bytes) -> memoryview:
    """Return the body of a frame."""
    return memoryview(frame)[_FRAME_HEAD + len(header_of(frame)) :]
