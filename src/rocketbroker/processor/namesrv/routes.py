"""Routes of topics, and lists of brokers and topics (ClientRequestProcessor, DefaultRequestProcessor)."""

import logging

from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.bodies.route import ClusterInfo, TopicRouteData, takes_standard_json
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterTopicRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.errors import BrokerResponseError, CodecError, shown
from rocketbroker.namesrv.broker_table import BrokerTable
from rocketbroker.namesrv.kv_config_manager import KVConfigManager
from rocketbroker.namesrv.names import check_topic
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from rocketbroker.namesrv.topic_queue_table import SYS_FLAG_UNIT, SYS_FLAG_UNIT_SUB, TopicQueueTable
from rocketbroker.namesrv.topic_route import EncodedAnswers, TopicRoutes
from rocketbroker.processor.support.request_checks import MOST_VALUES

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


class GetBrokerClusterInfoProcessor:
    """Answers the whole table."""

    def __init__(self, brokers: BrokerTable, answers: EncodedAnswers) -> None:
        self._brokers = brokers
        self._answers = answers

    def process(self, connection: Connection, command: Command) -> Command:
        return response(body=self._answers.list("cluster info", self._encoded))

    def _encoded(self) -> bytes:
        clusters = {cluster: sorted(names) for cluster, names in self._brokers.clusters.items()}
        return ClusterInfo(broker_addr_table=self._brokers.by_name, cluster_addr_table=clusters).encode()


class GetAllTopicListFromNameserverProcessor:
    """Answers the list unless ``enableAllTopicList`` is off."""

    def __init__(self, config: NamesrvConfig, topic_queues: TopicQueueTable, answers: EncodedAnswers) -> None:
        self._config = config
        self._topic_queues = topic_queues
        self._answers = answers

    def process(self, connection: Connection, command: Command) -> Command:
        """Return the names of all topics.

        Raises:
            BrokerResponseError: The names do not fit into a frame.
        """
        if not self._config.enable_all_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")
        body = self._answers.list("all topics", lambda: TopicList(topic_list=self._topic_queues.topics()).encode())
        return response(body=body)


class GetTopicsByClusterProcessor:
    """Answers the list, empty for an unknown cluster, unless ``enableTopicList`` is off."""

    def __init__(self, config: NamesrvConfig, routes: RouteInfoManager) -> None:
        self._config = config
        self._routes = routes

    def process(self, connection: Connection, command: RemotingCommand[GetTopicsByClusterRequestHeader]) -> Command:
        if not self._config.enable_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")
        cluster = command.header.cluster
        if cluster not in self._routes.brokers.clusters:
            return response(body=TopicList().encode())

        def make() -> bytes:
            return TopicList(topic_list=self._routes.topics_by_cluster(cluster)).encode()

        return response(body=self._routes.answers.list(("topics of", cluster), make))


class GetSystemTopicListFromNsProcessor:
    """Answers names of clusters and brokers."""

    def __init__(self, brokers: BrokerTable) -> None:
        self._brokers = brokers

    def process(self, connection: Connection, command: Command) -> Command:
        names = dict.fromkeys(self._brokers.clusters)
        for brokers in self._brokers.clusters.values():
            names.update(dict.fromkeys(sorted(brokers)))
        addresses = (address for data in self._brokers.by_name.values() for address in data.broker_addrs.values())
        return response(body=TopicList(topic_list=list(names), broker_addr=next(addresses, None)).encode())


class GetUnitTopicListProcessor:
    """Answers topics by their system flags, unless ``enableTopicList`` is off."""

    def __init__(self, config: NamesrvConfig, topic_queues: TopicQueueTable, answers: EncodedAnswers) -> None:
        self._config = config
        self._topic_queues = topic_queues
        self._answers = answers

    def process(self, connection: Connection, command: Command) -> Command:
        """Answer topics of units (311)."""
        return self._answer(SYS_FLAG_UNIT)

    def process_unit_sub(self, connection: Connection, command: Command) -> Command:
        """Answer topics that units subscribe to (312)."""
        return self._answer(SYS_FLAG_UNIT_SUB)

    def process_unit_sub_ununit(self, connection: Connection, command: Command) -> Command:
        """Answer topics of no unit that units subscribe to (313)."""
        return self._answer(SYS_FLAG_UNIT_SUB, without_flag=SYS_FLAG_UNIT)

    def _answer(self, with_flag: int, without_flag: int = 0) -> Command:
        if not self._config.enable_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")

        def make() -> bytes:
            topics = self._topic_queues.topics_by_flag(with_flag=with_flag, without_flag=without_flag)
            return TopicList(topic_list=topics).encode()

        return response(body=self._answers.list(("topics by flag", with_flag, without_flag), make))


# A broker sends its own queues of one topic, some 300 bytes; in the slowest dialect this takes 30 ms.
_LARGEST_ROUTE = 32_768


class RegisterTopicInNamesrvProcessor:
    """Registers the queues of a TopicRouteData; without queues, or on an unknown broker, it changes nothing."""

    def __init__(self, routes: RouteInfoManager) -> None:
        self._routes = routes

    def process(self, connection: Connection, command: RemotingCommand[RegisterTopicRequestHeader]) -> Command:
        """Add the queues of a topic.

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


class DeleteTopicInNamesrvProcessor:
    """Drops the route; a missing one is not an error."""

    def __init__(self, routes: RouteInfoManager) -> None:
        self._routes = routes

    def process(self, connection: Connection, command: RemotingCommand[DeleteTopicFromNamesrvRequestHeader]) -> Command:
        self._routes.delete_topic(command.header.topic, command.header.cluster_name)
        return response()


log = logging.getLogger(__name__)


class WritePermOfBrokerProcessor:
    """Changes the permission of all topics of a broker and answers how many it has; 0 for an unknown broker."""

    def __init__(self, routes: RouteInfoManager) -> None:
        self._routes = routes

    def process_wipe(
        self, connection: Connection, command: RemotingCommand[WipeWritePermOfBrokerRequestHeader]
    ) -> Command:
        """Remove the write permission (205)."""
        name = command.header.broker_name
        count = self._routes.wipe_write_perm_of_broker(name)
        log.info(
            "broker %s: write permission removed from %d topics by %s", shown(name), count, connection.remote_address
        )
        return response(header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    def process_add(
        self, connection: Connection, command: RemotingCommand[AddWritePermOfBrokerRequestHeader]
    ) -> Command:
        """Restore the write permission (327)."""
        name = command.header.broker_name
        count = self._routes.add_write_perm_of_broker(name)
        log.info(
            "broker %s: write permission restored to %d topics by %s", shown(name), count, connection.remote_address
        )
        return response(header=AddWritePermOfBrokerResponseHeader(add_topic_count=count))
