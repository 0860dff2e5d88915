"""GET_ROUTEINFO_BY_TOPIC (105): brokers and queues of a topic (ClientRequestProcessor)."""

from rocketbroker.codec.remoting.bodies.route import takes_standard_json
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import GetRouteInfoRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.errors import shown
from rocketbroker.namesrv.kv_config_manager import KVConfigManager
from rocketbroker.namesrv.topic_route import TopicRoutes

_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class GetRouteInfoByTopicProcessor:
    """Answers routes; the broker ids in them are quoted for clients that read standard JSON."""

    def __init__(self, config: NamesrvConfig, routes: TopicRoutes, kv_configs: KVConfigManager, clock: Clock) -> None:
        self._config = config
        self._routes = routes
        self._kv_configs = kv_configs
        self._clock = clock
        self._started = clock.monotonic()

    def process(self, connection: Connection, command: RemotingCommand[GetRouteInfoRequestHeader]) -> Command:
        """Answer the request."""
        if self._config.need_wait_for_service and not self._ready():
            return response(ResponseCode.SYSTEM_ERROR, "name server not ready")
        topic = command.header.topic
        standard_json = takes_standard_json(command.version, command.header.accept_standard_json_only)
        body = self._routes.encoded(topic, standard_json=standard_json, order_topic_conf=self._order_topic_conf(topic))
        if body is None:
            remark = f"No topic route info in name server for the topic: {shown(topic)}{_FAQ}"
            return response(ResponseCode.TOPIC_NOT_EXIST, remark)
        return response(body=body)

    def _order_topic_conf(self, topic: str) -> str | None:
        if not self._config.order_message_enable:
            return None
        return self._kv_configs.order_topic_conf(topic)

    def _ready(self) -> bool:
        return self._clock.monotonic() - self._started >= self._config.wait_seconds_for_service
