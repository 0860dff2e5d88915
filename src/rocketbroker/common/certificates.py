"""Certificates: read from files, signed by themselves, or issued by a throw-away authority."""

import re
import ssl
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import ConfigError
from rocketbroker.common.private_files import check_key_mode

_VALID = timedelta(days=3650)
_LIST = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


class RevocationListError(ConfigError):
    """A file of issuers has revocation lists where nothing checks them."""


class ServerCertificate(NamedTuple):
    """Certificate of a server, and whom it admits; all in PEM.

    Attributes:
        key: private key.
        chain: its certificate chain.
        client_issuers: certificates of those whose clients are admitted; empty if clients need no certificate.
    """

    key: bytes
    chain: bytes
    client_issuers: bytes = b""


def load_certificate(cert_path: Path, key_path: Path, password: str = "") -> ServerCertificate:
    """Read certificate chain and key, which may be encrypted.

    Raises:
        ConfigError: A file cannot be read, the password is wrong, the key is not the certificate's, or a file changes
            meanwhile.
    """
    for name, path in (("tlsCertPath", cert_path), ("tlsKeyPath", key_path)):
        if not path.is_file():
            raise ConfigError(f"{name}: {path} is no file; name one in PEM, or set tlsTestModeEnable=true")
    try:
        check_key_mode("tlsKeyPath", key_path)
        key, chain = key_path.read_bytes(), cert_path.read_bytes()
        # Checks that the two belong together. Without a password OpenSSL would ask the terminal for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_path, key_path, lambda: password)
        # OpenSSL reads paths alone, so what it checked are these bytes only if the files have them still.
        if (key, chain) != (key_path.read_bytes(), cert_path.read_bytes()):
            raise ConfigError(f"tlsCertPath {cert_path} or tlsKeyPath {key_path} changed while it was read; try again")
        if password and b"ENCRYPTED" in key:  # grpcio takes no password
            plain = load_pem_private_key(key, password.encode())
            key = plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        cause = f"tlsCertPath {cert_path} and tlsKeyPath {key_path} cannot be used: {error}"
        raise ConfigError(f"{cause}; both must be in PEM and belong together, tlsKeyPassword opens the key") from error
    return ServerCertificate(key, chain)


def load_issuers(path: Path, known: bytes | None = None) -> bytes:
    """Read the certificates of those whose clients are admitted.

    Args:
        path: a file in PEM, which may have comments in any encoding.
        known: content that was usable before, and is not parsed again.

    Raises:
        RevocationListError: The file has revocation lists.
        ConfigError: The file cannot be read, has no certificate, or changes meanwhile.
    """
    try:
        found = path.read_bytes()
        if found == known:
            return found
        if b"-----BEGIN X509 CRL" in found:
            raise RevocationListError(
                f"tlsTrustCertPath: {path} has revocation lists, which gRPC does not check; set tlsTrustCertPath in "
                "rmq-proxy.json to a file without any and restart, and lock out users by mqadmin updateUser -s disable"
            )
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
        is_same = found == path.read_bytes()
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigError(
            f"tlsTrustCertPath: {path} cannot be used: {error}; name a file of certificates in PEM"
        ) from error
    if not is_same:  # OpenSSL checked other bytes than these
        raise ConfigError(f"tlsTrustCertPath: {path} changed while it was read; try again")
    return found


def self_signed_certificate(clock: Clock) -> ServerCertificate:
    """Make a key and a certificate that no client can verify (tlsTestModeEnable)."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    certificate = _builder(clock, "rocketbroker", "rocketbroker", key).add_extension(names, critical=False)
    return _in_pem(key, certificate.sign(key, hashes.SHA256()))


# What the key of an authority may do; clients of Python 3.13 and later look at it.
_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class CertificateAuthority:
    """Throw-away authority: issues certificates that clients verify by one file.

    Args:
        clock: source of the time from which certificates are valid.

    Attributes:
        chain: the certificate of the authority, in PEM.
    """

    _NAME = "rocketbroker throw-away authority"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(clock, self._NAME, self._NAME, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.chain = certificate.public_bytes(Encoding.PEM)

    def issue(self, subject: str, hosts: Sequence[str] = (), valid: timedelta = _VALID) -> ServerCertificate:
        """Issue a certificate, to a server at ``hosts``, which are names and addresses, or to a client.

        Args:
            subject: common name.
            hosts: names and addresses that clients connect to.
            valid: time until it expires; negative for one that has expired.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        # A server opens connections, too, and may show the same certificate there.
        uses = [ExtendedKeyUsageOID.SERVER_AUTH] * bool(hosts) + [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            _builder(self._clock, subject, self._NAME, key, valid)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(issuer, critical=False)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([*map(_name, hosts)]), critical=False)
        return _in_pem(key, builder.sign(self._key, hashes.SHA256()))


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    clock: Clock, subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, valid: timedelta = _VALID
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(clock.time_ms() / 1000, UTC)
    common_name = NameOID.COMMON_NAME
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(common_name, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(common_name, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - max(timedelta(days=1), -2 * valid))
        .not_valid_after(now + valid)
    )


def _in_pem(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> ServerCertificate:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return ServerCertificate(private, certificate.public_bytes(Encoding.PEM))


def names_all(path: Path, hosts: Collection[str]) -> bool:
    """Return true if the first certificate of a file has each of the names and addresses."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    return set(map(_name, hosts)) <= set(names)


def expiry_ms(path: Path) -> int | None:
    """Return the time at which the first certificate of a file expires, in ms since 1970; ``None`` without one."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return None
    return int(certificate.not_valid_after_utc.timestamp() * 1000)


class ListExpiry(NamedTuple):
    """Expiry of a revocation list, in ms since 1970.

    Attributes:
        issuer: name of the authority.
        from_ms: time from which the list is valid.
        to_ms: time after which certificates of the authority are rejected for want of a new list (nextUpdate).
    """

    issuer: str
    from_ms: int
    to_ms: int


def list_expiries(path: Path) -> list[ListExpiry]:
    """Return the expiries of the revocation lists in a file; lists that never expire are left out."""
    try:
        lists = [x509.load_pem_x509_crl(each) for each in _LIST.findall(path.read_bytes())]
    except (OSError, ValueError):
        return []
    return [
        ListExpiry(
            each.issuer.rfc4514_string(),
            int(each.last_update_utc.timestamp() * 1000),
            int(each.next_update_utc.timestamp() * 1000),
        )
        for each in lists
        if each.next_update_utc is not None
    ]


def described(data: bytes) -> tuple[int, list[str]]:
    """Return the time at which a certificate in DER expires, in ms since 1970, and its names and addresses."""
    certificate = x509.load_der_x509_certificate(data)
    return int(certificate.not_valid_after_utc.timestamp() * 1000), _names(certificate)


def names_in(path: Path) -> list[str] | None:
    """Return the names and addresses of the first certificate of a file; ``None`` without one."""
    try:
        return _names(x509.load_pem_x509_certificate(path.read_bytes()))
    except (OSError, ValueError):
        return None


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]


def fits(names: Collection[str], host: str) -> bool:
    """Return true if a certificate with these names is for a host: a name, also by a wildcard, or an address."""
    try:
        return str(ip_address(host)) in names
    except ValueError:
        name = host.lower().rstrip(".")
    _, _, domain = name.partition(".")
    return bool({name, f"*.{domain}"} & {each.lower() for each in names})


def load_into(context: ssl.SSLContext, made: ServerCertificate) -> None:
    """Let a context use a certificate; OpenSSL reads files alone, so it is written to a folder that goes at once."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "both.pem"
        path.touch(0o600)
        path.write_bytes(made.key + made.chain)
        context.load_cert_chain(path)
