import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import Audience, Connection, Route
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import ConfigError
from rocketbroker.transport import endpoint, remoting_server
from rocketbroker.transport.endpoint import EndpointHooks
from rocketbroker.transport.failed_connections import BURST, FREE
from rocketbroker.transport.go_away import leaving_routes
from rocketbroker.transport.peer_limits import ConnectionLimits
from rocketbroker.transport.remoting_server import RemotingServer, bind_sockets, close_sockets, listen, port_of
from tests.support.fakes import FakeConnection
from tests.support.ports import LOOPBACK, free_ports
from tests.support.running import running
from tests.support.transports import ECHO, LATER, Handlers, frame, made_transports, split_frames
from tests.support.waiting import LIMIT_S, until


def test_a_free_port_comes_with_a_second_one_below_it():
    sockets = bind_sockets(LOOPBACK, 0, 2)
    first, second = map(port_of, sockets)

    assert first > 0
    assert second == first - 2
    close_sockets(sockets)
    again = bind_sockets(LOOPBACK, first, 2)
    assert [port_of(sock) for sock in again] == [first, second]
    close_sockets(again)


def can_be_taken(address: tuple[str, int]) -> bool:
    """Return true if another process could listen at an address."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(address)
            other.listen()
        except OSError:
            return False
        return True


def test_nobody_takes_a_free_port_before_it_listens():
    # An address of its own: connections that an earlier test left in TIME_WAIT at the usual one stop the binding.
    sockets = [*bind_sockets(LOOPBACK, 0, 2), *bind_sockets("127.0.0.9", free_ports(), exclusive=True)]

    assert [sock for sock in sockets if can_be_taken(sock.getsockname())] == []
    close_sockets(sockets)


def test_a_free_port_can_be_bound_again_at_once():
    """Connections that the server closed are in TIME_WAIT."""
    [sock] = bind_sockets(LOOPBACK, 0)
    port = port_of(sock)
    listen(sock, 1)
    with socket.create_connection((LOOPBACK, port)) as client:
        sock.setblocking(True)
        sock.accept()[0].close()
        assert client.recv(1) == b""
    sock.close()
    [again] = bind_sockets(LOOPBACK, port)
    listen(again, 1)
    again.close()


def test_a_second_port_that_is_taken_is_named_and_the_first_one_given_back():
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = port_of(taken)
        with pytest.raises(ConfigError, match=f"cannot listen on {LOOPBACK}:{port}: "):
            bind_sockets(LOOPBACK, port + 2, 2)
    close_sockets(bind_sockets(LOOPBACK, port + 2))


def test_a_name_is_bound_at_each_of_its_addresses(monkeypatch: pytest.MonkeyPatch):
    def both(*_arguments: object, **_options: object):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in ("127.0.0.1", "127.0.0.2")]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    sockets = bind_sockets("two.test", 0)

    assert [sock.getsockname()[0] for sock in sockets] == ["127.0.0.1", "127.0.0.2"]
    assert len({port_of(sock) for sock in sockets}) == 1
    close_sockets(sockets)


def test_a_free_port_that_is_taken_at_another_address_is_chosen_again(monkeypatch: pytest.MonkeyPatch):
    """The system chooses by the first address."""
    tries: list[int] = []
    real = remoting_server.bind_port

    def bind(host: str, port: int, *, exclusive: bool) -> list[socket.socket]:
        tries.append(port)
        if len(tries) == 1:
            raise ConfigError(f"cannot listen on {host}: in use at its second address")
        return real(host, port, exclusive=exclusive)

    monkeypatch.setattr(remoting_server, "bind_port", bind)
    close_sockets(bind_sockets(LOOPBACK, 0))
    assert tries == [0, 0]
    tries.clear()
    with pytest.raises(ConfigError, match="in use at its second address"):
        bind_sockets(LOOPBACK, free_ports())


class Peer:
    """A plain socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> "Peer":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, data: bytes):
        self.writer.write(data)
        return await self.read()

    async def read(self):
        async with asyncio.timeout(60):
            head = await self.reader.readexactly(4)
            (answer,) = split_frames(head + await self.reader.readexactly(int.from_bytes(head, "big")))
            return answer

    async def at_end(self) -> bytes:
        async with asyncio.timeout(60):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


@contextlib.asynccontextmanager
async def peer_that_does_not_read(server: RemotingServer) -> AsyncIterator[None]:
    """One that asks until the server hears it no more, and takes none of the answers."""
    loop = asyncio.get_running_loop()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        await loop.sock_connect(slow, ("127.0.0.1", server.port))
        sending = asyncio.create_task(loop.sock_sendall(slow, frame(ECHO, b"x" * 100_000) * 200))
        try:
            await until(lambda: any(connection.is_paused for connection in server.connections))
            yield
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def test_a_free_port_is_taken_and_reported(server: RemotingServer):
    assert server.port > 0
    peer = await Peer.open(server.port)

    answer = await peer.ask(frame(ECHO, b"hello", 7))

    assert (answer.opaque, bytes(answer.body)) == (7, b"hello")
    (connection,) = server.connections
    assert connection.remote_address == "{}:{}".format(*peer.writer.get_extra_info("sockname"))
    assert connection.remote_host[:4] == b"\x7f\0\0\x01"
    await peer.close()
    await until(lambda: not server.connections)


async def test_a_port_that_is_in_use_is_named_with_what_to_do(server: RemotingServer):
    other = RemotingServer({}, host="127.0.0.1", port=server.port)

    with pytest.raises(
        ConfigError, match=rf"cannot listen on 127.0.0.1:{server.port}: .*; stop the process that uses it"
    ):
        await other.start()
    await other.stop()


async def test_a_host_that_is_not_ours_is_named():
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:0"):
        await RemotingServer({}, host="192.0.2.1").start()


async def test_sockets_that_were_bound_before_are_served_alike(handlers: Handlers):
    sockets = bind_sockets("127.0.0.1", free_ports(-2), 2)
    server = RemotingServer(handlers.routes())
    server.listen_on(sockets)
    port = server.port
    with pytest.raises(ConnectionRefusedError):
        await Peer.open(port)

    async with running(server):
        for each in (port, port - 2):
            peer = await Peer.open(each)
            assert (await peer.ask(frame(ECHO, b"x"))).code == 0
            await peer.close()
    with pytest.raises(ConnectionRefusedError):
        await Peer.open(port)


async def test_a_bound_port_that_another_took_since_is_named():
    port = free_ports()
    sockets = bind_sockets("127.0.0.1", port)
    late = bind_sockets("127.0.0.1", port)
    server, beaten = RemotingServer({}), RemotingServer({})
    server.listen_on(sockets)
    beaten.listen_on(late)
    async with running(server):
        with pytest.raises(ConfigError, match=f"cannot listen on .*:{port}: "):
            await beaten.start()


async def test_small_writes_and_large_frames(server: RemotingServer, handlers: Handlers):
    peer = await Peer.open(server.port)
    data = frame(ECHO, b"a" * 50, 1)
    for byte in data:
        peer.writer.write(bytes([byte]))
        await peer.writer.drain()
    assert (await peer.read()).opaque == 1

    large = bytes(range(256)) * (3 * 4096)
    answer = await peer.ask(frame(ECHO, large, 2))

    assert bytes(answer.body) == large
    await peer.close()


async def test_a_broken_frame_ends_its_connection_alone(server: RemotingServer):
    broken, other = await Peer.open(server.port), await Peer.open(server.port)

    answer = await broken.ask(b"\x7f\xff\xff\xff" + bytes(100))

    assert (answer.code, "exceeds the limit" in answer.remark) == (1, True)
    assert await broken.at_end() == b""
    assert (await other.ask(frame(ECHO))).code == 0
    await broken.close()
    await other.close()


async def test_a_claimed_length_takes_no_memory(server: RemotingServer):
    peers = [await Peer.open(server.port) for _ in range(20)]
    for peer in peers:
        peer.writer.write((15 << 20).to_bytes(4, "big") + bytes(100))
    await until(lambda: len(server.connections) == 20)
    await until(lambda: all(connection.held_bytes() for connection in server.connections))

    assert max(connection.held_bytes() for connection in server.connections) == 104
    for peer in peers:
        await peer.close()


async def test_a_peer_that_does_not_read_is_not_read_either(server: RemotingServer, handlers: Handlers):
    loop = asyncio.get_running_loop()
    body = b"x" * 20_000
    count = 700
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.setblocking(False)
        await loop.sock_connect(slow, ("127.0.0.1", server.port))
        sending = asyncio.create_task(
            loop.sock_sendall(slow, b"".join(frame(ECHO, body, number) for number in range(count)))
        )
        await until(lambda: any(connection.is_paused for connection in server.connections))
        # While it is stopped nothing more is handled, however much there is to read.
        seen = len(handlers.seen)
        await asyncio.sleep(0.1)
        (connection,) = server.connections
        assert len(handlers.seen) == seen < count
        assert connection.held_bytes() < 4 << 20
        assert not sending.done()

        got = bytearray()
        while len(got) < count * 20_000:
            part = await asyncio.wait_for(loop.sock_recv(slow, 1 << 20), 60)
            assert part
            got += part
        await asyncio.wait_for(sending, 60)
        while int.from_bytes(got[:4], "big") and len(split_up(got)) < count:
            got += await asyncio.wait_for(loop.sock_recv(slow, 1 << 20), 60)

    assert [opaque for opaque, _ in split_up(got)] == list(range(count))


def split_up(data: bytes | bytearray) -> list[tuple[int, int]]:
    """Opaque and body length of the complete frames."""
    found, at = [], 0
    while len(data) - at >= 4 and at + 4 + int.from_bytes(data[at : at + 4], "big") <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        (command,) = split_frames(bytes(data[at:end]))
        found.append((command.opaque, len(command.body)))
        at = end
    return found


async def test_silent_connections_are_closed(handlers: Handlers, monkeypatch):
    monkeypatch.setattr(endpoint, "_SCAN_S", 0.02)
    lost: list[Connection] = []
    limits = ConnectionLimits(max_idle_s=1_000)
    async with running(
        RemotingServer(handlers.routes(), host="127.0.0.1", limits=limits, hooks=EndpointHooks(on_close=lost.append))
    ) as server:
        silent = await Peer.open(server.port)
        await until(lambda: len(server.connections) == 1)
        (connection,) = server.connections
        busy = await Peer.open(server.port)
        assert (await busy.ask(frame(ECHO))).code == 0

        check = connection.check
        monkeypatch.setattr(connection, "check", lambda now: check(now + 1_001))

        assert await silent.at_end() == b""
        assert (await busy.ask(frame(ECHO))).code == 0
        assert lost == [connection]
        assert len(server.connections) == 1
        await busy.close()
        await silent.close()


async def test_one_that_takes_no_answers_is_dropped_though_it_was_closed_before(handlers: Handlers, monkeypatch):
    """A transport that is closed waits for the peer to take the rest, which may be for ever."""
    monkeypatch.setattr(endpoint, "_SCAN_S", 0.02)
    lost: list[Connection] = []
    limits = ConnectionLimits(max_idle_s=1_000)
    async with (
        running(
            RemotingServer(
                handlers.routes(), host="127.0.0.1", limits=limits, hooks=EndpointHooks(on_close=lost.append)
            )
        ) as server,
        peer_that_does_not_read(server),
    ):
        (connection,) = server.connections
        connection.close("no longer wanted")

        check = connection.check
        monkeypatch.setattr(connection, "check", lambda now: check(now + 1_001))

        await until(lambda: lost)
        assert server.connections == set()


async def test_one_more_than_may_be_open_is_turned_away_and_logged(handlers: Handlers, caplog):
    lost: list[Connection] = []
    limits = ConnectionLimits(max_connections=2)
    async with running(
        RemotingServer(handlers.routes(), host="127.0.0.1", limits=limits, hooks=EndpointHooks(on_close=lost.append))
    ) as server:
        first, second = await Peer.open(server.port), await Peer.open(server.port)
        for peer in (first, second):
            assert (await peer.ask(frame(ECHO))).code == 0
        for _ in range(3):
            third = await Peer.open(server.port)
            with contextlib.suppress(ConnectionResetError):
                assert await third.at_end() == b""
            await third.close()

        lines = [record.getMessage() for record in caplog.records if " rejected: " in record.getMessage()]
        assert len(lines) == 1, "many of them must not fill the log"
        assert lines[0].startswith("connection from 127.0.0.1:")
        assert "2 connections are open and the limit is 2 (maxConnections)" in lines[0]
        assert len(server.connections) == 2
        assert (await first.ask(frame(ECHO))).code == 0

        await first.close()
        await until(lambda: len(server.connections) == 1)
        fourth = await Peer.open(server.port)
        assert (await fourth.ask(frame(ECHO))).code == 0
        await fourth.close()
        await second.close()


async def test_connections_leave_the_store_its_descriptors(handlers: Handlers, caplog):
    first = os.dup(0)
    os.close(first)
    limits = ConnectionLimits(max_descriptor=first + 30)
    async with running(RemotingServer(handlers.routes(), host="127.0.0.1", limits=limits)) as server:
        peers = [await Peer.open(server.port) for _ in range(40)]

        await until(lambda: " rejected: " in caplog.text)

        assert (
            f"the process may open only {first + 30} files, so that the store keeps its reserve (ulimit -n)"
            in caplog.text
        )
        await until(lambda: 0 < len(server.connections) <= 30)
        assert (await peers[0].ask(frame(ECHO))).code == 0
        for peer in peers:
            await peer.close()


async def test_what_the_kernel_holds_for_a_peer_is_bounded_where_it_is_asked_for(handlers: Handlers, monkeypatch):
    limits = ConnectionLimits(send_buffer=20_000, receive_buffer=30_000)
    transports = made_transports(monkeypatch)
    async with running(RemotingServer(handlers.routes(), host="127.0.0.1", limits=limits)) as server:
        peer = await Peer.open(server.port)
        assert (await peer.ask(frame(ECHO))).code == 0
        (transport,) = transports
        sock = transport.get_extra_info("socket")

        # Linux doubles it, for its own bookkeeping.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in {20_000, 40_000}
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in {30_000, 60_000}
        await peer.close()


@pytest.mark.parametrize(("low", "set_to"), [(0, (2_000, 8_000)), (6_000, (6_000, 8_000)), (9_000, (8_000, 8_000))])
async def test_the_low_water_mark_is_never_above_the_high_one(
    handlers: Handlers, monkeypatch, low: int, set_to: tuple[int, int]
):
    limits = ConnectionLimits(write_high_water=8_000, write_low_water=low)
    transports = made_transports(monkeypatch)
    async with running(RemotingServer(handlers.routes(), host="127.0.0.1", limits=limits)) as server:
        peer = await Peer.open(server.port)
        assert (await peer.ask(frame(ECHO))).code == 0
        transport: Any = transports[0]

        assert transport.get_write_buffer_limits() == set_to
        await peer.close()


async def test_the_server_asks_its_clients(server: RemotingServer, handlers: Handlers):
    peer = await Peer.open(server.port)
    assert (await peer.ask(frame(ECHO))).code == 0
    (connection,) = server.connections
    asking = asyncio.create_task(connection.invoke(request(40, {"group": "g"}), 10))
    asked = await peer.read()
    answer = frame(0, b"fine", asked.opaque).replace(b'"flag":0', b'"flag":1')

    peer.writer.write(answer)

    assert (asked.code, asked.header, (await asking).body) == (40, {"group": "g"}, b"fine")
    await peer.close()


async def test_stop_ends_what_waits_and_leaves_no_task(handlers: Handlers, server: RemotingServer):
    peer = await Peer.open(server.port)
    peer.writer.write(frame(LATER) * 3)
    assert (await peer.ask(frame(ECHO))).code == 0

    await server.stop()

    assert await peer.at_end() == b""
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert server.connections == set()
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await Peer.open(server.port)
    await peer.close()


@pytest.mark.parametrize("loop_turns", range(4))
async def test_stop_closes_connections_that_were_accepted_a_moment_ago(server: RemotingServer, loop_turns: int):
    clients = [socket.create_connection((LOOPBACK, server.port)) for _ in range(3)]
    for _ in range(loop_turns):
        await asyncio.sleep(0)
    await server.stop()

    assert server.connections == set()
    for client in clients:
        client.settimeout(LIMIT_S)
        with client, contextlib.suppress(ConnectionResetError):  # before it was accepted
            assert client.recv(1) == b""


async def test_stop_does_not_wait_for_a_peer_that_does_not_read(server: RemotingServer):
    async with peer_that_does_not_read(server):
        async with asyncio.timeout(60):
            await server.stop()

        await until(lambda: not server.connections)


def of_version(version: int, code: int = ECHO) -> bytes:
    command = request(code)
    command.version = version
    command.opaque = 1
    return encode_frame(command)


async def test_a_stop_sends_clients_away_that_know_it(handlers: Handlers):
    server = RemotingServer(handlers.routes(), host=LOOPBACK, send_away_s=lambda: 60.0)
    await server.start()
    peer = await Peer.open(server.port)
    assert (await peer.ask(of_version(513))).code == 0
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0)

    answer = await peer.ask(of_version(476))
    assert (answer.code, answer.remark) == (ResponseCode.GO_AWAY, "please go away: this server is stopping")
    assert (await peer.ask(of_version(475))).code == 0, "5.3.1 does not know GO_AWAY"
    again = await Peer.open(server.port)
    assert (await again.ask(of_version(513))).code == ResponseCode.GO_AWAY
    assert not stopping.done()

    await again.close()
    await peer.close()
    async with asyncio.timeout(30):
        await stopping


async def test_what_no_other_server_could_serve_is_served_to_the_end(handlers: Handlers):
    routes = handlers.routes()
    echo = routes[ECHO]
    for code in (RequestCode.ACK_MESSAGE, RequestCode.SEND_MESSAGE):
        routes[code] = Route(code, echo.process, None, Audience.CLIENT)
    server = RemotingServer(routes, host=LOOPBACK, send_away_s=lambda: 60.0)
    await server.start()
    peer = await Peer.open(server.port)
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0)

    assert (await peer.ask(of_version(513, RequestCode.SEND_MESSAGE))).code == ResponseCode.GO_AWAY
    assert (await peer.ask(of_version(513, RequestCode.ACK_MESSAGE))).code == 0
    await peer.close()
    async with asyncio.timeout(30):
        await stopping


def test_a_oneway_request_is_served_by_a_server_that_stops():
    served: list[Command] = []

    def serve(_connection: Connection, command: Command) -> bytes:
        served.append(command)
        return b""

    route = leaving_routes({10: Route(10, serve, None, Audience.CLIENT)})[10]
    command = request(10, oneway=True)
    command.version = 513
    route.process(FakeConnection(), command)

    assert len(served) == 1


async def test_a_client_that_stays_holds_a_stop_for_its_time_alone(handlers: Handlers):
    server = RemotingServer(handlers.routes(), host=LOOPBACK, send_away_s=lambda: 0.01)
    await server.start()
    peer = await Peer.open(server.port)
    assert (await peer.ask(frame(ECHO))).code == 0

    async with asyncio.timeout(60):
        await server.stop()

    assert await peer.at_end() == b""
    await peer.close()


async def test_a_stop_without_clients_waits_for_nobody(handlers: Handlers):
    server = RemotingServer(handlers.routes(), host=LOOPBACK, send_away_s=lambda: 3600.0)
    await server.start()

    async with asyncio.timeout(60):
        await server.stop()


async def test_a_failing_address_keeps_its_connections_and_gets_few_new_ones(handlers: Handlers):
    def refuse(connection: Connection, _command: Command) -> bytes:
        connection.note_failure()
        connection.note_failure()
        return b"refused"

    routes = {**handlers.routes(), LATER: Route(LATER, refuse, None, Audience.CLIENT)}
    async with running(RemotingServer(routes, host=LOOPBACK)) as server:
        failed = server.failed_connections
        # A slow machine must not be served as one that takes its time.
        failed._time = lambda: 100.0
        reader, writer = await asyncio.open_connection(LOOPBACK, server.port)

        async def is_served() -> bool:
            writer.write(frame(ECHO))
            return bool(await reader.readexactly(4))

        async def attack(data: bytes) -> None:
            stranger, its_writer = await asyncio.open_connection(LOOPBACK, server.port)
            its_writer.write(data)
            with contextlib.suppress(ConnectionResetError):
                await stranger.read(1)
            its_writer.close()

        await attack(frame(LATER))
        await attack(b"GET / HTTP/1.0\r\n\r\n")
        await until(lambda: failed.count == 2)
        for _ in range(FREE - 1 + BURST):
            await attack(frame(LATER))
        assert failed.rejected == 0
        await attack(frame(LATER))
        assert (failed.count, failed.rejected) == (FREE + 1 + BURST, 1)
        assert server.rejected_connections["failedConnections"] == failed.rejected
        assert await is_served()
        writer.close()
