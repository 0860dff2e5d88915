"""Flush of what is derived from the log: queues and index (FlushConsumeQueueService)."""

import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing

from rocketbroker.codec.message.message_decoder import BLANK_LENGTH, peek
from rocketbroker.common.lifecycle import ServiceThread
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from rocketbroker.store.index.index_service import IndexService
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface

log = logging.getLogger(__name__)

# Each sync writes slots all over the file. With a short interval the next sync would write most of them again.
INTERVAL_S = 10.0


# The time of the checkpoint for queues is the store time of the last message that was in its queue before the round:
# the appender's pending messages are behind it. So all entries up to it were in the files of the round, or of an
# earlier one. An entry that is lost all the same is rebuilt from the log, so a failed sync of a queue rejects no send.
class ConsumeQueueFlusher:
    """Syncs the queues that changed.

    Args:
        changed: returns the queues and files to sync, and clears their list.
        last_stored: returns the store time of the last message in ms; called before each round.
        on_flushed: called on the flush thread after each round with the store time from before it, or ``None`` after a
            failed sync.
    """

    def __init__(
        self,
        changed: Callable[[], Generator[tuple[ConsumeQueueInterface, MappedFile]]],
        commit_log: CommitLog,
        interval_s: float,
        last_stored: Callable[[], int],
        on_flushed: Callable[[int | None], None],
    ) -> None:
        self._changed = changed
        self._commit_log = commit_log
        self._last_stored = last_stored
        self._on_flushed = on_flushed
        self._thread = ServiceThread("FlushConsumeQueueService", interval_s, self.flush)
        # End of the log before the last round.
        self._log_end = -1
        # Reason of a failed sync, until what it left out is rewritten and synced; a start rebuilds it from the log.
        self.error = ""
        # Held while queues are synced or truncated.
        self.pause = threading.Lock()
        self.start = self._thread.start
        self.stop = self._thread.stop

    def look(self) -> None:
        """Wake the thread if it is idle while the log has grown; for the event loop, every tick."""
        if self._commit_log.max_offset != self._log_end:
            self._thread.wake_idle()

    def flush(self) -> bool:
        """Sync the changed queues (on the flush thread); the next round retries those that failed.

        Return true if nothing had changed since the last round, nor did the log grow, whose messages follow.
        """
        with self.pause:
            stored, end = self._last_stored(), self._commit_log.max_offset
            grown, self._log_end = end != self._log_end, end
            changed = False
            try:
                with closing(self._changed()) as files:
                    for queue, file in files:
                        changed = True
                        self._check_before_rewrite(queue, file)
                        file.flush()
            except OSError as error:
                if not self.error:
                    log.exception(
                        "queues: a sync failed; its entries are rewritten and synced again until that succeeds"
                    )
                self.error = f"a queue could not be synced: {error.strerror}"
                self._on_flushed(None)
            else:
                self.error = ""
                # The clock may have been set back meanwhile.
                self._on_flushed(min(stored, self._last_stored()))
            return not (grown or changed or self.error)

    def _check_before_rewrite(self, queue: ConsumeQueueInterface, file: MappedFile) -> None:
        """Check that each entry to rewrite still leads to its message.

        Raises:
            OSError: An entry does not.
        """
        if not file.to_write_again:
            return
        for position, offset, size in queue.unsynced_entries(file):
            head = self._commit_log.bytes_at(offset, BLANK_LENGTH)
            if head is None or peek(head)[0] != size:
                where = f"{file.path} at {position}"
                raise OSError(0, f"stored entries are no longer in memory ({where}); a restart rebuilds them")


class IndexSync:
    """Syncs the index files that changed, so that an unclean stop leaves little to rebuild; called on the flush thread.

    Args:
        last_stored: returns the store time of the last message in ms; called after each sync.
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
