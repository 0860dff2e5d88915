"""Removes old files of the CommitLog (DefaultMessageStore.CleanCommitLogService).

What waits for the disk runs on the thread of cleaning. Decisions, and the change of what is in service, are made on the
event loop between two reads: no pull ever sees a queue that begins before the log does.
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
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

log = logging.getLogger(__name__)

_HOUR_MS = 3_600_000
# What DELETE_EXPIRED_COMMITLOG asks for goes on for so many rounds, if there is so much to remove.
_MAX_MANUAL_DELETE_FILE_TIMES = 20


#: CommitLog offset of the oldest message that a service has still to deliver, ``None`` when there is none.
FirstPending = Callable[[], int | None]


class QueueRange(NamedTuple):
    """Messages of a queue, by queue offset; ``end`` is after the last one."""

    topic: str
    queue_id: int
    first: int
    end: int


class DispatchedLog(Protocol):
    """The messages that are stored and not readable yet."""

    @property
    def dispatched_offset(self) -> int:
        """CommitLog offset before which all messages are readable."""


class CleanedStore(Protocol):
    """The parts of a store that cleaning works on."""

    config: MessageStoreConfig
    commit_log: CommitLog
    queues: ConsumeQueueStore
    refusals: StandingRefusals

    @property
    def appender(self) -> DispatchedLog:
        """Knows which messages are not readable yet."""


class CleanCommitLogService:
    """Removes files from the beginning of the log: expired ones, and where the disk is full the oldest.

    The last file always stays, and so does one with messages that are not readable yet.

    Args:
        store: the log, the queues, which begin where the log does, and the settings.
        clock: says what has expired.
        thread: the thread of cleaning.
        watch: measures the disks.
        unconsumed: tells who has not consumed messages of such ranges, one text for each group and queue.
        pending: each gives the CommitLog offset of the oldest message that somebody has still to deliver, ``None`` for
            none; a file with such ones does not go because it has expired.
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
        # Whether it was told that no room can be made.
        self._stuck = False

    def delete_files_manually(self) -> None:
        """Have the next rounds remove what has expired, whatever the hour (executeDeleteFilesManually)."""
        self._manual_rounds = _MAX_MANUAL_DELETE_FILE_TIMES
        self._retry_at = 0.0

    async def clean(self) -> None:
        """One round: look at the disks, remove at most ``deleteFileBatchMax`` files.

        Raises:
            OSError: a disk cannot be asked.
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
        """Why expired files are to be removed now; empty when they are not."""
        if self._manual_rounds:
            return "asked for by DELETE_EXPIRED_COMMITLOG"
        hour = time.localtime(self._clock.time_ms() // 1000).tm_hour
        if hour in map(int, self._config.delete_when.removesuffix(";").split(";")):
            return f"it is {hour} o'clock (deleteWhen={self._config.delete_when})"
        return disk.above(self._config.disk_max_used_space_ratio, "diskMaxUsedSpaceRatio")

    async def _remove_files(self, disk: FullestDisk, why: str) -> int:
        """Remove files one by one; gives how many."""
        config = self._config
        removed = 0
        while removed < config.delete_file_batch_max and self._has_removable_file():
            expired = not self._first_is_pending() and await self._thread.run(self._first_has_expired)
            forced = "" if expired else self._why_forced(disk)
            if not expired and not forced:
                break
            try:
                await (self._remove_first(forced, forced=True) if forced else self._remove_first(why, forced=False))
            except OSError:
                self._retry_at = self._clock.monotonic() + config.redelete_hanged_file_interval / 1000
                retry = config.redelete_hanged_file_interval
                log.exception("the disk refused; next try in %s ms (redeleteHangedFileInterval)", retry)
                break
            removed += 1
            await self._thread.release()
            await asyncio.sleep(config.delete_commit_log_files_interval / 1000)
            disk = await self._watch.look()
        return removed

    def _has_removable_file(self) -> bool:
        files = self._store.commit_log.queue.files
        return len(files) > 1 and files[1].file_from_offset <= self._store.appender.dispatched_offset

    def _first_is_pending(self) -> bool:
        """Whether messages of the first file are still to be delivered, however old it is."""
        end = self._store.commit_log.queue.files[1].file_from_offset
        return any(first < end for pending in self._pending if (first := pending()) is not None)

    def _first_has_expired(self) -> bool:
        modified = self._store.commit_log.queue.files[0].last_modified_ms()
        return modified + self._config.file_reserved_time * _HOUR_MS <= self._clock.time_ms()

    def _why_forced(self, disk: FullestDisk) -> str:
        """Why a file that has not expired is to be removed; empty when it is not."""
        config = self._config
        if not config.clean_file_forcibly_enable:
            return ""
        coming = self._thread.coming_room(config.destroy_maped_file_interval_forcibly)
        return disk.above(config.disk_space_clean_forcibly_ratio, "diskSpaceCleanForciblyRatio", coming)

    async def _remove_first(self, why: str, *, forced: bool) -> None:
        """Remove the first file. No reference to it stays here: its room comes when nobody holds it."""
        files = self._store.commit_log.queue.files
        file, begin = files[0], files[1].file_from_offset
        moved, _ = await self._thread.run(self._store.queues.first_offsets, begin)
        if forced:
            self._tell_losses(f"{file.path} is removed before it has expired (cleanFileForciblyEnable): {why}", moved)

        def take_out() -> None:
            self._store.commit_log.queue.take_out(file)
            for queue, first in moved:
                queue.min_offset = max(queue.min_offset, first)

        await self._thread.remove(file.remove, take_out)
        log.info("%s is removed: %s; the log begins at %s now", file.path, why, begin)

    def _tell_losses(self, what: str, moved: Sequence[tuple[ConsumeQueueInterface, int]]) -> None:
        ranges = [QueueRange(queue.topic, queue.queue_id, queue.min_offset, first) for queue, first in moved]
        losses = self._unconsumed(ranges)
        log.warning("%s; unconsumed messages that it takes: %s", what, len(losses) or "none that any group has told of")
        for loss in losses:
            log.warning("%s", loss)

    def _tell_if_stuck(self, disk: FullestDisk, removed: int) -> None:
        """Say once that no room can be made."""
        config = self._config
        full = "" if removed else disk.above(config.disk_max_used_space_ratio, "diskMaxUsedSpaceRatio")
        if full and not self._stuck:
            log.warning(
                "%s, but no commit log file can be removed now: each is the last one, changed within %s h "
                "(fileReservedTime), with delayed messages that are not due, kept by the disk, or the room of removed "
                "files is still to come",
                full, config.file_reserved_time,
            )  # fmt: skip
        self._stuck = bool(full)
