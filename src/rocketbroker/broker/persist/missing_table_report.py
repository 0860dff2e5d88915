"""Report of tables that are missing although the store was in use; RocketMQ silently starts them empty.

The first start writes each table once, so a file that is missing later was lost or removed.
"""

import logging
from collections.abc import Sequence

from rocketbroker.broker.persist.config_manager import AnyConfigManager
from rocketbroker.store.commitlog.commit_log import CommitLog

log = logging.getLogger(__name__)


class MissingTableReport:
    """Checks the tables once, after the store was opened.

    Args:
        tables: the tables, loaded.
        commit_log: the log, recovered before this part starts.
    """

    def __init__(self, tables: Sequence[AnyConfigManager], commit_log: CommitLog) -> None:
        self._tables = tables
        self._commit_log = commit_log

    async def start(self) -> None:
        """Log tables without a file if the store has messages, and write them."""
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

    async def stop(self) -> None:
        """Do nothing: this part only acts at the start."""
