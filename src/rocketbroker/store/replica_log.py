"""Log of a store that copies another store's log, as a replica does (DefaultMessageStore.appendToCommitLog).

Bytes are appended as they come, and dispatched by a ``ReputMessageService`` that follows the end of the log. The end
can be truncated while the store runs, if the master's log differs from there on.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import FileSystem
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.store.clean.topic_deletion import DeletedTopics
from rocketbroker.store.commitlog.commit_log import CommitLog, RawAppend
from rocketbroker.store.commitlog.commit_log_walker import store_timestamp_at
from rocketbroker.store.commitlog.put_message import Refusal, StandingRefusals
from rocketbroker.store.dispatch.commit_log_dispatcher import CommitLogDispatcher
from rocketbroker.store.dispatch.reput_message_service import (
    LEAST_STEP,
    MOST_STEP,
    LastRecord,
    ReputMessageService,
    step_like,
)
from rocketbroker.store.flush.flush_consume_queue_service import ConsumeQueueFlusher
from rocketbroker.store.flush.flush_service import CommitLogFlusher
from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from rocketbroker.store.message_appender import MessageAppender
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


# A cut removes what a checkpoint, and perhaps the noted ends of queues, call on disk. So it withdraws these first: the
# checkpoint goes back to the last message before the cut, and the note is removed. After a crash at any later point the
# next start checks the log from there on, and makes queues and index agree with it, however far the cut got.
#
# Queues are cut before the log, so that no entry ever leads to bytes that another record has taken. Marks of deleted
# topics are lowered last: as long as the log is longer, they leave out the messages of these topics.
#
# Meanwhile nothing is synced (``pause``): a sync would call records on disk that are about to go. Nothing is removed or
# indexed either. Readers find the queues as they will be from the beginning (``hide_from``), and the log as it was or
# as it will be: slices that were handed out keep their bytes. A read that was planned before is made again (``cuts``).
#
# If the disk fails on the way, the log may still be longer than the queues. The cut must then be made again before
# anything is appended, with all queues, as any of them may have entries beyond its end.
@dataclass(frozen=True)
class LogTruncation:
    """Truncates the log of an open store, and queues and index with it (DefaultMessageStore.truncateFiles).

    Call it on the event loop, while nothing is appended or dispatched. Work that waits for the disk runs on a thread.
    """

    commit_log: CommitLog
    queues: ConsumeQueueStore
    dispatcher: CommitLogDispatcher
    flusher: CommitLogFlusher
    queue_flusher: ConsumeQueueFlusher
    checkpoint: StoreCheckpoint
    deleted: DeletedTopics
    file_changes: asyncio.Lock
    ends_path: Path
    file_system: FileSystem

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Keep others from syncing, removing or indexing anything during the ``async with`` block."""
        async with self.file_changes:
            await asyncio.to_thread(self._pause)
            try:
                with self.dispatcher.index_held():
                    yield
            finally:
                self.flusher.pause.release()
                self.queue_flusher.pause.release()

    def _pause(self) -> None:
        self.queue_flusher.pause.acquire()
        self.flusher.pause.acquire()

    async def plan(self, offset: int, *, again: bool) -> Cut:
        """Find what a truncation at a CommitLog offset removes.

        Args:
            again: true after a failed truncation, which may have left entries beyond the end of any queue.

        Raises:
            StoreError: No record begins there.
        """
        return await asyncio.to_thread(self._plan, offset, again)

    def _plan(self, offset: int, again: bool) -> Cut:
        log = self.commit_log
        if offset != log.max_offset and not log.begins_at(offset):
            raise StoreError(f"the CommitLog cannot be cut at {offset}: no record begins there")
        ends = self.queues.positions_of(offset)
        entries = [queue.message_entry(end - 1) for queue, end in ends.items()]
        last = max((entry.physical_offset for entry in entries if entry is not None), default=None)
        shorter = {queue: end for queue, end in ends.items() if again or end < queue.max_offset}
        return Cut(offset, shorter, 0 if last is None else store_timestamp_at(log.queue, last) or 0)

    async def truncate(self, cut: Cut, known_ms: int) -> None:
        """Truncate log, queues and index, ``alone`` since the plan was made.

        Args:
            known_ms: store time in ms up to which all remaining messages are in their queues.

        Raises:
            StoreError: The disk has no room for the file that is shortened.
            OSError: The disk failed; the cut must be made again.
        """
        for queue, end in cut.ends.items():
            queue.hide_from(end)
        self.queues.cuts += 1
        try:
            await asyncio.to_thread(self._truncate, cut, known_ms)
        finally:
            # If the disk failed, the log is longer, and its records are dispatched again.
            self.flusher.cut(cut.offset)

    def _truncate(self, cut: Cut, known_ms: int) -> None:
        self._take_back(max(known_ms, 1))
        for queue, end in cut.ends.items():
            queue.cut(end)
        if self.dispatcher.index_service is not None:
            self.dispatcher.index_service.cut(cut.offset)
        self.commit_log.truncate(cut.offset)
        self.deleted.clamp(cut.offset)

    def _take_back(self, last_ms: int) -> None:
        """Note on disk that no message stored after a time is there for certain."""
        log_ms, queues_ms, index_ms = (min(known, last_ms) for known in self.checkpoint.layout[:3])
        self.checkpoint.advance(
            physic_msg_timestamp=log_ms, logics_msg_timestamp=queues_ms, index_msg_timestamp=index_ms
        )
        self.checkpoint.save()
        self.file_system.unlink(self.ends_path)
        self.file_system.sync_folder(self.ends_path.parent)


# Modules with numpy, whose import would hold the event loop.
_DISPATCH_MODULES: Final = (
    "rocketbroker.codec.storefile.record_columns",
    "rocketbroker.store.dispatch.reput_columns",
    "rocketbroker.store.index.index_file",
)
# Turns of a dispatch that is behind by more than a step, after each append.
_TURNS: Final = 4
_NO_PUTS: Final = "this broker is a slave, which copies the messages of its master (brokerRole); send to the master"


class _Undispatched(NamedTuple):
    """Records up to a CommitLog offset, and the earliest of their store times in ms."""

    end: int
    earliest_ms: int


# The checkpoint takes its times from ``last_store_timestamp``, here as in a master: all records stored up to it are in
# the log and in their queues. Copied records have the master's times, which go back with its clock. So the time stays
# before the earliest one of the records that wait for their dispatch (``_undispatched``), and rises to that of the last
# dispatched one when none waits.
class ReplicaLog:
    """Raw appends to an open store, their dispatch, and cuts. Call it only on the event loop.

    The store rejects messages of its own between ``start`` and ``stop``.

    Args:
        appender: keeps the store times and the end of dispatch, for checkpoint and cleaning.
        sync_flush: true to dispatch only what is on disk (SYNC_FLUSH).

    Attributes:
        step: bytes to append at a time.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        reput: ReputMessageService,
        appender: MessageAppender,
        flusher: CommitLogFlusher,
        truncation: LogTruncation,
        refusals: StandingRefusals,
        *,
        sync_flush: bool,
    ) -> None:
        self._commit_log = commit_log
        self._reput = reput
        self._appender = appender
        self._flusher = flusher
        self._truncation = truncation
        self._refusals = refusals
        self._sync_flush = sync_flush
        self._tasks = TaskOwner("ReplicaLog")
        self._undispatched: deque[_Undispatched] = deque()
        self.step = LEAST_STEP
        # The change of the files that is at work, and whether the last cut failed on the way.
        self._changing: asyncio.Task[None] | None = None
        self._is_half_cut = False

    async def start(self) -> None:
        """Start dispatching where the store stopped.

        Raises:
            StoreError: Messages of the store's own wait for their dispatch.
        """
        appender = self._appender
        for module in _DISPATCH_MODULES:
            await asyncio.get_running_loop().run_in_executor(None, import_module, module)
        if appender.has_pending:
            raise StoreError("the CommitLog cannot become a copy while messages wait for their dispatch")
        self._refusals.set(Refusal.SLAVE, _NO_PUTS)
        self._reput.continue_from(appender.dispatched_offset, appender.last_store_timestamp)
        appender.replica_offset = self._reput.offset
        self._tasks.forever(partial(self._reput.run, self._readable_end, self._dispatched), "ReputMessageService")

    async def stop(self) -> None:
        """Wait for a change that is at work, dispatch all that was appended, and end.

        Raises:
            StoreError: The disk failed; the next start of the store dispatches the rest.
        """
        if self._changing is not None:
            await asyncio.wait([self._changing])
        await self._tasks.stop()
        if self._sync_flush and not (flushed := await self._flusher.sync()).ok:
            raise StoreError(f"records at the end of the CommitLog are not dispatched yet: {flushed.reason}")
        while self._reput.offset < (end := self._readable_end()):
            self._reput.dispatch_some(end)
            self._dispatched()
        self._appender.replica_offset = None
        self._refusals.clear(Refusal.SLAVE)

    @property
    def max_offset(self) -> int:
        """CommitLog offset of the next bytes."""
        return self._commit_log.max_offset

    @property
    def last_record(self) -> LastRecord | None:
        """Last record that consumers may read, ``None`` without one."""
        return self._reput.last_record

    async def let_dispatch(self) -> None:
        """Let others have their turn, and a dispatch that is behind a few: it costs less while it has the records."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            if self._commit_log.max_offset - self._reput.offset <= MOST_STEP:
                break

    def append(self, offset: int, data: bytes) -> int:
        """Append the whole records at the start of ``data``, and return the CommitLog offset after the last.

        Raises:
            StoreFullError: The disk has no room; what precedes is appended.
            StoreBusyError: The disk has not allocated blocks in time; what precedes is appended.
            StoreError: The bytes do not continue the log, and what precedes is appended; or it is being cut.
        """
        if self._changing or self._is_half_cut:
            raise StoreError("the CommitLog is being cut, or a cut failed; append after the cut has succeeded")
        view, at = memoryview(data), offset
        while (done := self._commit_log.append_raw(at, view[at - offset :])).end > at:
            self._appended(done)
            at = done.end
        return at

    def _appended(self, done: RawAppend) -> None:
        """Let records be dispatched. A BLANK alone has no time, and waits for what follows it."""
        if done.earliest_ms is not None:
            self._undispatched.append(_Undispatched(done.end, done.earliest_ms))
            self._appender.last_store_timestamp = min(self._appender.last_store_timestamp, done.earliest_ms - 1)
        for stretch in done.stretches:
            self._reput.add(stretch)
            self.step = step_like(stretch)
        if self._sync_flush:
            self._flusher.when_flushed(done.end, lambda _: self._reput.wakeup())
        else:
            self._reput.wakeup()

    def _readable_end(self) -> int:
        if self._changing:
            return 0
        end = self._commit_log.max_offset
        return min(self._flusher.flushed_offset, end) if self._sync_flush else end

    def _dispatched(self) -> None:
        """Advance the checkpoint and the end of dispatch."""
        reput, left = self._reput, self._undispatched
        while left and left[0].end <= reput.offset:
            left.popleft()
        times = [each.earliest_ms - 1 for each in left]
        self._appender.last_store_timestamp = min([reput.last_stored_ms, *times])
        self._appender.replica_offset = reput.offset

    async def truncate(self, offset: int) -> None:
        """Truncate the log at a record's offset, and queues and index with it.

        Raises:
            StoreError: No record begins there; it is being cut; or the disk failed.
            OSError: The disk failed. The log may still have records after ``offset``; repeat the cut before other
                appends.
        """
        # The end of the log says nothing during a change, which ``_change`` rejects.
        if self._changing or self._commit_log.max_offset != offset or self._is_half_cut:
            await self._change(self._cut, offset)

    async def begin_at(self, offset: int) -> None:
        """Make a log without records begin at an offset at which a file can begin, as a new slave's log does.

        Raises:
            StoreError: The log has records, or no file can begin there.
            OSError: The disk failed; the call may be made again.
        """
        await self._change(self._begin_at, offset)

    async def _change(self, change: Callable[[int], Awaitable[None]], offset: int) -> None:
        if self._changing:
            raise StoreError("the CommitLog is being cut; try again once that is done")
        self._changing = self._tasks.start(self._change_alone(change, offset), "change")
        # It continues even if its caller was cancelled: its threads hold what the flush threads wait for.
        await asyncio.shield(self._changing)

    async def _change_alone(self, change: Callable[[int], Awaitable[None]], offset: int) -> None:
        try:
            async with self._truncation.alone():
                await change(offset)
        finally:
            self._changing = None
            self._reput.wakeup()

    async def _cut(self, offset: int) -> None:
        cut = await self._truncation.plan(offset, again=self._is_half_cut)
        self._is_half_cut = True
        # Records before the cut may still wait for their dispatch.
        self._reput.continue_from(min(offset, self._reput.offset), cut.last_stored_ms)
        self._undispatched = deque(
            _Undispatched(min(each.end, offset), each.earliest_ms) for each in self._undispatched
        )
        self._dispatched()
        await self._truncation.truncate(cut, self._appender.last_store_timestamp)
        self._is_half_cut = False

    async def _begin_at(self, offset: int) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._commit_log.begin_at, offset)
        self._reput.continue_from(offset, self._reput.last_stored_ms)
        self._dispatched()
