"""Log of a store that copies another store's log, as a replica does (DefaultMessageStore.appendToCommitLog).

Bytes are appended as they come, and dispatched by a ``ReputMessageService`` that follows the end of the log. The end
can be cut off while the store runs, when the master's log continued differently from there.

A cut first withdraws on disk what says that the part is there: the checkpoint goes back to the last message before it,
and the noted ends of queues are removed. After a crash at any later point the next start checks the log from there on,
and makes queues and index agree with it.
"""

import asyncio
from collections import deque
from pathlib import Path
from typing import NamedTuple

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import FileSystem
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.commit_log_walker import store_timestamp_at
from rocketbroker.store.dispatch.commit_log_dispatcher import CommitLogDispatcher
from rocketbroker.store.dispatch.reput_message_service import ReputMessageService
from rocketbroker.store.flush.flush_service import CommitLogFlusher, ConsumeQueueFlusher
from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore


class _Undispatched(NamedTuple):
    """Records up to a CommitLog offset, and the earliest of their store times in ms."""

    end: int
    earliest_ms: int


class ReplicaParts(NamedTuple):
    """Parts of an open store."""

    commit_log: CommitLog
    queues: ConsumeQueueStore
    dispatcher: CommitLogDispatcher
    reput: ReputMessageService
    appender: MessageAppender
    flusher: CommitLogFlusher
    queue_flusher: ConsumeQueueFlusher
    checkpoint: StoreCheckpoint


class ReplicaLog:
    """Raw appends to an open store, their dispatch, and cuts. Call it only on the event loop.

    Args:
        parts: parts of the store, which takes no messages of its own meanwhile.
        ends_path: file of the queues' ends at a clean stop.
        file_system: the disk.
        sync_flush: true to dispatch only what is on disk (SYNC_FLUSH).
    """

    def __init__(self, parts: ReplicaParts, ends_path: Path, file_system: FileSystem, *, sync_flush: bool) -> None:
        self._parts = parts
        self._ends_path = ends_path
        self._file_system = file_system
        self._sync_flush = sync_flush
        self._tasks = TaskOwner("ReplicaLog")
        self._undispatched: deque[_Undispatched] = deque()
        # The cut that is at work, and whether the last one was refused on the way.
        self._cutting: asyncio.Task[None] | None = None
        self._is_half_cut = False

    def start(self) -> None:
        """Start to dispatch where the store stopped."""
        parts = self._parts
        parts.reput.offset = parts.appender.dispatched_offset
        parts.reput.last_stored_ms = parts.appender.last_store_timestamp
        self._tasks.forever(self._run, "ReputMessageService")

    async def _run(self) -> None:
        await self._parts.reput.run(self._readable_end, self._dispatched)

    async def stop(self) -> None:
        """Wait for a cut that is at work, dispatch what is readable, and end."""
        reput = self._parts.reput
        if self._cutting is not None:
            await asyncio.wait([self._cutting])
        await self._tasks.stop()
        while reput.offset < (end := self._readable_end()):
            reput.dispatch_some(end)
            self._dispatched()

    @property
    def max_offset(self) -> int:
        """CommitLog offset of the next bytes."""
        return self._parts.commit_log.max_offset

    def append(self, offset: int, data: ReadableBuffer) -> int:
        """Append the whole records at the start of ``data``, and return the CommitLog offset after the last.

        Raises:
            StoreFullError: The disk has no room; what precedes is appended.
            StoreBusyError: The disk has not made room in time; likewise.
            StoreError: The bytes do not continue the log, or it is being cut.
        """
        if self._cutting or self._is_half_cut:
            raise StoreError("the CommitLog is being cut, or the disk refused a cut; append what follows the cut")
        appender, flusher = self._parts.appender, self._parts.flusher
        done = self._parts.commit_log.append_raw(offset, data)
        if done.earliest_ms is not None:
            self._undispatched.append(_Undispatched(done.end, done.earliest_ms))
            # The master's clock may have been set back: no time of the checkpoint may cover these records.
            appender.last_store_timestamp = min(appender.last_store_timestamp, done.earliest_ms - 1)
        if self._sync_flush:
            flusher.when_flushed(done.end, lambda _: self._parts.reput.wakeup())
        else:
            self._parts.reput.wakeup()
        return done.end

    def _readable_end(self) -> int:
        if self._cutting:
            return 0
        end = self._parts.commit_log.max_offset
        return min(self._parts.flusher.flushed_offset, end) if self._sync_flush else end

    def _dispatched(self) -> None:
        """Advance the checkpoint to the dispatched records."""
        reput, left = self._parts.reput, self._undispatched
        while left and left[0].end <= reput.offset:
            left.popleft()
        times = [each.earliest_ms - 1 for each in left]
        self._parts.appender.last_store_timestamp = min([reput.last_stored_ms, *times])

    async def truncate(self, offset: int) -> None:
        """Truncate the log at a record's offset, and queues and index with it.

        Raises:
            StoreError: No record begins there; messages wait for their dispatch; or the disk failed.
            OSError: The disk failed. The log may still have records after ``offset``, and takes no others before
                a cut is done.
        """
        parts = self._parts
        at_end = parts.commit_log.max_offset == offset
        if at_end and not self._is_half_cut:
            return
        if self._cutting or parts.appender.has_pending:
            raise StoreError("the CommitLog cannot be cut while messages wait for their dispatch, or it is being cut")
        if not (at_end or parts.commit_log.begins_at(offset)):
            raise StoreError(f"the CommitLog cannot be cut at {offset}: no record begins there")
        self._cutting = self._tasks.start(self._pause_and_cut(offset), "cut")
        # It goes on when nobody waits for it any more: its threads hold what the flush threads wait for.
        await asyncio.shield(self._cutting)

    async def _pause_and_cut(self, offset: int) -> None:
        parts = self._parts
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._pause)
            try:
                self._is_half_cut = True
                await self._cut(offset)
                self._is_half_cut = False
            finally:
                parts.flusher.pause.release()
                parts.queue_flusher.pause.release()
        finally:
            self._cutting = None
            parts.reput.wakeup()

    def _pause(self) -> None:
        """Let no sync begin (blocks): it would note records on disk that are about to be removed."""
        self._parts.queue_flusher.pause.acquire()
        self._parts.flusher.pause.acquire()

    async def _cut(self, offset: int) -> None:
        parts, loop = self._parts, asyncio.get_running_loop()
        parts.reput.cut(offset)
        positions = parts.queues.positions_of(offset)
        last = self._last_stored_before(offset)
        self._undispatched.clear()
        parts.reput.last_stored_ms = last
        parts.appender.last_store_timestamp = last
        await loop.run_in_executor(None, self._take_back, max(last, 1))
        for queue, position in positions.items():
            if position < queue.max_offset:
                queue.cut(position)
        index = parts.dispatcher.index_service
        if index is not None:
            index.flush()
            index.cut(offset)
        try:
            await loop.run_in_executor(None, parts.commit_log.truncate, offset)
        finally:
            # If the disk failed, the log is longer, and its records are dispatched again.
            parts.flusher.cut(offset)

    def _last_stored_before(self, offset: int) -> int:
        """Return the store time in ms of the last queued message before an offset, 0 without one."""
        queues, log = self._parts.queues, self._parts.commit_log.queue
        entries = [queue.message_entry(position - 1) for queue, position in queues.positions_of(offset).items()]
        last = max((entry[0] for entry in entries if entry is not None), default=None)
        return 0 if last is None else store_timestamp_at(log, last) or 0

    def _take_back(self, last_ms: int) -> None:
        """Note on disk that only messages stored before a time are there for certain (blocks)."""
        checkpoint = self._parts.checkpoint
        checkpoint.advance(physic_msg_timestamp=last_ms, logics_msg_timestamp=last_ms, index_msg_timestamp=last_ms)
        checkpoint.save()
        self._file_system.unlink(self._ends_path)
        self._file_system.sync_folder(self._ends_path.parent)
