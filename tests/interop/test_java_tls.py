"""The official Java client over TLS: what Apache's TlsIT, TlsMixIT, TlsMix2IT and TlsTest show of its own servers.

The integration tests start Apache's servers in their process, so that their scenarios are here with ours. The cases of
TlsTest, of RocketMQ's module remoting, have their names; its client is RocketMQ's, and the server ours.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from rocketbroker.app.launch.dev_server import DevServer
from rocketbroker.client import ClientConfig
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.certificates import CertificateAuthority
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import TransportConfig
from rocketbroker.transport.remoting_server import RemotingServer
from rocketbroker.transport.tls_transport import RemotingTls, ServerTls
from tests.support.java import Java
from tests.support.java_lines import check_content, got, rows
from tests.support.java_process import JavaProcess
from tests.support.ports import LOOPBACK
from tests.support.running import running
from tests.support.tls_files import TlsFiles
from tests.support.transports import ECHO, Handlers

pytestmark = pytest.mark.java

LIMIT_S = 60.0
REFUSED = "RemotingSendRequestException"
PASSWORD = "1234"  # of the key of TlsTest's client


@pytest.fixture
async def files(tmp_path: Path) -> TlsFiles:
    return await asyncio.to_thread(TlsFiles, tmp_path)


def verified(files: TlsFiles) -> dict[str, str]:
    """Return properties of a client that verifies servers; by default it trusts all of them and has no certificate."""
    return files.of_client() | {"tls.test.mode.enable": "false"}


async def make_topic(server: DevServer, topic: str, files: TlsFiles) -> None:
    async with AdminClient(ClientConfig(server.namesrv_addr, tls=files.context("client"))) as admin:
        await admin.create_and_update_topic_config(server.broker_addr, TopicConfig(topic, 2, 2))


def push(java: Java, server: DevServer, topic: str, count: int, properties: dict[str, str]) -> JavaProcess:
    arguments = (f"namesrv={server.namesrv_addr}", f"topic={topic}", f"group=CG_{topic}", f"stopAfter={count}")
    return java.start("Push", *arguments, properties=properties)


async def produce(java: Java, server: DevServer, topic: str, plan: str, properties: dict[str, str]) -> int:
    arguments = (f"namesrv={server.namesrv_addr}", f"topic={topic}", f"plan={plan}")
    return (await asyncio.to_thread(java.run, "Produce", *arguments, properties=properties)).returncode


async def check_consumed(consumer: JavaProcess, count: int) -> None:
    await asyncio.to_thread(consumer.wait_for, "DONE")
    messages = got(consumer.text())
    assert sorted(each.n for each in messages) == list(range(count))
    check_content(messages)


async def test_a_client_and_a_cluster_verify_each_other(java: Java, files: TlsFiles, tmp_path: Path):
    properties = files.of_server(mode="enforcing", need_client_auth="require", trustCertPath=str(files.ca))
    async with running(DevServer(0, 0, tmp_path / "store", properties=properties | files.of_client())) as server:
        await make_topic(server, "Verified", files)
        consumer = push(java, server, "Verified", 60, verified(files))
        assert await produce(java, server, "Verified", "sync:60:1", verified(files)) == 0
        await check_consumed(consumer, 60)


@pytest.mark.proves("TLS, by Apache's tests", "TlsIT: a producer and a consumer over TLS")
@pytest.mark.proves("TLS, by Apache's tests", "TlsMixIT: a producer in plain text, a consumer over TLS")
@pytest.mark.proves("TLS, by Apache's tests", "TlsMix2IT: a producer over TLS, a consumer in plain text")
async def test_clients_with_and_without_tls_use_the_same_ports(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    in_plain_text: list[ServerTls] = []  # the port of each connection
    monkeypatch.setattr(ServerTls, "note_plain_text", lambda port, _: in_plain_text.append(port))
    pairs = {"TlsIT": (True, True), "TlsMixIT": (False, True), "TlsMix2IT": (True, False)}
    written = ",".join(f"{topic}:{producer}:{consumer}" for topic, (producer, consumer) in pairs.items())
    # The certificate is one that a server makes for itself, as in the originals.
    properties = {"tls.test.mode.enable": "true"}
    async with running(DevServer(0, 0, tmp_path / "store", properties=properties)) as server:
        async with AdminClient(ClientConfig(server.namesrv_addr)) as admin:
            for topic in pairs:
                await admin.create_and_update_topic_config(server.broker_addr, TopicConfig(topic, 2, 2))
        in_plain_text.clear()

        process = java.start("TlsPairs", f"namesrv={server.namesrv_addr}", f"pairs={written}")
        await asyncio.to_thread(process.wait_for, "DONE")

        messages = got(process.text())
        for topic in pairs:
            assert sorted(each.n for each in messages if each.topic == topic) == list(range(16))
        check_content(messages, "A")
        # Two clients in plain text and four over TLS, each connected to the name server and to the broker.
        ports = set(in_plain_text)
        assert len(ports) == 2
        assert len(in_plain_text) >= 4
        assert sum(port.handshakes.begun for port in ports) >= 8


@dataclass(frozen=True)
class Case:
    """A case of TlsTest: what is different from a server that demands TLS and certificates, and a client with both."""

    name: str
    server: dict[str, str] = field(default_factory=dict)
    client: str = "client"
    is_plain: bool = False
    verifies: bool = True
    answer: str = "hello"


CASES = (
    Case("basicClientServerIntegrationTest"),
    Case("serverNotNeedClientAuth", {"tls.server.need.client.auth": "none"}, client=""),
    Case("serverWantClientAuth", {"tls.server.need.client.auth": "optional"}),
    Case("serverWantClientAuth_ButClientNoCert", {"tls.server.need.client.auth": "optional"}, client=""),
    Case("serverAcceptsUnAuthClient", {"tls.server.mode": "permissive"}, is_plain=True),
    Case("disabledServerRejectsSSLClient", {"tls.server.mode": "disabled"}, answer=REFUSED),
    Case("disabledServerAcceptUnAuthClient", {"tls.server.mode": "disabled"}, is_plain=True),
    Case("serverRejectsUntrustedClientCert", client="badClient", answer=REFUSED),
    # RocketMQ's server serves this client: it asks for certificates that it does not verify. Ours always verifies.
    Case("serverAcceptsUntrustedClientCert", {"tls.server.authClient": "false"}, client="badClient", answer=REFUSED),
    Case("noClientAuthFailure", client="", answer=REFUSED),
    # Of our own: what TlsTest leaves out.
    Case("an expired certificate", client="expired", answer=REFUSED),
    Case("a client in plain text", is_plain=True, answer=REFUSED),
)


class Calls:
    """Calls of RocketMQ's NettyRemotingClient by the driver TlsCalls, which makes a client for each new name."""

    def __init__(self, java: Java, files: TlsFiles) -> None:
        self._files = files
        self._file = files.folder / "calls.txt"
        self._file.touch()
        self._process = java.start("TlsCalls", f"file={self._file}")
        self._number = 0

    def ask(self, server: RemotingServer, case: Case) -> str:
        """Return the body of the answer, or the name of the client's exception (blocks)."""
        self._number += 1
        folder, name = self._files.folder, case.client
        pair = (f"{folder}/{name}.pem", f"{folder}/{name}.key") if name else ("", "")
        fields = (
            str(self._number), case.name, f"{LOOPBACK}:{server.port}", str(ECHO), str(not case.is_plain).lower(), *pair,
            PASSWORD, str(self._files.ca), str(case.verifies).lower(),
        )  # fmt: skip
        with self._file.open("a") as file:
            file.write("\t".join(fields) + "\n")
        answered: list[str] = []

        def found() -> bool:
            answered.extend(row[1] for row in rows(self._process.text(), "ASKED") if row[0] == str(self._number))
            return bool(answered)

        self._process.wait_until(found, LIMIT_S, f"ask for {case.name}")
        return answered[0]


@pytest.fixture
async def bad_files(files: TlsFiles) -> TlsFiles:
    """Files with a client of another authority, an expired one, and a password for the keys of clients."""
    other = await asyncio.to_thread(CertificateAuthority, SystemClock())
    files.write("badClient", other.issue("client"))
    files.write("expired", files.authority.issue("client", valid=timedelta(days=-1)))
    for name in ("client", "badClient", "expired"):
        key = files.folder / f"{name}.key"
        encryption = BestAvailableEncryption(PASSWORD.encode())
        plain = load_pem_private_key(key.read_bytes(), None)
        key.write_bytes(plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return files


def settings_of(files: TlsFiles, changes: dict[str, str]) -> TransportConfig:
    demanding = files.of_server(mode="enforcing", need_client_auth="require", trustCertPath=str(files.ca))
    return TransportConfig.model_validate(demanding | changes)


@pytest.mark.proves("TLS, by Apache's tests", "TlsTest: modes, certificates of both sides, changed files")
async def test_the_cases_of_tls_test(java: Java, bad_files: TlsFiles):
    calls = Calls(java, bad_files)
    answers = {}
    for case in CASES:
        tls = RemotingTls(settings_of(bad_files, case.server))
        async with running(RemotingServer(Handlers().routes(), host=LOOPBACK, tls=tls.server)) as server:
            answers[case.name] = await asyncio.to_thread(calls.ask, server, case)
    assert answers == {case.name: case.answer for case in CASES}

    # reloadSslContextForServer, with the pair of an authority that the client does not trust. Open connections go on.
    tls = RemotingTls(settings_of(bad_files, {"tls.server.need.client.auth": "none"}))
    async with running(RemotingServer(Handlers().routes(), host=LOOPBACK, tls=tls.server)) as server:
        before = Case("before", client="")
        assert await asyncio.to_thread(calls.ask, server, before) == "hello"
        other = await asyncio.to_thread(CertificateAuthority, SystemClock())
        bad_files.write("server", other.issue("server", [LOOPBACK]))
        await tls.renew()
        assert await asyncio.to_thread(calls.ask, server, before) == "hello"
        rejects = Case("clientRejectsUntrustedServerCert", client="")
        assert await asyncio.to_thread(calls.ask, server, rejects) == REFUSED
        accepts = Case("clientAcceptsUntrustedServerCert", client="", verifies=False)
        assert await asyncio.to_thread(calls.ask, server, accepts) == "hello"
