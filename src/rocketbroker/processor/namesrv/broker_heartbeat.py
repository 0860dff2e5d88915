"""BROKER_HEARTBEAT (904): heartbeat between two registrations, mostly sent one-way."""

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import BrokerHeartbeatRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.namesrv.route_info_manager import RouteInfoManager


class BrokerHeartbeatProcessor:
    """Records that a broker is alive; an unregistered broker is not an error."""

    def __init__(self, routes: RouteInfoManager) -> None:
        self._routes = routes

    def process(self, connection: Connection, command: RemotingCommand[BrokerHeartbeatRequestHeader]) -> Command:
        """Answer the request."""
        header = command.header
        self._routes.update_broker_info_update_timestamp(header.cluster_name, header.broker_addr, connection)
        return response()
