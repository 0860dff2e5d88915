"""Report of what a store held and this broker does not serve: lost tables, and popped messages.

The first start writes each table once, so a file that is missing later was lost or removed. RocketMQ silently starts
such a table empty.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from rocketbroker.broker.persist.config_manager import AnyConfigManager
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.recovery.foreign_store import REVIVE_GROUP, open_pops

log = logging.getLogger(__name__)


class MissingTableReport:
    """Checks tables and queues once, after the store was opened.

    Args:
        tables: the tables, loaded.
        commit_log: the log, recovered before this part starts.
        queues: the queues, likewise.
        consumer_offset: returns the consumer offset of a group, topic and queue, -1 without one.
    """

    def __init__(
        self,
        tables: Sequence[AnyConfigManager],
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        consumer_offset: Callable[[str, str, int], int],
    ) -> None:
        self._tables = tables
        self._commit_log = commit_log
        self._queues = queues
        self._consumer_offset = consumer_offset

    async def start(self) -> None:
        """Log tables without a file if the store has messages, and write them; log popped messages."""
        in_use = self._commit_log.max_offset > self._commit_log.min_offset
        for table in self._tables:
            if table.found:
                continue
            if in_use:
                log.warning(
                    "%s is missing and has no backup, although the store holds messages: its content is lost, and the "
                    "broker starts with the defaults; to restore it, stop the broker and put back a copy of the file",
                    table.path,
                )
            table.persist()
        ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in self._queues}
        for text in open_pops(ends, partial(self._consumer_offset, REVIVE_GROUP)):
            log.warning("POP: %s", text)

    async def stop(self) -> None:
        """Do nothing: this part only acts at the start."""
