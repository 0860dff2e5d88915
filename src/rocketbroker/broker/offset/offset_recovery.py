"""Consumer offsets after a crash that took the last consumed messages.

RocketMQ leaves the offsets as they are, so that a group skips new messages that get the offsets of lost ones.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.common.errors import StoreError
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.recovery.store_lock import StoreLock

log = logging.getLogger(__name__)


class OffsetRecovery:
    """Sets offsets beyond the end of their queue back to it after an unclean stop.

    Args:
        offsets: the offsets, loaded.
        queues: the queues, recovered.
        lock: knows how the last broker stopped, and keeps the store marked until the table is on disk.
        drain: waits until submitted tables are on disk; returns the paths of those that could not be written.
    """

    def __init__(
        self,
        offsets: ConsumerOffsetManager,
        queues: ConsumeQueueStore,
        lock: StoreLock,
        drain: Callable[[], Awaitable[Collection[Path]]],
    ) -> None:
        self._offsets = offsets
        self._queues = queues
        self._lock = lock
        self._drain = drain

    async def start(self) -> None:
        """Set back offsets, and log each one.

        The table is on disk before a new message can come: after another crash nothing would show what to set back.

        Raises:
            StoreError: The table could not be written; the next start sets back the same offsets.
        """
        if self._lock.was_clean:
            return
        set_back = self._offsets.set_back(self._queues.max_offset_in_queue)
        for back in set_back:
            log.warning("after an unclean stop, %s", back)
        if not set_back:
            return
        self._lock.stays_marked = True
        self._offsets.flush()
        if (path := self._offsets.path) in await self._drain():
            raise StoreError(
                f"{path} cannot be written, where {len(set_back)} offsets had to be set back to their queue's end: "
                "consumers would skip new messages; free space on its disk, or make it writable again"
            )
        self._lock.stays_marked = False

    async def stop(self) -> None:
        """Do nothing: this part only acts at the start."""
