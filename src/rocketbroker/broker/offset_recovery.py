"""Consumer offsets after a crash that took the messages they stand behind.

RocketMQ leaves them where they are, so that a group passes over the new messages that get the offsets of the lost ones.
"""

import logging
from collections.abc import Awaitable, Callable

from rocketbroker.broker.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.store.message_store import MessageStore

log = logging.getLogger(__name__)


class OffsetRecovery:
    """Sets offsets that lie behind the end of their queue back to it, when the store was opened after an unclean stop.

    Args:
        offsets: the offsets, loaded.
        store: the store; started before this part.
        drain: waits until tables that were submitted are on disk.
    """

    def __init__(
        self, offsets: ConsumerOffsetManager, store: MessageStore, drain: Callable[[], Awaitable[None]]
    ) -> None:
        self._offsets = offsets
        self._store = store
        self._drain = drain

    async def start(self) -> None:
        """Set back what has to be, and name it in the log.

        It is on disk before a new message can come: after another crash nothing would tell that it has to be set back.
        """
        if self._store.was_clean:
            return
        for back in self._offsets.set_back(self._store.max_offset_in_queue):
            log.warning("after the unclean stop %s", back)
            self._store.recovery_report.offsets_set_back.append(str(back))
        self._offsets.flush()
        await self._drain()

    async def stop(self) -> None:
        """Nothing to end."""
