"""Credentials and TLS of mqadmin: from the file of clusters, the environment, or the ``tools.yml`` of RocketMQ.

Nothing secret is an option of the command line, which every user of the machine can read in the list of processes.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from rocketbroker.app.mqadmin.named_clusters import Chosen, NamedCluster
from rocketbroker.app.terminal import say
from rocketbroker.client.core.client_config import ClientConfig, SessionCredentials
from rocketbroker.common.errors import ConfigError

if TYPE_CHECKING:
    import ssl

ACCESS_KEY_VARIABLE: Final = "ROCKETMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "ROCKETMQ_SECRET_KEY"  # noqa: S105 - a name
#: "true" binds signatures to their connections.
BIND_VARIABLE: Final = "ROCKETMQ_BIND_SIGNATURES"

# Limit of a request (DefaultMQAdminExt's timeoutMillis).
_TIMEOUT_S: Final = 5.0
# As in common.config.tls_settings, which is imported only where one of these is there.
_JAVA_OPTIONS: Final = ("JAVA_OPT", "JAVA_OPT_EXT")
_TLS_FILE: Final = Path("/etc/rocketmq/tls.properties")
_LARGEST_FILE: Final = 1 << 16
# A field of YAML on one line: its value in single or double quotes or plain, and a comment.
_FIELD: Final = re.compile(
    r"""(\w+)\s*:(?:\s+(?:'((?:[^']|'')*)'|"([^"\\]*)"|([^\s'"\[\]{}&*!|>%@`#,]\S*)))?(?:\s+\#.*)?\s*"""
)
_EMPTY: Final = re.compile(r"\s*(?:#.*)?|---\s*")


def client_settings(cluster: NamedCluster, chosen: Chosen, environment: Mapping[str, str] = os.environ) -> ClientConfig:
    """Return the settings of the connections to a cluster (blocks: reads files).

    Credentials are those of the cluster, else of the environment, else of ``$ROCKETMQ_HOME/conf/tools.yml``, where
    RocketMQ's mqadmin has them; without any, requests are not signed. TLS is that of the options or of the cluster,
    else that of ``tls.…`` settings of the machine.

    Raises:
        typer.BadParameter: credentials are incomplete, or a file cannot be used; the text has no secret.
    """
    return ClientConfig(
        cluster.namesrv_addr,
        credentials=_credentials(cluster, environment),
        bind_signatures=cluster.bind_signatures or environment.get(BIND_VARIABLE, "").strip().lower() == "true",
        tls=_tls(cluster, chosen, environment),
        mq_client_api_timeout_s=_TIMEOUT_S,
    )


def _credentials(cluster: NamedCluster, environment: Mapping[str, str]) -> SessionCredentials | None:
    if cluster.access_key:
        secret = cluster.secret_key or _secret_in(cluster.secret_key_file)
        return SessionCredentials(cluster.access_key, secret)
    access_key, secret = (environment.get(name, "").strip() for name in (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE))
    if bool(access_key) != bool(secret):
        given, missing = ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE
        if secret:
            given, missing = missing, given
        raise typer.BadParameter(f"{given} is set and {missing} is not; set both, or none to send without a signature")
    if access_key:
        return SessionCredentials(access_key, secret)
    home = environment.get("ROCKETMQ_HOME", "").strip()
    return tools_credentials(Path(home, "conf", "tools.yml")) if home else None


def _secret_in(name: str) -> str:
    """Return the first line of a file that only its owner can read."""
    from rocketbroker.common.private_files import check_private

    path = Path(name)
    try:
        check_private(path)
        lines = _text_of(path).splitlines()
    except (OSError, ConfigError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise typer.BadParameter(f"secretKeyFile {path}: {reason}") from error
    secret = lines[0].strip() if lines else ""
    if not secret:
        raise typer.BadParameter(f"secretKeyFile {path}: its first line is empty; write the secret there")
    return secret


def tools_credentials(path: Path) -> SessionCredentials | None:
    """Return the credentials in a ``tools.yml`` of RocketMQ, None if there is no such file (AclUtils.getAclRPCHook).

    Its fields ``accessKey`` and ``secretKey`` are plain YAML: each on one line, with or without quotes. The file is
    used although others can read it, as it comes with RocketMQ, but then a line on stderr says so.

    Raises:
        typer.BadParameter: it has other contents, or lacks one of the two.
    """
    from rocketbroker.common.private_files import check_private

    try:
        text = _text_of(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}") from error
    found = _fields(path, text)
    missing = [name for name in ("accessKey", "secretKey") if not found.get(name)]
    if missing:
        raise typer.BadParameter(
            f"{path} has no {' and no '.join(missing)}; write accessKey: NAME and secretKey: SECRET"
        )
    try:
        check_private(path)
    except ConfigError as error:
        say(f"mqadmin: warning: {error}", err=True)
    return SessionCredentials(found["accessKey"], found["secretKey"])


def _text_of(path: Path) -> str:
    """Return a small text file.

    Raises:
        OSError: it cannot be read.
        typer.BadParameter: it is large, or no text.
    """
    with path.open("rb") as file:
        data = file.read(_LARGEST_FILE + 1)
    if len(data) > _LARGEST_FILE:
        raise typer.BadParameter(f"{path} has more than {_LARGEST_FILE:,} bytes, and is no file of credentials")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{path}: byte {error.start + 1} is not UTF-8") from None


def _fields(path: Path, text: str) -> dict[str, str]:
    """Return the values of lines ``name: value`` by name; faults name the line, whose text may be a secret."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if _EMPTY.fullmatch(line):
            continue
        field = _FIELD.fullmatch(line)
        if field is None:
            raise typer.BadParameter(
                f"{path}, line {number}: it is not a line such as accessKey: NAME; put a value with blanks or signs "
                "between single quotes"
            )
        name, single, double, plain = field.groups()
        if name in found:
            raise typer.BadParameter(f"{path}, line {number}: {name} is there twice; give it once")
        found[name] = single.replace("''", "'") if single is not None else double or plain or ""
    return found


def _tls(cluster: NamedCluster, chosen: Chosen, environment: Mapping[str, str]) -> "ssl.SSLContext | bool":
    """Return the settings of TLS, False for plain connections."""
    ca_file = str(chosen.ca_file) if chosen.ca_file is not None else cluster.ca_file
    if not (chosen.tls or chosen.ca_file or cluster.tls):
        return False if cluster.tls is False else _tls_of_machine(environment)
    context = _with_authorities(ca_file)
    if cluster.cert_file:
        from rocketbroker.common.private_files import check_private

        key = cluster.key_file or cluster.cert_file
        try:
            check_private(Path(key))
            # Without a password OpenSSL would ask the terminal for that of an encrypted key.
            context.load_cert_chain(cluster.cert_file, key, lambda: "")
        except (OSError, ConfigError) as error:  # an SSLError is an OSError
            raise typer.BadParameter(
                f"certFile {cluster.cert_file} and keyFile {key} cannot be used: {error}; both must be in PEM, belong "
                "together and have no password"
            ) from error
    return context


def _tls_of_machine(environment: Mapping[str, str]) -> "ssl.SSLContext | bool":
    """Return TLS as servers of this machine use it: by ``-Dtls.enable=true`` in JAVA_OPT, or ``tls.config.file``."""
    options = " ".join(environment.get(name, "") for name in _JAVA_OPTIONS)
    if "-Dtls." not in options and not _TLS_FILE.is_file():
        return False
    # These take 0.2 s to import.
    from rocketbroker.common.config.fields import fields_by_name
    from rocketbroker.common.config.load import resolve
    from rocketbroker.common.config.tls_settings import TlsClientSettings, check_outgoing_tls, outer_entries
    from rocketbroker.transport.tls_contexts import client_context

    try:
        known = fields_by_name(TlsClientSettings)
        entries = [each for each in outer_entries(environment, []) if each.key in known]
        settings = resolve((TlsClientSettings,), entries).model(TlsClientSettings)
        check_outgoing_tls(settings)
        return client_context(settings) if settings.tls_enable else False
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error


def _with_authorities(ca_file: str) -> "ssl.SSLContext":
    import ssl

    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise typer.BadParameter(
            f"the certificates of issuers in {ca_file} cannot be used: {error}; give a file in PEM"
        ) from error
