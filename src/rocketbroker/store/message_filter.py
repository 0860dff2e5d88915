"""What a pull wants beside tags (org.apache.rocketmq.store.MessageFilter)."""

from collections.abc import Sequence
from typing import Protocol


class MessageFilter(Protocol):
    """Chooses messages by their properties; called on the event loop and on the threads that read old messages."""

    def is_matched_by_commit_log(self, properties: Sequence[bytes]) -> list[bool]:
        """For the properties of each message, as its record holds them, whether it is wanted."""
