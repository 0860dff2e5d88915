"""Options by which the Spark format ``rocketmq`` reaches a cluster: name servers, user, TLS."""

import ssl
from dataclasses import dataclass
from typing import Any, Final

from rocketbroker.analytics.spark.option_values import OptionValues
from rocketbroker.client.core.client_config import ClientConfig, SessionCredentials
from rocketbroker.common.errors import ConfigError

#: Meaning of the options. Spark hides values of options whose names have ``secret``, ``token`` or ``accesskey``.
ACCESS_OPTIONS: Final = {
    "accessKey": "user of a cluster with access control, by whom requests are signed (none)",
    "secretKey": "secret of that user",
    "securityToken": "token of a temporary user",
    "tls": "true: TLS to name servers and brokers, whose certificates are checked (false)",
    "tlsCaFile": "authorities of the certificates, a PEM file at the same path on each machine (those of the system)",
}


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Name servers, credentials and TLS of a cluster; picklable, and shown without the secret."""

    namesrv_addr: str
    credentials: SessionCredentials | None = None
    tls: bool = False
    ca_file: str = ""

    def client_config(self, **settings: Any) -> ClientConfig:
        """Return the settings of a client, with further ones.

        Raises:
            ConfigError: ``tlsCaFile`` cannot be read on this machine.
        """
        context: ssl.SSLContext | bool = self.tls
        if self.ca_file:
            try:
                context = ssl.create_default_context(cafile=self.ca_file)
            except OSError as error:  # of the file, or of what is in it
                raise ConfigError(f"tlsCaFile is {self.ca_file!r}, which cannot be read: {error}") from error
        return ClientConfig(self.namesrv_addr, credentials=self.credentials, tls=context, **settings)


def cluster_access(given: OptionValues) -> ClusterAccess:
    """Parse the options; raise :class:`ConfigError` if some need another one."""
    names = ("accessKey", "secretKey", "securityToken")
    access_key, secret_key, token = map(given.text, names)
    if bool(access_key) != bool(secret_key) or (token and not access_key):
        missing = "accessKey" if not access_key else "secretKey"
        raise ConfigError(f"{missing} is missing ({ACCESS_OPTIONS[missing]}); give accessKey and secretKey together")
    tls, ca_file = given.flag("tls"), given.text("tlsCaFile")
    if ca_file and not tls:
        raise ConfigError(f"tlsCaFile is {ca_file!r}, but TLS is off; set the option tls to true")
    credentials = SessionCredentials(access_key, secret_key, token) if access_key else None
    return ClusterAccess(given.text("namesrvAddr").strip(), credentials, tls, ca_file)
