"""Certificates as mqadmin doctor sees them at servers: what is found, and what each remedy says."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="the extra security is not installed")

from rocketbroker.app.mqadmin.checks.certificate_probe import probe
from rocketbroker.app.mqadmin.checks.certificates import certificates
from rocketbroker.app.mqadmin.checks.cluster_facts import ClusterFacts
from rocketbroker.app.mqadmin.checks.finding import Finding
from tests.support.ports import LOOPBACK
from tests.support.tls_files import TlsFiles


@pytest.fixture
async def files(tmp_path: Path) -> TlsFiles:
    return await asyncio.to_thread(TlsFiles, tmp_path)


@asynccontextmanager
async def serving(files: TlsFiles) -> AsyncIterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.folder / "server.pem", files.folder / "server.key")
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), LOOPBACK, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def found(files: TlsFiles, trusted: ssl.SSLContext | None) -> list[Finding]:
    async with serving(files) as port:
        seen = await probe("broker b", f"{LOOPBACK}:{port}", "/etc/my cert.pem", trusted)
    return list(certificates(ClusterFacts(certificates=[seen])))


async def test_nothing_is_found_in_a_certificate_that_is_verified(files: TlsFiles):
    assert await found(files, files.context()) == []


@pytest.mark.parametrize(
    ("hosts", "days", "evidence", "remedy"),
    [
        ([LOOPBACK], 29, r"its certificate expires in 29\.0 days", r"replace '/etc/my cert.pem' and its key"),
        ([LOOPBACK], -2, r"its certificate expired 2\.0 days ago", r"openssl x509 -noout -enddate"),
        (["broker.example"], 90, "is for broker.example, and clients connect to 127.0.0.1", "IP:127.0.0.1 in '/etc/my"),
        ([], 90, "is for no host at all", r"subjectAltName=IP:127\.0\.0\.1"),
    ],
)
@pytest.mark.parametrize("is_verified", [True, False])
async def test_faults_of_a_certificate(
    files: TlsFiles, hosts: list[str], days: int, evidence: str, remedy: str, *, is_verified: bool
):
    # A moment more, as the test takes some of it.
    valid = timedelta(days=days) + (timedelta(minutes=1) if days > 0 else timedelta())
    files.write("server", files.authority.issue("server", hosts, valid))
    findings = await found(files, files.context() if is_verified else None)

    messages = [each.evidence for each in findings if "purpose" not in each.evidence]
    assert len(messages) == 1, messages
    assert_matches(evidence, messages[0])
    assert_matches(remedy, findings[0].remedy)


def assert_matches(pattern: str, text: str) -> None:
    with pytest.raises(ValueError, match=pattern):
        raise ValueError(text)


async def test_a_certificate_of_another_authority_is_not_verified(files: TlsFiles, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    trusted = (await asyncio.to_thread(TlsFiles, other)).context()
    [finding] = await found(files, trusted)
    assert "is not verified by the issuers that are trusted here: " in finding.evidence
    assert "openssl s_client -connect 127.0.0.1:" in finding.remedy


async def test_a_server_without_tls_is_an_error():
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), LOOPBACK, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionResetError):
            await probe("broker b", f"{LOOPBACK}:{port}", "", None)
