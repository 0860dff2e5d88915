import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.headers.message import GetMinOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.common.errors import RemotingConnectError, RemotingSendError, RemotingTimeoutError
from rocketbroker.transport import endpoint, remoting_client
from rocketbroker.transport.connection import RemotingConnection
from rocketbroker.transport.remoting_client import RemotingClient, split_address
from rocketbroker.transport.remoting_server import RemotingServer
from tests.support.ports import free_ports
from tests.support.running import running, stopping
from tests.support.transports import ECHO, FAILING, HOLDING, LATER, TYPED, Handlers
from tests.support.waiting import until


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    async with stopping(RemotingClient()) as made:
        yield made


@pytest.fixture
def address(server: RemotingServer) -> str:
    return f"127.0.0.1:{server.port}"


async def test_a_request_is_answered(client: RemotingClient, address: str):
    answer = await client.invoke(address, request(ECHO, {"a": "b"}, b"hello"))

    assert (answer.code, answer.body, answer.is_response) == (0, b"hello", True)


async def test_many_at_once_go_over_one_connection(client: RemotingClient, server: RemotingServer, address: str):
    answers = await asyncio.gather(*(client.invoke(address, request(ECHO, None, b"%d" % n)) for n in range(300)))

    assert [answer.body for answer in answers] == [b"%d" % n for n in range(300)]
    assert len(server.connections) == 1


async def test_a_typed_header_and_an_error(client: RemotingClient, address: str):
    assert (await client.invoke(address, request(TYPED, GetMinOffsetRequestHeader("T", 1)))).code == 0
    assert (await client.invoke(address, request(TYPED, {"topic": "T"}))).code == 1
    assert (await client.invoke(address, request(FAILING))).remark == "KeyError: 'what was missing'"


async def test_oneway(client: RemotingClient, handlers: Handlers, address: str):
    await client.invoke_oneway(address, request(HOLDING, None, b"said"))

    await until(lambda: handlers.seen == [(HOLDING, b"said")])


async def test_a_oneway_request_leaves_before_the_next_turn_of_the_loop(client: RemotingClient):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        await client.connect(address)
        accepted, _ = listening.accept()
        with accepted:
            accepted.settimeout(5)
            await client.invoke_oneway(address, request(HOLDING, None, b"said"))
            assert accepted.recv(1000).endswith(b"said")


async def test_a_oneway_request_outlives_the_stop(client: RemotingClient, handlers: Handlers, address: str):
    await client.invoke_oneway(address, request(HOLDING, None, b"last words"))
    await client.stop()

    await until(lambda: handlers.seen == [(HOLDING, b"last words")])


async def test_no_answer_in_time_and_the_connection_continues(client: RemotingClient, handlers: Handlers, address: str):
    with pytest.raises(RemotingTimeoutError, match=rf"no answer from {address} to request code {LATER} within 0.0\d s"):
        await client.invoke(address, request(LATER), 0.05)
    handlers.gate.set()

    assert (await client.invoke(address, request(ECHO, None, b"x"))).body == b"x"


async def test_nobody_listens(client: RemotingClient):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

        with pytest.raises(RemotingConnectError, match=rf"connect to 127.0.0.1:{port} failed: .*refused|Connect call"):
            await client.invoke(f"127.0.0.1:{port}", request(ECHO))


@pytest.mark.parametrize("address", ["", "host", ":9876", "host:", "host:0", "host:65536", "host:x", "host:²"])
async def test_an_invalid_address_is_rejected(client: RemotingClient, address: str):
    with pytest.raises(RemotingConnectError, match="is not an address; use host:port"):
        await client.invoke(address, request(ECHO))


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example"])
async def test_an_invalid_host_name_is_rejected(client: RemotingClient, host: str):
    with pytest.raises(RemotingConnectError, match="is not a host name"):
        await client.invoke(f"{host}:9876", request(ECHO))


def test_addresses():
    assert split_address(" 127.0.0.1:9876 ") == ("127.0.0.1", 9876)
    assert split_address("[2001:db8::1]:9876") == ("2001:db8::1", 9876)


async def test_a_server_that_goes_ends_what_waits_and_is_found_again(handlers: Handlers):
    lost: list[object] = []
    client = RemotingClient(on_close=lambda connection, _proved: lost.append(connection))
    port = free_ports()
    server = RemotingServer(handlers.routes(), host="127.0.0.1", port=port)
    address = f"127.0.0.1:{port}"
    try:
        await server.start()
        waiting = asyncio.create_task(client.invoke(address, request(LATER), 60))
        assert (await client.invoke(address, request(ECHO))).code == 0

        await server.stop()
        with pytest.raises(RemotingSendError, match=rf"the connection to {address} was lost"):
            await waiting
        assert len(lost) == 1
        with pytest.raises(RemotingConnectError):
            await client.invoke(address, request(ECHO))

        server = RemotingServer(handlers.routes(), host="127.0.0.1", port=port)
        await server.start()
        assert (await client.invoke(address, request(ECHO))).code == 0
    finally:
        await client.stop()
        await server.stop()


async def test_a_closed_connection_is_reopened(client: RemotingClient, server: RemotingServer, address: str):
    await client.invoke(address, request(ECHO))
    (before,) = server.connections

    client.close_address(address)
    client.close_address("127.0.0.1:1")
    await client.invoke(address, request(ECHO))
    await until(lambda: len(server.connections) == 1)

    assert before not in server.connections


async def test_a_server_asks_back_over_the_same_connection(server: RemotingServer):
    asked: list[bytes] = []

    def answer(connection: object, command: Command) -> Command:
        asked.append(bytes(command.body))
        return response(0, None, None, b"from the client")

    async with stopping(RemotingClient({40: Route(40, answer)})) as client:
        await client.invoke(f"127.0.0.1:{server.port}", request(ECHO))
        (connection,) = server.connections

        found = await connection.invoke(request(40, None, b"who?"), 60)

        assert (found.body, asked) == (b"from the client", [b"who?"])
        connection.send_oneway(request(40, None, b"told"))
        await until(lambda: asked == [b"who?", b"told"])


async def test_stop_ends_what_waits_and_leaves_no_task(handlers: Handlers):
    async with (
        running(RemotingServer(handlers.routes(), host="127.0.0.1")) as server,
        stopping(RemotingClient()) as client,
    ):
        address = f"127.0.0.1:{server.port}"
        waiting = asyncio.create_task(client.invoke(address, request(LATER), 60))
        await client.invoke(address, request(ECHO))

        await client.stop()

        with pytest.raises(RemotingSendError):
            await waiting
    assert asyncio.all_tasks() == {asyncio.current_task()}


def connects_under_way() -> int:
    return sum("connect " in task.get_name() for task in asyncio.all_tasks())


async def test_stop_ends_a_connect_under_way():
    async with stopping(RemotingClient(connect_timeout_s=60)) as client:
        # The queue of one place is full, so that the kernel does not answer.
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as first:
            address = full.getsockname()
            first.connect(address)
            attempts = [asyncio.create_task(client.connect(f"127.0.0.1:{address[1]}")) for _ in range(2)]
            await until(connects_under_way)

            await client.stop()

            for attempt in attempts:
                with pytest.raises(RemotingConnectError, match="the client is closed"):
                    await attempt
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_connection_made_during_stop_is_closed(server: RemotingServer, address: str, monkeypatch):
    loop = asyncio.get_running_loop()
    client = RemotingClient()
    connect: Any = loop.create_connection

    stops: list[asyncio.Task[None]] = []

    async def connect_late(*args: object, **kwargs: object) -> object:
        stops.append(asyncio.create_task(client.stop()))
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return await connect(*args, **kwargs)

    monkeypatch.setattr(loop, "create_connection", connect_late)
    with pytest.raises(RemotingConnectError, match="the client is closed"):
        await client.connect(address)
    await stops[0]
    await until(lambda: not server.connections)
    assert not client.is_connected(address)


async def test_waiters_share_a_connect_each_within_its_own_limit(client: RemotingClient):
    # The queue of one place is full, so that the kernel does not answer.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as first:
        host, port = full.getsockname()
        first.connect((host, port))
        ended: list[float] = []

        async def wait(limit_s: float) -> None:
            with pytest.raises(RemotingConnectError, match=f"no answer within {limit_s:g} s"):
                await client.invoke(f"{host}:{port}", request(ECHO), limit_s)
            ended.append(limit_s)

        await asyncio.gather(*map(wait, (0.05, 0.15, 0.1)))
        assert connects_under_way() == 1
        assert ended == [0.05, 0.1, 0.15]


async def test_the_connect_counts_within_the_limit_of_a_request(server: RemotingServer, address: str, monkeypatch):
    loop = asyncio.get_running_loop()
    connect: Any = loop.create_connection

    async def connect_late(*args: object, **kwargs: object) -> object:
        await asyncio.sleep(0.1)
        return await connect(*args, **kwargs)

    monkeypatch.setattr(loop, "create_connection", connect_late)
    async with stopping(RemotingClient()) as client:
        with pytest.raises(RemotingTimeoutError, match=r"within 0\.\d+ s") as caught:
            await client.invoke(address, request(LATER), 0.5)
    (left_s,) = re.findall(r"within (0\.\d+) s", str(caught.value))
    assert float(left_s) <= 0.4


class Dropper:
    """Server that takes connections and drops them, or answers by ``ECHO`` first."""

    def __init__(self) -> None:
        self.connections = 0
        self.server: asyncio.Server

    async def _drop(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.transport.abort()

    async def start(self) -> str:
        self.server = await asyncio.start_server(self._drop, "127.0.0.1", 0)
        return f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"


async def test_connections_that_are_dropped_at_once_are_made_again_at_growing_pauses(client: RemotingClient):
    dropper = Dropper()
    address = await dropper.start()
    loop = asyncio.get_running_loop()
    began = loop.time()
    while dropper.connections < 5:
        with pytest.raises((RemotingSendError, RemotingConnectError, RemotingTimeoutError)):
            await client.invoke(address, request(ECHO), 0.3)
        await asyncio.sleep(0)
    assert loop.time() - began > 0.7, "the pauses before them are 0, 50, 100, 200 and 400 ms"
    dropper.server.close()
    await dropper.server.wait_closed()


async def test_the_pause_ends_with_a_connection_that_was_useful(handlers: Handlers):
    losses: list[bool] = []
    dropper = Dropper()
    address = await dropper.start()
    async with stopping(RemotingClient(on_close=lambda _connection, proved: losses.append(proved))) as client:
        for _ in range(4):
            known = len(losses)
            with pytest.raises((RemotingSendError, RemotingConnectError)):
                await client.invoke(address, request(ECHO))
            await until(lambda known=known: len(losses) > known)  # type: ignore[misc]
        dropper.server.close()
        await dropper.server.wait_closed()
        server = RemotingServer(handlers.routes(), host="127.0.0.1", port=int(address.rpartition(":")[2]))
        await server.start()
        assert client._useless[address].number == 4
        assert (await client.invoke(address, request(ECHO))).code == 0
        await server.stop()
        await until(lambda: len(losses) == 5)
        assert not client._useless
    assert losses == [False, False, False, False, True]


async def test_a_connection_that_lasted_was_useful_without_an_answer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remoting_client, "_USEFUL_S", 0.02)
    losses: list[bool] = []
    async with stopping(RemotingClient(on_close=lambda _connection, proved: losses.append(proved))) as client:
        _, peer = await connected(client)
        await asyncio.sleep(0.03)
        peer.close()
        await until(lambda: losses)
    assert losses == [True]


@pytest.mark.parametrize("is_connected", [True, False])
async def test_another_event_loop_is_refused_and_the_connection_stays(
    client: RemotingClient, address: str, *, is_connected: bool
):
    other = address if is_connected else "127.0.0.1:1"
    await client.invoke(address, request(ECHO))

    async def use() -> None:
        with pytest.raises((RemotingSendError, RemotingConnectError), match="belongs to another event loop; make one"):
            await client.invoke(other, request(ECHO))
        with pytest.raises(RemotingConnectError, match="belongs to another event loop; make one"):
            await client.connect("127.0.0.1:1")

    await asyncio.to_thread(asyncio.run, use())
    assert (await client.invoke(address, request(ECHO))).code == 0


async def connected(client: RemotingClient) -> tuple[RemotingConnection, socket.socket]:
    """A connection and its other end, which does nothing by itself."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connection = await client.connect(f"127.0.0.1:{listening.getsockname()[1]}")
        return connection, listening.accept()[0]


class TestPeersThatStall:
    """Servers that begin an answer, or take no request, do not hold a client's memory for ever."""

    async def test_one_that_does_not_finish_its_frame_is_dropped(self, client: RemotingClient, caplog):
        connection, peer = await connected(client)
        await asyncio.to_thread(peer.sendall, (15 << 20).to_bytes(4, "big") + bytes(400_000))
        await until(lambda: connection.held_bytes() > 400_000)
        waiting = asyncio.ensure_future(connection.invoke(request(ECHO), 30))
        await asyncio.sleep(0)

        connection.check(connection.last_read + 60)
        assert connection.is_open
        connection.check(connection.last_read + 70)

        assert "(frameTimeoutSeconds)" in caplog.text
        with pytest.raises(RemotingSendError, match="was lost"):
            await waiting
        assert connection.memory.bytes == 0
        peer.close()

    async def test_one_that_takes_nothing_is_dropped(self, client: RemotingClient, caplog):
        connection, peer = await connected(client)
        now = connection.last_read
        for _ in range(10):
            connection.send_oneway(request(ECHO, None, bytes(1 << 20)))
        connection.check(now)
        assert connection.memory.bytes > 1 << 20

        connection.check(now + 60)
        connection.check(now + 121)

        assert "took none of the" in caplog.text
        assert connection.memory.bytes == 0
        peer.close()

    async def test_one_that_is_silent_stays(self, client: RemotingClient, address: str):
        connection = await client.connect(address)

        connection.check(connection.last_read + 1_000)

        assert connection.is_open

    async def test_peers_are_looked_at_once_there_is_one(self, client: RemotingClient, address: str, monkeypatch):
        monkeypatch.setattr(endpoint, "_SCAN_S", 0.01)
        looked: list[float] = []
        monkeypatch.setattr(RemotingConnection, "check", lambda _self, now: looked.append(now))

        await client.connect(address)

        await until(lambda: looked)


async def test_a_stopped_client_does_not_connect_again(client: RemotingClient, address: str):
    await client.invoke(address, request(ECHO))
    await client.stop()
    with pytest.raises(RemotingConnectError, match="the client is closed; make a new one"):
        await client.invoke(address, request(ECHO))
