"""Retention: removal of expired files of log, queues and index (CleanCommitLogService, CleanConsumeQueueService)."""

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
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

log = logging.getLogger(__name__)

_HOUR_MS = 3_600_000
# Rounds for which DELETE_EXPIRED_COMMITLOG continues while there are files to remove.
_MAX_MANUAL_DELETE_FILE_TIMES = 20
# Files named in a message about failed removals.
_MOST_NAMED = 10


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


# Files go from the beginning, one at a time, and each in this order:
#
# 1. The queues' new begins are read on the cleaning thread: the first offset in each queue whose message stays.
# 2. The file's name is removed, and the folder synced. A crash now leaves a log that begins later, without a hole: no
#    later file can disappear on disk before an earlier one. A start moves the begins of the queues to that of the log.
# 3. On the event loop, between two reads, the file leaves the list and the queues get their new begins. So no pull
#    finds a queue that begins before the log does. Both or neither happen, even if the round is cancelled
#    (``CleanThread``).
# 4. Readers that hold the file, or a slice of it, keep its bytes. Its blocks are freed once nobody holds it: a file
#    that was shortened under a mapping would kill the process.
#
# Queue and index files follow, once no message of theirs is left in the log; if that fails, they only take room.
#
# Some files always stay: the last one of the log, which is written. One with messages that are not in their queues yet,
# as the queues are made from it. The last one of a queue, which alone says which offset comes next: without it offsets
# would be used twice. An expired file with messages that a service still has to deliver (delays, timers) stays too,
# unless the disk is nearly full: then the oldest file goes before it expires, and each loss is logged first.
#
# ``file_changes`` keeps a cut of the log and a deletion of topics out of steps 1 to 3.
class CleanCommitLogService:
    """Removal of files from the beginning of the log: expired ones, and the oldest when the disk is full.

    Args:
        store: the log, the queues, which begin where the log does, and the settings.
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
        config, disk = self._config, await self._watch.look()
        await self._thread.release()
        why = self._why(disk)
        if not why or self._clock.monotonic() < self._retry_at:
            return
        removed = 0
        while removed < config.delete_file_batch_max:
            async with self._store.file_changes:
                if not await self._remove_next(disk, why):
                    break
            removed += 1
            await self._thread.release()
            await asyncio.sleep(config.delete_commit_log_files_interval / 1000)
            disk = await self._watch.look()
        if self._manual_rounds:
            self._manual_rounds = self._manual_rounds - 1 if removed else 0
        full = "" if removed else disk.above(config.disk_max_used_space_ratio, "diskMaxUsedSpaceRatio")
        if full and not self._stuck:
            log.warning(
                "%s, but no CommitLog file can be removed now: each is the last one, was changed within %s h "
                "(fileReservedTime), has delayed messages that are not due, could not be removed, or removed files are "
                "still read",
                full, config.file_reserved_time,
            )  # fmt: skip
        self._stuck = bool(full)

    def _why(self, disk: FullestDisk) -> str:
        """Return the reason to remove expired files now, empty if they stay."""
        if self._manual_rounds:
            return "DELETE_EXPIRED_COMMITLOG requested it"
        hour = time.localtime(self._clock.time_ms() // 1000).tm_hour
        if hour in map(int, self._config.delete_when.removesuffix(";").split(";")):
            return f"it is {hour} o'clock (deleteWhen={self._config.delete_when})"
        return disk.above(self._config.disk_max_used_space_ratio, "diskMaxUsedSpaceRatio")

    async def _remove_next(self, disk: FullestDisk, why: str) -> bool:
        """Remove the first file if it has expired, or must go all the same; return false if it stays."""
        store, config, files = self._store, self._config, self._store.commit_log.queue.files
        if len(files) < 2 or files[1].file_from_offset > store.appender.dispatched_offset:
            return False
        end = files[1].file_from_offset
        is_pending = any(first < end for pending in self._pending if (first := pending()) is not None)
        latest_ms = self._clock.time_ms() - config.file_reserved_time * _HOUR_MS
        forced = ""
        if is_pending or await self._thread.run(files[0].last_modified_ms) > latest_ms:
            if not config.clean_file_forcibly_enable:
                return False
            coming = self._thread.coming_room(config.destroy_maped_file_interval_forcibly)
            forced = disk.above(config.disk_space_clean_forcibly_ratio, "diskSpaceCleanForciblyRatio", coming)
            if not forced:
                return False
        try:
            await self._remove_first(forced or why, forced=bool(forced))
        except OSError:
            retry_ms = config.redelete_hanged_file_interval
            self._retry_at = self._clock.monotonic() + retry_ms / 1000
            log.exception(
                "CommitLog: a file could not be removed; next attempt in %s ms (redeleteHangedFileInterval)", retry_ms
            )
            return False
        return True

    async def _remove_first(self, why: str, *, forced: bool) -> None:
        """Remove the first file and keep no reference to it: its blocks are freed once nobody holds it."""
        files = self._store.commit_log.queue.files
        file, begin = files[0], files[1].file_from_offset
        begins = await self._thread.run(self._store.queues.first_offsets, begin)
        if forced:
            ranges = [QueueRange(queue.topic, queue.queue_id, queue.min_offset, first) for queue, first in begins.moved]
            losses = self._unconsumed(ranges)
            log.warning(
                "%s is removed before it expires (cleanFileForciblyEnable): %s; groups and queues that lose "
                "unconsumed messages: %s",
                file.path, why, len(losses),
            )  # fmt: skip
            for loss in losses:
                log.warning("%s", loss)

        def take_out() -> None:
            self._store.commit_log.queue.take_out(file)
            begins.correct()

        await self._thread.remove(file.remove, take_out)
        log.info("%s is removed: %s; the log begins at %s now", file.path, why, begin)


class CleanConsumeQueueService:
    """Queue and index files follow the beginning of the log.

    The last file of a queue always stays: it determines the queue offset of the next message.
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
        async with self._file_changes:
            found = await self._thread.run(self._queues.first_offsets, begin)
            found.correct()
        refused = found.unreadable + await self._remove_files(begin)
        retry_ms = self._config.redelete_hanged_file_interval
        told, self._told = self._told, ""
        if not refused:
            self._cleaned_to = begin
            return ""
        self._retry_at = self._clock.monotonic() + retry_ms / 1000
        named = [f"{error.filename}: {error.strerror}" for error in refused[:_MOST_NAMED]]
        if len(refused) > _MOST_NAMED:
            named.append(f"{len(refused) - _MOST_NAMED} more")
        self._told = (
            f"files that could not be removed: {len(refused)}; next attempt in {retry_ms} ms "
            f"(redeleteHangedFileInterval): {'; '.join(named)}"
        )
        if self._told != told:
            log.error("%s", self._told)
        return self._told

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
                while True:
                    async with self._file_changes:
                        if not await remove_first():
                            break
                    await self._thread.release()
                    # While a full disk rejects sends, do not pause: the removal of log files comes next.
                    full = self._refusals.reason(Refusal.DISK_FULL)
                    await asyncio.sleep(0 if full else self._config.delete_consume_queue_files_interval / 1000)
            except OSError as error:
                refused.append(OSError(error.errno, error.strerror, str(error.filename or folder)))
        return refused

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


# Interval while sends are rejected, or the room of a removed file is not free yet.
_HURRY_MS = 1000


class IndexedStore(CleanedStore, Protocol):
    """A message store with an index."""

    index_service: IndexService | None


class CleanFilesService:
    """Runs both cleaning services, one round at a time, and the disk watch.

    Start it after the store and stop it before the store.
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
