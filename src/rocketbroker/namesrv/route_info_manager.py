"""The state of the name server (org.apache.rocketmq.namesrv.routeinfo.RouteInfoManager).

Brokers register with their topics; what is known of them is dropped when they unregister, when their connection closes,
or when they were silent for too long. All of it runs on the event loop, so that nothing is locked.
"""

import logging

from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.route import BrokerData, QueueData
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.perm_name import PERM_READ_WRITE, PERM_WRITE
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.namesrv.broker_registration import BrokerRegistration, RegisterBrokerResult
from rocketbroker.namesrv.broker_table import MASTER_ID, BrokerLiveInfo, BrokerTable
from rocketbroker.namesrv.min_broker_id_notifier import MinBrokerIdNotifier
from rocketbroker.namesrv.names import is_registered_topic
from rocketbroker.namesrv.topic_queue_table import TopicQueueTable, queue_data
from rocketbroker.namesrv.topic_route import Mappings, TopicRoutes

log = logging.getLogger(__name__)

DEFAULT_BROKER_EXPIRED_S = 120.0


class RouteInfoManager:
    """Routes, brokers and their liveness.

    Args:
        config: read at each use, since settings may change at run time.
        clock: tells when brokers were last heard.
        notifier: tells brokers that the smallest id of their name changed.
    """

    def __init__(self, config: NamesrvConfig, clock: Clock, notifier: MinBrokerIdNotifier) -> None:
        self._config = config
        self._clock = clock
        self._notifier = notifier
        self._mappings: Mappings = {}
        self.brokers = BrokerTable()
        self.topic_queues = TopicQueueTable(self._topic_changed)
        self.routes = TopicRoutes(config, self.brokers, self.topic_queues, self._mappings)

    def _topic_changed(self, topic: str) -> None:
        self.routes.forget(topic)

    # -- registration

    def register_broker(self, said: BrokerRegistration) -> RegisterBrokerResult | None:
        """Take a registration; ``None`` when it carries a single topic of a broker that did not register as a whole."""
        known = self.brokers.by_name.get(said.broker_name)
        addresses = known.broker_addrs if known is not None else {}
        if self._conflicts(said, addresses.get(said.broker_id)):
            self._forget(said.broker_addr)
            return RegisterBrokerResult()
        if said.broker_id not in addresses and len(said.body.topic_config_serialize_wrapper.topic_config_table) == 1:
            log.warning("broker %s at %s sent one topic before it registered", said.broker_name, said.broker_addr)
            return None
        self._forget_former_self(said)
        group = self.brokers.group(said.cluster_name, said.broker_name)
        group.enable_acting_master = bool(said.enable_acting_master)
        smallest = min(group.broker_addrs, default=MASTER_ID)
        first = self._enter(group, said)
        self._take_topics(group, said, first)
        self._keep_alive(said)
        self.routes.forget_all()
        if said.broker_id < smallest:
            self._notifier.smaller_id_came(group, said.ha_server_addr)
        return self._result(group, said)

    def _conflicts(self, said: BrokerRegistration, address: str | None) -> bool:
        """Whether another process holds name and id with a newer state; then the newcomer is ignored."""
        if address is None or address == said.broker_addr:
            return False
        holder = self.brokers.live_info(said.cluster_name, address)
        version = said.body.topic_config_serialize_wrapper.data_version
        if holder is None or holder.data_version.state_version <= version.state_version:
            return False
        text = "broker %s:%d at %s is ignored: %s has a newer state"
        log.warning(text, said.broker_name, said.broker_id, said.broker_addr, address)
        return True

    def _forget_former_self(self, said: BrokerRegistration) -> None:
        """A broker that came again under another name or in another cluster is no longer what it was."""
        found = self.brokers.find(said.broker_addr)
        info = self.brokers.live.get(said.broker_addr)
        renamed = found is not None and found[0].broker_name != said.broker_name
        if renamed or (info is not None and info.cluster_name != said.cluster_name):
            self._forget(said.broker_addr)

    @staticmethod
    def _enter(group: BrokerData, said: BrokerRegistration) -> bool:
        """Put the address below its id, and nowhere else; gives whether the id is new."""
        for broker_id, address in list(group.broker_addrs.items()):
            if address == said.broker_addr and broker_id != said.broker_id:
                del group.broker_addrs[broker_id]  # a slave that became master, or the other way round
        first = not group.broker_addrs.get(said.broker_id)
        group.broker_addrs[said.broker_id] = said.broker_addr
        # In the order in which RocketMQ tells them: by id, the master first.
        group.broker_addrs = dict(sorted(group.broker_addrs.items()))
        return first

    def _take_topics(self, group: BrokerData, said: BrokerRegistration, first: bool) -> None:
        """Topics come from the master, or from the slave with the smallest id where there is none."""
        is_master = said.broker_id == MASTER_ID
        leads = said.enable_acting_master is not None and said.broker_id == min(group.broker_addrs)
        if not is_master and not leads:
            return
        wrapper = said.body.topic_config_serialize_wrapper
        changed = first or self.is_broker_topic_config_changed(
            said.cluster_name, said.broker_addr, wrapper.data_version
        )
        mappings = wrapper.topic_queue_mapping_info_map
        topics = self._allowed(said, list(wrapper.topic_config_table.values()))
        if self._config.delete_topic_with_broker_registration and not mappings:
            self._drop_others(said.broker_name, {config.topic_name for config in topics})
        writable = is_master or not group.enable_acting_master
        for config in topics:
            if changed or said.broker_name not in self.topic_queues.queues(config.topic_name):
                self.topic_queues.put(config.topic_name, queue_data(said.broker_name, config, writable=writable))
        if changed:
            for topic in mappings.keys() & {config.topic_name for config in topics}:
                self._mappings.setdefault(topic, {})[said.broker_name] = mappings[topic]

    @staticmethod
    def _allowed(said: BrokerRegistration, topics: list[TopicConfig]) -> list[TopicConfig]:
        """The topics whose names follow the rule; the others are named in the log and get no route."""
        good: list[TopicConfig] = []
        bad: list[str] = []
        for config in topics:
            if is_registered_topic(config.topic_name, said.broker_name, said.cluster_name):
                good.append(config)
            else:
                bad.append(repr(config.topic_name[:64]))
        if bad:
            text = "broker %s at %s registers %d topics that are not ^[%%|a-zA-Z0-9_-]+$ or too long; no route for %s"
            log.warning(text, said.broker_name, said.broker_addr, len(bad), ", ".join(bad[:5]))
        return good

    def _drop_others(self, broker_name: str, topics: set[str]) -> None:
        for topic in self.topic_queues.topics_of_broker(broker_name):
            if topic not in topics:
                self.topic_queues.delete(topic, [broker_name])

    def _keep_alive(self, said: BrokerRegistration) -> None:
        timeout_ms = said.heartbeat_timeout_ms
        if said.broker_addr not in self.brokers.live:
            log.info("broker %s:%d at %s registered", said.broker_name, said.broker_id, said.broker_addr)
        self.brokers.live[said.broker_addr] = BrokerLiveInfo(
            cluster_name=said.cluster_name,
            last_update=self._clock.monotonic(),
            heartbeat_timeout_s=DEFAULT_BROKER_EXPIRED_S if timeout_ms is None else timeout_ms / 1000,
            data_version=said.body.topic_config_serialize_wrapper.data_version,
            connection=said.connection,
            ha_server_addr=said.ha_server_addr,
            filter_servers=said.body.filter_server_list,
        )

    def _result(self, group: BrokerData, said: BrokerRegistration) -> RegisterBrokerResult:
        address = group.broker_addrs.get(MASTER_ID)
        master = self.brokers.live.get(address) if address is not None else None
        if said.broker_id == MASTER_ID or master is None:
            return RegisterBrokerResult()
        return RegisterBrokerResult(master.ha_server_addr, address)

    # -- leaving

    def unregister_broker(self, broker_addr: str, broker_name: str) -> None:
        """Forget a broker; the topics stay routed as long as another one of its name lives."""
        found = self.brokers.find(broker_addr)
        if found is None or found[0].broker_name != broker_name:
            log.info("broker %s at %s leaves, and was not there", broker_name, broker_addr)
            return
        self._forget(broker_addr)

    def _forget(self, broker_addr: str) -> None:
        """Drop all that is known of the broker at an address."""
        self.brokers.live.pop(broker_addr, None)
        found = self.brokers.find(broker_addr)
        if found is None:
            return
        group, broker_id = found
        log.info("broker %s:%d at %s leaves", group.broker_name, broker_id, broker_addr)
        was_smallest = broker_id == min(group.broker_addrs)
        del group.broker_addrs[broker_id]
        self.routes.forget_all()
        if not group.broker_addrs:
            self.brokers.drop_group(group.broker_name)
            self.topic_queues.delete_broker(group.broker_name)
            self._drop_mappings(group.broker_name)
            return
        if group.enable_acting_master and not self.brokers.has_master(group.broker_name):
            self.wipe_write_perm_of_broker(group.broker_name)
        if was_smallest:
            self._notifier.smallest_id_left(group, broker_addr)

    def _drop_mappings(self, broker_name: str) -> None:
        for topic, by_broker in list(self._mappings.items()):
            by_broker.pop(broker_name, None)
            if not by_broker:
                del self._mappings[topic]

    def connection_closed(self, connection: Connection) -> None:
        """Forget the brokers that registered over a connection that is gone."""
        gone = [address for address, info in self.brokers.live.items() if info.connection is connection]
        for address in gone:
            self._forget(address)

    def scan_not_active_broker(self) -> None:
        """Close the connections of brokers that were silent for too long, and forget these brokers."""
        now = self._clock.monotonic()
        for address, info in list(self.brokers.live.items()):
            if info.expired(now):
                info.connection.close(f"the broker at {address} was silent for {info.heartbeat_timeout_s:g} s")
                self._forget(address)

    # -- liveness and versions

    def data_version(self, cluster_name: str, broker_addr: str) -> DataVersion | None:
        """The version of the topics that a broker last registered."""
        info = self.brokers.live_info(cluster_name, broker_addr)
        return None if info is None else info.data_version

    def is_broker_topic_config_changed(
        self, cluster_name: str, broker_addr: str, data_version: DataVersion | None
    ) -> bool:
        """Whether a broker's topics differ from those it last registered."""
        known = self.data_version(cluster_name, broker_addr)
        return known is None or known != data_version

    def update_broker_info_update_timestamp(self, cluster_name: str, broker_addr: str) -> None:
        """A broker was heard."""
        info = self.brokers.live_info(cluster_name, broker_addr)
        if info is not None:
            info.last_update = self._clock.monotonic()

    # -- topics

    def register_topic(self, topic: str, queues: list[QueueData]) -> None:
        """Route a topic to queues; ignored as a whole when one of the brokers is unknown."""
        unknown = [data.broker_name for data in queues if data.broker_name not in self.brokers.by_name]
        if unknown:
            log.warning("topic %s is not registered: no broker %s", topic, ", ".join(unknown))
            return
        for data in queues:
            self.topic_queues.put(topic, data)

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """Forget a topic, or its queues in one cluster."""
        if cluster_name:
            self.topic_queues.delete(topic, self.brokers.clusters.get(cluster_name, set()))
        else:
            self.topic_queues.delete(topic)

    def wipe_write_perm_of_broker(self, broker_name: str) -> int:
        """Take the write permission from all topics of a broker; gives how many it has."""
        return self.topic_queues.set_permission(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm_of_broker(self, broker_name: str) -> int:
        """Let all topics of a broker be read and written; gives how many it has."""
        return self.topic_queues.set_permission(broker_name, lambda _: PERM_READ_WRITE)

    def topics_by_cluster(self, cluster_name: str) -> list[str]:
        """The topics with queues on a broker of the cluster, each once."""
        names = self.brokers.clusters.get(cluster_name, set())
        return [topic for topic in self.topic_queues.topics() if not names.isdisjoint(self.topic_queues.queues(topic))]
