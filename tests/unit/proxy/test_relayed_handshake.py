"""Handshakes that a relay watches: real ones of both versions, and those that never end well."""

import hashlib
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest

from rocketbroker.proxy import relayed_handshake
from rocketbroker.proxy.relayed_handshake import RelayedHandshake
from rocketbroker.transport.failed_connections import FailedConnections
from rocketbroker.transport.handshake_limits import HandshakeLimits
from tests.support.tls_files import TlsFiles
from tests.support.waiting import until

MADE_UP = b"\x17\3\3\0\x40" + bytes(64)
KEY = b"\x0a\0\0\1"
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


class End:
    """One end of a connection in memory."""

    def __init__(self, context: ssl.SSLContext, *, server: bool) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = None if server else "127.0.0.1"
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=server, server_hostname=name)

    def take(self, data: bytes) -> bytes:
        """Go on with the handshake, and read; return what is to be sent."""
        self.incoming.write(data)
        with suppress(ssl.SSLError):
            self.tls.do_handshake()
            self.tls.read()
        return self.outgoing.read()


class Relayed:
    """A handshake, and what it asked of the relay."""

    def __init__(self) -> None:
        self.failed = FailedConnections()
        self.limits = HandshakeLimits(self.failed)
        self.begun = 0
        self.reasons: list[str] = []

    def open(self) -> RelayedHandshake:
        return RelayedHandshake(self.limits, KEY, self._begin, self.reasons.append)

    def _begin(self) -> None:
        self.begun += 1

    @property
    def failures(self) -> int:
        return self.failed.count

    @property
    def running(self) -> int:
        return self.limits._running


@pytest.fixture
def relayed() -> Relayed:
    return Relayed()


def ends(files: TlsFiles, version: ssl.TLSVersion, *, asks_again: bool = False) -> tuple[End, End]:
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(files.folder / "server.pem", files.folder / "server.key")
    of_server.maximum_version = version
    if asks_again:  # a client's first hello has a key of another curve
        of_server.set_ecdh_curve("secp384r1")
    return End(files.context(), server=False), End(of_server, server=True)


def pieces(data: bytes) -> Iterator[bytes]:
    """Yield data as a network may cut it."""
    yield from (data[at : at + 3] for at in range(0, len(data), 3))


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_handshake_is_over_once_the_server_has_answered_the_client(
    files: TlsFiles, version: ssl.TLSVersion, relayed: Relayed
):
    client, server = ends(files, version)
    handshake = relayed.open()
    to_server, to_client = client.take(b""), b""
    while to_server or to_client:
        for piece in pieces(to_server):
            handshake.client_sent(piece)
        to_client = server.take(to_server)
        assert not handshake.is_over, "the server has answered nobody yet"
        if client.tls.version() and not server.tls.pending():
            break
        for piece in pieces(to_client):
            handshake.server_sent(piece)
        to_server, to_client = client.take(to_client), b""
    client.tls.write(b"PRI * HTTP/2.0")
    handshake.client_sent(client.outgoing.read())
    server.tls.write(b"\0\0\0\4\0\0\0\0\0")
    handshake.server_sent(to_client + server.outgoing.read())
    assert handshake.is_over
    assert (relayed.begun, relayed.running, relayed.failures) == (1, 0, 0)


async def test_a_client_of_tls_1_2_need_not_send_anything_after_its_handshake(files: TlsFiles, relayed: Relayed):
    client, server = ends(files, ssl.TLSVersion.TLSv1_2)
    handshake = relayed.open()
    to_server = client.take(b"")
    while to_server:
        assert not handshake.is_over
        handshake.client_sent(to_server)
        to_client = server.take(to_server)
        handshake.server_sent(to_client)
        to_server = client.take(to_client)
    assert (handshake.is_over, relayed.running, relayed.failures) == (True, 0, 0)


@pytest.mark.parametrize("is_early", [False, True], ids=["in turn", "hello before it is asked for"])
async def test_a_hello_retry_request_is_no_answer(files: TlsFiles, relayed: Relayed, *, is_early: bool):
    client, server = ends(files, ssl.TLSVersion.TLSv1_3, asks_again=True)
    handshake = relayed.open()
    first = client.take(b"")
    retry = server.take(first)
    assert hashlib.sha256(b"HelloRetryRequest").digest() in retry
    second = client.take(retry)
    handshake.client_sent(first)
    if is_early:
        handshake.client_sent(second)
        handshake.server_sent(retry)
        handshake.client_sent(MADE_UP)
    else:
        for piece in pieces(retry):
            handshake.server_sent(piece)
        # A server skips it after a hello with early data; the one here is not given it.
        handshake.client_sent(MADE_UP + second)
    flight = server.take(second)
    handshake.server_sent(flight)
    assert (handshake.is_over, relayed.running) == (False, 1)
    finished = client.take(flight)
    handshake.client_sent(finished)
    handshake.server_sent(server.take(finished))
    assert (handshake.is_over, relayed.running, relayed.failures) == (True, 0, 0)


@pytest.mark.parametrize("version", VERSIONS)
async def test_data_that_is_made_up_ends_no_handshake(files: TlsFiles, version: ssl.TLSVersion, relayed: Relayed):
    client, server = ends(files, version)
    handshake = relayed.open()
    hello = client.take(b"")
    # Together with its first bytes, and after the server's.
    handshake.client_sent(hello + MADE_UP)
    handshake.server_sent(server.take(hello))
    handshake.client_sent(MADE_UP)
    handshake.server_sent(server.take(MADE_UP))
    assert (handshake.is_over, relayed.running) == (False, 1)
    handshake.end(failed=True)
    assert (relayed.running, relayed.failures) == (0, 1)


async def test_a_handshake_ends_in_time_or_its_connection_does(relayed: Relayed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(relayed_handshake, "HANDSHAKE_TIMEOUT_S", 0.02)
    handshake = relayed.open()
    handshake.client_sent(b"\x16\3\1\1\0")
    await until(lambda: relayed.reasons)
    assert relayed.reasons == ["its handshake took longer than 0.02 s"]
    assert (relayed.running, relayed.failures) == (0, 1)
    handshake.end(failed=True)
    assert relayed.failures == 1


async def test_handshakes_beyond_the_bounds_wait_for_a_place_or_are_refused(
    relayed: Relayed, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rocketbroker.transport.handshake_limits.MAX_RUNNING", 2)
    monkeypatch.setattr("rocketbroker.transport.handshake_limits.MAX_WAITING_OF_ADDRESS", 1)
    first, second = relayed.open(), relayed.open()
    assert (relayed.begun, relayed.limits.waiting) == (1, 1)
    third = relayed.open()
    assert relayed.reasons == ["too many handshakes wait, or too many of its address have failed"]
    first.end(failed=False)
    await until(lambda: relayed.begun == 2)
    second.end(failed=False)
    third.end(failed=False)
    assert (relayed.running, relayed.failures) == (0, 0)
