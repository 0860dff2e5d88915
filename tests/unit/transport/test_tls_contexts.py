"""Contexts of OpenSSL made from settings, and what is said of those that cannot be."""

import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from rocketbroker.common.certificates import CertificateAuthority, list_expiries
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import TransportConfig
from rocketbroker.common.errors import ConfigError
from rocketbroker.testing.clocks import ControlledClock
from rocketbroker.transport.tls_contexts import (
    WatchedContext,
    client_context,
    openssl_name,
    server_context,
    watched_server_context,
)
from tests.support.tls_files import TlsFiles


class Paths(NamedTuple):
    """Files of a certificate, its key, and the authority that issued it."""

    cert: Path
    key: Path
    authority: Path

    def settings(self, **more: str) -> TransportConfig:
        given = {"tls_server_cert_path": str(self.cert), "tls_server_key_path": str(self.key)}
        return TransportConfig.model_validate(given | more)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    authority = CertificateAuthority(SystemClock())
    made = authority.issue("server", ["127.0.0.1"])
    found = Paths(tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "ca.pem")
    found.key.touch(0o600)
    for path, content in zip(found, (made.chain, made.key, authority.chain), strict=True):
        path.write_bytes(content)
    return found


def test_versions_and_ciphers_are_those_of_the_settings(paths: Paths):
    settings = paths.settings(tls_protocols="TLSv1.2", tls_ciphers="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")

    context = server_context(settings)

    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    old = [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert old == ["ECDHE-ECDSA-AES128-GCM-SHA256"]
    assert server_context(paths.settings()).minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", "ECDHE-ECDSA-AES128-CCM8"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ],
)
def test_names_of_java_are_known_to_openssl(java: str, openssl: str):
    assert openssl_name(java) == openssl
    if not openssl.startswith("TLS_"):
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(f"{openssl}:@SECLEVEL=0")


@pytest.mark.parametrize(
    "ciphers", ["TLS_NO_WITH_NONE", "TLS_TYPO", "ECDHE-RSA-AES128-GCM-SHA256,TLS_NO_WITH_NONE", "TLS_AES_128_TYPO"]
)
def test_an_unknown_cipher_is_refused(paths: Paths, ciphers: str):
    with pytest.raises(ConfigError, match=r"tls\.ciphers: OpenSSL has no cipher TLS_"):
        server_context(paths.settings(tls_ciphers=ciphers))


def test_ciphers_of_tls_1_3_leave_none_of_tls_1_2(paths: Paths):
    with pytest.raises(ConfigError, match=r"set tls\.protocols=TLSv1\.3 as well"):
        server_context(paths.settings(tls_ciphers="TLS_AES_128_GCM_SHA256"))
    server_context(paths.settings(tls_ciphers="TLS_AES_128_GCM_SHA256", tls_protocols="TLSv1.3"))


def test_an_encrypted_key_needs_its_password(paths: Paths):
    key = load_pem_private_key(paths.key.read_bytes(), None)
    paths.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))

    server_context(paths.settings(tls_server_key_password="secret"))
    for wrong in ("", "other"):
        with pytest.raises(ConfigError, match=r"tls\.server\.keyPassword must open the key") as caught:
            server_context(paths.settings(tls_server_key_password=wrong))
        assert "other" not in str(caught.value)


def other_key(paths: Paths) -> None:
    paths.key.write_bytes(CertificateAuthority(SystemClock()).issue("other").key)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda paths: paths.cert.unlink(), r"tls\.server\.certPath: .*server\.pem is no file; name one in PEM"),
        (lambda paths: paths.key.unlink(), r"tls\.server\.keyPath: .*server\.key is no file"),
        (lambda paths: paths.key.chmod(0o644), r"other users may use .*server\.key \(mode 0644\); run chmod 600"),
        (lambda paths: paths.key.chmod(0o660), r"other users may use .*server\.key \(mode 0660\)"),
        (lambda paths: paths.cert.write_bytes(b"no PEM"), "both must be readable, in PEM"),
        (other_key, "belong together"),
    ],
)
def test_files_that_cannot_be_used_are_refused(paths: Paths, spoil: Callable[[Paths], object], reason: str):
    spoil(paths)

    with pytest.raises(ConfigError, match=reason):
        server_context(paths.settings())


def presented(context: ssl.SSLContext) -> bytes | None:
    """Return the certificate that a server shows."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    blind = client_context(TransportConfig(tls_client_auth_server=False))
    ends = [blind.wrap_bio(to_client, to_server), context.wrap_bio(to_server, to_client, server_side=True)]
    for end in ends * 2:
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return ends[0].getpeercert(binary_form=True)


def test_each_start_of_a_test_makes_a_certificate():
    config = TransportConfig(tls_test_mode_enable=True)
    first, second = presented(server_context(config)), presented(server_context(config))

    assert first is not None
    assert second not in {None, first}


def test_a_strict_client_takes_what_the_authority_issues(paths: Paths):
    """As clients of Python 3.13 and later do by default."""
    server = server_context(paths.settings())
    client = ssl.create_default_context(cafile=str(paths.authority))
    client.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for end in ends * 2:
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()

    assert ends[0].version() == "TLSv1.3"


def test_a_folder_that_cannot_be_read_is_named(paths: Paths, monkeypatch: pytest.MonkeyPatch):
    def denied(_path: Path, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", denied)
    with pytest.raises(ConfigError, match="Permission denied; both must be readable"):
        server_context(paths.settings())


def test_a_group_may_read_a_key_of_root(paths: Paths, monkeypatch: pytest.MonkeyPatch):
    real = Path.stat

    def owned(uid: int) -> Callable[..., os.stat_result]:
        def stat(path: Path, **options: bool) -> os.stat_result:
            found = real(path, **options)
            return os.stat_result((found.st_mode & ~0o777 | 0o640, *found[1:4], uid, *found[5:]))

        return stat

    monkeypatch.setattr(Path, "stat", owned(0))
    server_context(paths.settings())
    monkeypatch.setattr(Path, "stat", owned(1000))
    with pytest.raises(ConfigError, match="mode 0640"):
        server_context(paths.settings())


async def test_files_that_cannot_be_used_are_logged_once(paths: Paths, caplog: pytest.LogCaptureFixture):
    context = WatchedContext(lambda: server_context(paths.settings()), [*map(str, paths[:2])], "this server")
    paths.key.write_bytes(b"half")

    for _ in range(3):
        await context.renew()

    assert len([line for line in caplog.messages if "are not used" in line]) == 1


@pytest.mark.parametrize("need", ["optional", "require"])
def test_certificates_of_clients_are_verified(paths: Paths, need: str):
    settings = paths.settings(tls_server_need_client_auth=need, tls_server_trust_cert_path=str(paths.authority))

    context = server_context(settings)

    assert context.verify_mode is (ssl.CERT_REQUIRED if need == "require" else ssl.CERT_OPTIONAL)
    assert context.cert_store_stats()["x509_ca"] == 1
    paths.authority.write_bytes(b"no PEM")
    with pytest.raises(ConfigError, match=r"tls\.server\.trustCertPath: .*ca\.pem cannot be used"):
        server_context(settings)


def test_servers_are_verified_unless_told_otherwise(paths: Paths):
    trusting = client_context(TransportConfig(tls_client_trust_cert_path=str(paths.authority)))
    blind = client_context(TransportConfig(tls_client_auth_server=False))

    assert (trusting.verify_mode, trusting.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (blind.verify_mode, blind.check_hostname) == (ssl.CERT_NONE, False)


def test_a_server_without_a_certificate_serves_plain_text():
    assert watched_server_context(TransportConfig()) is None
    assert watched_server_context(TransportConfig(tls_server_mode="disabled", tls_test_mode_enable=True)) is None


@pytest.mark.parametrize(
    ("valid", "said"),
    [(timedelta(days=34), ""), (timedelta(days=12), "expires in 12.0 days"), (timedelta(days=-1), "has expired")],
)
async def test_an_expiry_is_announced_for_thirty_days(
    paths: Paths, caplog: pytest.LogCaptureFixture, valid: timedelta, said: str
):
    clock = ControlledClock()
    made = CertificateAuthority(clock).issue("server", valid=valid)
    paths.cert.write_bytes(made.chain)
    paths.key.write_bytes(made.key)

    context = WatchedContext(lambda: server_context(paths.settings()), [*map(str, paths[:2])], "this server", clock)

    # Certificates know whole seconds, and the clock goes on.
    assert context.expires_ms == pytest.approx(clock.time_ms() + valid / timedelta(milliseconds=1), abs=60_000)
    for day in range(3):  # once a day
        await context.renew()
        await context.renew()
        assert len([line for line in caplog.messages if "the certificate of this server" in line]) == (day + 1) * bool(
            said
        )
        clock.advance(86_400)
    assert said in caplog.text


async def test_an_expiry_of_a_revocation_list_is_announced_for_a_tenth_of_its_life(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    files, clock = TlsFiles(tmp_path), ControlledClock()
    config = TransportConfig.model_validate(files.of_server(need_client_auth="require", trustCertPath=str(files.ca)))

    def given(valid: timedelta) -> list[str]:
        files.ca.write_bytes(files.authority.chain + files.revocation_list(valid=valid))
        return [f"{tmp_path}/server.pem", f"{tmp_path}/server.key", str(files.ca)]

    def lines() -> list[str]:
        return [each for each in caplog.messages if "revocation list of CN=rocketbroker" in each]

    def at(before: timedelta) -> None:
        end_ms = list_expiries(files.ca)[0].to_ms
        clock.advance((end_ms - clock.time_ms()) / 1000 - before.total_seconds())

    context = WatchedContext(lambda: server_context(config), given(timedelta(days=20)), "this server", clock)
    at(timedelta(days=3))
    await context.renew()
    assert lines() == []
    at(timedelta(days=1.99))
    await context.renew()
    await context.renew()
    at(timedelta(days=-0.01))
    await context.renew()
    await context.renew()
    assert [f"{files.ca}, expires in 2.0 days" in lines()[0], f"{files.ca}, has expired" in lines()[1]] == [True, True]
    given(timedelta(days=60))
    await context.renew()
    await context.renew()
    assert len(lines()) == 2, "a new list is announced no more"


async def test_a_renewed_certificate_is_announced_no_more(paths: Paths):
    clock = ControlledClock()
    made = CertificateAuthority(clock).issue("server", valid=timedelta(days=12))
    paths.cert.write_bytes(made.chain)
    paths.key.write_bytes(made.key)
    context = WatchedContext(lambda: server_context(paths.settings()), [*map(str, paths[:2])], "this server", clock)
    soon = context.expires_ms
    made = CertificateAuthority(clock).issue("server", valid=timedelta(days=400))
    paths.key.write_bytes(made.key)
    paths.cert.write_bytes(made.chain)

    await context.renew()

    assert soon is not None
    assert context.expires_ms is not None
    assert context.expires_ms > soon


async def test_a_changed_certificate_that_has_expired_is_not_used(paths: Paths, caplog: pytest.LogCaptureFixture):
    clock = ControlledClock()
    context = WatchedContext(lambda: server_context(paths.settings()), [*map(str, paths[:2])], "this server", clock)
    before, shown = context.expires_ms, presented(context.current)
    made = CertificateAuthority(clock).issue("server", valid=timedelta(days=-1))
    paths.key.write_bytes(made.key)
    paths.cert.write_bytes(made.chain)

    await context.renew()

    assert (context.expires_ms, presented(context.current)) == (before, shown)
    assert f"are not used: the certificate {paths.cert} has expired" in caplog.text
    made = CertificateAuthority(clock).issue("server")
    paths.key.write_bytes(made.key)
    paths.cert.write_bytes(made.chain)
    await context.renew()
    assert presented(context.current) != shown
