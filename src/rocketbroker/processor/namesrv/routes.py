"""Routes of topics, and lists of brokers and topics (ClientRequestProcessor, DefaultRequestProcessor)."""

import logging
from dataclasses import dataclass, field

from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.bodies.route import ClusterInfo, TopicRouteData, takes_standard_json
from rocketbroker.codec.remoting.handler import Audience, Connection
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
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.errors import shown
from rocketbroker.namesrv.kv_config_manager import KVConfigManager
from rocketbroker.namesrv.names import check_topic
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from rocketbroker.namesrv.topic_queue_table import SYS_FLAG_UNIT, SYS_FLAG_UNIT_SUB
from rocketbroker.processor.support.request_checks import read_body
from rocketbroker.processor.support.request_family import answers

log = logging.getLogger(__name__)

_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
# A broker sends its own queues of one topic, some 300 bytes; in the slowest dialect this takes 30 ms.
_LARGEST_ROUTE = 32_768


@dataclass(slots=True)
class RouteRequests:
    """Routes of topics, lists of brokers and topics, and changes of single routes.

    An answer that lists many names is encoded once and kept until the tables change.
    """

    config: NamesrvConfig
    manager: RouteInfoManager
    kv_configs: KVConfigManager
    clock: Clock
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock.monotonic()

    @answers(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader, Audience.CLIENT)
    def get_routeinfo_by_topic(
        self, connection: Connection, command: RemotingCommand[GetRouteInfoRequestHeader]
    ) -> Command:
        """Return a topic's route; its broker ids are quoted for clients that read standard JSON."""
        if self.config.need_wait_for_service and not self._ready():
            return response(ResponseCode.SYSTEM_ERROR, "name server not ready")
        topic = command.header.topic
        standard_json = takes_standard_json(command.version, command.header.accept_standard_json_only)
        order_topic_conf = self.kv_configs.order_topic_conf(topic) if self.config.order_message_enable else None
        body = self.manager.routes.encoded(topic, standard_json=standard_json, order_topic_conf=order_topic_conf)
        if body is None:
            remark = f"No topic route info in name server for the topic: {shown(topic)}{_FAQ}"
            return response(ResponseCode.TOPIC_NOT_EXIST, remark)
        return response(body=body)

    def _ready(self) -> bool:
        return self.clock.monotonic() - self._started >= self.config.wait_seconds_for_service

    @answers(RequestCode.GET_BROKER_CLUSTER_INFO, audience=Audience.CLIENT)
    def get_broker_cluster_info(self, connection: Connection, command: Command) -> Command:
        """Return all brokers by cluster."""
        return response(body=self.manager.answers.list("cluster info", self._encoded_clusters))

    def _encoded_clusters(self) -> bytes:
        brokers = self.manager.brokers
        clusters = {cluster: sorted(names) for cluster, names in brokers.clusters.items()}
        return ClusterInfo(broker_addr_table=brokers.by_name, cluster_addr_table=clusters).encode()

    @answers(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    def get_all_topic_list_from_nameserver(self, connection: Connection, command: Command) -> Command:
        """Return the names of all topics, unless ``enableAllTopicList`` is off.

        Raises:
            BrokerResponseError: The names do not fit into a frame.
        """
        if not self.config.enable_all_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")
        queues = self.manager.topic_queues
        return response(
            body=self.manager.answers.list("all topics", lambda: TopicList(topic_list=queues.topics()).encode())
        )

    @answers(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader)
    def get_topics_by_cluster(
        self, connection: Connection, command: RemotingCommand[GetTopicsByClusterRequestHeader]
    ) -> Command:
        """Return the topics of a cluster, none for an unknown one, unless ``enableTopicList`` is off."""
        if not self.config.enable_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")
        cluster, manager = command.header.cluster, self.manager
        if cluster not in manager.brokers.clusters:
            return response(body=TopicList().encode())

        def make() -> bytes:
            return TopicList(topic_list=manager.topics_by_cluster(cluster)).encode()

        return response(body=manager.answers.list(("topics of", cluster), make))

    @answers(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    def get_system_topic_list_from_ns(self, connection: Connection, command: Command) -> Command:
        """Return the names of clusters and brokers, each of which is a system topic."""
        brokers = self.manager.brokers
        names = dict.fromkeys(brokers.clusters)
        for members in brokers.clusters.values():
            names.update(dict.fromkeys(sorted(members)))
        addresses = (address for data in brokers.by_name.values() for address in data.broker_addrs.values())
        return response(body=TopicList(topic_list=list(names), broker_addr=next(addresses, None)).encode())

    @answers(RequestCode.GET_UNIT_TOPIC_LIST)
    def get_unit_topic_list(self, connection: Connection, command: Command) -> Command:
        """Return the topics of units, unless ``enableTopicList`` is off."""
        return self._topics_by_flag(SYS_FLAG_UNIT)

    @answers(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)
    def get_has_unit_sub_topic_list(self, connection: Connection, command: Command) -> Command:
        """Return the topics that units subscribe to, unless ``enableTopicList`` is off."""
        return self._topics_by_flag(SYS_FLAG_UNIT_SUB)

    @answers(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
    def get_has_unit_sub_ununit_topic_list(self, connection: Connection, command: Command) -> Command:
        """Return the topics of no unit that units subscribe to, unless ``enableTopicList`` is off."""
        return self._topics_by_flag(SYS_FLAG_UNIT_SUB, without_flag=SYS_FLAG_UNIT)

    def _topics_by_flag(self, with_flag: int, without_flag: int = 0) -> Command:
        if not self.config.enable_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")
        queues = self.manager.topic_queues

        def make() -> bytes:
            return TopicList(topic_list=queues.topics_by_flag(with_flag=with_flag, without_flag=without_flag)).encode()

        return response(body=self.manager.answers.list(("topics by flag", with_flag, without_flag), make))

    @answers(RequestCode.REGISTER_TOPIC_IN_NAMESRV, RegisterTopicRequestHeader, Audience.BROKER)
    def register_topic_in_namesrv(
        self, connection: Connection, command: RemotingCommand[RegisterTopicRequestHeader]
    ) -> Command:
        """Add the queues of a topic; without queues, or on an unknown broker, change nothing.

        Raises:
            BrokerResponseError: The topic rule does not allow the name, the body is not a route, or a limit is
                exceeded.
        """
        check_topic(command.header.topic)
        if command.body:
            route = read_body(command.body, TopicRouteData, largest=_LARGEST_ROUTE)
            self.manager.register_topic(command.header.topic, route.queue_datas)
        return response()

    @answers(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequestHeader)
    def delete_topic_in_namesrv(
        self, connection: Connection, command: RemotingCommand[DeleteTopicFromNamesrvRequestHeader]
    ) -> Command:
        """Drop a topic's route; a missing one is not an error."""
        self.manager.delete_topic(command.header.topic, command.header.cluster_name)
        return response()

    @answers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeWritePermOfBrokerRequestHeader)
    def wipe_write_perm_of_broker(
        self, connection: Connection, command: RemotingCommand[WipeWritePermOfBrokerRequestHeader]
    ) -> Command:
        """Remove the write permission from a broker's topics and return their number; 0 for an unknown broker."""
        name = command.header.broker_name
        count = self.manager.wipe_write_perm_of_broker(name)
        log.info(
            "broker %s: write permission removed from %d topics by %s", shown(name), count, connection.remote_address
        )
        return response(header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    @answers(RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePermOfBrokerRequestHeader)
    def add_write_perm_of_broker(
        self, connection: Connection, command: RemotingCommand[AddWritePermOfBrokerRequestHeader]
    ) -> Command:
        """Restore the write permission to a broker's topics and return their number; 0 for an unknown broker."""
        name = command.header.broker_name
        count = self.manager.add_write_perm_of_broker(name)
        log.info(
            "broker %s: write permission restored to %d topics by %s", shown(name), count, connection.remote_address
        )
        return response(header=AddWritePermOfBrokerResponseHeader(add_topic_count=count))
