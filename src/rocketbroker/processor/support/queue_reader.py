"""What processors ask the message store about queues."""

from typing import Protocol


class QueueReader(Protocol):
    """Offsets and times of queues; a queue that never had a message has the offsets 0 and the time -1."""

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Queue offset after the last readable message."""

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Queue offset of the first message there is."""

    async def offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: str = "LOWER"
    ) -> int:
        """Queue offset of the first message at or after a time, or of the last one not after it."""

    def earliest_message_time(self, topic: str, queue_id: int) -> int:
        """Store time in ms of the first message."""

    def message_store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time in ms of a message."""
