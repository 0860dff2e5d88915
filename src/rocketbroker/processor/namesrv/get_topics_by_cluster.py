"""GET_TOPICS_BY_CLUSTER (224): the topics that have queues in a cluster."""

from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import GetTopicsByClusterRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.namesrv.route_info_manager import RouteInfoManager


class GetTopicsByClusterProcessor:
    """Answers the list, empty for an unknown cluster, unless ``enableTopicList`` is off."""

    def __init__(self, config: NamesrvConfig, routes: RouteInfoManager) -> None:
        self._config = config
        self._routes = routes

    def process(self, connection: Connection, command: RemotingCommand[GetTopicsByClusterRequestHeader]) -> Command:
        """Answer the request."""
        if not self._config.enable_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")
        cluster = command.header.cluster
        if cluster not in self._routes.brokers.clusters:
            return response(body=TopicList().encode())

        def make() -> bytes:
            return TopicList(topic_list=self._routes.topics_by_cluster(cluster)).encode()

        return response(body=self._routes.answers.list(("topics of", cluster), make))
