"""DELETE_EXPIRED_COMMITLOG (329): removes expired files of the log (AdminBrokerProcessor.deleteExpiredCommitLog)."""

import logging
from typing import Protocol

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response

log = logging.getLogger(__name__)


class Cleaning(Protocol):
    """What is needed of the cleaning services."""

    def delete_files_manually(self) -> None:
        """Have expired commit log files removed soon."""


class DeleteExpiredCommitlogProcessor:
    """Has expired commit log files removed now, whatever `deleteWhen` says; answers before they are."""

    def __init__(self, cleaning: Cleaning) -> None:
        self._cleaning = cleaning

    def process(self, connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        log.warning("%s has expired commit log files removed", connection.remote_address)
        self._cleaning.delete_files_manually()
        return response()
