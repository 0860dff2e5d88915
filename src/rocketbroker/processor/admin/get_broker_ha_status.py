"""GET_BROKER_HA_STATUS (907): state of replication (AdminBrokerProcessor.getBrokerHaStatus)."""

from collections.abc import Callable

from rocketbroker.codec.remoting.bodies.offset import HARuntimeInfo
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response


class GetBrokerHaStatusProcessor:
    """Answers the slaves of a master, or the copying of a slave."""

    def __init__(self, ha_status: Callable[[], HARuntimeInfo]) -> None:
        self._ha_status = ha_status

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        return response(body=self._ha_status().encode())
