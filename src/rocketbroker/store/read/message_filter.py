"""Filters of pulls on properties (org.apache.rocketmq.store.MessageFilter)."""

from typing import Protocol

from rocketbroker.codec.message.record_properties import PropertyBlocks


class MessageFilter(Protocol):
    """Selects messages by their properties, on the event loop and on the threads that read old messages."""

    def is_matched_by_commit_log(self, properties: PropertyBlocks) -> list[bool]:
        """Return, for the properties of each message, true if it is wanted."""
