"""NOTIFY_MIN_BROKER_ID_CHANGE (905): a name server has another smallest id of this broker's name."""

from collections.abc import Callable

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response


class NotifyMinBrokerIdChangeProcessor:
    """Asks the name servers of a slave soon; their answers count, not the notice."""

    def __init__(self, sync_soon: Callable[[], None]) -> None:
        self._sync_soon = sync_soon

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        self._sync_soon()
        return response()
