"""Our client without network: producer and consumer in one process with a broker whose answers are made beforehand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from bench.send_path import DroppingTransport, read_event
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.message.message_id import UniqueIds, host_bytes
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.remoting.bodies.client import GetConsumerListByGroupResponseBody
from rocketbroker.codec.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketbroker.codec.remoting.frame import LENGTH_AND_MARK, encode_frame
from rocketbroker.codec.remoting.headers.message import (
    PullMessageResponseHeader,
    QueryConsumerOffsetResponseHeader,
    SendMessageResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.transport.connection import RemotingConnection
from rocketbroker.transport.frame_writer import SharedWriter

TOPIC = "ClientPath"
QUEUES = 8
# Messages of a pull: pullBatchSize is 32 by default.
EACH = 32
_HOST = host_bytes("127.0.0.1", 10911)
_ADDRESS = "127.0.0.1:10911"
_READ_WRITE = 6
# Opaque of ten digits, which those of requests replace.
_PLACE = 1_000_000_000

# Pieces of a frame before and after its opaque.
_Frame = tuple[bytes, bytes]


class _Request(msgspec.Struct, rename={"fields": "extFields"}):
    code: int
    opaque: int
    fields: dict[str, str] = {}


_decode = msgspec.json.Decoder(_Request).decode


class AnsweringTransport(DroppingTransport):
    """Transport to a broker with one topic; it answers each write in the next turn of the event loop.

    Args:
        client_id: the only member of each group.
        pulls: pulls that each queue has messages for; later ones are held.
        body: body of each message.
    """

    def __init__(self, client_id: str, pulls: int, body: bytes) -> None:
        super().__init__()
        self.connection: RemotingConnection | None = None
        self._answers: list[bytes] = []
        sent = SendMessageResponseHeader(msg_id="7F00000100002A9F0000000000000000", queue_id=1, queue_offset=1)
        members = GetConsumerListByGroupResponseBody([client_id]).encode()
        self._success = _frame(response())
        self._frames: dict[int, _Frame] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: _frame(response(body=_route().encode())),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: _frame(response(body=members)),
            RequestCode.QUERY_CONSUMER_OFFSET: _frame(response(header=QueryConsumerOffsetResponseHeader(0))),
            RequestCode.SEND_MESSAGE_V2: _frame(response(header=sent)),
        }
        starts = range(0, pulls * EACH, EACH)
        self._pulls = {(TOPIC, queue, at): _pulled(queue, at, body) for queue in range(QUEUES) for at in starts}

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Answer the requests of one write."""
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._deliver)
        at = 0
        while at < len(data):
            length, header_length = LENGTH_AND_MARK.unpack_from(data, at)
            frame = self._answer(_decode(memoryview(data)[at + 8 : at + 8 + header_length]))
            at += 4 + length
            if frame is not None:
                self._answers.append(frame)

    def _answer(self, request: _Request) -> bytes | None:
        if request.code == RequestCode.PULL_MESSAGE:
            fields = request.fields
            frame = self._pulls.get((fields["topic"], int(fields["queueId"]), int(fields["queueOffset"])))
        else:
            frame = self._frames.get(request.code, self._success)
        return frame and b"".join((frame[0], b"%10d" % request.opaque, frame[1]))

    def _deliver(self) -> None:
        answers, self._answers = self._answers, []
        if self.connection is not None:
            read_event(self.connection, b"".join(answers))

    def get_write_buffer_size(self) -> int:
        """Return 0: each write is taken at once."""
        return 0

    def close(self) -> None:
        """End the connection."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.connection_lost(None)

    abort = close


def _route() -> TopicRouteData:
    queues = QueueData("broker-a", QUEUES, QUEUES, _READ_WRITE)
    return TopicRouteData(queue_datas=[queues], broker_datas=[BrokerData("DefaultCluster", "broker-a", {0: _ADDRESS})])


def _frame(command: Command) -> _Frame:
    """Return the frame of an answer in the pieces before and after its opaque, which gets ten characters."""
    command.opaque = _PLACE
    before, _, after = encode_frame(command).partition(str(_PLACE).encode())
    return before, after


def _pulled(queue_id: int, first: int, body: bytes) -> _Frame:
    ids = UniqueIds(_HOST[:4], 1, 1, lambda: first)
    names = {"WAIT": "true", "CLUSTER": "DefaultCluster"}
    records = [
        encode_record(
            queue_id, 0, at, at * 300, 0, 1, _HOST, 2, _HOST, 0, 0, body, TOPIC.encode(),
            encode_properties({"UNIQ_KEY": ids.create(), **names}),
        )
        for at in range(first, first + EACH)
    ]  # fmt: skip
    header = PullMessageResponseHeader(0, first + EACH, 0, first + EACH)
    return _frame(response(header=header, body=b"".join(records)))


@asynccontextmanager
async def answered_client(pulls: int = 0, body: bytes = b"x" * 128) -> AsyncIterator[ClientInstance]:
    """Yield a started client whose connections are answered in this process.

    Args:
        pulls: pulls that each queue has messages for; later ones are held.
        body: body of each message.
    """
    client = ClientInstance(_ADDRESS)

    async def connect(_address: str) -> RemotingConnection:
        connection = RemotingConnection(client.remoting._endpoint, SharedWriter(asyncio.get_running_loop()))
        transport = AnsweringTransport(client.client_id, pulls, body)
        transport.connection = connection
        connection.connection_made(transport)
        return connection

    client.remoting._open = connect  # type: ignore[method-assign,assignment]
    async with client:
        yield client
