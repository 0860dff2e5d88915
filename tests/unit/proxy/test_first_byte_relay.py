"""The relay in front of two echoing servers, by asyncio's loop and uvloop's."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from rocketbroker.proxy.first_byte_relay import FirstByteRelay
from rocketbroker.transport import failed_connections
from rocketbroker.transport.peer_limits import DEFAULT_LIMITS, ConnectionLimits


class Echo:
    """A server on a path that answers each read with its name and the bytes.

    Attributes:
        peers: addresses of its clients.
        answers: set while it may read.
        received: bytes that it read.
        ended: connections that have ended.
    """

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.peers: list[str] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.received = 0
        self.ended = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.append(writer.get_extra_info("peername"))
        try:
            await self.answers.wait()
            while data := await reader.read(65536):
                self.received += len(data)
                if data.endswith(b"bye"):
                    break
                writer.write(self.name + data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()
            self.ended += 1


class Relayed:
    """A relay, and the servers behind it."""

    def __init__(self, folder: Path, first_byte_s: float, limits: ConnectionLimits) -> None:
        self.plain, self.tls = Echo(b"plain:"), Echo(b"tls:")
        self.folder = folder
        self.relay = FirstByteRelay("127.0.0.1", 0, folder, folder / "plain", folder / "tls", first_byte_s, limits)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.relay.port)


@asynccontextmanager
async def relayed(first_byte_s: float = 20.0, limits: ConnectionLimits = DEFAULT_LIMITS) -> AsyncIterator[Relayed]:
    with tempfile.TemporaryDirectory() as name:
        found = Relayed(Path(name), first_byte_s, limits)
        servers = [await asyncio.start_unix_server(each.handle, Path(name) / path)
                   for each, path in ((found.plain, "plain"), (found.tls, "tls"))]  # fmt: skip
        await found.relay.start()
        try:
            yield found
        finally:
            await found.relay.stop()
            for server in servers:
                server.close()
            await until(lambda: found.plain.ended + found.tls.ended == len(found.plain.peers + found.tls.peers))


async def until(done: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not done():  # noqa: ASYNC110 - neither the relay nor the kernel has an event for it
            await asyncio.sleep(0.001)


async def is_closed(reader: asyncio.StreamReader) -> None:
    """Wait until the relay closes a connection."""
    async with asyncio.timeout(20):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""


@pytest.mark.parametrize(
    ("first", "answer"), [(b"\x16abc", b"tls:\x16abc"), (b"PRI", b"plain:PRI"), (b"\0", b"plain:\0")]
)
async def test_the_first_byte_decides(first: bytes, answer: bytes):
    async with relayed() as found:
        reader, writer = await found.connect()
        writer.write(first)
        assert await reader.readexactly(len(answer)) == answer
        writer.write(b"\x16")
        assert (await reader.read(100)).endswith(b":\x16")
        writer.close()


async def test_clients_are_known_by_the_path_of_their_connection():
    async with relayed() as found:
        clients = []
        for n in range(3):
            reader, writer = await found.connect()
            writer.write(b"hello")
            await reader.readexactly(len(b"plain:hello"))
            clients.append((found.plain.peers[n], writer))
        for path, writer in clients:
            host, port = writer.get_extra_info("sockname")
            assert found.relay.client_of(path) == f"{host}:{port}"
            writer.close()
        await until(lambda: not found.relay._ends)
        assert [found.relay.client_of(path) for path, _ in clients] == [path for path, _ in clients]
        assert sorted(each.name for each in found.folder.iterdir()) == ["plain", "tls"]


async def test_both_ends_close_together():
    async with relayed() as found:
        reader, writer = await found.connect()
        writer.write(b"bye")
        assert await reader.read() == b"", "closed by the server"
        writer.close()

        reader, writer = await found.connect()
        writer.write(b"hello")
        await reader.readexactly(len(b"plain:hello"))
        writer.close()
        await until(lambda: found.plain.ended == 2)
        await until(lambda: not found.relay._ends)


async def test_a_slow_reader_is_not_buffered_for():
    async with relayed() as found:
        found.plain.answers.clear()
        reader, writer = await found.connect()
        size = 32 << 20
        writer.write(bytes(size))
        await until(lambda: len(found.relay._ends) == 2)
        taken: list[int] = []

        def is_stalled() -> bool:
            taken.append(size - writer.transport.get_write_buffer_size())
            return len(taken) > 200 and taken[-1] == taken[-200]

        await until(is_stalled)
        assert max(each.transport.get_write_buffer_size() for each in found.relay._ends) < 1 << 20
        assert taken[-1] < 16 << 20, "what the buffers of the kernel take"
        found.plain.answers.set()
        echoed = 0
        while found.plain.received < size:
            echoed += len(await reader.read(1 << 20))
        writer.close()
        assert echoed


async def test_a_silent_connection_is_closed():
    async with relayed(first_byte_s=0.05) as found:
        reader, writer = await found.connect()
        await is_closed(reader)
        writer.close()
        assert not found.relay._ends


async def test_without_a_server_the_connection_is_closed(caplog: pytest.LogCaptureFixture):
    async with relayed() as found:
        (found.folder / "plain").unlink()
        reader, writer = await found.connect()
        writer.write(b"hello")
        await is_closed(reader)
        writer.close()
        await until(lambda: not found.relay._ends)
    assert "no connection within the process" in caplog.text


async def test_a_handshake_that_the_process_has_no_socket_for_is_no_failure_of_the_client():
    async with relayed() as found:
        (found.folder / "tls").unlink()
        reader, writer = await found.connect()
        writer.write(b"\x16")
        await is_closed(reader)
        writer.close()
        await until(lambda: not found.relay._ends)
        assert (found.relay.handshakes.begun, found.relay.failed.count) == (1, 0)


@pytest.fixture
def one_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one handshake of an address run."""
    monkeypatch.setattr("rocketbroker.transport.handshake_limits.MAX_RUNNING", 2)


@pytest.mark.usefixtures("one_handshake")
async def test_a_handshake_that_waits_is_read_on():
    async with relayed() as found:
        limits = found.relay.handshakes
        running, leaving = await found.connect(), await found.connect()
        running[1].write(b"\x16")
        await until(lambda: limits.begun == 1)
        leaving[1].write(b"\x16")
        await until(lambda: limits.waiting == 1)
        leaving[1].close()
        await until(lambda: not limits.waiting)

        reader, waiting = await found.connect()
        waiting.write(b"\x16ab")
        await until(lambda: limits.waiting == 1)
        waiting.write(b"cd")
        await until(lambda: found.relay.held_bytes == 6)
        running[1].close()
        assert await reader.readexactly(len(b"tls:\x16abcd")) == b"tls:\x16abcd"
        waiting.close()


@pytest.mark.usefixtures("one_handshake")
async def test_a_handshake_that_waits_keeps_few_bytes(caplog: pytest.LogCaptureFixture):
    async with relayed() as found:
        running, waiting = await found.connect(), await found.connect()
        running[1].write(b"\x16")
        await until(lambda: found.relay.handshakes.begun == 1)
        waiting[1].write(b"\x16")
        await until(lambda: found.relay.handshakes.waiting == 1)
        waiting[1].write(bytes(64 * 1024))
        await is_closed(waiting[0])
        assert "it sent more than 65,536 bytes before its handshake" in caplog.text
        for _, writer in (running, waiting):
            writer.close()


@pytest.mark.usefixtures("one_handshake")
async def test_no_handshake_begins_in_a_stop():
    async with relayed() as found:
        limits = found.relay.handshakes
        running, waiting = await found.connect(), await found.connect()
        running[1].write(b"\x16")
        await until(lambda: found.tls.peers)
        waiting[1].write(b"\x16")
        await until(lambda: limits.waiting == 1)
        await found.relay.stop_accepting()
        for end in found.relay._ends:
            if end.other is not None and end.handshake is not None:
                end.handshake.end(failed=False)  # the one that waits is next
        for _, writer in (running, waiting):
            writer.close()
        await found.relay.stop()
        assert (limits.begun, limits.waiting, found.relay.failed.count) == (1, 0, 0)


@pytest.mark.parametrize("by_grpc", [True, False])
async def test_a_handshake_that_fails_is_logged(caplog: pytest.LogCaptureFixture, *, by_grpc: bool):
    async with relayed() as found:
        reader, writer = await found.connect()
        writer.write(b"\x16bye" if by_grpc else b"\x16")
        if by_grpc:
            await is_closed(reader)
        else:
            await reader.readexactly(len(b"tls:\x16"))
        writer.close()
        await until(lambda: not found.relay._ends)
        assert found.relay.failed.count == 1
    reason = "gRPC refused it" if by_grpc else "the client closed it"
    assert f"the handshake failed: {reason}" in caplog.text


@pytest.mark.parametrize(
    ("size", "failures", "stays"),
    [(64, 0, False), (64, 0, True), (19, 1, False)],
    ids=["settings", "settings of a server that stays", "alert"],
)
async def test_the_answer_to_a_client_that_has_left_decides(size: int, failures: int, *, stays: bool):
    may_close, closed = asyncio.Event(), asyncio.Event()
    if not stays:
        may_close.set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(record(22, 64))
        await reader.read()
        writer.write(record(23, size))
        await may_close.wait()
        writer.close()
        closed.set()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = await asyncio.start_unix_server(handle, folder / "tls")
        relay = FirstByteRelay("127.0.0.1", 0, folder, None, folder / "tls", 20.0)
        await relay.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(b"\x16")
        await reader.readexactly(69)
        writer.write(record(23, 64))
        writer.close()
        try:
            await until(lambda: not relay._ends)
        finally:
            may_close.set()
            await closed.wait()
            await relay.stop()
            server.close()
    assert (relay.handshakes._running, relay.failed_handshakes, relay.failed.count) == (0, failures, failures)


async def test_an_address_that_talks_plain_text_to_a_port_of_tls_is_failing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in (("FREE", 2), ("BURST", 3)):
        monkeypatch.setattr(failed_connections, name, value)
    relay = FirstByteRelay("127.0.0.1", 0, tmp_path, None, tmp_path / "tls", 20.0)
    # The time stands still: a slow machine serves no more of them.
    relay.failed._time = lambda: 100.0
    await relay.start()
    for _ in range(8):
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(b"PRI")
        await is_closed(reader)
        writer.close()
    await relay.stop()
    assert (relay.failed_handshakes, relay.rejected_connections) == (6, {"failedConnections": 2})


def record(kind: int, size: int) -> bytes:
    return bytes([kind, 3, 3, 0, size]) + bytes(size)


async def test_connections_have_a_limit(caplog: pytest.LogCaptureFixture):
    async with relayed(limits=ConnectionLimits(max_connections=2)) as found:
        first, second = await found.connect(), await found.connect()
        await until(lambda: len(found.relay._ends) == 2)
        rejected, writer = await found.connect()
        await is_closed(rejected)
        writer.close()
        assert "2 connections are open and the limit is 2 (maxConnections)" in caplog.text
        first[1].close()
        await until(lambda: len(found.relay._ends) == 1)
        reader, third = await found.connect()
        third.write(b"hello")
        assert await reader.readexactly(len(b"plain:hello")) == b"plain:hello"
        for writer in (second[1], third):
            writer.close()


async def test_the_connection_with_most_bytes_of_incomplete_requests_is_closed(caplog: pytest.LogCaptureFixture):
    async with relayed(limits=ConnectionLimits(max_held_bytes=100_000)) as found:
        little, much = await found.connect(), await found.connect()
        little[1].write(bytes(30_000))
        await until(lambda: found.relay.held_bytes == 30_000)
        much[1].write(bytes(90_000))
        with suppress(ConnectionResetError, asyncio.IncompleteReadError):
            await much[0].readexactly(100_000_000)
        assert found.relay.held_bytes == 30_000
        assert sum("(maxHeldBytes)" in each for each in caplog.messages) == 1
        little[1].write(bytes(30_000))
        await until(lambda: found.relay.held_bytes == 60_000)
        for _, writer in (little, much):
            writer.close()
        await until(lambda: not found.relay._ends)
        assert found.relay.held_bytes == 0


async def test_requests_that_are_handled_are_not_held():
    async with relayed() as found:
        _, writer = await found.connect()
        writer.write(bytes(70_000))
        await until(lambda: found.relay.held_bytes == 70_000 and found.plain.peers)
        path = found.plain.peers[0]
        found.relay.handled(path, 10_000)
        assert found.relay.held_bytes == 70_000 - 10_000 - 10_000 // 64 - 512
        found.relay.replied(path, 1 << 20)
        assert found.relay.held_bytes == 70_000 - 10_000 - 10_000 // 64 - 512 - 1024
        found.relay.handled(path, 70_000)
        assert found.relay.held_bytes == 0, "no less than nothing"
        writer.close()
        await until(lambda: not found.relay._ends)


async def test_a_stop_ends_connections_within_bounded_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rocketbroker.proxy.first_byte_relay._LINGER_S", 0.05)
    async with relayed() as found:
        silent, speaking = await found.connect(), await found.connect()
        speaking[1].write(b"hello")
        await speaking[0].readexactly(len(b"plain:hello"))
        await until(lambda: len(found.relay._ends) == 3)
        found.plain.name = b"late:"
        async with asyncio.timeout(10):
            await found.relay.stop()
        for reader, writer in (silent, speaking):
            await is_closed(reader)
            writer.close()
        with pytest.raises(ConnectionRefusedError):
            await found.connect()
