"""DELETE_TOPIC_IN_NAMESRV (216): drops the route of a topic, everywhere or in one cluster."""

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.namesrv.route_info_manager import RouteInfoManager


class DeleteTopicInNamesrvProcessor:
    """Drops the route; a missing one is not an error."""

    def __init__(self, routes: RouteInfoManager) -> None:
        self._routes = routes

    def process(self, connection: Connection, command: RemotingCommand[DeleteTopicFromNamesrvRequestHeader]) -> Command:
        """Answer the request."""
        self._routes.delete_topic(command.header.topic, command.header.cluster_name)
        return response()
