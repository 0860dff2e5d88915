"""Dispatch of records that the queues or the index lack (DefaultMessageStore.ReputMessageService).

The append path dispatches what it wrote. The log is read after a restart, and while a store copies another's log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketbroker.codec.storefile.log_walk import Stretch
from rocketbroker.codec.storefile.record_search import store_timestamp
from rocketbroker.common.errors import StoreError
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.commit_log_walker import LogWalk
from rocketbroker.store.dispatch.commit_log_dispatcher import CommitLogDispatcher
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

if TYPE_CHECKING:
    from rocketbroker.store.dispatch.reput_columns import ReputColumns

# A step has about this many messages, and bytes between these: it holds the event loop for a few ms.
_STEP_MESSAGES: Final = 2048
LEAST_STEP: Final = 256 << 10
MOST_STEP: Final = 2 << 20
# Bytes of the log after which the next step of ``run`` may be delayed.
_MANY: Final = 64 << 10
# Bytes of appended records that are worth keeping in memory until they are dispatched, and of all that are kept.
_FRESH: Final = 256 << 10
_MOST_FRESH: Final = 8 << 20
# A step over a few records takes nearly as long as one over hundreds. So the next one begins after this many times its
# duration, or after the longest pause, unless many bytes wait: a tenth of the processor goes into dispatch at most.
_PAUSE: Final = 9
_LONGEST_PAUSE_S: Final = 0.02
# Called with the offsets of a part of the log without a sound record, and the reason.
DamageListener = Callable[[int, int, str], None]


class LastRecord(NamedTuple):
    """CommitLog offset and size of the last record that is dispatched."""

    offset: int
    size: int


def step_like(stretch: Stretch) -> int:
    """Return the bytes of a step over messages like these."""
    size = (stretch.end_offset - stretch.begin_offset) // len(stretch)
    return min(max(_STEP_MESSAGES * size, LEAST_STEP), MOST_STEP)


class ReputMessageService:
    """Dispatch from the log to queues and index: once with ``catch_up``, or continuously with ``run``.

    ``dispatched`` counts the messages read.

    Args:
        delay_levels: ms by level; a message of SCHEDULE_TOPIC_XXXX is queued by its delivery time.
        on_damage: called with ranges without a sound record.
        deleted: returns the CommitLog offset by topic at its deletion; messages before it are left out.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        dispatcher: CommitLogDispatcher,
        delay_levels: dict[int, int],
        on_damage: DamageListener,
        deleted: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._deleted = deleted
        self._delay_levels = delay_levels
        self._commit_log = commit_log
        self._queues = queues
        self._dispatcher = dispatcher
        self._on_damage = on_damage
        self.dispatched = 0
        # Begin and progress of ``run``: CommitLog offset and store time in ms of the last record.
        self.offset = 0
        self.last_stored_ms = 0
        # That record, ``None`` while only the queues know it.
        self._last_record: LastRecord | None = None
        # Bytes that a step reads from the log.
        self._step = LEAST_STEP
        self._fresh: deque[Stretch] = deque()
        self._work = asyncio.Event()

    @cached_property
    def _columns(self) -> ReputColumns:
        from rocketbroker.store.dispatch.reput_columns import ReputColumns

        return ReputColumns(self._queues, self._delay_levels, self._deleted, self._on_damage, self._dispatcher.entered)

    # -- following the log

    async def run(self, readable_end: Callable[[], int], on_dispatched: Callable[[], None]) -> None:
        """Dispatch what is written to the log, from ``offset`` on, whenever ``wakeup`` is called.

        Args:
            readable_end: returns the CommitLog offset after the last record that consumers may read.
            on_dispatched: called after each step.
        """
        self._work.set()
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                while self.offset < (end := readable_end()):
                    begun = perf_counter()
                    self.dispatch_some(end)
                    on_dispatched()
                    pause_s = min(_PAUSE * (perf_counter() - begun), _LONGEST_PAUSE_S)
                    await asyncio.sleep(pause_s if readable_end() - self.offset < _MANY else 0)
            except BaseException:
                self._work.set()
                raise

    def wakeup(self) -> None:
        """Make ``run`` check the log."""
        self._work.set()

    def add(self, stretch: Stretch) -> None:
        """Take sound records that were appended, whose memory stays: ``run`` does not read them again."""
        fresh = self._fresh
        if stretch.end_offset - stretch.begin_offset >= _FRESH:
            fresh.append(stretch)
            while fresh and stretch.end_offset - fresh[0].begin_offset > _MOST_FRESH:
                fresh.popleft()

    def dispatch_some(self, end: int) -> None:
        """Dispatch a part of the records before ``end``, or skip damage; ``offset`` advances.

        Raises:
            StoreFullError: The disk has no room for entries that are missing; the call may be made again.
            StoreError: It failed for another reason, or too many keys wait for the index; the call may be
                made again.
        """
        fresh = self._fresh
        while fresh and fresh[0].begin_offset < self.offset:
            fresh.popleft()
        if not fresh or fresh[0].end_offset > end:
            self._dispatch_from_log(end)
        elif fresh[0].begin_offset > self.offset:
            self._dispatch_from_log(fresh[0].begin_offset)
        else:
            self._dispatch_next(fresh.popleft())

    def _dispatch_from_log(self, end: int) -> None:
        """Dispatch a part of the records before ``end``, as they are in the log; see ``dispatch_some``."""
        enough = min(end, self.offset + self._step - _MANY)
        block = min(end - self.offset, self._step)
        walk = LogWalk(self._commit_log.queue, self.offset, check_crc=False, end=end, block=block)
        for stretch in walk:
            # Smaller messages than those of the last step.
            part = stretch.first(min(len(stretch), 2 * _STEP_MESSAGES))
            self._dispatch_next(part)
            if part is not stretch or self.offset >= enough:
                return
        if walk.offset < end:
            self._pass_damage(walk, end)
        self.offset = walk.offset

    def _dispatch_next(self, stretch: Stretch) -> None:
        """Dispatch the records that begin at ``offset``, or follow the BLANK there."""
        try:
            self.dispatch(stretch)
        except StoreError:
            # Some of its messages are in their queues now.
            self._forget_queues()
            raise
        self.offset = stretch.end_offset
        self._step = step_like(stretch)
        last = stretch[len(stretch) - 1]
        self.last_stored_ms = store_timestamp(last)
        self._last_record = LastRecord(stretch.end_offset - len(last), len(last))

    def continue_from(self, offset: int, last_stored_ms: int) -> None:
        """Continue at an offset, before which the last record was stored at a time; queues may have changed."""
        self.offset, self.last_stored_ms, self._last_record = offset, last_stored_ms, None
        self._fresh.clear()
        self._forget_queues()

    @property
    def last_record(self) -> LastRecord | None:
        """Last record before ``offset``, ``None`` without one."""
        if self._last_record is None:
            # The last used offset of a queue may have no message.
            last = (queue.message_entry(queue.max_offset - 1) for queue in self._queues if queue.max_offset)
            found = (LastRecord(entry.physical_offset, entry.size) for entry in last if entry and entry.size)
            self._last_record = max(found, default=None)
        return self._last_record

    def _forget_queues(self) -> None:
        self.__dict__.pop("_columns", None)

    # -- catching up

    def catch_up(self, offset: int, end: int, on_progress: Callable[[int], None] | None = None) -> None:
        """Dispatch records between two CommitLog offsets that queues or index lack; skip damage.

        Raises:
            StoreFullError: The disk has no room for entries that are missing.
        """
        walk = LogWalk(self._commit_log.queue, offset, check_crc=False, end=end)
        while walk.offset < end:
            for stretch in walk:
                self.dispatch(stretch)
                if on_progress is not None:
                    on_progress(stretch.end_offset)
            if walk.offset < end:
                self._pass_damage(walk, end)

    def _pass_damage(self, walk: LogWalk, end: int) -> None:
        found = walk.next_sound()
        sound = end if found is None else min(found, end)
        self.pass_over(walk.offset, sound, walk.why)
        walk.offset = sound

    def leaves_out(self, topic: str, offset: int) -> bool:
        """Return true if the messages of a topic before a CommitLog offset were deleted with it."""
        return self._deleted().get(topic, 0) >= offset

    def pass_over(self, begin: int, end: int, why: str) -> None:
        """Note that there is no sound record between two CommitLog offsets."""
        self._columns.add_gap(begin, end, why)

    def dispatch(self, stretch: Stretch) -> None:
        """Dispatch sound records that queues or index lack; they follow those of the previous call.

        Raises:
            StoreFullError: The disk has no room for entries that are missing.
        """
        keys = self._columns.enter(stretch.records)
        self.dispatched += len(stretch)
        self._dispatcher.index_keys(keys)

    def finish(self) -> None:
        """Enter the waiting keys into the index."""
        self._dispatcher.flush_index()
