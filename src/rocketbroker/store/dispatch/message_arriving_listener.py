"""Listener for new messages (org.apache.rocketmq.store.MessageArrivingListener)."""

from typing import Protocol


class MessageArrivingListener(Protocol):
    """Listener that is notified as soon as consumers can read messages."""

    @property
    def waiting(self) -> bool:
        """True if anybody waits; saves the calls otherwise."""

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """Handle a message that became readable; the queue now ends at ``max_offset``."""


class NoListener:
    """Listener of a store that nobody waits for."""

    waiting = False

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """Do nothing."""
