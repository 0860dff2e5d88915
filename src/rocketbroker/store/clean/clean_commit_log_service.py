"""Retention of CommitLog files (DefaultMessageStore.CleanCommitLogService).

Work that waits for the disk runs on the cleaning thread. Decisions, and changes of the files in service, are made on
the event loop between two reads: no pull ever sees a queue that begins before the log does.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from rocketbroker.common.clock import Clock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.store.clean.clean_thread import CleanThread
from rocketbroker.store.clean.disk_space import FullestDisk
from rocketbroker.store.clean.disk_watch import DiskWatch
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.flush.write_refusal import StandingRefusals
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore, MovedBegin

log = logging.getLogger(__name__)

_HOUR_MS = 3_600_000
# Rounds for which DELETE_EXPIRED_COMMITLOG continues while there are files to remove.
_MAX_MANUAL_DELETE_FILE_TIMES = 20


#: CommitLog offset of the oldest message that a service still has to deliver, ``None`` without one.
FirstPending = Callable[[], int | None]


class QueueRange(NamedTuple):
    """Messages of a queue, by queue offset; ``end`` is after the last one."""

    topic: str
    queue_id: int
    first: int
    end: int


class DispatchedLog(Protocol):
    """Stored messages that are not readable yet."""

    @property
    def dispatched_offset(self) -> int:
        """Return the CommitLog offset before which all messages are readable."""


class CleanedStore(Protocol):
    """Parts of a store that cleaning works on."""

    config: MessageStoreConfig
    commit_log: CommitLog
    queues: ConsumeQueueStore
    refusals: StandingRefusals
    #: Held while files are removed, or the log is truncated.
    file_changes: asyncio.Lock

    @property
    def appender(self) -> DispatchedLog:
        """Source of the offset of the first message that is not readable yet."""


class CleanCommitLogService:
    """Removal of files from the beginning of the log: expired ones, and the oldest when the disk is full.

    The last file always stays, and so does a file with messages that are not readable yet.

    Args:
        store: the log, the queues, which begin where the log does, and the settings.
        clock: clock of the expiry.
        thread: the cleaning thread.
        watch: measures the disks.
        unconsumed: returns a text for each group and queue with unconsumed messages in given ranges.
        pending: each returns the CommitLog offset of the oldest message that a service still has to deliver, or
            ``None``; expiry does not remove a file with such messages.
    """

    def __init__(
        self,
        store: CleanedStore,
        clock: Clock,
        thread: CleanThread,
        watch: DiskWatch,
        unconsumed: Callable[[Sequence[QueueRange]], list[str]],
        pending: Sequence[FirstPending] = (),
    ) -> None:
        self._pending = pending
        self._store = store
        self._config = store.config
        self._clock = clock
        self._thread = thread
        self._watch = watch
        self._unconsumed = unconsumed
        self._manual_rounds = 0
        self._retry_at = 0.0
        # True after "no file can be removed" was logged.
        self._stuck = False

    def delete_files_manually(self) -> None:
        """Make the next rounds remove expired files at any hour (executeDeleteFilesManually)."""
        self._manual_rounds = _MAX_MANUAL_DELETE_FILE_TIMES
        self._retry_at = 0.0

    async def clean(self) -> None:
        """Run one round: measure the disks, and remove at most ``deleteFileBatchMax`` files.

        Raises:
            OSError: A disk cannot be measured.
        """
        disk = await self._watch.look()
        await self._thread.release()
        why = self._why(disk)
        if not why or self._clock.monotonic() < self._retry_at:
            return
        removed = await self._remove_files(disk, why)
        if self._manual_rounds:
            self._manual_rounds = self._manual_rounds - 1 if removed else 0
        self._tell_if_stuck(disk, removed)

    def _why(self, disk: FullestDisk) -> str:
        """Return the reason to remove expired files now, empty if they stay."""
        if self._manual_rounds:
            return "DELETE_EXPIRED_COMMITLOG requested it"
        hour = time.localtime(self._clock.time_ms() // 1000).tm_hour
        if hour in map(int, self._config.delete_when.removesuffix(";").split(";")):
            return f"it is {hour} o'clock (deleteWhen={self._config.delete_when})"
        return disk.above(self._config.disk_max_used_space_ratio, "diskMaxUsedSpaceRatio")

    async def _remove_files(self, disk: FullestDisk, why: str) -> int:
        """Remove files one by one, and return their number."""
        config = self._config
        removed = 0
        while removed < config.delete_file_batch_max:
            async with self._store.file_changes:
                if not await self._remove_next(disk, why):
                    break
            removed += 1
            await self._thread.release()
            await asyncio.sleep(config.delete_commit_log_files_interval / 1000)
            disk = await self._watch.look()
        return removed

    async def _remove_next(self, disk: FullestDisk, why: str) -> bool:
        """Remove the first file if it has expired, or must go all the same; return false if it stays."""
        if not self._has_removable_file():
            return False
        expired = not self._first_is_pending() and await self._thread.run(self._first_has_expired)
        forced = "" if expired else self._why_forced(disk)
        if not expired and not forced:
            return False
        try:
            await (self._remove_first(forced, forced=True) if forced else self._remove_first(why, forced=False))
        except OSError:
            retry_ms = self._config.redelete_hanged_file_interval
            self._retry_at = self._clock.monotonic() + retry_ms / 1000
            log.exception(
                "CommitLog: a file could not be removed; next attempt in %s ms (redeleteHangedFileInterval)", retry_ms
            )
            return False
        return True

    def _has_removable_file(self) -> bool:
        files = self._store.commit_log.queue.files
        return len(files) > 1 and files[1].file_from_offset <= self._store.appender.dispatched_offset

    def _first_is_pending(self) -> bool:
        """Return true if messages of the first file are still to be delivered, however old it is."""
        end = self._store.commit_log.queue.files[1].file_from_offset
        return any(first < end for pending in self._pending if (first := pending()) is not None)

    def _first_has_expired(self) -> bool:
        modified = self._store.commit_log.queue.files[0].last_modified_ms()
        return modified + self._config.file_reserved_time * _HOUR_MS <= self._clock.time_ms()

    def _why_forced(self, disk: FullestDisk) -> str:
        """Return the reason to remove a file before it expires, empty if it stays."""
        config = self._config
        if not config.clean_file_forcibly_enable:
            return ""
        coming = self._thread.coming_room(config.destroy_maped_file_interval_forcibly)
        return disk.above(config.disk_space_clean_forcibly_ratio, "diskSpaceCleanForciblyRatio", coming)

    async def _remove_first(self, why: str, *, forced: bool) -> None:
        """Remove the first file and keep no reference to it: its blocks are freed once nobody holds it."""
        files = self._store.commit_log.queue.files
        file, begin = files[0], files[1].file_from_offset
        begins = await self._thread.run(self._store.queues.first_offsets, begin)
        if forced:
            what = f"{file.path} is removed before it expires (cleanFileForciblyEnable): {why}"
            self._tell_losses(what, begins.moved)

        def take_out() -> None:
            self._store.commit_log.queue.take_out(file)
            begins.correct()

        await self._thread.remove(file.remove, take_out)
        log.info("%s is removed: %s; the log begins at %s now", file.path, why, begin)

    def _tell_losses(self, what: str, moved: Sequence[MovedBegin]) -> None:
        ranges = [QueueRange(queue.topic, queue.queue_id, queue.min_offset, first) for queue, first in moved]
        losses = self._unconsumed(ranges)
        log.warning("%s; groups and queues that lose unconsumed messages: %s", what, len(losses))
        for loss in losses:
            log.warning("%s", loss)

    def _tell_if_stuck(self, disk: FullestDisk, removed: int) -> None:
        """Log once that no file can be removed."""
        config = self._config
        full = "" if removed else disk.above(config.disk_max_used_space_ratio, "diskMaxUsedSpaceRatio")
        if full and not self._stuck:
            log.warning(
                "%s, but no CommitLog file can be removed now: each is the last one, was changed within %s h "
                "(fileReservedTime), has delayed messages that are not due, could not be removed, or removed files are "
                "still read",
                full, config.file_reserved_time,
            )  # fmt: skip
        self._stuck = bool(full)
