"""Retention: removal of expired files of log, queues and index (CleanCommitLogService, CleanConsumeQueueService).

Work that waits for the disk runs on the cleaning thread. Decisions, and changes of the files in service, are made on
the event loop between two reads: no pull ever sees a queue that begins before the log does.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from rocketbroker.common.clock import Clock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.lifecycle import TICK_S, TaskOwner
from rocketbroker.store.clean.clean_thread import CleanThread
from rocketbroker.store.clean.disk_watch import DiskWatch, FullestDisk, MeasureDisk, measure_disk
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.put_message import Refusal, StandingRefusals
from rocketbroker.store.index.index_service import IndexService
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
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


# Files named in a message about failed removals.
_MOST_NAMED = 10


class CleanConsumeQueueService:
    """Queue and index files follow the beginning of the log.

    The last file of a queue always stays: it determines the queue offset of the next message.

    Args:
        store: the log, where messages begin, the queues and the settings.
        index_service: the index, ``None`` without one.
        clock: clock of the next attempt after a failure.
        thread: the cleaning thread.
    """

    def __init__(
        self,
        store: CleanedStore,
        index_service: IndexService | None,
        clock: Clock,
        thread: CleanThread,
    ) -> None:
        self._commit_log = store.commit_log
        self._queues = store.queues
        self._index_service = index_service
        self._config = store.config
        self._refusals = store.refusals
        self._file_changes = store.file_changes
        self._clock = clock
        self._thread = thread
        self._cleaned_to = -1
        self._retry_at = 0.0
        # Text of the last failed removals, which was logged.
        self._told = ""

    async def clean(self, *, again: bool = False) -> str:
        """Remove files before the log's beginning, if that has moved since; with ``again`` in any case.

        Return the failed removals as a text, empty without one; they are retried after ``redeleteHangedFileInterval``.
        """
        begin = self._commit_log.min_offset
        if not again and (begin <= self._cleaned_to or self._clock.monotonic() < self._retry_at):
            return ""
        refused = await self._correct_min_offsets(begin) + await self._remove_files(begin)
        retry_ms = self._config.redelete_hanged_file_interval
        if refused:
            self._retry_at = self._clock.monotonic() + retry_ms / 1000
        else:
            self._cleaned_to = begin
        told, self._told = self._told, _text_of(refused, retry_ms)
        if self._told != told and refused:
            log.error("%s", self._told)
        return self._told

    async def _correct_min_offsets(self, begin: int) -> list[OSError]:
        """Move the begin of the queues to that of the log, and return the errors of unreadable queues."""
        async with self._file_changes:
            found = await self._thread.run(self._queues.first_offsets, begin)
            found.correct()
        return found.unreadable

    async def _remove_files(self, begin: int) -> list[OSError]:
        """Remove files one by one, and return the errors that kept a file and its successors."""
        removals: list[tuple[Path, Callable[[], Awaitable[bool]]]] = [
            (queue.queue.directory, partial(self._remove_first_of, queue)) for queue in self._queues
        ]
        if self._index_service is not None:
            index = self._index_service
            removals.append((index.directory, partial(self._remove_first_index_file, index, begin)))
        refused = []
        for folder, remove_first in removals:
            try:
                while await self._alone(remove_first):
                    await self._pause()
            except OSError as error:
                refused.append(OSError(error.errno, error.strerror, str(error.filename or folder)))
        return refused

    async def _alone(self, remove_first: Callable[[], Awaitable[bool]]) -> bool:
        async with self._file_changes:
            return await remove_first()

    async def _pause(self) -> None:
        await self._thread.release()
        # While a full disk rejects sends, do not pause: space is needed, and the removal of log files comes next.
        full = self._refusals.reason(Refusal.DISK_FULL)
        await asyncio.sleep(0 if full else self._config.delete_consume_queue_files_interval / 1000)

    async def _remove_first_of(self, queue: ConsumeQueueInterface) -> bool:
        file = queue.first_file_without_messages()
        if file is None:
            return False
        remove, take_out = partial(self._queues.remove_file, queue, file), partial(queue.queue.take_out, file)
        if not await self._thread.remove(remove, take_out):
            return False
        log.info("%s is removed: the log begins after its last message", file.path)
        return True

    async def _remove_first_index_file(self, index_service: IndexService, begin: int) -> bool:
        file = index_service.first_file_before(begin)
        if file is None:
            return False
        await self._thread.remove(file.file.remove, partial(index_service.take_out, file))
        log.info("%s is removed: the log begins after its last message", file.file.path)
        return True


def _text_of(refused: Sequence[OSError], retry_ms: int) -> str:
    """Return the errors as a text, each with its path and reason; empty without one."""
    if not refused:
        return ""
    named = [f"{error.filename}: {error.strerror}" for error in refused[:_MOST_NAMED]]
    if len(refused) > _MOST_NAMED:
        named.append(f"{len(refused) - _MOST_NAMED} more")
    text = (
        f"files that could not be removed: {len(refused)}; next attempt in {retry_ms} ms (redeleteHangedFileInterval): "
    )
    return text + "; ".join(named)


# Interval while sends are rejected, or the room of a removed file is not free yet.
_HURRY_MS = 1000


class IndexedStore(CleanedStore, Protocol):
    """A message store with an index."""

    index_service: IndexService | None


class CleanFilesService:
    """Runs both cleaning services, one round at a time, and the disk watch.

    Start it after the store and stop it before the store.

    Args:
        store: the store.
        clock: clock of the expiry.
        unconsumed: argument of ``CleanCommitLogService``.
        measure: measures the disks.
        pending: argument of ``CleanCommitLogService``.
    """

    def __init__(
        self,
        store: IndexedStore,
        clock: Clock,
        unconsumed: Callable[[Sequence[QueueRange]], list[str]],
        measure: MeasureDisk = measure_disk,
        pending: Sequence[FirstPending] = (),
    ) -> None:
        self._config = store.config
        self._clock = clock
        self._thread = CleanThread(clock)
        self._watch = DiskWatch(store.config, store.refusals, clock, measure)
        self._commit_log = CleanCommitLogService(store, clock, self._thread, self._watch, unconsumed, pending)
        self._consume_queue = CleanConsumeQueueService(store, store.index_service, clock, self._thread)
        self._round = asyncio.Lock()
        self._next_at = 0.0
        self._tasks = TaskOwner("CleanFilesService")

    async def start(self) -> None:
        """Start the rounds; the store must be open.

        Raises:
            StoreError: A disk cannot be measured.
        """
        await self._watch.start()
        self._tasks.every(TICK_S, self._clean_when_due, "clean")

    async def stop(self) -> None:
        """Stop after the file that is being removed."""
        await self._tasks.stop()
        await self._thread.stop()
        await self._watch.stop()

    def delete_files_manually(self) -> None:
        """Request the removal of expired CommitLog files at any hour; return before it happens."""
        self._commit_log.delete_files_manually()
        self._next_at = 0.0

    async def clean_expired_consume_queue(self) -> str:
        """Remove queue and index files of expired messages; return the failed removals as a text, or ""."""
        async with self._round:
            return await self._consume_queue.clean(again=True)

    async def clean(self) -> None:
        """Run one round.

        Raises:
            OSError: A disk cannot be measured.
        """
        async with self._round:
            await self._commit_log.clean()
            await self._consume_queue.clean()

    async def _clean_when_due(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_at:
            return
        interval = self._config.clean_resource_interval
        self._next_at = now + interval / 1000
        await self.clean()
        if self._watch.refusing or self._thread.holds_files:
            self._next_at = now + min(interval, _HURRY_MS) / 1000
