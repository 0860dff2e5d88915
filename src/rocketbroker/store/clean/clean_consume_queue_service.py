"""Removal of queue and index files of expired messages (DefaultMessageStore.CleanConsumeQueueService)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from rocketbroker.common.clock import Clock
from rocketbroker.store.clean.clean_commit_log_service import CleanedStore
from rocketbroker.store.clean.clean_thread import CleanThread
from rocketbroker.store.flush.write_refusal import Refusal
from rocketbroker.store.index.index_service import IndexService
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface

log = logging.getLogger(__name__)

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
