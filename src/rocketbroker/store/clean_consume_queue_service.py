"""Removes what queues and index hold of messages that are gone (DefaultMessageStore.CleanConsumeQueueService)."""

import asyncio
import logging
from functools import partial

from rocketbroker.common.clock import Clock
from rocketbroker.store.clean_commit_log_service import CleanedStore
from rocketbroker.store.clean_thread import CleanThread
from rocketbroker.store.consume_queue import ConsumeQueue
from rocketbroker.store.index_service import IndexService
from rocketbroker.store.write_refusal import Refusal

log = logging.getLogger(__name__)


class CleanConsumeQueueService:
    """Follows the beginning of the log.

    The last file of a queue stays, whatever is in it: it holds the queue offset that the next message gets.

    Args:
        store: the log, which says where the messages begin, the queues and the settings.
        index_service: the index, ``None`` without one.
        clock: says when a refused removal is tried again.
        thread: the thread of cleaning.
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
        self._clock = clock
        self._thread = thread
        self._cleaned_to = -1
        self._retry_at = 0.0

    async def clean(self, *, again: bool = False) -> None:
        """Remove what lies before the log's beginning, if that has moved since; with ``again`` in any case."""
        begin = self._commit_log.min_offset
        if not again and (begin <= self._cleaned_to or self._clock.monotonic() < self._retry_at):
            return
        try:
            await self._clean(begin)
        except OSError:
            retry = self._config.redelete_hanged_file_interval
            self._retry_at = self._clock.monotonic() + retry / 1000
            log.exception("the disk refused; next try in %s ms (redeleteHangedFileInterval)", retry)
        else:
            self._cleaned_to = begin

    async def _clean(self, begin: int) -> None:
        for queue, first in await self._thread.run(self._queues.first_offsets, begin):
            queue.min_offset = max(queue.min_offset, first)
        for queue in self._queues:
            while await self._remove_first_of(queue):
                await self._pause()
        while self._index_service is not None and await self._remove_first_index_file(self._index_service, begin):
            await self._pause()

    async def _pause(self) -> None:
        await self._thread.release()
        # While a full disk refuses sends there are none to spare, and files of the log are to follow soon.
        full = self._refusals.reason(Refusal.DISK_FULL)
        await asyncio.sleep(0 if full else self._config.delete_consume_queue_files_interval / 1000)

    async def _remove_first_of(self, queue: ConsumeQueue) -> bool:
        file = queue.first_file_without_messages()
        if file is None or not await self._thread.remove(partial(self._queues.remove_file, queue, file)):
            return False
        queue.queue.take_out(file)
        log.info("%s is removed: the log begins after its last message", file.path)
        return True

    async def _remove_first_index_file(self, index_service: IndexService, begin: int) -> bool:
        file = index_service.first_file_before(begin)
        if file is None:
            return False
        await self._thread.remove(file.file.remove)
        index_service.take_out(file)
        log.info("%s is removed: the log begins after its last message", file.file.path)
        return True
