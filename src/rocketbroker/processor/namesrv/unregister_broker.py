"""UNREGISTER_BROKER (104): a broker says that it stops."""

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import UnRegisterBrokerRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.namesrv.route_info_manager import RouteInfoManager


class UnregisterBrokerProcessor:
    """Forgets a broker; one that is unknown is no error."""

    def __init__(self, routes: RouteInfoManager) -> None:
        self._routes = routes

    def process(self, connection: Connection, command: RemotingCommand[UnRegisterBrokerRequestHeader]) -> Command:
        """Answer the request."""
        header = command.header
        self._routes.unregister_broker(header.cluster_name, header.broker_addr, header.broker_name, header.broker_id)
        return response()
