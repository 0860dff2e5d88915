"""UNREGISTER_BROKER (104): removes a stopping broker."""

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import UnRegisterBrokerRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.namesrv.route_info_manager import RouteInfoManager


class UnregisterBrokerProcessor:
    """Removes the broker with a name and an address; an unknown one is not an error."""

    def __init__(self, routes: RouteInfoManager) -> None:
        self._routes = routes

    def process(self, connection: Connection, command: RemotingCommand[UnRegisterBrokerRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: The broker is alive, and the request comes from another host.
        """
        self._routes.unregister_broker(command.header.broker_addr, command.header.broker_name, connection)
        return response()
