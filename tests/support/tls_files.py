"""Certificates of a throw-away authority in a folder, and the settings of servers and clients that use them."""

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from rocketbroker.common.certificates import CertificateAuthority, ServerCertificate
from rocketbroker.common.clock import SystemClock
from tests.support.ports import LOOPBACK


class TlsFiles:
    """Files of an authority (``ca.pem``), a server and a client.

    Args:
        folder: the folder.
        hosts: names and addresses of the server.
    """

    def __init__(self, folder: Path, hosts: Sequence[str] = (LOOPBACK,)) -> None:
        self.folder = folder
        self.authority = CertificateAuthority(SystemClock())
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(self.authority.chain)
        self.write("server", self.authority.issue("server", hosts))
        self.write("client", self.authority.issue("client"))

    def write(self, name: str, made: ServerCertificate) -> None:
        """Write a certificate and its key."""
        (self.folder / f"{name}.pem").write_bytes(made.chain)
        key = self.folder / f"{name}.key"
        key.touch(0o600)
        key.write_bytes(made.key)

    def revocation_list(self, *names: str, valid: timedelta = timedelta(days=1)) -> bytes:
        """Return the authority's list of revoked certificates, with those of files in PEM.

        Args:
            names: names of the files.
            valid: time until the list expires; negative for one that has expired.
        """
        authority, now = self.authority, datetime.now(UTC)
        made = x509.CertificateRevocationListBuilder(
            x509.load_pem_x509_certificate(authority.chain).subject,
            now - max(timedelta(hours=1), -2 * valid),
            now + valid,
        )
        for name in names:
            number = x509.load_pem_x509_certificate((self.folder / f"{name}.pem").read_bytes()).serial_number
            made = made.add_revoked_certificate(x509.RevokedCertificateBuilder(number, now).build())
        return made.sign(authority._key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def of_server(self, **more: str) -> dict[str, str]:
        """Return the settings of a port; names of ``more`` have an underscore for a dot and lack ``tls.server.``."""
        return {
            "tls.server.certPath": f"{self.folder}/server.pem",
            "tls.server.keyPath": f"{self.folder}/server.key",
            **{f"tls.server.{name.replace('_', '.')}": value for name, value in more.items()},
        }

    def of_client(self, name: str = "client") -> dict[str, str]:
        """Return the settings of outgoing connections, which are RocketMQ's system properties too."""
        return {
            "tls.enable": "true",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": str(self.ca),
            "tls.client.certPath": f"{self.folder}/{name}.pem",
            "tls.client.keyPath": f"{self.folder}/{name}.key",
        }

    def context(self, name: str = "") -> ssl.SSLContext:
        """Return the settings of a client that trusts the authority, with a certificate or none."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if name:
            context.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        return context
