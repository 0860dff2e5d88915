"""Flush of the log: group commit, and what a failed sync means (FlushRealTimeService, GroupCommitService)."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final, NamedTuple

from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.lifecycle import ServiceThread
from rocketbroker.store.commitlog.commit_log_walker import sound_until
from rocketbroker.store.commitlog.put_message import (
    ACKNOWLEDGED,
    Acknowledgement,
    OnAcknowledged,
    PutMessageResult,
    PutMessageStatus,
    Refusal,
    StandingRefusals,
    outcome_of,
)
from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue

log = logging.getLogger(__name__)

HOLD_S: Final = 0.003
# Divisor of the step by which the number of awaited senders falls when fewer come.
_DECAY: Final = 16
PAGE = 4096
# Pause between a failed sync and the next attempt.
RETRY_S = 1.0


# Synchronous senders send again once a sync has answered them, one after the other. A sync that starts with the first
# of them serves and answers few, and so does each later one. So a sync is delayed until as many sends wait as before,
# for 3 ms at most. That costs less than it gains where processors are the limit, and a lone sender never waits.
class GroupCommit:
    """Starts each sync of the log, so that one serves many sends; all calls are on the event loop."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin
        # Sends that waited when one of the last syncs finished, including those that it served.
        self._siblings = 0
        self._held: asyncio.TimerHandle | None = None

    def ask(self, waiting: int) -> None:
        """Start a sync once the loop has handled what it has read; delay it while fewer sends wait than before.

        A sync that started at once would compete with the loop for the interpreter, and miss half of the sends about to
        come.
        """
        loop = asyncio.get_running_loop()
        if waiting >= self._siblings:
            loop.call_soon(self._begin)
        else:
            self._held = loop.call_later(HOLD_S, self._hold_is_over)

    def joined(self, waiting: int) -> None:
        """Note one more wait, and start the delayed sync once all awaited sends have joined."""
        if self._held is not None and waiting >= self._siblings:
            self._held.cancel()
            self._held = None
            # Sends that were read together with it join too.
            asyncio.get_running_loop().call_soon(self._begin)

    def served(self, waiting: int) -> None:
        """Note a finished sync and the number of sends that waited, including those that came while it ran."""
        # Shrink slowly: where processors are the limit many sends are late, and a group that shrinks once stays small.
        self._siblings = max(waiting, self._siblings - max(self._siblings // _DECAY, 1))

    def _hold_is_over(self) -> None:
        self._held = None
        self._begin()


class _Wait(NamedTuple):
    """Wait of one send, or of those of a run, for the log to be on disk up to ``offset``; deadline in loop time."""

    offset: int
    deadline: float
    sends: int
    tell: OnAcknowledged


# The event loop never waits for a disk: it writes into the mapping, and one thread syncs. A send under SYNC_FLUSH
# leaves a wait and goes on. No power loss takes a message that was acknowledged:
#
# - A file's position ``wrote`` is read before its sync begins, and becomes ``flushed`` when that has succeeded. What is
#   written meanwhile waits for the next sync.
# - The log is on disk up to the first byte that is not: ``_synced_end`` stops at the first file that is not whole. A
#   sync of a later file alone acknowledges nothing.
# - A wait ends well when ``flushed_offset`` has reached its end, never earlier. A late one ends with an error, while
#   its message stays in the log: a sender that tries again may store it twice.
# - Names of files are on disk before their bytes count (``MappedFile.sync``).
#
# The checkpoint gets the store time that was read before the sync: all messages up to it were in the files that the
# sync covered. If the clock was set back meanwhile, the earlier time counts.
#
# A failed sync does not report which pages it missed. A later successful one does not either: a kernel that could not
# write pages marks them clean. So after a failure all waits end with an error, and the store is read-only until the
# unsynced bytes were read back, checked against their checksums, rewritten and synced. If the kernel has dropped them
# meanwhile, the check fails, and the store stays read-only: only a restart may cut the log there.
#
# Under ASYNC_FLUSH a sync is due every ``flushIntervalCommitLog`` if ``flushCommitLogLeastPages`` were written, and
# every ``flushCommitLogThoroughInterval`` in any case. Under SYNC_FLUSH it is due whenever something was written:
# messages are readable only once they are on disk, and some are stored without a wait.
#
# Waits and their queues belong to the loop. The thread reads whether there are any, and has the loop end them
# (``_tell``). ``_woken`` is cleared by the loop only, so that a wait that joins during a sync asks for the next one.
class CommitLogFlusher:
    """Syncs the CommitLog.

    Args:
        last_stored: returns the store time of the last message in ms; called before each sync.
        on_synced: called on the event loop when more of the log is on disk, before waiting sends are acknowledged.
        on_failed: called on the flush thread after a failed sync, once messages are rejected.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        config: MessageStoreConfig,
        checkpoint: StoreCheckpoint,
        refusals: StandingRefusals,
        last_stored: Callable[[], int],
        on_synced: Callable[[], None] | None = None,
        on_failed: Callable[[], None] | None = None,
    ) -> None:
        self._queue = queue
        self._config = config
        self._checkpoint = checkpoint
        self._refusals = refusals
        self._last_stored = last_stored
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._interval_s = config.flush_interval_commit_log / 1000
        self._thread = ServiceThread("FlushRealTimeService", min(self._interval_s, RETRY_S), self._flush_due)
        # Waits by offset; those without a deadline are kept apart.
        self._waiting: deque[_Wait] = deque()
        self._patient: deque[_Wait] = deque()
        # Sends in both.
        self._sends = 0
        self._patience: asyncio.TimerHandle | None = None
        # The thread is woken or syncing, and will have the loop end the waits that it served.
        self._woken = False
        self._group = GroupCommit(self._thread.wakeup)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        # Times of the next sync if enough was written, of the next in any case, and of the next after a failure.
        self._due_at = self._thorough_at = self._retry_at = 0.0
        # Everything before this offset of the log is on disk.
        self.flushed_offset = 0
        # Held while the log is synced or truncated.
        self.pause = threading.Lock()
        # Reason of a failed sync, until all that it left out is on disk; empty without one.
        self.error = ""
        # Number of failed syncs since the start.
        self.errors = 0

    def start(self) -> None:
        """Start the thread."""
        self._loop = asyncio.get_running_loop()
        self.flushed_offset = self._synced_end()
        self._due_at = time.monotonic() + self._interval_s
        self._thread.start()

    def stop(self) -> None:
        """Sync a last time and end the thread (blocks)."""
        self._stopping = True
        self._thread.stop()

    def when_flushed(self, offset: int, tell: OnAcknowledged, timeout_s: float = inf, sends: int = 1) -> None:
        """Call ``tell`` on the event loop when the log is on disk up to ``offset``, or a sync failed or was late.

        Offsets ascend from call to call. Callbacks instead of tasks: this runs once per send or run of sends.

        Args:
            timeout_s: time limit. A wait ends no earlier than one that began before it with a longer limit.
            sends: number of sends that wait.
        """
        loop = self._loop
        assert loop is not None
        if timeout_s == inf:
            self._patient.append(_Wait(offset, inf, sends, tell))
        else:
            self._waiting.append(_Wait(offset, loop.time() + timeout_s, sends, tell))
            if self._patience is None:
                self._patience = loop.call_later(timeout_s, self._give_up)
        self._sends += sends
        if self._woken:
            self._group.joined(self._sends)
        else:
            self.wakeup()

    @property
    def max_offset(self) -> int:
        """CommitLog offset after the last record."""
        return self._queue.max_offset

    def acknowledge(self, result: PutMessageResult, tell: OnAcknowledged) -> None:
        """Call ``tell`` when all messages of a put are on disk, or when ``syncFlushTimeout`` has passed."""
        end = result.physical_offset + result.size
        self.when_flushed(end, tell, self._config.sync_flush_timeout / 1000, result.sends)

    def sync(self) -> asyncio.Future[Acknowledgement]:
        """Sync all stored messages; return the outcome."""
        return self.wait_flushed(self._queue.max_offset)

    def wait_flushed(self, offset: int) -> asyncio.Future[Acknowledgement]:
        """Wait until the log is on disk up to ``offset``, or a sync fails."""
        return outcome_of(partial(self.when_flushed, offset))

    def _give_up(self) -> None:
        """End the waits whose deadline has passed."""
        assert self._loop is not None
        now, self._patience, waiting = self._loop.time(), None, self._waiting
        late: deque[_Wait] = deque()
        while waiting and waiting[0].deadline <= now:
            late.append(waiting.popleft())
        if waiting:
            self._patience = self._loop.call_at(waiting[0].deadline, self._give_up)
        limit_ms = self._config.sync_flush_timeout
        outcome = _not_flushed(f"the message was not on disk within {limit_ms} ms (syncFlushTimeout)")
        while late:
            self._end_first(late, outcome)

    def _end_first(self, waits: deque[_Wait], outcome: Acknowledgement) -> None:
        wait = waits.popleft()
        self._sends -= wait.sends
        wait.tell(outcome)

    def wakeup(self) -> None:
        """Sync soon; ``GroupCommit`` chooses when."""
        # After a failed sync, ``_retry_at`` times the next attempt.
        if not self._woken and not self.error:
            self._woken = True
            self._group.ask(self._sends)

    def look(self) -> None:
        """Wake the thread if it is idle while the log has grown; for the event loop, every tick.

        So an append need not wake the thread, and an idle broker's thread need not look.
        """
        if self._queue.max_offset != self.flushed_offset:
            self._thread.wake_idle()

    def _flush_due(self) -> bool:
        """Sync if sends wait, enough was written, or the thorough interval has passed; return true if all is synced."""
        now = time.monotonic()
        if self.error and now < self._retry_at and not self._stopping:
            self._tell()
        elif self._waiting or self._patient or self.error or self._stopping or self._is_due(now):
            self.flush()
        elif self._woken:
            self._tell()
        return not self.error and self._queue.max_offset == self.flushed_offset

    def _is_due(self, now: float) -> bool:
        written = sum(file.wrote - file.flushed for file in list(self._queue.files))
        if self._on_synced is not None:
            return written > 0
        if now < self._due_at:
            return False
        self._due_at = now + self._interval_s
        if now >= self._thorough_at:
            self._thorough_at = now + self._config.flush_commit_log_thorough_interval / 1000
            return True
        return written >= max(self._config.flush_commit_log_least_pages * PAGE, 1)

    def flush(self) -> None:
        """Sync each file that has unsynced bytes (on the flush thread)."""
        with self.pause:
            stored = self._last_stored()
            try:
                for file in list(self._queue.files):
                    if file.to_flush:
                        if self.error:
                            _check_before_rewrite(file)
                        file.flush()
                self._note_on_disk(stored)
            except OSError as error:
                self._failed(error)
            else:
                self._succeeded()
            self._tell()

    def cut(self, offset: int) -> None:
        """Note that the log was truncated at an offset; for the event loop, while ``pause`` is held."""
        self.flushed_offset = min(self.flushed_offset, offset)
        # Waits for removed messages would block all waits after them.
        gone = deque(wait for wait in (*self._waiting, *self._patient) if wait.offset > offset)
        self._waiting = deque(wait for wait in self._waiting if wait.offset <= offset)
        self._patient = deque(wait for wait in self._patient if wait.offset <= offset)
        while gone:
            self._end_first(gone, _not_flushed(f"the CommitLog was cut at {offset}"))

    def _note_on_disk(self, stored: int) -> None:
        """Record in the checkpoint the store time up to which the log is on disk.

        After the clock was set back, the checkpoint file goes back before any message stored since is acknowledged: a
        start would take that message to be in its queue as well.

        Raises:
            OSError: The checkpoint file could not be written.
        """
        self._checkpoint.advance(physic_msg_timestamp=min(stored, self._last_stored()))
        if self._checkpoint.says_too_much:
            self._checkpoint.save()

    def _failed(self, error: OSError) -> None:
        self._retry_at = time.monotonic() + RETRY_S
        self.errors += 1
        start, end = self._synced_end(), self._queue.max_offset
        reason = (
            f"the CommitLog in {self._queue.directory} (storePathCommitLog) could not be synced: {error.strerror}; "
            f"{end - start} bytes from {start} on may not be on disk, and the broker is read-only until they are"
        )
        if reason != self.error:
            log.error("%s", reason)
        self.error = reason
        self._refusals.set(Refusal.READ_ONLY, reason)
        if self._on_failed is not None:
            self._on_failed()

    def _succeeded(self) -> None:
        self.flushed_offset = self._synced_end()
        if self.error:
            log.warning("CommitLog: on disk up to %s; the broker accepts messages again", self.flushed_offset)
            self.error = ""
            self._refusals.clear(Refusal.READ_ONLY)

    def _synced_end(self) -> int:
        end = 0
        # A copy: the loop may add a file meanwhile.
        for file in list(self._queue.files):
            end = file.file_from_offset + file.flushed
            if file.flushed < file.file_size:
                break
        return end

    def _tell(self) -> None:
        somebody = self._woken or self._waiting or self._patient or self._on_synced is not None
        if self._loop is not None and somebody:
            self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        """Acknowledge the sends whose messages are on disk; end all waits after a failed sync."""
        self._woken = False
        if self._on_synced is not None:
            self._on_synced()
        waiting, patient, flushed, error = self._waiting, self._patient, self.flushed_offset, self.error
        self._group.served(self._sends)
        refused = _not_flushed(error)
        for waits in (waiting, patient):
            while waits and (waits[0].offset <= flushed or error):
                self._end_first(waits, ACKNOWLEDGED if waits[0].offset <= flushed else refused)
        if waiting or patient:
            self.wakeup()
        if not waiting and self._patience is not None:
            self._patience.cancel()
            self._patience = None


def _not_flushed(reason: str) -> Acknowledgement:
    return Acknowledgement(PutMessageStatus.FLUSH_DISK_TIMEOUT, reason)


def _check_before_rewrite(file: MappedFile) -> None:
    """Check that the bytes to rewrite are those that were stored.

    A kernel that dropped pages after a failed sync reads them back as they are on disk.

    Raises:
        OSError: They differ from what was stored.
    """
    if not file.to_write_again:
        return
    end = file.wrote
    position, why = sound_until(file, file.flushed, end)
    if position < end:
        where = f"{file.path} at {position}: {why}"
        raise OSError(0, f"stored data is no longer in memory ({where}); a restart truncates the log there")
