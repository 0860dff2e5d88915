"""Tables of a master that this broker only keeps: for a broker that takes over its store."""

from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from rocketbroker.broker.persist.config_manager import ConfigManager, OnPersist
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.bodies.slave_tables import (
    MessageRequestModeSerializeWrapper,
    TimerMetricsSerializeWrapper,
)

T = TypeVar("T", bound=RemotingSerializable)


class CopiedTable(ConfigManager[T]):
    """A table that a slave replaces as a whole. A master of this kind has no such entries.

    Args:
        path: as in ``ConfigManager``.
        empty: the table without entries; it must not be altered.
        on_persist: as in ``ConfigManager``.

    Attributes:
        content: the table.
    """

    def __init__(self, path: Path, empty: T, on_persist: OnPersist | None = None) -> None:
        super().__init__(path, on_persist)
        self._empty = self.content = empty

    def follow(self, content: T) -> None:
        """Replace the table by the master's, and write it; keep it if the master has none, as after a loss."""
        if content not in (self.content, self._empty):
            self.content = content
            self.persist()

    def encode(self) -> bytes:
        """Return the content of the file, on one line as RocketMQ writes it."""
        return self.content.encode()

    def parse(self, data: bytes) -> T:
        """Parse the content of a file."""
        return type(self._empty).decode(data)

    def count(self, _file: T) -> int:
        """Return 1: an empty table is as good as any."""
        return 1

    def take(self, file: T) -> None:
        """Replace the table by that of a file."""
        self.content = file


class CopiedTables(NamedTuple):
    """Tables for features that this broker lacks: timer messages by topic, and pop consumers."""

    timer_metrics: CopiedTable[TimerMetricsSerializeWrapper]
    message_request_modes: CopiedTable[MessageRequestModeSerializeWrapper]

    @classmethod
    def within(cls, folder: Path, on_persist: OnPersist | None = None) -> Self:
        """Return the empty tables for the files of a folder."""
        return cls(
            CopiedTable(folder / "timermetrics", TimerMetricsSerializeWrapper(), on_persist),
            CopiedTable(folder / "messageRequestMode.json", MessageRequestModeSerializeWrapper(), on_persist),
        )
