"""RocketMQ's switches for access control and TLS; this version has neither and rejects settings that turn one on.

The counterpart of AuthConfig, BrokerConfig.aclEnable and TlsSystemConfig.
"""

from rocketbroker.common.shown_name import shown

_ACCESS_CONTROL = frozenset({"aclEnable", "authenticationEnabled", "authorizationEnabled", "migrateAuthFromV1Enabled"})
_TLS = frozenset({"tlsEnable", "enableTls", "useTLS"})
_TLS_PREFIX = "tls."
# Of `tls.server.mode`, `tls.server.need.client.auth` and the rest; an unknown word may be meant to protect.
_OFF = frozenset({"", "false", "none", "disabled"})


def is_security_switch(name: str) -> bool:
    """Return true if a property turns access control or TLS on or off."""
    return name in _ACCESS_CONTROL or name in _TLS or name.startswith(_TLS_PREFIX)


def refusal(name: str, value: str) -> str:
    """Return the reason to reject a property; empty if it is no such switch, or off."""
    if not is_security_switch(name) or value.strip().lower() in _OFF:
        return ""
    lacks = "TLS" if name not in _ACCESS_CONTROL else "access control by users and rights"
    return (
        f"{shown(name)}={shown(value)} is rejected: this version has no {lacks}, and would serve as if it were off; "
        "remove the setting, and limit who can connect by protectedMode, bindAddress or a firewall"
    )
