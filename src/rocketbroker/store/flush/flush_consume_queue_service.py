"""Periodic sync of the index, so that an unclean stop leaves little of it to rebuild."""

import logging
import time
from collections.abc import Callable

from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from rocketbroker.store.index.index_service import IndexService

log = logging.getLogger(__name__)

# Each sync writes slots all over the file. With a short interval the next sync would write most of them again.
INTERVAL_S = 10.0


class IndexSync:
    """Syncs the index files that changed; called on the flush thread.

    Args:
        index_service: the index.
        checkpoint: records the store time up to which the index is on disk.
        last_stored: returns the store time of the last message in ms; called after each sync.
        interval_s: seconds between syncs of ``sync_if_due``.
    """

    def __init__(
        self,
        index_service: IndexService,
        checkpoint: StoreCheckpoint,
        last_stored: Callable[[], int],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._index_service = index_service
        self._checkpoint = checkpoint
        self._last_stored = last_stored
        self._interval_s = interval_s
        self._next = 0.0
        # Reason of a failed sync, never cleared: what that sync left out may be lost although a later one succeeds.
        self.error = ""

    def sync_if_due(self) -> None:
        """Sync if the interval has passed (blocks)."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._interval_s
            self.sync()

    def sync(self) -> None:
        """Sync the index and record that in the checkpoint (blocks)."""
        try:
            entered = self._index_service.sync()
        except OSError as error:
            if not self.error:
                log.exception("index: a sync failed; the next start rebuilds the index from its last sync")
            self.error = f"the index could not be synced: {error.strerror}"
        else:
            if not self.error:
                # After the clock was set back, keys of earlier times than those on disk wait.
                self._checkpoint.advance(index_msg_timestamp=min(entered, self._last_stored()))
