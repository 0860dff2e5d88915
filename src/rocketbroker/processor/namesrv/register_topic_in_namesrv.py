"""REGISTER_TOPIC_IN_NAMESRV (217): a route given by hand instead of by a broker."""

from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import RegisterTopicRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.namesrv.names import check_topic
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from rocketbroker.processor.request_body import MOST_VALUES


class RegisterTopicInNamesrvProcessor:
    """Takes the queues of the body, a TopicRouteData; without queues, or on an unknown broker, it changes nothing."""

    def __init__(self, routes: RouteInfoManager) -> None:
        self._routes = routes

    def process(self, connection: Connection, command: RemotingCommand[RegisterTopicRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: the topic rule does not allow the name, or the body is no route.
        """
        check_topic(command.header.topic)
        if command.body:
            self._routes.register_topic(command.header.topic, route_of(command).queue_datas)
        return response()


def route_of(command: RemotingCommand[RegisterTopicRequestHeader]) -> TopicRouteData:
    """The body."""
    try:
        return TopicRouteData.decode(command.body, most_values=MOST_VALUES)
    except CodecError as error:
        text = f"the body of REGISTER_TOPIC_IN_NAMESRV is no TopicRouteData: {error}"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, text) from error
