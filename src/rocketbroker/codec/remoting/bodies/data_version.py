"""Version of a configuration table (org.apache.rocketmq.remoting.protocol.DataVersion)."""

from typing import Self

from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.java_types import Long


class DataVersion(RemotingSerializable):
    """Version of a table; tables are equal if all three numbers are. ``timestamp`` in ms."""

    timestamp: Long = 0
    counter: Long = 0
    state_version: Long = 0

    def next_version(self, now_ms: int, state_version: int = 0) -> None:
        """Count a change."""
        self.timestamp = now_ms
        self.state_version = state_version
        self.counter += 1

    def copy(self) -> Self:
        """Return an independent version with the same numbers."""
        return type(self)(self.timestamp, self.counter, self.state_version)
