"""Namespaces: a prefix of the names of topics and groups (org.apache.rocketmq.remoting.protocol.NamespaceUtil)."""

from rocketbroker.codec.message.topic_validator import (
    CID_RMQ_SYS_PREFIX,
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    is_system_topic,
)

_SEPARATOR = "%"
_KINDS = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)


class Namespace:
    """A namespace; with an empty name, names stay as they are.

    Args:
        name: name of the namespace.
    """

    def __init__(self, name: str) -> None:
        self._prefix = f"{name}{_SEPARATOR}" if name else ""

    def wrap(self, name: str) -> str:
        """Return the name that brokers know: ``Orders`` becomes ``name%Orders``."""
        if not self._prefix or not name:
            return name
        kind, own = _split(name)
        if own.startswith((self._prefix, CID_RMQ_SYS_PREFIX)) or is_system_topic(name):
            return name
        return f"{kind}{self._prefix}{own}"

    def unwrap(self, name: str) -> str:
        """Return the name without the namespace; names of other namespaces stay as they are."""
        if not self._prefix:
            return name
        kind, own = _split(name)
        return kind + own.removeprefix(self._prefix)


def _split(name: str) -> tuple[str, str]:
    """Return the prefix of retry and dead-letter topics, and the rest."""
    kind = next((kind for kind in _KINDS if name.startswith(kind)), "")
    return kind, name[len(kind) :]
