"""Settings of TLS on the ports of remoting and HA (org.apache.rocketmq.remoting.netty.TlsSystemConfig)."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator

from rocketbroker.common.config.fields import ConfigModel, Flag, Line, OptionalPath, Text, Trait, setting
from rocketbroker.common.config.properties_file import Entry, load_properties
from rocketbroker.common.errors import ConfigError, shown

TLS_FILE: Final = "/etc/rocketmq/tls.properties"
_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_CIPHERS: Final = re.compile(r"[A-Za-z0-9_, -]*\Z")
_CIPHERS_MAX: Final = 4_096
_PATH_WORDS: Final = "the path of a file in PEM"


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _check_versions(value: str) -> str:
    wrong = [each for each in split(value) if each not in _VERSIONS]
    if wrong:
        raise ValueError(f"rejected: {wrong[0]} is not supported; write TLSv1.2, TLSv1.3, or both joined by a comma")
    return value


def _check_ciphers(value: str) -> str:
    if len(value) > _CIPHERS_MAX or not _CIPHERS.match(value):
        raise ValueError("not a list of ciphers")
    return value


def split(value: str) -> list[str]:
    """Return the parts of a list joined by commas."""
    return [each for each in map(str.strip, value.split(",")) if each]


Ciphers = Annotated[Text, AfterValidator(_check_ciphers)]
Versions = Annotated[Text, AfterValidator(_check_versions)]
TlsMode = Annotated[Literal["disabled", "permissive", "enforcing"], BeforeValidator(_lower)]
ClientAuth = Annotated[Literal["none", "optional", "require"], BeforeValidator(_lower)]
_SYSTEM: Final = Trait(own=True)
_SECRET: Final = Trait(own=True, secret=True)
_PATH: Final = Trait(own=True, takes=_PATH_WORDS)


class TlsClientSettings(ConfigModel):
    """TLS of the connections that this process opens."""

    tls_enable: Flag = setting(
        False,
        "Use TLS on connections that this process opens: to name servers, masters and other brokers.",
        Trait(own=True, important=True),
        name="tls.enable",
    )
    tls_client_cert_path: OptionalPath = setting(
        "", "Certificate of this process for servers that ask for one.", _PATH, name="tls.client.certPath"
    )
    tls_client_key_path: OptionalPath = setting(
        "", "Private key of tls.client.certPath.", _PATH, name="tls.client.keyPath"
    )
    tls_client_key_password: Line = setting(
        "", "Password of that key, if it is encrypted.", _SECRET, name="tls.client.keyPassword"
    )
    tls_client_auth_server: Flag = setting(
        True,
        "Verify the certificates of servers. RocketMQ does not by default.",
        _SYSTEM,
        name="tls.client.authServer",
    )
    tls_client_trust_cert_path: OptionalPath = setting(
        "",
        "Certificates of the issuers that sign those of servers; empty means those of the system.",
        _PATH,
        name="tls.client.trustCertPath",
    )
    tls_ciphers: Ciphers = setting(
        "",
        "Ciphers for TLS 1.2 by their names in Java or OpenSSL, joined by commas; empty means OpenSSL's choice. Those "
        "of TLS 1.3 are always allowed.",
        Trait(own=True, takes="names of ciphers joined by commas"),
        name="tls.ciphers",
    )
    tls_protocols: Versions = setting(
        "", "Versions of TLS, joined by commas; empty means TLSv1.2 and TLSv1.3.", _SYSTEM, name="tls.protocols"
    )


class TlsSettings(TlsClientSettings):
    """TLS of the ports that serve clients, brokers and slaves, and of the connections that this process opens.

    RocketMQ has them as system properties. A file of properties (``tls.config.file``), ``-Dtls.…`` in ``JAVA_OPT`` or
    ``JAVA_OPT_EXT`` of the environment, and the properties of ``-c`` set them; a later source overrides an earlier one.
    """

    tls_server_mode: TlsMode = setting(
        "permissive",
        "Connections served once there is a certificate: permissive serves TLS and plain text on the same port, "
        "enforcing TLS alone, disabled plain text alone.",
        Trait(own=True, important=True),
        name="tls.server.mode",
    )
    tls_config_file: OptionalPath = setting(
        TLS_FILE,
        "File of properties with further settings of TLS, read if it exists.",
        Trait(own=True, takes="the path of a file"),
        name="tls.config.file",
    )
    tls_test_mode_enable: Flag = setting(
        False,
        "Make a certificate that no client can verify at each start. RocketMQ does so by default.",
        _SYSTEM,
        name="tls.test.mode.enable",
    )
    tls_server_cert_path: OptionalPath = setting(
        "",
        "Certificate of this server, followed by those of its issuers. It is read again when it changes.",
        _PATH,
        name="tls.server.certPath",
    )
    tls_server_key_path: OptionalPath = setting("", "Private key of this server.", _PATH, name="tls.server.keyPath")
    tls_server_key_password: Line = setting(
        "", "Password of the private key, if it is encrypted.", _SECRET, name="tls.server.keyPassword"
    )
    tls_server_need_client_auth: ClientAuth = setting(
        "none",
        "Certificates of clients: none asks for none, optional verifies those that are sent, require rejects clients "
        "without one.",
        _SYSTEM,
        name="tls.server.need.client.auth",
    )
    tls_server_auth_client: Flag = setting(
        False,
        "Verify certificates of clients by the issuers of the system, where tls.server.trustCertPath names none. With "
        "it, they are always verified.",
        _SYSTEM,
        name="tls.server.authClient",
    )
    tls_server_trust_cert_path: OptionalPath = setting(
        "",
        "Certificates of the issuers that sign those of clients; empty means those of the system.",
        _PATH,
        name="tls.server.trustCertPath",
    )


def check_tls(settings: TlsSettings) -> None:
    """Check settings that depend on each other.

    Raises:
        ConfigError: They contradict.
    """
    _check_pair("server", settings.tls_server_cert_path, settings.tls_server_key_path)
    check_outgoing_tls(settings)
    if settings.tls_server_mode == "enforcing" and not has_certificate(settings):
        raise ConfigError(
            "tls.server.mode=enforcing needs a certificate: set tls.server.certPath and tls.server.keyPath, or "
            "tls.test.mode.enable=true for a first try"
        )


def check_outgoing_tls(settings: TlsClientSettings) -> None:
    """Check settings that depend on each other.

    Raises:
        ConfigError: They contradict.
    """
    _check_pair("client", settings.tls_client_cert_path, settings.tls_client_key_path)


def _check_pair(end: str, cert: str, key: str) -> None:
    if bool(cert) != bool(key):
        raise ConfigError(f"tls.{end}.certPath and tls.{end}.keyPath belong together; set both or none")


def has_certificate(settings: TlsSettings) -> bool:
    """Return true if the server can serve TLS."""
    return bool(settings.tls_server_cert_path) or settings.tls_test_mode_enable


# Variables in which RocketMQ's scripts and images take options of Java.
_JAVA_OPTIONS: Final = ("JAVA_OPT", "JAVA_OPT_EXT")
TLS_FILE_SETTING: Final = "tls.config.file"


def outer_entries(environment: Mapping[str, str], entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries of ``tls.config.file`` and of ``-Dtls.…`` in the environment, which those of ``-c`` follow.

    Args:
        environment: variables by name.
        entries: those of ``-c``, which may name the file.

    Raises:
        ConfigError: The file that was named cannot be read, or has a setting of something else.
    """
    java = [entry for name in _JAVA_OPTIONS for entry in _java_entries(name, environment.get(name, ""))]
    named = next(
        (each for each in reversed([*java, *entries]) if each.key == TLS_FILE_SETTING and each.value.strip()), None
    )
    path = Path(named.value.strip()) if named is not None else Path(TLS_FILE)
    # Printed settings name the usual file.
    if str(path) == TLS_FILE and not path.is_file():
        return java
    found = load_properties(path)
    for entry in found:
        if not entry.key.startswith("tls."):
            raise ConfigError(f"{entry.where}: {shown(entry.key)} is no setting of TLS; their names begin with 'tls.'")
    return [*found, *java]


def _java_entries(variable: str, options: str) -> list[Entry]:
    """Return the settings of TLS among options such as ``-Dtls.server.mode=enforcing``."""
    try:
        words = shlex.split(options) if "-Dtls." in options else []
    except ValueError as error:
        raise ConfigError(f"environment variable {variable}: {error}; close the quotation") from error
    pairs = (word.removeprefix("-D").partition("=") for word in words if word.startswith("-Dtls."))
    return [Entry(name, value, f"environment variable {variable}") for name, _, value in pairs]
