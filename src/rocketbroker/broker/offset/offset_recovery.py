"""Consumer offsets after a crash that took the last consumed messages.

RocketMQ leaves them as they are, so that a group skips the new messages that get the offsets of the lost ones.
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
        drain: waits until tables that were submitted are on disk; gives the paths of those that could not be written.
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
            StoreError: The disk refused the table; the next start sets back the same offsets.
        """
        if self._lock.was_clean:
            return
        told = self._offsets.set_back(self._queues.max_offset_in_queue)
        for back in told:
            log.warning("after the unclean stop %s", back)
        if not told:
            return
        self._lock.stays_marked = True
        self._offsets.flush()
        if (path := self._offsets.path) in await self._drain():
            raise StoreError(
                f"{path} cannot be written, in which {len(told)} offsets had to go back to where their queue ends now: "
                "consumers would pass over new messages; make room on its disk, or have it written to again"
            )
        self._lock.stays_marked = False

    async def stop(self) -> None:
        """Nothing to end."""
