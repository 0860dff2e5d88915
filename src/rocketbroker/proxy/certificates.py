"""Certificate of the port: read from files, or signed by itself."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
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
from cryptography.x509.oid import NameOID

from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import ConfigError

_VALID = timedelta(days=3650)


class ServerCertificate(NamedTuple):
    """Private key and certificate chain, both in PEM."""

    key: bytes
    chain: bytes


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


def self_signed_certificate(clock: Clock) -> ServerCertificate:
    """Make a key and a certificate that no client can verify (tlsTestModeEnable)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rocketbroker")])
    now = datetime.fromtimestamp(clock.time_ms() / 1000, UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return ServerCertificate(private, certificate.public_bytes(Encoding.PEM))
