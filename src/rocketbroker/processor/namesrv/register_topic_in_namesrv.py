"""REGISTER_TOPIC_IN_NAMESRV (217): a route given by hand instead of by a broker."""

from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import RegisterTopicRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.namesrv.names import check_topic
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from rocketbroker.processor.support.request_body import MOST_VALUES

# A broker sends its own queues of one topic, some 300 bytes; in the slowest dialect this takes 30 ms.
_LARGEST_ROUTE = 32_768


class RegisterTopicInNamesrvProcessor:
    """Registers the queues of a TopicRouteData; without queues, or on an unknown broker, it changes nothing."""

    def __init__(self, routes: RouteInfoManager) -> None:
        self._routes = routes

    def process(self, connection: Connection, command: RemotingCommand[RegisterTopicRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: The topic rule does not allow the name, the body is not a route, or a limit is
                exceeded.
        """
        check_topic(command.header.topic)
        if command.body:
            self._routes.register_topic(command.header.topic, route_of(command).queue_datas)
        return response()


def route_of(command: RemotingCommand[RegisterTopicRequestHeader]) -> TopicRouteData:
    """Read the body.

    Raises:
        BrokerResponseError: It is not a route, or longer than the route of one broker can be.
    """
    if len(command.body) > _LARGEST_ROUTE:
        text = f"the body of REGISTER_TOPIC_IN_NAMESRV has {len(command.body):,} bytes; the limit is {_LARGEST_ROUTE:,}"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, text)
    try:
        return TopicRouteData.decode(command.body, most_values=MOST_VALUES)
    except CodecError as error:
        text = f"the body of REGISTER_TOPIC_IN_NAMESRV is not a TopicRouteData: {error}"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, text) from error
