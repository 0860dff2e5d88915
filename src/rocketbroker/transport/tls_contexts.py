"""TLS settings of OpenSSL from RocketMQ's, and their renewal when the files change (TlsHelper, FileWatchService).

A context is never changed while connections use it. A change of any file makes a new one for later handshakes, and
files that do not fit each other, as while they are replaced one after the other, leave the old one in use.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.config.fields import DAY_MS
from rocketbroker.common.config.tls_settings import TlsClientSettings, TlsSettings, has_certificate, split
from rocketbroker.common.errors import ConfigError
from rocketbroker.common.private_files import check_key_mode

log = logging.getLogger(__name__)

_WARN_MS: Final = 30 * DAY_MS
_WARN_PART: Final = 0.1  # of the life of a revocation list, which may be a day
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def server_context(config: TlsSettings) -> ssl.SSLContext:
    """Return the settings of a port (blocks: reads files).

    Raises:
        ConfigError: A file cannot be used; the text names it, and what to do.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, config)
    if config.tls_server_cert_path:
        _load_pair(
            context,
            "server",
            config.tls_server_cert_path,
            config.tls_server_key_path,
            config.tls_server_key_password,
        )
    else:
        _load_self_signed(context)
    if config.tls_server_need_client_auth != "none":
        if not config.tls_server_auth_client and not config.tls_server_trust_cert_path:
            raise ConfigError(
                f"tls.server.need.client.auth={config.tls_server_need_client_auth} asks for certificates that nothing "
                "verifies: set tls.server.trustCertPath to the certificates of their issuers, or "
                "tls.server.authClient=true to accept those of the system's issuers"
            )
        is_required = config.tls_server_need_client_auth == "require"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        _trust(context, config.tls_server_trust_cert_path, "tls.server.trustCertPath", ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(config: TlsClientSettings) -> ssl.SSLContext:
    """Return the settings of connections that this process opens (blocks: reads files).

    Raises:
        ConfigError: A file cannot be used; the text names it, and what to do.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, config)
    if config.tls_client_cert_path:
        _load_pair(
            context,
            "client",
            config.tls_client_cert_path,
            config.tls_client_key_path,
            config.tls_client_key_password,
        )
    if config.tls_client_auth_server:
        _trust(context, config.tls_client_trust_cert_path, "tls.client.trustCertPath", ssl.Purpose.SERVER_AUTH)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _restrict(context: ssl.SSLContext, config: TlsClientSettings) -> None:
    """Set versions and ciphers."""
    versions = [_VERSIONS[each] for each in split(config.tls_protocols)] or list(_VERSIONS.values())
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    # A client could make the server compute without end.
    context.options |= ssl.OP_NO_RENEGOTIATION
    given = split(config.tls_ciphers)
    # OpenSSL has the ciphers of TLS 1.3 in a list of their own, which Python cannot set.
    newest = {each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.3"}
    names = [(each, openssl_name(each)) for each in given if each not in newest]
    for name, known in names:
        try:
            context.set_ciphers(known)
        except ssl.SSLError as error:
            raise ConfigError(
                f"tls.ciphers: OpenSSL has no cipher {name}; write names such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 "
                "or ECDHE-RSA-AES128-GCM-SHA256, joined by commas"
            ) from error
    if names:
        context.set_ciphers(":".join(known for _, known in names))
    elif given and context.minimum_version is not ssl.TLSVersion.TLSv1_3:
        raise ConfigError(
            "tls.ciphers names ciphers of TLS 1.3 alone; set tls.protocols=TLSv1.3 as well, or name ciphers of TLS 1.2"
        )


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a cipher for TLS 1.2 that has Java's name (RFC 5246, appendix A.5); others unchanged."""
    exchange, found, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not found:
        return name
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC_", "_")
    cipher = cipher.replace("CCM_8", "CCM8").replace("3DES_EDE", "DES_CBC3")
    # The key exchange by RSA has no name in OpenSSL, and CHACHA20 has one hash only.
    cipher = cipher.removesuffix("_SHA256") if "CHACHA20" in cipher else cipher
    parts = ([] if exchange == "RSA" else exchange.split("_")) + cipher.split("_")
    return "-".join(parts)


def _load_pair(context: ssl.SSLContext, end: str, cert: str, key: str, password: str) -> None:
    try:
        for name, path in ((f"tls.{end}.certPath", cert), (f"tls.{end}.keyPath", key)):
            if not Path(path).is_file():
                raise ConfigError(f"{name}: {path} is no file; name one in PEM")
        check_key_mode(f"tls.{end}.keyPath", Path(key))
        # Without a password OpenSSL would ask the terminal for one.
        context.load_cert_chain(cert, key, lambda: password)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigError(
            f"tls.{end}.certPath {cert} and tls.{end}.keyPath {key} cannot be used: {error}; both must be readable, in "
            f"PEM, and belong together, and tls.{end}.keyPassword must open the key"
        ) from error


def _load_self_signed(context: ssl.SSLContext) -> None:
    try:
        from rocketbroker.common.certificates import load_into, self_signed_certificate
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"tls.test.mode.enable=true needs the package {error.name!r}: pip install 'rocketbroker[security]'"
        ) from error
    load_into(context, self_signed_certificate(SystemClock()))


def _trust(context: ssl.SSLContext, path: str, name: str, purpose: ssl.Purpose) -> None:
    if not path:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise ConfigError(f"{name}: {path} cannot be used: {error}; name a file of certificates in PEM") from error
    if context.cert_store_stats()["crl"]:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


class _Expiry(NamedTuple):
    """Expiry of a certificate or a revocation list, with the time before it at which warnings begin."""

    subject: str
    at_ms: int
    warn_ms: int


class WatchedContext:
    """A context of OpenSSL that is made again when its files change.

    Args:
        make: makes the context; raises ConfigError.
        files: the files it reads, its certificate first, that of issuers last.
        name: name for the log.
        clock: source of the time.

    Attributes:
        current: the context for new connections.
        renewed: number of renewals.
        expires_ms: time at which its certificate expires, in ms since 1970; ``None`` if that is not known, as without
            the package cryptography.

    Raises:
        ConfigError: A file cannot be used.
    """

    def __init__(
        self, make: Callable[[], ssl.SSLContext], files: list[str], name: str, clock: Clock | None = None
    ) -> None:
        self._make = make
        self._files = [Path(each) for each in files if each]
        self._name = name
        self._seen = self._look()
        self.current = make()
        self.renewed = 0
        self._certificate, self._issuers = files[0], files[-1]
        self._clock = clock or SystemClock()
        # Times of the next warnings, by what expires and whether it has.
        self._warn_at_ms: dict[tuple[_Expiry, bool], int] = {}
        self._failure = ""
        self.expires_ms = self._expiry()
        self._list_expiries = self._expiries_of_lists(self.current)
        self._warn()

    def _expiry(self) -> int | None:
        try:
            from rocketbroker.common.certificates import expiry_ms
        except ModuleNotFoundError:
            return None
        return expiry_ms(Path(self._certificate)) if self._certificate else None

    def _expiries_of_lists(self, context: ssl.SSLContext) -> list[_Expiry]:
        """Return the expiries of the revocation lists that a context has."""
        if not context.cert_store_stats()["crl"]:
            return []
        try:
            from rocketbroker.common.certificates import list_expiries
        except ModuleNotFoundError:
            return []
        return [
            _Expiry(
                f"revocation list of {each.issuer}, without which its certificates are rejected, {self._issuers},",
                each.to_ms,
                min(_WARN_MS, int((each.to_ms - each.from_ms) * _WARN_PART)),
            )
            for each in list_expiries(Path(self._issuers))
        ]

    def _warn(self) -> None:
        """Log expiries that are near, each once a day and when it has come."""
        now = self._clock.time_ms()
        expiries = list(self._list_expiries)
        if self.expires_ms is not None:
            subject = f"certificate of {self._name}, {self._certificate},"
            expiries.append(_Expiry(subject, self.expires_ms, _WARN_MS))
        for each in expiries:
            left_ms = each.at_ms - now
            key = each, left_ms <= 0
            if left_ms > each.warn_ms or now < self._warn_at_ms.get(key, 0):
                continue
            self._warn_at_ms[key] = now + DAY_MS
            when = "has expired" if left_ms <= 0 else f"expires in {left_ms / DAY_MS:.1f} days"
            log.warning("TLS: the %s %s; replace the file: it is read again", each.subject, when)

    def _look(self) -> list[tuple[int, int, int] | None]:
        """Return what changes with the content of each file."""
        found: list[tuple[int, int, int] | None] = []
        for path in self._files:
            try:
                status = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((status.st_mtime_ns, status.st_ino, status.st_size))
        return found

    def _remake(self) -> tuple[ssl.SSLContext, int | None, list[_Expiry]]:
        """Return the context of the changed files, and the expiries of their certificate and lists (blocks).

        Raises:
            ConfigError: A file cannot be used.
        """
        context, expires_ms = self._make(), self._expiry()
        if expires_ms is not None and expires_ms <= self._clock.time_ms() < (self.expires_ms or 0):
            raise ConfigError(f"the certificate {self._certificate} has expired; name one that is valid")
        return context, expires_ms, self._expiries_of_lists(context)

    async def renew(self) -> None:
        """Make the context again if a file has changed; keep the old one if the files cannot be used.

        They cannot if their certificate has expired, which peers would reject, and the present one has not.
        """
        self._warn()
        seen = await asyncio.to_thread(self._look)
        if seen == self._seen:
            return
        try:
            context, expires_ms, list_expiries = await asyncio.to_thread(self._remake)
        except ConfigError as error:
            if str(error) != self._failure:
                self._failure = str(error)
                log.warning("TLS: changed files of %s are not used: %s", self._name, error)
        else:
            self._failure = ""
            # A file that changed meanwhile is seen at the next look.
            self._seen, self.current = seen, context
            self.expires_ms, self._list_expiries = expires_ms, list_expiries
            self._warn_at_ms.clear()
            self.renewed += 1
            log.info("TLS: new connections use the changed files of %s", self._name)


def watched_server_context(config: TlsSettings) -> WatchedContext | None:
    """Return the context of a port; ``None`` if it serves plain text alone.

    Raises:
        ConfigError: A file cannot be used.
    """
    if config.tls_server_mode == "disabled" or not has_certificate(config):
        return None
    files = [config.tls_server_cert_path, config.tls_server_key_path, config.tls_server_trust_cert_path]
    return WatchedContext(lambda: server_context(config), files, "this server")


def watched_client_context(config: TlsClientSettings) -> WatchedContext | None:
    """Return the context of connections that this process opens; ``None`` for plain text.

    Raises:
        ConfigError: A file cannot be used.
    """
    if not config.tls_enable:
        return None
    files = [config.tls_client_cert_path, config.tls_client_key_path, config.tls_client_trust_cert_path]
    return WatchedContext(lambda: client_context(config), files, "connections to servers")
