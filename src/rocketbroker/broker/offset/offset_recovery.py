"""Consumer offsets after a crash that took the messages they stand behind.

RocketMQ leaves them where they are, so that a group passes over the new messages that get the offsets of the lost ones.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.common.errors import StoreError
from rocketbroker.store.message_store import MessageStore

log = logging.getLogger(__name__)


class OffsetRecovery:
    """Sets offsets that lie behind the end of their queue back to it, when the store was opened after an unclean stop.

    Args:
        offsets: the offsets, loaded.
        store: the store; started before this part.
        drain: waits until tables that were submitted are on disk; gives the paths of those that could not be written.
    """

    def __init__(
        self, offsets: ConsumerOffsetManager, store: MessageStore, drain: Callable[[], Awaitable[Collection[Path]]]
    ) -> None:
        self._offsets = offsets
        self._store = store
        self._drain = drain

    async def start(self) -> None:
        """Set back what has to be, and name it in the log.

        It is on disk before a new message can come: after another crash nothing would tell that it has to be set back.

        Raises:
            StoreError: the disk refused the table; the next start sets back what this one did.
        """
        if self._store.was_clean:
            return
        told = self._offsets.set_back(self._store.max_offset_in_queue)
        for back in told:
            log.warning("after the unclean stop %s", back)
        self._store.recovery_report.offsets_set_back += told
        if not told:
            return
        self._store.lock.stays_marked = True
        self._offsets.flush()
        if (path := self._offsets.path) in await self._drain():
            raise StoreError(
                f"{path} cannot be written, in which {len(told)} offsets had to go back to where their queue ends now: "
                "consumers would pass over new messages; make room on its disk, or have it written to again"
            )
        self._store.lock.stays_marked = False

    async def stop(self) -> None:
        """Nothing to end."""
