"""TLS transports of both ends, between real sockets, and ports that serve TLS and plain text."""

import asyncio
import gc
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock, create_autospec

import pytest

from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.common.certificates import CertificateAuthority
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import TransportConfig
from rocketbroker.common.errors import RemotingConnectError, RemotingSendError
from rocketbroker.transport import failed_connections, handshake_limits, tls_transport
from rocketbroker.transport.handshake_limits import MAX_WAITING_OF_ADDRESS
from rocketbroker.transport.peer_limits import ConnectionLimits
from rocketbroker.transport.remoting_client import RemotingClient
from rocketbroker.transport.remoting_server import RemotingServer
from rocketbroker.transport.tls_contexts import client_context
from rocketbroker.transport.tls_transport import RemotingTls, TlsTransport
from tests.support.certificates import server_context, tls_tunnel
from tests.support.running import running, stopping
from tests.support.tls_files import TlsFiles
from tests.support.transports import ECHO, HOLDING, LATER, Handlers, frame, made_transports, split_frames
from tests.support.waiting import until


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
    async with stopping(RemotingClient(tls=lambda: trusting)) as client:
        bodies = [b"%d" % number + bytes(size) for number in range(3)]
        answers = await asyncio.gather(*(client.invoke(address, request(ECHO, None, body), 60) for body in bodies))
        assert [answer.body for answer in answers] == bodies
        [transport] = [each for each in transports if isinstance(each, TlsTransport)]
        assert transport.get_extra_info("ssl_object").version().replace(".", "_") == version.name


async def test_a_second_thread_sends_between_frames_of_the_loop(
    address: str, trusting: ssl.SSLContext, handlers: Handlers
):
    async with stopping(RemotingClient(tls=lambda: trusting)) as client:
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
    async with (
        stopping(RemotingClient(tls=lambda: trusting)) as client,
        stopping(RemotingClient(tls=lambda: trusting)) as other,
    ):
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
    async with stopping(RemotingClient(tls=ssl.create_default_context)) as client:
        with pytest.raises(RemotingConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.connect(address)


async def test_another_host_is_rejected(address: str, trusting: ssl.SSLContext):
    async with stopping(RemotingClient(tls=lambda: trusting)) as client:
        with pytest.raises(RemotingConnectError, match="Hostname mismatch"):
            await client.connect(f"localhost:{address.rpartition(':')[2]}")


async def test_a_server_without_tls_is_rejected(server: RemotingServer, trusting: ssl.SSLContext):
    async with stopping(RemotingClient(tls=lambda: trusting)) as client:
        with pytest.raises(RemotingConnectError):
            await client.connect(f"127.0.0.1:{server.port}")


async def test_a_silent_server_is_given_up(trusting: ssl.SSLContext):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with stopping(RemotingClient(tls=lambda: trusting, connect_timeout_s=0.1)) as client:
            with pytest.raises(RemotingConnectError, match="no answer within"):
                await client.connect(f"127.0.0.1:{silent.getsockname()[1]}")


async def test_the_end_of_the_peer_ends_requests(
    server: RemotingServer, context: ssl.SSLContext, trusting: ssl.SSLContext
):
    async with stopping(RemotingClient(tls=lambda: trusting)) as client:
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


LOCAL = "127.0.0.1"


@pytest.fixture
async def files(tmp_path: Path) -> TlsFiles:
    return await asyncio.to_thread(TlsFiles, tmp_path)


def settings_of(files: TlsFiles, **more: str) -> TransportConfig:
    return TransportConfig.model_validate(files.of_server(**more))


def tls_server(handlers: Handlers, settings: TransportConfig, **options: object) -> RemotingServer:
    return RemotingServer(handlers.routes(), host=LOCAL, tls=RemotingTls(settings).server, **options)  # type: ignore[arg-type]


async def ask(server: RemotingServer, context: ssl.SSLContext | None, body: bytes = b"hello") -> bytes:
    """Return the answer to one request over a connection of its own."""
    async with stopping(RemotingClient(tls=None if context is None else lambda: context)) as client:
        return bytes((await client.invoke(f"{LOCAL}:{server.port}", request(ECHO, None, body), 60)).body)


@pytest.mark.parametrize("mode", ["permissive", "enforcing", "disabled"])
async def test_the_mode_says_what_is_served(files: TlsFiles, handlers: Handlers, mode: str):
    async with running(tls_server(handlers, settings_of(files, mode=mode))) as server:
        for context, served in ((files.context(), mode != "disabled"), (None, mode != "enforcing")):
            if served:
                assert await ask(server, context) == b"hello"
            else:
                with pytest.raises((RemotingConnectError, RemotingSendError)):
                    await ask(server, context)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
async def test_a_server_answers_requests_of_any_size(
    files: TlsFiles, handlers: Handlers, version: ssl.TLSVersion, size: int
):
    context = files.context()
    context.minimum_version = context.maximum_version = version
    async with running(tls_server(handlers, settings_of(files))) as server:
        async with stopping(RemotingClient(tls=lambda: context)) as client:
            bodies = [b"%d" % number + bytes(size) for number in range(5)]
            address = f"{LOCAL}:{server.port}"
            answers = await asyncio.gather(*(client.invoke(address, request(ECHO, None, body), 60) for body in bodies))
        assert [answer.body for answer in answers] == bodies


@pytest.mark.parametrize("step", [1, 2, 1000])
@pytest.mark.parametrize("over_tls", [True, False])
async def test_bytes_may_come_in_any_pieces(files: TlsFiles, handlers: Handlers, step: int, over_tls: bool):
    """The first byte alone decides, and the rest of a handshake or frame may come at any time."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = files.context().wrap_bio(incoming, outgoing, server_hostname=LOCAL)
    async with running(tls_server(handlers, settings_of(files))) as server:
        reader, writer = await asyncio.open_connection(LOCAL, server.port)

        async def send(data: bytes) -> None:
            for position in range(0, len(data), step):
                writer.write(data[position : position + step])
                await writer.drain()
                await asyncio.sleep(0)

        found, wanted = b"", frame(ECHO, b"some body")
        if over_tls:
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await send(outgoing.read())
                    incoming.write(await reader.read(65536))
            await send(outgoing.read())
            client.write(wanted)
            await send(outgoing.read())
        else:
            await send(wanted)
        while not found or not split_frames(found):
            data = await reader.read(65536)
            if over_tls:
                incoming.write(data)
                try:
                    found += client.read(65536)
                except ssl.SSLWantReadError:
                    continue
            else:
                found += data
        writer.close()
        await writer.wait_closed()
    assert split_frames(found)[0].body == b"some body"


async def test_certificates_of_clients_are_demanded(files: TlsFiles, handlers: Handlers):
    settings = settings_of(files, need_client_auth="require", trustCertPath=str(files.ca))
    other = await asyncio.to_thread(CertificateAuthority, SystemClock())
    files.write("stranger", other.issue("stranger"))
    files.write("expired", files.authority.issue("expired", valid=timedelta(days=-1)))
    async with running(tls_server(handlers, settings)) as server:
        assert server.tls is not None
        assert await ask(server, files.context("client")) == b"hello"
        for number, name in enumerate(("", "stranger", "expired"), 1):
            with pytest.raises((RemotingConnectError, RemotingSendError)):
                await ask(server, files.context(name))
            await until(lambda number=number: server.tls.failed == number)  # type: ignore[misc]
    assert [each for each in handlers.seen if each[0] != ECHO] == []
    assert len(handlers.seen) == 1


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        ("expired", "certificate has expired"),
        ("elsewhere", "IP address mismatch"),
        ("stranger", "unable to get local issuer"),
    ],
)
async def test_a_client_rejects_a_server_with_the_wrong_certificate(
    files: TlsFiles, handlers: Handlers, certificate: str, reason: str
):
    made = {
        "expired": lambda: files.authority.issue("server", [LOCAL], timedelta(days=-1)),
        "elsewhere": lambda: files.authority.issue("server", ["192.0.2.1", "broker.example"]),
        "stranger": lambda: CertificateAuthority(SystemClock()).issue("server", [LOCAL]),
    }
    files.write("server", await asyncio.to_thread(made[certificate]))
    async with running(tls_server(handlers, settings_of(files))) as server:
        with pytest.raises(RemotingConnectError, match=reason):
            await ask(server, files.context())
    assert handlers.seen == []


async def test_one_that_never_ends_its_handshake_is_dropped(
    files: TlsFiles, handlers: Handlers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(tls_transport, "HANDSHAKE_TIMEOUT_S", 0.1)
    async with running(tls_server(handlers, settings_of(files))) as server:
        reader, writer = await asyncio.open_connection(LOCAL, server.port)
        writer.write(b"\x16\x03\x01")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        assert await ask(server, files.context()) == b"hello"
    assert "its handshake took longer than 0.1 s" in caplog.text


async def test_those_in_a_handshake_count_as_connections(files: TlsFiles, handlers: Handlers):
    limits = ConnectionLimits(max_connections=1)
    async with running(tls_server(handlers, settings_of(files), limits=limits)) as server:
        _, writer = await asyncio.open_connection(LOCAL, server.port)
        writer.write(b"\x16\x03\x01")
        await until(lambda: len(server.connections) == 1)
        with pytest.raises((RemotingConnectError, RemotingSendError)):
            await ask(server, files.context())
        writer.close()
        await writer.wait_closed()
        await until(lambda: not server.connections)
        assert await ask(server, files.context()) == b"hello"


@pytest.mark.parametrize("data", [b"\x16", b"\x16\x03\x01\x00\x05hello", b"\x16" * 70_000])
async def test_what_is_no_handshake_is_refused(files: TlsFiles, handlers: Handlers, data: bytes):
    async with running(tls_server(handlers, settings_of(files))) as server:
        reader, writer = await asyncio.open_connection(LOCAL, server.port)
        writer.write(data)
        writer.write_eof()
        await asyncio.gather(reader.read(), return_exceptions=True)
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        await until(lambda: not server.connections)
        assert server.tls is not None
        assert server.tls.failed == 1
    assert handlers.seen == []


async def test_changed_files_serve_new_connections(
    files: TlsFiles, handlers: Handlers, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    tls = RemotingTls(settings_of(files))
    async with (
        running(RemotingServer(handlers.routes(), host=LOCAL, tls=tls.server)) as server,
        stopping(RemotingClient(tls=files.context)) as client,
    ):
        address = f"{LOCAL}:{server.port}"
        await client.invoke(address, request(ECHO))
        other = await asyncio.to_thread(CertificateAuthority, SystemClock())
        files.write("server", other.issue("server", [LOCAL]))
        await tls.renew()
        with pytest.raises(RemotingConnectError, match="unable to get local issuer"):
            await ask(server, files.context())
        # Open connections go on.
        assert (await client.invoke(address, request(ECHO, None, b"still"))).body == b"still"
        (files.folder / "server.key").write_bytes(b"half a key")
        await tls.renew()
        files.ca.write_bytes(other.chain)
        assert await ask(server, files.context()) == b"hello"
    assert "new connections use the changed files" in caplog.text
    assert "changed files of this server are not used" in caplog.text


async def test_a_revoked_client_is_refused(files: TlsFiles, handlers: Handlers):
    files.write("other", files.authority.issue("other"))
    tls = RemotingTls(settings_of(files, need_client_auth="require", trustCertPath=str(files.ca)))
    async with running(RemotingServer(handlers.routes(), host=LOCAL, tls=tls.server)) as server:
        assert await ask(server, files.context("client")) == b"hello"
        issuers = files.ca.read_bytes()
        files.ca.write_bytes(issuers + files.revocation_list("client"))
        await tls.renew()
        trusting = ssl.create_default_context(cadata=issuers.decode())
        for name, is_served in (("client", False), ("other", True)):
            trusting.load_cert_chain(files.folder / f"{name}.pem", files.folder / f"{name}.key")
            if is_served:
                assert await ask(server, trusting) == b"hello"
            else:
                with pytest.raises((RemotingConnectError, RemotingSendError)):
                    await ask(server, trusting)
    assert server.tls is not None
    assert server.tls.failed == 1


@pytest.mark.parametrize(
    ("list_of", "said"),
    [
        (lambda files, _: files.revocation_list("client"), r"certificate revoked \(a revocation list in tls\.server"),
        (
            lambda files, _: files.revocation_list(valid=timedelta(hours=-1)),
            r"CRL has expired \(replace the revocation",
        ),
        (
            lambda _, other: other.revocation_list(),
            r"unable to get certificate CRL \(tls\.server\.trustCertPath has rev",
        ),
    ],
)
async def test_the_log_tells_why_a_certificate_is_refused(
    files: TlsFiles,
    handlers: Handlers,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    list_of: Callable[[TlsFiles, TlsFiles], bytes],
    said: str,
):
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(CertificateAuthority, "_NAME", "another authority")
    lists = list_of(files, TlsFiles(tmp_path / "other"))
    files.ca.write_bytes(files.authority.chain + lists)
    settings = settings_of(files, need_client_auth="require", trustCertPath=str(files.ca))
    async with running(tls_server(handlers, settings)) as server:
        trusting = ssl.create_default_context(cadata=files.authority.chain.decode())
        trusting.load_cert_chain(files.folder / "client.pem", files.folder / "client.key")
        with pytest.raises((RemotingConnectError, RemotingSendError)):
            await ask(server, trusting)
        assert server.tls is not None
        tls = server.tls
        await until(lambda: tls.failed == 1)
    assert re.search(f"the handshake failed: the client's certificate: {said}", caplog.text)


async def test_a_revoked_server_is_refused(files: TlsFiles, handlers: Handlers):
    revoked = files.revocation_list("server")
    async with running(tls_server(handlers, settings_of(files))) as server:
        files.ca.write_bytes(files.ca.read_bytes() + revoked)
        config = TransportConfig.model_validate(files.of_client())
        with pytest.raises(RemotingConnectError, match="certificate revoked"):
            await ask(server, client_context(config))


async def test_clients_of_an_issuer_that_is_no_longer_trusted_are_refused(files: TlsFiles, handlers: Handlers):
    issuers = files.folder / "issuers.pem"
    other = await asyncio.to_thread(CertificateAuthority, SystemClock())
    files.write("other", other.issue("other"))
    issuers.write_bytes(files.authority.chain + other.chain)
    tls = RemotingTls(settings_of(files, need_client_auth="require", trustCertPath=str(issuers)))
    async with running(RemotingServer(handlers.routes(), host=LOCAL, tls=tls.server)) as server:
        for name in ("client", "other"):
            assert await ask(server, files.context(name)) == b"hello"
        issuers.write_bytes(other.chain)
        await tls.renew()
        with pytest.raises((RemotingConnectError, RemotingSendError)):
            await ask(server, files.context("client"))
        assert await ask(server, files.context("other")) == b"hello"


async def test_a_peer_that_takes_no_answers_is_not_read(files: TlsFiles, handlers: Handlers):
    limits = ConnectionLimits(write_high_water=64 * 1024)
    async with (
        running(tls_server(handlers, settings_of(files), limits=limits)) as server,
        stopping(RemotingClient(tls=files.context)) as client,
    ):
        connection = await client.connect(f"{LOCAL}:{server.port}")
        connection.stop_reading()
        body = bytes(1_000_000)
        answers = [
            asyncio.create_task(client.invoke(f"{LOCAL}:{server.port}", request(ECHO, None, body), 60))
            for _ in range(30)
        ]
        await until(lambda: len(server.connections) == 1)
        [served] = server.connections
        await until(lambda: served.is_paused)
        assert len(handlers.seen) < 30
        connection.read_again()
        assert [len(answer.body) for answer in await asyncio.gather(*answers)] == [len(body)] * 30


class Plain(asyncio.Transport):
    """Transport of encrypted data that leads to memory; it keeps what OpenSSL gives, in pieces."""

    def __init__(self, to_peer: ssl.MemoryBIO) -> None:
        super().__init__()
        self._to_peer = to_peer
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self._to_peer.write(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("192.0.2.7", 4000) if name == "peername" else default


class Pair:
    """A client's transport and the other end of its connection, after the handshake."""

    def __init__(self, protocol: Mock, context: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
        self.to_server, self.to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = context.wrap_bio(self.to_server, self.to_client, server_side=True)
        self.plain = Plain(self.to_server)
        self.tls = TlsTransport(protocol, trusting, LOCAL)
        self.tls.connection_made(self.plain)
        while not self.tls.ready.done():
            with suppress(ssl.SSLWantReadError):
                self.server.do_handshake()
            self.tls.data_received(self.to_client.read())
        self.server.do_handshake()
        self.tls.data_received(self.to_client.read())

    def sent(self, *parts: bytes) -> bytes:
        """Return the records in which the server sends data."""
        for part in parts:
            self.server.write(part)
        return self.to_client.read()


@pytest.fixture
def taken(protocol: Mock) -> list[bytes]:
    """Bytes given to the protocol, by call."""
    room, found = memoryview(bytearray(100_000)), list[bytes]()
    protocol.get_buffer.return_value = room
    protocol.buffer_updated.side_effect = lambda number: found.append(bytes(room[:number]))
    return found


async def test_a_protocol_gets_as_much_as_has_come(
    context: ssl.SSLContext, trusting: ssl.SSLContext, protocol: Mock, taken: list[bytes]
):
    """A protocol takes a full buffer for a peer that has more to send, and lets others go first."""
    pair = Pair(protocol, context, trusting)

    pair.tls.data_received(pair.sent(bytes(250_000)))

    assert [len(each) for each in taken] == [100_000, 100_000, 50_000]


async def test_the_end_of_a_peer_loses_nothing_that_it_sent(
    context: ssl.SSLContext, trusting: ssl.SSLContext, protocol: Mock, taken: list[bytes]
):
    pair = Pair(protocol, context, trusting)
    pair.tls.pause_reading()
    records = pair.sent(*[b"%06d" % number for number in range(5000)])
    pair.tls.data_received(records)
    assert taken == []
    assert pair.tls.unread_bytes == len(records)

    assert pair.tls.eof_received()
    assert not pair.plain.closed
    pair.tls.resume_reading()
    await until(lambda: pair.plain.closed)

    assert b"".join(taken) == b"".join(b"%06d" % number for number in range(5000))
    assert pair.tls.unread_bytes == 0
    pair.tls.connection_lost(None)
    (error,) = protocol.connection_lost.call_args.args
    assert isinstance(error, ssl.SSLEOFError), "the end was not signed, so an attacker may have cut it"


async def test_an_end_that_is_signed_is_no_error(
    context: ssl.SSLContext, trusting: ssl.SSLContext, protocol: Mock, taken: list[bytes]
):
    pair = Pair(protocol, context, trusting)
    records = pair.sent(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        pair.server.unwrap()

    pair.tls.data_received(records + pair.to_client.read())
    pair.tls.connection_lost(None)

    assert taken == [b"last"]
    assert pair.plain.closed
    protocol.connection_lost.assert_called_once_with(None)


async def test_a_write_after_the_end_is_nothing(
    context: ssl.SSLContext, trusting: ssl.SSLContext, protocol: Mock, caplog: pytest.LogCaptureFixture
):
    pair = Pair(protocol, context, trusting)
    pair.tls.close()

    pair.tls.write(b"late")

    assert caplog.text == ""


async def test_a_large_write_leaves_no_large_buffer(context: ssl.SSLContext, trusting: ssl.SSLContext, protocol: Mock):
    """OpenSSL's memory never shrinks, so it is given and drained of pieces."""
    pair = Pair(protocol, context, trusting)
    most = 0

    class Watched(Plain):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            nonlocal most
            most = max(most, pair.tls._outgoing.pending)

    pair.plain.__class__ = Watched
    assert len(pair.tls.encrypt(bytes(3_000_000))) > 3_000_000
    assert pair.tls._outgoing.pending == 0
    assert most == 0


async def test_requests_before_a_half_close_are_all_served(files: TlsFiles, handlers: Handlers):
    requests = b"".join(frame(ECHO, b"%05d" % number) for number in range(3000))
    async with running(tls_server(handlers, settings_of(files))) as server:
        context = files.context()
        ours = await asyncio.to_thread(socket.create_connection, (LOCAL, server.port))
        sock = await asyncio.to_thread(context.wrap_socket, ours, server_hostname=LOCAL)
        await asyncio.to_thread(sock.sendall, requests)
        ours_shut = socket.socket.shutdown
        await asyncio.to_thread(ours_shut, sock, socket.SHUT_WR)
        await until(lambda: len(handlers.seen) == 3000)
        await until(lambda: not server.connections)
        sock.close()


async def test_a_handshake_that_the_peer_cuts_is_counted(files: TlsFiles, handlers: Handlers):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = files.context().wrap_bio(incoming, outgoing, server_hostname=LOCAL)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    async with running(tls_server(handlers, settings_of(files))) as server:
        tls = server.tls
        assert tls is not None
        reader, writer = await asyncio.open_connection(LOCAL, server.port)
        writer.write(outgoing.read())
        await reader.read(10)
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        await until(lambda: tls.failed == 1)
        await until(lambda: not server.connections)
    assert tls.failed == 1


class _Ends(asyncio.Transport):
    """A transport between two addresses."""

    def __init__(self, peer: str, own: str) -> None:
        super().__init__({"peername": (peer, 5), "sockname": (own, 6)})


async def test_connections_in_plain_text_of_other_machines_are_counted(tmp_path: Path):
    tls = RemotingTls(TransportConfig.model_validate(TlsFiles(tmp_path).of_server()))
    assert tls.server is not None
    tls.server.note_plain_text(_Ends("127.0.0.1", "127.0.0.1"))
    assert tls.runtime_info() == {}
    for peer in ("10.0.1.7", "10.0.1.8"):
        tls.server.note_plain_text(_Ends(peer, "10.0.0.1"))
    assert tls.runtime_info() == {"plainTextConnections": "2", "lastPlainTextPeer": "10.0.1.8"}


async def test_failed_handshakes_of_an_address_are_few_however_many_come_and_the_served_are_served(
    files: TlsFiles, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
):
    # As if everybody had the whole test to wait in.
    monkeypatch.setattr(handshake_limits, "PACE_S", 3600.0)
    for name, value in (("FREE", 10), ("LEAK", 0.0), ("BURST", 1_000)):
        monkeypatch.setattr(failed_connections, name, value)
    async with (
        running(tls_server(handlers, settings_of(files))) as server,
        stopping(RemotingClient(tls=files.context)) as client,
    ):
        assert server.tls is not None
        address, limits = f"{LOCAL}:{server.port}", server.tls.handshakes
        await client.invoke(address, request(ECHO), 60)
        strangers = []
        for number in range(300):
            reader, writer = await asyncio.open_connection(LOCAL, server.port)
            writer.write(b"\x16\x03\x01\x00\x05wrong")
            strangers.append((reader, writer))
            if number % 50 == 0:
                assert (await client.invoke(address, request(ECHO, None, b"x"), 60)).body == b"x"
        # The last of them begins as the first one of a failing address.
        failed, waiting = failed_connections.FREE + 2, MAX_WAITING_OF_ADDRESS
        refused = len(strangers) - waiting  # those that failed included
        await until(lambda: server.tls is not None and server.tls.failed == refused)
        assert (limits.begun, limits.waiting) == (1 + failed, waiting)
        for _, writer in strangers:
            writer.close()
        await until(lambda: limits.waiting == 0)
        assert (await client.invoke(address, request(ECHO, None, b"y"), 60)).body == b"y"


async def test_a_handshake_that_waited_for_its_place_is_served(
    files: TlsFiles, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handshake_limits, "MAX_RUNNING", 1)
    async with running(tls_server(handlers, settings_of(files))) as server:
        assert server.tls is not None
        _, writer = await asyncio.open_connection(LOCAL, server.port)
        writer.write(b"\x16\x03\x01")  # it holds the only place
        await until(lambda: server.tls is not None and server.tls.handshakes.begun == 1)
        asked = asyncio.create_task(ask(server, files.context()))
        await until(lambda: server.tls is not None and server.tls.handshakes.waiting == 1)
        writer.close()
        assert await asked == b"hello"


async def test_one_that_waits_too_long_for_its_place_is_dropped(
    files: TlsFiles, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handshake_limits, "MAX_RUNNING", 0)
    monkeypatch.setattr(tls_transport, "HANDSHAKE_TIMEOUT_S", 0.05)
    async with running(tls_server(handlers, settings_of(files))) as server:
        assert server.tls is not None
        reader, writer = await asyncio.open_connection(LOCAL, server.port)
        writer.write(b"\x16\x03\x01")
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        await until(lambda: server.tls is not None and server.tls.failed == 1)
        assert server.tls.handshakes.begun == 0
