"""Filters of pulls on properties (org.apache.rocketmq.store.MessageFilter)."""

from collections.abc import Callable
from typing import Protocol

from rocketbroker.codec.message.record_properties import PropertyBlocks


class MessageFilter(Protocol):
    """Selects messages by their properties, on the event loop and on the threads that read old messages."""

    @property
    def is_quick(self) -> bool:
        """True if one message never takes it long; a filter that is not quick is for threads only."""

    def is_matched_by_commit_log(
        self, properties: PropertyBlocks, is_over: Callable[[], bool] | None = None
    ) -> list[bool]:
        """Return, for the properties of each message, true if it is wanted.

        The list ends at the first message for which it takes long while ``is_over`` returns true, and has one item at
        least.
        """
