"""Who wants to hear of new messages (org.apache.rocketmq.store.MessageArrivingListener)."""

from typing import Protocol


class MessageArrivingListener(Protocol):
    """Told of messages as soon as consumers can read them."""

    @property
    def waiting(self) -> bool:
        """Whether anybody waits at all; spares the calls when nobody does."""

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """A message is readable; the queue now ends at ``max_offset``."""


class NoListener:
    """Nobody waits."""

    waiting = False

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """Nobody to tell."""
