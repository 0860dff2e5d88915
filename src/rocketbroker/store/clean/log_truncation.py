"""Truncation of the log of an open store, and of queues and index with it (DefaultMessageStore.truncateFiles).

It first withdraws on disk what says that the part is there: the checkpoint goes back to the last message before it, and
the noted ends of queues are removed. After a crash at any later point the next start checks the log from there on, and
makes queues and index agree with it.

Work that waits for the disk runs on a thread. Readers meanwhile find the queues as they will be, and the log as it was
or as it will be.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import FileSystem
from rocketbroker.store.clean.deleted_topics import DeletedTopics
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.commit_log_walker import store_timestamp_at
from rocketbroker.store.dispatch.commit_log_dispatcher import CommitLogDispatcher
from rocketbroker.store.flush.flush_service import CommitLogFlusher, ConsumeQueueFlusher
from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore


class Cut(NamedTuple):
    """A possible truncation at a CommitLog offset.

    Attributes:
        offset: where the log will end.
        ends: by queue that becomes shorter the queue offset at which it will end.
        last_stored_ms: store time of the last queued message before ``offset``, 0 without one.
    """

    offset: int
    ends: dict[ConsumeQueueInterface, int]
    last_stored_ms: int


class LogTruncation:
    """Truncates log, queues and index. Call it on the event loop, while nothing is appended or dispatched.

    Args:
        commit_log: the log.
        queues: the queues.
        dispatcher: enters keys into the index.
        flusher: syncs the log.
        queue_flusher: syncs the queues.
        checkpoint: the times up to which the store is on disk.
        deleted: marks of deleted topics.
        file_changes: lock for removals of files.
        ends_path: file of the queues' ends at a clean stop.
        file_system: the disk.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - a truncation changes each of these
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        dispatcher: CommitLogDispatcher,
        flusher: CommitLogFlusher,
        queue_flusher: ConsumeQueueFlusher,
        checkpoint: StoreCheckpoint,
        deleted: DeletedTopics,
        file_changes: asyncio.Lock,
        ends_path: Path,
        file_system: FileSystem,
    ) -> None:
        self._commit_log = commit_log
        self._queues = queues
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._queue_flusher = queue_flusher
        self._checkpoint = checkpoint
        self._deleted = deleted
        self._file_changes = file_changes
        self._ends_path = ends_path
        self._file_system = file_system

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Keep others from syncing, removing or indexing anything during the ``async with`` block."""
        async with self._file_changes:
            await asyncio.get_running_loop().run_in_executor(None, self._pause)
            try:
                with self._dispatcher.index_held():
                    yield
            finally:
                self._flusher.pause.release()
                self._queue_flusher.pause.release()

    def _pause(self) -> None:
        """Let no sync begin (blocks): it would note records on disk that are about to be removed."""
        self._queue_flusher.pause.acquire()
        self._flusher.pause.acquire()

    async def plan(self, offset: int, *, again: bool) -> Cut:
        """Find what a truncation at a CommitLog offset removes.

        Args:
            offset: the offset.
            again: true after a failed truncation, which may have left entries beyond the end of any queue.

        Raises:
            StoreError: No record begins there.
        """
        return await asyncio.get_running_loop().run_in_executor(None, self._plan, offset, again)

    def _plan(self, offset: int, again: bool) -> Cut:
        log = self._commit_log
        if offset != log.max_offset and not log.begins_at(offset):
            raise StoreError(f"the CommitLog cannot be cut at {offset}: no record begins there")
        ends = self._queues.positions_of(offset)
        entries = [queue.message_entry(end - 1) for queue, end in ends.items()]
        last = max((entry.physical_offset for entry in entries if entry is not None), default=None)
        shorter = {queue: end for queue, end in ends.items() if again or end < queue.max_offset}
        return Cut(offset, shorter, 0 if last is None else store_timestamp_at(log.queue, last) or 0)

    async def truncate(self, cut: Cut, known_ms: int) -> None:
        """Truncate log, queues and index, ``alone`` since the plan was made.

        Args:
            cut: the plan.
            known_ms: store time in ms up to which all remaining messages are in their queues.

        Raises:
            StoreError: The disk has no room for the file that is shortened.
            OSError: The disk failed. The log may still have records after the cut, which must be made again before
                anything else is appended.
        """
        for queue, end in cut.ends.items():
            queue.hide_from(end)
        self._queues.cuts += 1
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._truncate, cut, known_ms)
        finally:
            # If the disk failed, the log is longer, and its records are dispatched again.
            self._flusher.cut(cut.offset)

    def _truncate(self, cut: Cut, known_ms: int) -> None:
        self._take_back(max(known_ms, 1))
        for queue, end in cut.ends.items():
            queue.cut(end)
        if self._dispatcher.index_service is not None:
            self._dispatcher.index_service.cut(cut.offset)
        self._commit_log.truncate(cut.offset)
        # Last: as long as the log is longer, the marks leave out messages of deleted topics after the cut.
        self._deleted.clamp(cut.offset)

    def _take_back(self, last_ms: int) -> None:
        """Note on disk that no message stored after a time is there for certain."""
        log_ms, queues_ms, index_ms = (min(known, last_ms) for known in self._checkpoint.layout[:3])
        self._checkpoint.advance(
            physic_msg_timestamp=log_ms, logics_msg_timestamp=queues_ms, index_msg_timestamp=index_ms
        )
        self._checkpoint.save()
        self._file_system.unlink(self._ends_path)
        self._file_system.sync_folder(self._ends_path.parent)
