"""Properties of RocketMQ: every one that it has or had, and those with which this version does not start.

The packaged file of all is read on demand: for a name that no model has, and for `-p`.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from rocketbroker.common.config import unserved
from rocketbroker.common.errors import shown

_NAME_MAX = 100


@dataclass(frozen=True, slots=True)
class KnownProperty:
    """A property of RocketMQ with its Java class.

    `default` is text, or None. `last_version` is None for properties of 5.5.0. `important` ones are printed by `-m`.
    """

    name: str
    java_class: str
    default: str | None
    last_version: str | None = None
    important: bool = False


@cache
def _document() -> dict[str, Any]:
    import json  # most starts do not need it
    from importlib.resources import files

    resource = files("rocketbroker.common.config").joinpath("data/rocketmq-properties.json")
    document: dict[str, Any] = json.loads(resource.read_text(encoding="utf-8"))
    return document


def properties_of(java_class: str) -> list[KnownProperty]:
    """Return the properties of one class of 5.5.0, such as `MessageStoreConfig`, in order of declaration."""
    document = _document()
    important = set(document["important"])
    return [
        KnownProperty(name, java_class, default, important=name in important)
        for name, default in document["properties"][java_class].items()
    ]


def find(name: str) -> KnownProperty | None:
    """Return the property of that name in any class or version, else None."""
    document = _document()
    for java_class, properties in document["properties"].items():
        if name in properties:
            return KnownProperty(name, java_class, properties[name], important=name in document["important"])
    other = document["others"].get(name)
    return other and KnownProperty(name, other["class"], other["default"], other["last"])


def names() -> set[str]:
    """Return the names of all classes and versions."""
    document = _document()
    return {name for properties in document["properties"].values() for name in properties} | set(document["others"])


def nearest(name: str, own: list[str]) -> str | None:
    """Return the name most like a mistyped one, among RocketMQ's and `own`; letter case does not count."""
    import difflib

    if len(name) > _NAME_MAX:  # matching takes quadratic time
        return None
    by_lower = {known.lower(): known for known in [*names(), *own]}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


# Settings of RocketMQ that promise what this version does not keep; a server that is given one on does not start.
#
# Access control of 4.x and TLS (BrokerConfig.aclEnable, TlsSystemConfig): the server would be open. Those of store and
# role are in `unserved`.

_NO_ACCESS_CONTROL: Final = "access control 1.0"
_OTHER_TLS: Final = (
    "write tls.enable=true to open connections over TLS, and tls.server.certPath and tls.server.keyPath to serve TLS"
)
_LIMIT_ACCESS: Final = (
    "and write authenticationEnabled=true, authorizationEnabled=true and, to take over plain_acl.yml, "
    "migrateAuthFromV1Enabled=true"
)
_ACCESS_CONTROL: Final = frozenset({"aclEnable"})
_TLS: Final = frozenset({"tlsEnable", "enableTls", "useTLS"})
# An unknown word may be meant to protect.
_OFF: Final = frozenset({"", "false", "none", "disabled"})


def is_refused_setting(name: str) -> bool:
    """Return true if some value of a property is rejected because this version does not act on it."""
    return name in _ACCESS_CONTROL or name in _TLS or name in unserved.REJECTED


def refusal(name: str, value: str) -> str:
    """Return the reason to reject a property; empty if it is no such setting, or off."""
    if not is_refused_setting(name) or value.strip().lower() in _OFF | {unserved.REJECTED_DEFAULTS.get(name, "")}:
        return ""
    if name in unserved.REJECTED:
        lacks, advice = unserved.REJECTED[name]
        serves = "would serve without it"
    else:
        lacks, advice = _NO_ACCESS_CONTROL, _LIMIT_ACCESS
        serves = "would serve as if it were off"
    given = f"{shown(name)}={shown(value)}"
    if name in _TLS:
        return f"{given} is rejected: {_OTHER_TLS}"
    return f"{given} is rejected: this version has no {lacks}, and {serves}; remove the setting, {advice}"
