"""UNREGISTER_BROKER (104): a broker says that it stops."""

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import UnRegisterBrokerRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.namesrv.route_info_manager import RouteInfoManager


class UnregisterBrokerProcessor:
    """Forgets the broker of that name at that address; one that is unknown is no error."""

    def __init__(self, routes: RouteInfoManager) -> None:
        self._routes = routes

    def process(self, connection: Connection, command: RemotingCommand[UnRegisterBrokerRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: the broker lives, and the request comes from another host.
        """
        self._routes.unregister_broker(command.header.broker_addr, command.header.broker_name, connection)
        return response()
