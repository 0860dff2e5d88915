"""Dispatches what the CommitLog holds and the queues or the index lack (DefaultMessageStore.ReputMessageService).

In normal running the append path dispatches what it wrote; the log is read again only after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from rocketbroker.store.commit_log import CommitLog
from rocketbroker.store.commit_log_dispatcher import CommitLogDispatcher
from rocketbroker.store.commit_log_walker import LogWalk, Stretch
from rocketbroker.store.consume_queue_store import ConsumeQueueStore

if TYPE_CHECKING:
    from rocketbroker.store.reput_columns import ReputColumns

# Told of a part of the log, by offsets, that holds no sound record, and why.
DamageListener = Callable[[int, int, str], None]


class ReputMessageService:
    """Reads the log from an offset to its end and dispatches what is missing.

    Args:
        commit_log: the log.
        queues: the queues, which know what they have.
        dispatcher: enters keys into the index.
        delay_levels: ms by level; a message of SCHEDULE_TOPIC_XXXX is queued by its delivery time.
        deleted: CommitLog offset by topic at its deletion; messages before it are left out.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        dispatcher: CommitLogDispatcher,
        delay_levels: dict[int, int],
        deleted: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._deleted = deleted
        self._delay_levels = delay_levels
        self._commit_log = commit_log
        self._queues = queues
        self._dispatcher = dispatcher

    def catch_up(self, offset: int, on_damage: DamageListener, on_progress: Callable[[int], None] | None = None) -> int:
        """Dispatch from a CommitLog offset on what queues and index do not have; gives how many messages it read.

        Damage is passed over. ``on_progress`` is told up to which offset it has come.

        Raises:
            StoreFullError: the disk has no room for entries that are missing.
        """
        end = self._commit_log.max_offset
        if offset >= end:
            return 0
        columns = self._columns(on_damage)
        walk = LogWalk(self._commit_log.queue, offset, check_crc=False, end=end)
        count = 0
        while walk.offset < end:
            for stretch in walk:
                self._dispatch(columns, stretch)
                count += len(stretch.starts)
                if on_progress is not None:
                    on_progress(stretch.end_offset)
            if walk.offset < end:
                sound = walk.next_sound()
                columns.passed_over(walk.offset, end if sound is None else sound, walk.why)
                walk.offset = end if sound is None else sound
        self._dispatcher.flush_index()
        return count

    def _columns(self, on_damage: DamageListener) -> ReputColumns:
        from rocketbroker.store.reput_columns import ReputColumns

        return ReputColumns(self._queues, self._delay_levels, self._deleted, on_damage)

    def _dispatch(self, columns: ReputColumns, stretch: Stretch) -> None:
        found = columns.enter(stretch.records, stretch.data)
        if found.offsets:
            self._dispatcher.index_columns(found)
