"""Report of tables that are missing although the store was in use; RocketMQ starts them empty without a word.

The first start writes each table once, so a file that is missing later was lost or removed.
"""

import logging
from collections.abc import Sequence

from rocketbroker.broker.persist.config_manager import AnyConfigManager
from rocketbroker.store.commitlog.commit_log import CommitLog

log = logging.getLogger(__name__)


class MissingTableReport:
    """Looks once, after the store has been opened.

    Args:
        tables: the tables, loaded.
        commit_log: the log, recovered before this part starts.
    """

    def __init__(self, tables: Sequence[AnyConfigManager], commit_log: CommitLog) -> None:
        self._tables = tables
        self._commit_log = commit_log

    async def start(self) -> None:
        """Log the tables without a file if there are messages, and write them."""
        in_use = self._commit_log.max_offset > self._commit_log.min_offset
        for table in self._tables:
            if table.found:
                continue
            if in_use:
                log.warning(
                    "%s is missing and has no backup although the store holds messages: what was in it is lost, the "
                    "broker goes on with what it has at a first start; to bring it back, stop the broker and put a copy"
                    " of the file there",
                    table.path,
                )
            table.persist()

    async def stop(self) -> None:
        """Nothing to end."""
