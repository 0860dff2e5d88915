"""Consumer offsets beyond the end of their queue: after a crash, a cut of the log, or a change of role.

RocketMQ leaves the offsets as they are, so that a group skips new messages that get the offsets of lost ones.

Each start looks, whatever the last stop was: it costs a microsecond an offset. A clean stop says that the log is on
disk, not that the offsets belong to it. Those of a slave are its master's, and a slave of an earlier version took them
over before it had the messages. A start that ended early may also have left an unclean store a clean one.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.common.errors import StoreError
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

log = logging.getLogger(__name__)


class OffsetRecovery:
    """Sets offsets beyond the end of their queue back to it.

    Args:
        offsets: the offsets, loaded.
        queues: the queues, recovered.
        drain: waits until submitted tables are on disk; returns the paths of those that could not be written.
    """

    def __init__(
        self,
        offsets: ConsumerOffsetManager,
        queues: ConsumeQueueStore,
        drain: Callable[[], Awaitable[Collection[Path]]],
    ) -> None:
        self._offsets = offsets
        self._queues = queues
        self._drain = drain

    async def start(self) -> None:
        """Set back offsets, and log each one.

        The table is on disk before a new message can come: after a crash its offset would no longer be beyond the end.

        Raises:
            StoreError: The table could not be written; the next start sets back the same offsets.
        """
        set_back = self._offsets.set_back(self._queues.max_offset_in_queue)
        for back in set_back:
            log.warning("consumer offsets: %s", back)
        if not set_back:
            return
        self._offsets.flush()
        if (path := self._offsets.path) in await self._drain():
            raise StoreError(
                f"{path} cannot be written, where {len(set_back)} offsets had to be set back to their queue's end: "
                "consumers would skip new messages; free space on its disk, or make it writable again"
            )

    async def stop(self) -> None:
        """Do nothing: this part only acts at the start."""
