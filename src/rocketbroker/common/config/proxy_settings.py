"""Settings of a gRPC port from ``rmq-proxy.json`` and the command line (ConfigurationManager of Apache's proxy)."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketbroker.common.config.auth_settings import check_auth
from rocketbroker.common.config.fields import fields_by_name
from rocketbroker.common.config.load import resolve
from rocketbroker.common.config.properties_file import Entry
from rocketbroker.common.config.proxy_config import GRPC_PORT, ProxyConfig
from rocketbroker.common.config.tls_settings import (
    TLS_FILE_SETTING,
    TlsClientSettings,
    check_outgoing_tls,
    outer_entries,
)
from rocketbroker.common.errors import ConfigError, shown

_MOST_BYTES: Final = 1 << 20
_CREDENTIALS: Final = "innerClientAuthenticationCredentials"
_HEADER_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Settings of a gRPC port, warnings and notes of one line."""

    proxy: ProxyConfig
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def load_proxy_settings(
    path: str | Path | None = None, overrides: Sequence[Entry] = (), defaults: Sequence[Entry] = ()
) -> ProxySettings:
    """Return the settings of a gRPC port.

    Args:
        path: a file with a JSON object.
        overrides: settings that win over the file, such as those of the command line.
        defaults: settings that the file wins over, such as those of the broker in the same process.

    Raises:
        ConfigError: The file cannot be read, or settings are invalid, one line for each.
    """
    given = _entries(Path(path)) if path is not None else []
    # The file of TLS and the environment are those of all servers of a machine.
    outgoing = fields_by_name(TlsClientSettings)
    entries = [each for each in outer_entries(os.environ, given) if each.key in outgoing]
    entries = [*defaults, *entries]
    entries += [each for each in [*given, *overrides] if each.key != TLS_FILE_SETTING]
    resolved = resolve((ProxyConfig,), entries)
    proxy = resolved.model(ProxyConfig)
    check_outgoing_tls(proxy)
    check_auth(proxy)
    if proxy.proxy_mode.upper() not in {"CLUSTER", "LOCAL"}:
        raise ConfigError(f"proxyMode={shown(proxy.proxy_mode)} is unknown; write CLUSTER or LOCAL")
    if not proxy.tls_test_mode_enable and bool(proxy.tls_cert_path) != bool(proxy.tls_key_path):
        raise ConfigError("tlsCertPath and tlsKeyPath belong together; give both, or tlsTestModeEnable=true")
    if not (proxy.grpc_plain_text_enable or proxy.tls_test_mode_enable or proxy.tls_cert_path):
        raise ConfigError(
            "grpcPlainTextEnable=false needs TLS: set tlsCertPath and tlsKeyPath, or tlsTestModeEnable=true"
        )
    if proxy.tls_trust_cert_path and not (proxy.tls_test_mode_enable or proxy.tls_cert_path):
        raise ConfigError("tlsTrustCertPath needs TLS: set tlsCertPath and tlsKeyPath, or tlsTestModeEnable=true")
    least = least_held_bytes(proxy.grpc_max_inbound_message_size)
    if proxy.max_held_bytes < least:
        raise ConfigError(
            f"maxHeldBytes={proxy.max_held_bytes:,} has no room for one request of grpcMaxInboundMessageSize="
            f"{proxy.grpc_max_inbound_message_size:,}; set maxHeldBytes to at least {least:,}, or lower "
            "grpcMaxInboundMessageSize"
        )
    return ProxySettings(proxy, tuple(resolved.warnings), resolved.notes())


def least_held_bytes(max_message_size: int) -> int:
    """Return the memory that a request takes while it is incomplete: its bytes, headers, and framing."""
    return max_message_size + max_message_size // 64 + _HEADER_BYTES


def _entries(path: Path) -> list[Entry]:
    """Read a JSON object of settings.

    Raises:
        ConfigError: It cannot be read, or is no such object.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path} has over {_MOST_BYTES:,} bytes; it should be a JSON object of settings")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f'{path} holds no JSON object; write settings as {{"grpcServerPort": {GRPC_PORT}}}')
    entries = []
    if isinstance(found.get(_CREDENTIALS), dict):  # a text with an object in it, or the object
        found[_CREDENTIALS] = json.dumps(found[_CREDENTIALS])
    for name, value in found.items():
        if isinstance(value, (dict, list)) or value is None:
            raise ConfigError(f"{path}: {shown(name)} is {type(value).__name__}; give text, a number, true or false")
        entries.append(Entry(name, str(value).lower() if isinstance(value, bool) else str(value), str(path)))
    return entries
