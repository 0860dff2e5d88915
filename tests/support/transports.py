"""Helpers for tests of connections: a recording transport, routes for each kind of answer, frames."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from rocketbroker.codec.remoting.frame import decode_frame, encode_frame
from rocketbroker.codec.remoting.handler import HELD, Connection, Held, Process, Route, RunAnswers, RunHandler
from rocketbroker.codec.remoting.header_template import INT, VaryingField
from rocketbroker.codec.remoting.headers.message import GetMinOffsetRequestHeader
from rocketbroker.codec.remoting.hot_responses import success_response
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.transport.connection import RemotingConnection
from rocketbroker.transport.endpoint import Endpoint, EndpointHooks

ECHO, TYPED, LATER, FAILING, REFUSING, ENCODED, PIECES, HOLDING, FUTURE = 310, 31, 105, 50, 51, 52, 53, 54, 55
RUN = 31


class FakeTransport(asyncio.Transport):
    """Records what a connection does; ``blocked`` makes it ask for a pause over 100 bytes, as a slow peer does."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.writes = 0
        self.reading = True
        self.closed = self.aborted = False
        self.protocol: RemotingConnection | None = None
        self.blocked = False
        self.waiting = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.7", 4000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Any) -> None:
        assert not self.closed
        self.writes += 1
        self.written += data
        if self.blocked and self.protocol is not None:
            self.waiting += len(data)
            if self.waiting > 100:
                self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def drained(self) -> None:
        """The peer has taken all."""
        self.blocked, self.waiting = False, 0
        assert self.protocol is not None
        self.protocol.resume_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    @property
    def stopped(self) -> bool:
        """True while reading is paused."""
        return not self.reading

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed and not self.waiting and self.protocol is not None:
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    @property
    def answers(self) -> list[Command]:
        """The frames written, decoded."""
        return split_frames(bytes(self.written))


class Handlers:
    """Routes that answer in each way a handler may; ``seen`` has code and body of each request."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes]] = []
        self.gate = asyncio.Event()
        self.future: asyncio.Future[Command] | None = None

    def routes(self) -> dict[int, Route]:
        handlers: dict[int, Process] = {
            ECHO: self._echo,
            LATER: self._later,
            FAILING: self._fail,
            REFUSING: self._refuse,
            ENCODED: self._encoded,
            PIECES: self._pieces,
            HOLDING: self._held,
            FUTURE: self._future,
        }
        routes = {code: Route(code, process, takes_large_bodies=True) for code, process in handlers.items()}
        routes[TYPED] = Route(TYPED, self._echo, GetMinOffsetRequestHeader)
        return routes

    def _note(self, command: Command) -> None:
        self.seen.append((command.code, bytes(command.body)))

    def _echo(self, connection: Connection, command: Command) -> Command:
        self._note(command)
        return response(0, None, None, bytes(command.body))

    async def _later(self, connection: Connection, command: Command) -> Command:
        await self.gate.wait()
        self._note(command)
        return response(0, None, None, command.body)

    def _fail(self, connection: Connection, command: Command) -> Command:
        raise KeyError("what was missing")

    def _refuse(self, connection: Connection, command: Command) -> Command:
        raise BrokerResponseError(17, "no such topic")

    def _encoded(self, connection: Connection, command: Command) -> bytes:
        answer = response(0)
        answer.opaque = command.opaque
        return encode_frame(answer)

    def _pieces(self, connection: Connection, command: Command) -> list[Any]:
        whole = self._encoded(connection, command)
        return [whole[:-1], memoryview(whole)[-1:]]

    def _held(self, connection: Connection, command: Command) -> Held:
        self._note(command)
        return HELD

    def _future(self, connection: Connection, command: Command) -> asyncio.Future[Command]:
        self.future = asyncio.get_running_loop().create_future()
        return self.future


class Runs(RunHandler):
    """Handler that answers runs, at once or later, or leaves them to be handled one by one."""

    fields = (VaryingField("queue_id", INT),)
    fewest = 6

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.topics: list[str] = []
        self.alone = 0
        self.leaves = False
        self.waits = False
        self.waiting: list[tuple[asyncio.Future[RunAnswers], bytes]] = []

    def accepts(self, command: Command) -> bool:
        return not command.flag

    def process(
        self, connection: Connection, command: Command, columns: Sequence[Sequence[bytes]], bodies: Sequence[memoryview]
    ) -> RunAnswers | asyncio.Future[RunAnswers] | None:
        queue_ids, opaques = columns
        self.topics.append(command.header.topic)
        assert [bytes(body) for body in bodies] == list(queue_ids)
        if self.leaves:
            return None
        self.sizes.append(len(bodies))
        answers = b"".join(success_response(int(opaque)) for opaque in opaques)
        if not self.waits:
            return answers
        future: asyncio.Future[RunAnswers] = asyncio.get_running_loop().create_future()
        self.waiting.append((future, answers))
        return future

    def process_one(self, connection: Connection, command: Command) -> bytes:
        self.alone += 1
        return success_response(command.opaque)

    def routes(self) -> dict[int, Route]:
        """Return its only route."""
        route = Route(RUN, self.process_one, GetMinOffsetRequestHeader, takes_large_bodies=True, runs=self)
        return {RUN: route}


def frames(count: int, first: int = 1, topic: str = "T", *, oneway: bool = False) -> bytes:
    """Return requests for ``Runs``, back to back; opaque, queue and body of each are its number."""
    made = []
    for number in range(first, first + count):
        command = request(RUN, GetMinOffsetRequestHeader(topic, number), b"%d" % number, oneway=oneway)
        command.opaque = number
        made.append(encode_frame(command))
    return b"".join(made)


def frame(code: int, body: bytes = b"", opaque: int = 1, header: object = None, **fields: Any) -> bytes:
    """Return an encoded request."""
    command = request(code, header, body, oneway=fields.pop("oneway", False))
    command.opaque = opaque
    return encode_frame(command, **fields)


def split_frames(data: bytes) -> list[Command]:
    """Return the commands of frames back to back."""
    found = []
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        found.append(decode_frame(memoryview(data)[at + 4 : at + 4 + length]))
        at += 4 + length
    assert at == len(data)
    return found


def connect(routes: dict[int, Route], **settings: Any) -> tuple[RemotingConnection, FakeTransport, Endpoint]:
    """Return a connection over a transport that records; settings are those of an endpoint and its hooks."""
    hooks = EndpointHooks(**{name: settings.pop(name) for name in EndpointHooks._fields if name in settings})
    endpoint = Endpoint("test", routes, hooks=hooks, **settings)
    return *attach(endpoint), endpoint


def attach(endpoint: Endpoint) -> tuple[RemotingConnection, FakeTransport]:
    """Return one more connection of an endpoint."""
    connection = RemotingConnection(endpoint)
    transport = FakeTransport()
    transport.protocol = connection
    connection.connection_made(transport)
    return connection, transport


def made_transports(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.BaseTransport]:
    """Return the list that gets the transport of each connection made from now on."""
    made: list[asyncio.BaseTransport] = []
    connection_made = RemotingConnection.connection_made

    def note(connection: RemotingConnection, transport: asyncio.BaseTransport) -> None:
        made.append(transport)
        connection_made(connection, transport)

    monkeypatch.setattr(RemotingConnection, "connection_made", note)
    return made


def set_clock_forward(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the clock of the running event loop forward."""
    loop = asyncio.get_running_loop()
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + seconds)


def feed(connection: RemotingConnection, data: bytes, cuts: Sequence[int] = ()) -> None:
    """Let bytes arrive, in one read event for each part between cuts, more where the buffer is smaller."""
    edges = [0, *sorted(cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        part = data[start:end]
        while part:
            room = connection.get_buffer(-1)
            count = min(len(room), len(part))
            assert count
            room[:count] = part[:count]
            connection.buffer_updated(count)
            part = part[count:]
