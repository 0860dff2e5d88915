"""DELETE_EXPIRED_COMMITLOG (329): removes expired files of the log (AdminBrokerProcessor.deleteExpiredCommitLog)."""

import logging
from typing import Protocol

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response

log = logging.getLogger(__name__)


class Cleaning(Protocol):
    def delete_files_manually(self) -> None:
        """Request the removal of expired CommitLog files."""


class DeleteExpiredCommitlogProcessor:
    """Requests the removal of expired CommitLog files, whatever ``deleteWhen`` says; answers before it is done."""

    def __init__(self, cleaning: Cleaning) -> None:
        self._cleaning = cleaning

    def process(self, connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        log.warning("removal of expired CommitLog files requested by %s", connection.remote_address)
        self._cleaning.delete_files_manually()
        return response()
