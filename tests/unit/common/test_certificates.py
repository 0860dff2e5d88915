"""Certificates of the port, as OpenSSL and its clients see them."""

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from rocketbroker.common import certificates
from rocketbroker.common.certificates import (
    CertificateAuthority,
    RevocationListError,
    ServerCertificate,
    load_certificate,
    load_issuers,
    self_signed_certificate,
)
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import ConfigError
from tests.support.tls_files import TlsFiles


class FixedClock(SystemClock):
    """A clock that stands still, at the start of 2030."""

    def time_ms(self) -> int:
        return 1_893_456_000_000


@pytest.fixture(scope="module")
def made() -> ServerCertificate:
    return self_signed_certificate(SystemClock())


@pytest.fixture
def paths(made: ServerCertificate, tmp_path: Path) -> tuple[Path, Path]:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(made.chain)
    key.touch(0o600)
    key.write_bytes(made.key)
    return chain, key


def test_a_client_that_trusts_it_can_connect(paths: tuple[Path, Path]):
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*paths)
    client = ssl.create_default_context(cafile=paths[0])
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with server.wrap_socket(theirs, server_side=True) as sock:
            sock.sendall(sock.recv(5))

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(ours, server_hostname="localhost") as sock:
        sock.sendall(b"hello")
        assert sock.recv(5) == b"hello"
    thread.join()


def test_each_start_makes_its_own(made: ServerCertificate):
    assert self_signed_certificate(SystemClock()).key != made.key


def test_it_is_valid_from_the_day_before_for_ten_years():
    found = x509.load_pem_x509_certificate(self_signed_certificate(FixedClock()).chain)

    assert found.not_valid_before_utc == datetime(2029, 12, 31, tzinfo=UTC)
    assert found.not_valid_after_utc == datetime(2039, 12, 30, tzinfo=UTC)


def test_files_are_read_as_they_are(made: ServerCertificate, paths: tuple[Path, Path]):
    assert load_certificate(*paths) == made


def test_an_encrypted_key_is_opened(made: ServerCertificate, paths: tuple[Path, Path]):
    key = load_pem_private_key(made.key, None)
    paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))

    assert load_certificate(*paths, "secret") == made
    for wrong in ("", "other"):
        with pytest.raises(ConfigError, match="tlsKeyPassword opens the key"):
            load_certificate(*paths, wrong)


def test_a_key_without_encryption_needs_no_password(made: ServerCertificate, paths: tuple[Path, Path]):
    assert load_certificate(*paths, "unused") == made


@pytest.mark.parametrize("content", [None, b"no PEM", b"\xff", b""])
def test_issuers_of_clients_are_certificates(made: ServerCertificate, tmp_path: Path, content: bytes | None):
    path = tmp_path / "issuers.pem"
    path.write_bytes(made.chain * 2)
    assert load_issuers(path) == made.chain * 2

    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"tlsTrustCertPath: {path} cannot be used: .*; name a file of certificates"):
        load_issuers(path)


def test_grpc_takes_no_revocation_lists(tmp_path: Path):
    files = TlsFiles(tmp_path)
    files.ca.write_bytes(files.ca.read_bytes() + files.revocation_list("client"))
    with pytest.raises(RevocationListError, match="has revocation lists, which gRPC does not check; set tlsTrustCertP"):
        load_issuers(files.ca)
    files.ca.write_bytes(files.revocation_list("client"))
    with pytest.raises(RevocationListError, match="has revocation lists"):
        load_issuers(files.ca)


def test_comments_among_issuers_may_have_any_letters(made: ServerCertificate, tmp_path: Path):
    path = tmp_path / "issuers.pem"
    path.write_bytes("# Főtanúsítvány\n".encode() + made.chain + b"# \xe9\n" + made.chain)
    assert load_issuers(path) == path.read_bytes()


def test_issuers_that_are_known_are_not_parsed_again(tmp_path: Path):
    path = tmp_path / "issuers.pem"
    path.write_bytes(b"no PEM")
    assert load_issuers(path, b"no PEM") == b"no PEM"
    with pytest.raises(ConfigError, match="cannot be used"):
        load_issuers(path, b"other")


def test_issuers_that_are_replaced_while_they_are_read_are_refused(
    made: ServerCertificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "issuers.pem"
    path.write_bytes(made.chain)

    class Slow(ssl.SSLContext):
        def load_verify_locations(self, *args: Any, **more: Any) -> None:
            super().load_verify_locations(*args, **more)
            path.write_bytes(made.chain * 2)

    monkeypatch.setattr(ssl, "SSLContext", Slow)
    with pytest.raises(ConfigError, match="changed while it was read"):
        load_issuers(path)


@pytest.mark.parametrize(("index", "name"), [(0, "tlsCertPath"), (1, "tlsKeyPath")])
def test_a_missing_file_is_named(paths: tuple[Path, Path], index: int, name: str):
    paths[index].unlink()

    with pytest.raises(ConfigError, match=f"{name}: {paths[index]} is no file"):
        load_certificate(*paths)


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("content", [b"", b"no PEM", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_file_without_pem_is_refused(paths: tuple[Path, Path], index: int, content: bytes):
    paths[index].write_bytes(content)

    with pytest.raises(ConfigError, match="both must be in PEM"):
        load_certificate(*paths)


def test_the_key_of_another_certificate_is_refused(paths: tuple[Path, Path]):
    paths[1].write_bytes(self_signed_certificate(SystemClock()).key)

    with pytest.raises(ConfigError, match="belong together"):
        load_certificate(*paths)


def test_files_that_are_replaced_while_they_are_read_are_refused(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    other = self_signed_certificate(SystemClock())

    class Slow(ssl.SSLContext):
        def load_cert_chain(self, *args: Any) -> None:
            super().load_cert_chain(*args)
            paths[1].write_bytes(other.key)

    monkeypatch.setattr(ssl, "SSLContext", Slow)
    with pytest.raises(ConfigError, match="changed while it was read"):
        load_certificate(*paths)


def test_a_key_that_others_may_read_is_refused(paths: tuple[Path, Path]):
    paths[1].chmod(0o644)

    with pytest.raises(ConfigError, match=r"tlsKeyPath: other users may use .*mode 0644"):
        load_certificate(*paths)


@pytest.mark.parametrize(
    ("names", "host", "is_fit"),
    [
        (["a.example"], "A.example.", True),
        (["*.example"], "a.example", True),
        (["*.example"], "a.b.example", False),
        (["*.example"], "example", False),
        (["10.0.0.1"], "10.0.0.1", True),
        (["2001:db8::1"], "2001:DB8:0::1", True),
        (["10.0.0.1"], "10.0.0.2", False),
        (["*.0.0.1"], "10.0.0.1", False),
        ([], "a.example", False),
    ],
)
def test_names_of_a_certificate_fit_a_host(names: list[str], host: str, is_fit: bool):
    assert certificates.fits(names, host) == is_fit


def test_a_certificate_is_described_by_its_names_and_its_end():
    made = CertificateAuthority(SystemClock()).issue("s", ["a.example", "10.0.0.1", "::1"], timedelta(days=3))
    expires_ms, names = certificates.described(ssl.PEM_cert_to_DER_cert(made.chain.decode()))
    assert names == ["a.example", "10.0.0.1", "::1"]
    assert 2.9 < (expires_ms - SystemClock().time_ms()) / 86_400_000 < 3.1
