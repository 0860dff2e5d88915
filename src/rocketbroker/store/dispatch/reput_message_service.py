"""Dispatches what the CommitLog holds and the queues or the index lack (DefaultMessageStore.ReputMessageService).

In normal running the append path dispatches what it wrote; the log is read again only after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from rocketbroker.codec.storefile.log_walk import Stretch
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.commit_log_walker import LogWalk
from rocketbroker.store.dispatch.commit_log_dispatcher import CommitLogDispatcher
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

if TYPE_CHECKING:
    from rocketbroker.store.dispatch.reput_columns import ReputColumns

# Told of a part of the log, by offsets, that holds no sound record, and why.
DamageListener = Callable[[int, int, str], None]


class ReputMessageService:
    """Reads the log from an offset on and dispatches what is missing. ``dispatched`` counts the messages it read.

    Args:
        commit_log: the log.
        queues: the queues, which know what they have.
        dispatcher: enters keys into the index.
        delay_levels: ms by level; a message of SCHEDULE_TOPIC_XXXX is queued by its delivery time.
        on_damage: told of what is no sound record.
        deleted: CommitLog offset by topic at its deletion; messages before it are left out.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        dispatcher: CommitLogDispatcher,
        delay_levels: dict[int, int],
        on_damage: DamageListener,
        deleted: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._deleted = deleted
        self._delay_levels = delay_levels
        self._commit_log = commit_log
        self._queues = queues
        self._dispatcher = dispatcher
        self._on_damage = on_damage
        self.dispatched = 0

    @cached_property
    def _columns(self) -> ReputColumns:
        from rocketbroker.store.dispatch.reput_columns import ReputColumns

        return ReputColumns(self._queues, self._delay_levels, self._deleted, self._on_damage)

    def catch_up(self, offset: int, end: int, on_progress: Callable[[int], None] | None = None) -> None:
        """Dispatch from one CommitLog offset to another what queues and index do not have; damage is passed over.

        Args:
            offset: where it begins.
            end: where it ends.
            on_progress: told up to which offset it has come.

        Raises:
            StoreFullError: the disk has no room for entries that are missing.
        """
        walk = LogWalk(self._commit_log.queue, offset, check_crc=False, end=end)
        while walk.offset < end:
            for stretch in walk:
                self.dispatch(stretch)
                if on_progress is not None:
                    on_progress(stretch.end_offset)
            if walk.offset < end:
                sound = walk.next_sound()
                self.pass_over(walk.offset, end if sound is None else sound, walk.why)
                walk.offset = end if sound is None else sound

    def leaves_out(self, topic: str, offset: int) -> bool:
        """Whether all messages of a topic that lie before a CommitLog offset were deleted with it."""
        return self._deleted.get(topic, 0) >= offset

    def pass_over(self, begin: int, end: int, why: str) -> None:
        """Take note that there is no sound record between two CommitLog offsets."""
        self._columns.passed_over(begin, end, why)

    def dispatch(self, stretch: Stretch) -> None:
        """Dispatch what queues and index do not have of sound records; they follow those of the call before.

        Raises:
            StoreFullError: the disk has no room for entries that are missing.
        """
        keys = self._columns.enter(stretch.records)
        self.dispatched += len(stretch)
        self._dispatcher.index_keys(keys)

    def finish(self) -> None:
        """Enter into the index what waits for more."""
        self._dispatcher.flush_index()
