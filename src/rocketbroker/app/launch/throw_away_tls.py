"""TLS for development: certificates of a throw-away authority, in the folder of the store or in a temporary one."""

import os
import shutil
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from rocketbroker.common.config.fields import DAY_MS
from rocketbroker.common.errors import ConfigError

_AUTHORITY: Final = "ca.pem"


class ThrowAwayTls:
    """Files of TLS for servers of one machine; those in a kept folder serve the next start too.

    Args:
        store: folder that keeps the data, ``None`` for a temporary one.
        hosts: names and addresses that clients connect to.

    Attributes:
        properties: settings of the servers. They serve TLS and plain text, and talk TLS to each other.
        authority: file with the certificate that clients trust.
    """

    def __init__(self, store: Path | None, hosts: Collection[str]) -> None:
        self._temporary = None if store is not None else Path(tempfile.mkdtemp(prefix="mqdev-tls-"))
        folder = self._temporary or Path(str(store)).absolute() / "tls"
        self.authority = folder / _AUTHORITY
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _make(folder, sorted({*hosts, "127.0.0.1", "::1", "localhost"}))
        except OSError as error:
            raise ConfigError(f"--tls: cannot write certificates to {folder}: {error.strerror}") from error
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"--tls needs the package {error.name!r}: pip install 'rocketbroker[security]'"
            ) from error
        self.properties = {
            "tls.server.certPath": str(folder / "server.pem"),
            "tls.server.keyPath": str(folder / "server.key"),
            "tls.enable": "true",
            "tls.client.trustCertPath": str(self.authority),
        }

    def remove(self) -> None:
        """Remove a temporary folder."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def _make(folder: Path, hosts: Sequence[str]) -> None:
    """Make an authority, whose key is kept nowhere, and a certificate of the servers; ``ca.pem`` comes last.

    Those of an earlier start are kept while they name the hosts and do not expire soon.
    """
    from rocketbroker.common.certificates import CertificateAuthority, expiry_ms, names_all
    from rocketbroker.common.clock import SystemClock

    clock, server = SystemClock(), folder / "server.pem"
    expires = expiry_ms(server) if (folder / _AUTHORITY).exists() else None
    if expires is not None and expires > clock.time_ms() + DAY_MS and names_all(server, hosts):
        return
    authority = CertificateAuthority(clock)
    made = authority.issue("mqdev", hosts)
    (folder / "server.pem").write_bytes(made.chain)
    key = os.open(folder / "server.key", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(key, "wb") as file:
        file.write(made.key)
    (folder / _AUTHORITY).write_bytes(authority.chain)
