"""Frames of one connection, joined or handed over as they are."""

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import Mock, create_autospec

import pytest

from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.common.errors import RemotingConnectError, RemotingSendError
from rocketbroker.transport import frame_writer
from rocketbroker.transport.frame_writer import FrameWriter, SharedWriter, TlsTransport
from rocketbroker.transport.remoting_client import RemotingClient
from rocketbroker.transport.remoting_server import RemotingServer
from tests.support.certificates import server_context, tls_tunnel
from tests.support.running import stopping
from tests.support.transports import ECHO, HOLDING, LATER, Handlers, made_transports
from tests.support.waiting import until


class Recorder(asyncio.Transport):
    """Transport that keeps what each call wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.calls.append(("write", len(data)))

    def writelines(self, list_of_data: object) -> None:
        self.calls.append(("writelines", sum(map(len, list_of_data))))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("pauses", "sizes", "call"),
    [
        (True, [100], "write"),
        (True, [100, 200], "write"),
        (True, [100, 70_000], "writelines"),
        (False, [100, 70_000], "write"),
    ],
)
async def test_large_frames_are_joined_only_where_writelines_never_pauses(
    monkeypatch: pytest.MonkeyPatch, pauses: bool, sizes: list[int], call: str
):
    monkeypatch.setattr(frame_writer, "_WRITELINES_PAUSES", pauses)
    writer = FrameWriter(asyncio.get_running_loop())
    writer.transport = recorder = Recorder()

    writer.write([bytes(size) for size in sizes])

    assert recorder.calls == [(call, sum(sizes))]


@pytest.fixture
async def context(tmp_path: Path) -> ssl.SSLContext:
    return await asyncio.to_thread(server_context, tmp_path)


@pytest.fixture
def trusting(context: ssl.SSLContext, tmp_path: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))


@pytest.fixture
async def address(server: RemotingServer, context: ssl.SSLContext) -> AsyncIterator[str]:
    async with tls_tunnel(f"127.0.0.1:{server.port}", context) as address:
        yield address


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
async def test_requests_of_any_size_are_answered(
    address: str, trusting: ssl.SSLContext, version: ssl.TLSVersion, size: int, monkeypatch: pytest.MonkeyPatch
):
    trusting.minimum_version = trusting.maximum_version = version
    transports = made_transports(monkeypatch)
    async with stopping(RemotingClient(tls=trusting)) as client:
        bodies = [b"%d" % number + bytes(size) for number in range(3)]
        answers = await asyncio.gather(*(client.invoke(address, request(ECHO, None, body), 60) for body in bodies))
        assert [answer.body for answer in answers] == bodies
        [transport] = [each for each in transports if isinstance(each, TlsTransport)]
        assert transport.get_extra_info("ssl_object").version().replace(".", "_") == version.name


async def test_a_second_thread_sends_between_frames_of_the_loop(
    address: str, trusting: ssl.SSLContext, handlers: Handlers
):
    async with stopping(RemotingClient(tls=trusting)) as client:
        await client.invoke(address, request(ECHO))
        body = b"x" * 10_000

        def send() -> int:
            return sum(client.send_from_thread(address, request(HOLDING, None, body)) for _ in range(100))

        sending = asyncio.create_task(asyncio.to_thread(send))
        answers = [await client.invoke(address, request(ECHO, None, b"%d" % index)) for index in range(100)]
        sent = await sending
        assert [answer.body for answer in answers] == [b"%d" % index for index in range(100)]
        assert sent > 0
        await until(lambda: [each for each in handlers.seen if each[0] == HOLDING] == [(HOLDING, body)] * sent)


async def test_data_waits_while_reading_is_paused(address: str, trusting: ssl.SSLContext, handlers: Handlers):
    async with stopping(RemotingClient(tls=trusting)) as client, stopping(RemotingClient(tls=trusting)) as other:
        connection = await client.connect(address)
        connection.stop_reading()
        answer = asyncio.create_task(client.invoke(address, request(ECHO, None, bytes(1_000_000)), 60))
        await until(lambda: len(handlers.seen) == 1)
        # A later answer of the same length on another connection has come.
        await other.invoke(address, request(ECHO, None, bytes(1_000_000)), 60)
        assert not answer.done()
        connection.read_again()
        assert len((await answer).body) == 1_000_000


async def test_another_certificate_is_rejected(address: str):
    async with stopping(RemotingClient(tls=ssl.create_default_context())) as client:
        with pytest.raises(RemotingConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.connect(address)


async def test_another_host_is_rejected(address: str, trusting: ssl.SSLContext):
    async with stopping(RemotingClient(tls=trusting)) as client:
        with pytest.raises(RemotingConnectError, match="Hostname mismatch"):
            await client.connect(f"localhost:{address.rpartition(':')[2]}")


async def test_a_server_without_tls_is_rejected(server: RemotingServer, trusting: ssl.SSLContext):
    async with stopping(RemotingClient(tls=trusting)) as client:
        with pytest.raises(RemotingConnectError):
            await client.connect(f"127.0.0.1:{server.port}")


async def test_a_silent_server_is_given_up(trusting: ssl.SSLContext):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with stopping(RemotingClient(tls=trusting, connect_timeout_s=0.1)) as client:
            with pytest.raises(RemotingConnectError, match="no answer within"):
                await client.connect(f"127.0.0.1:{silent.getsockname()[1]}")


async def test_the_end_of_the_peer_ends_requests(
    server: RemotingServer, context: ssl.SSLContext, trusting: ssl.SSLContext
):
    async with stopping(RemotingClient(tls=trusting)) as client:
        async with tls_tunnel(f"127.0.0.1:{server.port}", context) as address:
            waiting = asyncio.create_task(client.invoke(address, request(LATER), 60))
            await client.invoke(address, request(ECHO))
            for connection in list(server.connections):
                connection.drop("the test ends it")
            with pytest.raises(RemotingSendError):
                await waiting
        assert not client.is_connected(address)


@pytest.fixture
def protocol() -> Mock:
    protocol: Mock = create_autospec(asyncio.BufferedProtocol, instance=True)
    protocol.get_buffer.return_value = memoryview(bytearray(100))
    return protocol


async def test_the_refusal_of_a_client_certificate_is_logged(
    context: ssl.SSLContext,
    trusting: ssl.SSLContext,
    protocol: Mock,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    """In TLS 1.3 it follows the client's handshake."""
    trusting.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(tmp_path / "certificate.pem")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    plain = create_autospec(asyncio.Transport, instance=True)
    plain.write.side_effect = to_server.write
    plain.is_closing.return_value = False
    plain.get_extra_info.return_value = ("192.0.2.7", 4000)
    tls = TlsTransport(protocol, trusting, "127.0.0.1")
    tls.connection_made(plain)
    with pytest.raises(ssl.SSLWantReadError):
        server.do_handshake()
    tls.data_received(to_client.read())
    assert tls.ready.done()
    with pytest.raises(ssl.SSLError):
        server.do_handshake()

    tls.data_received(to_client.read())

    assert "192.0.2.7" in caplog.text
    assert "certificate required" in caplog.text
    plain.close.assert_called_once_with()
    tls.connection_lost(None)
    (error,) = protocol.connection_lost.call_args.args
    assert isinstance(error, ssl.SSLError)


async def test_a_cancelled_connect_leaves_no_error(
    trusting: ssl.SSLContext, protocol: Mock, caplog: pytest.LogCaptureFixture
):
    tls = TlsTransport(protocol, trusting, "127.0.0.1")
    tls.connection_lost(None)
    await asyncio.sleep(0)
    del tls
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_a_second_thread_sends_between_frames_of_the_loop_shared_writer(
    server: RemotingServer, handlers: Handlers
):
    address = f"127.0.0.1:{server.port}"
    async with stopping(RemotingClient()) as client:
        assert not client.send_from_thread(address, request(HOLDING))
        await client.invoke(address, request(ECHO))
        body = b"x" * 10_000

        def send() -> int:
            return sum(client.send_from_thread(address, request(HOLDING, None, body)) for _ in range(200))

        sending = asyncio.create_task(asyncio.to_thread(send))
        answers = [await client.invoke(address, request(ECHO, None, b"%d" % index)) for index in range(200)]
        sent = await sending
        assert [answer.body for answer in answers] == [b"%d" % index for index in range(200)]
        assert sent > 0
        await until(lambda: [each for each in handlers.seen if each[0] == HOLDING] == [(HOLDING, body)] * sent)


async def test_a_socket_that_is_closed_already_is_no_error():
    with socket.socket() as closed:
        pass
    transport = create_autospec(asyncio.Transport, instance=True)
    transport.is_closing.return_value = False
    transport.get_write_buffer_size.return_value = 0
    transport.get_extra_info.side_effect = {"socket": closed}.get
    writer = SharedWriter(asyncio.get_running_loop())
    writer.transport = transport
    assert not writer.write_from_thread(b"frame")


async def test_nothing_follows_a_frame_that_left_in_part():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        transport = create_autospec(asyncio.Transport, instance=True)
        transport.is_closing.return_value = False
        transport.get_write_buffer_size.return_value = 0
        transport.get_extra_info.side_effect = {"socket": ours}.get
        writer = SharedWriter(asyncio.get_running_loop())
        writer.transport = transport
        assert not writer.write_from_thread(bytes(10_000_000))
        with pytest.raises(BrokenPipeError):
            ours.send(b"next")
