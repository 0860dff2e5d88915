"""State of the name server (org.apache.rocketmq.namesrv.routeinfo.RouteInfoManager).

Brokers register with their topics. The name server forgets them when they unregister, when their connection closes, or
when they have been silent for too long. Everything runs on the event loop, so nothing is locked.
"""

import logging
from collections.abc import Callable

from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, BrokerData, QueueData
from rocketbroker.codec.remoting.bodies.topic_config import PERM_READ_WRITE, PERM_WRITE
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.errors import BrokerResponseError, shown
from rocketbroker.namesrv.broker_table import BrokerLiveInfo, BrokerRegistration, BrokerTable, RegisterBrokerResult
from rocketbroker.namesrv.min_broker_id_notifier import MinBrokerIdNotifier
from rocketbroker.namesrv.topic_queue_table import TopicQueueTable
from rocketbroker.namesrv.topic_route import EncodedAnswers, TopicRoutes

log = logging.getLogger(__name__)

DEFAULT_BROKER_EXPIRED_S = 120.0

Probe = Callable[[str, Connection], None]


class RouteInfoManager:
    """Routes, brokers and their liveness.

    Args:
        config: read at each use, since settings may change at run time.
        clock: time of the last heartbeats.
        notifier: notifies brokers of a changed smallest id.
        probe: checks that the broker at an address is alive, over the connection it registered by.
    """

    def __init__(self, config: NamesrvConfig, clock: Clock, notifier: MinBrokerIdNotifier, probe: Probe) -> None:
        self._config = config
        self._clock = clock
        self._notifier = notifier
        self._probe = probe
        self.answers = EncodedAnswers()
        self.brokers = BrokerTable()
        self.topic_queues = TopicQueueTable(self.answers.forget_topics)
        self.routes = TopicRoutes(config, self.brokers, self.topic_queues, self.answers)

    # -- registration

    def register_broker(self, registration: BrokerRegistration) -> RegisterBrokerResult | None:
        """Apply a registration; return ``None`` for a single topic of a broker that has not registered all topics.

        Raises:
            BrokerResponseError: SYSTEM_ERROR; another broker has the address or the name and id, or a limit is reached.
        """
        broker = registration.broker
        self._check_place(registration)
        known = self.brokers.by_name.get(broker.broker_name)
        held = known.broker_addrs if known is not None else {}
        if broker.broker_id not in held and registration.topics_sent == 1:
            text = "broker %s at %s sent a single topic before its registration"
            log.warning(text, broker.broker_name, shown(broker.broker_addr))
            return None
        leads = self._leads(registration, held)
        self._check_limits(registration, leads=leads)
        self._forget_former_self(registration)
        changed = self.is_broker_topic_config_changed(
            broker.cluster_name, broker.broker_addr, registration.data_version
        )
        first = broker.broker_id not in held
        smallest = min(held, default=MASTER_ID)
        group = self._enter(registration)
        if leads:
            self._take_topics(registration, changed=first or changed)
        if broker.broker_id < smallest:
            self._notifier.smaller_id_came(group, broker.ha_server_addr)
        return self._result(group, registration)

    def _check_place(self, registration: BrokerRegistration) -> None:
        """Reject an address, or a name and id, that another live broker has."""
        broker, now = registration.broker, self._clock.monotonic()
        holder = self.brokers.live.get(broker.broker_addr)
        if holder is not None and not holder.is_on_host_of(registration.connection):
            if not holder.is_gone(now):
                raise self._taken_error(registration, broker.broker_addr, holder)
            self._expire(broker.broker_addr, holder)
        other = self.brokers.holder(broker.broker_name, broker.broker_id)
        if other is not None and (other[0] == broker.broker_addr or other[1].connection is registration.connection):
            other = None
        is_gone = other is not None and other[1].is_gone(now)
        if other is not None and not is_gone and not self._is_elected(registration, other[1]):
            raise self._taken_error(registration, *other)
        self._check_cluster(registration, now)
        if other is not None and is_gone:
            self._expire(*other)

    def _check_cluster(self, registration: BrokerRegistration, now: float) -> None:
        """Reject a broker whose name belongs to a live broker of another cluster; a master displaces such slaves."""
        broker, group = registration.broker, self.brokers.by_name.get(registration.broker.broker_name)
        for address in list(group.broker_addrs.values()) if group is not None else ():
            info = self.brokers.live[address]
            is_itself = address == broker.broker_addr or info.connection is registration.connection
            if info.cluster_name == broker.cluster_name or is_itself or info.is_gone(now):
                continue
            text = (
                f"broker {broker.broker_name} of cluster {broker.cluster_name} at {broker.broker_addr} is rejected: "
                f"{info.broker_name}:{info.broker_id} at {address} is of cluster {info.cluster_name}; give both the "
                "same brokerClusterName, or each its own brokerName"
            )
            log.warning("%s", text)
            if broker.broker_id == MASTER_ID:
                # The slave gets the error at its next registration. Else its mistake would keep the master out.
                info.connection.close(f"the master of {broker.broker_name} is of cluster {broker.cluster_name}")
                self._forget(address)
                continue
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, text)

    def _taken_error(
        self, registration: BrokerRegistration, address: str, holder: BrokerLiveInfo
    ) -> BrokerResponseError:
        """Return the error for a broker whose place is taken, and probe the holder: it may be gone."""
        self._probe(address, holder.connection)
        broker = registration.broker
        text = (
            f"broker {broker.broker_name}:{broker.broker_id} at {broker.broker_addr} is rejected: "
            f"{holder.broker_name}:{holder.broker_id} at {address}, connected from {holder.connection.remote_address}, "
            "has its place; give each broker its own brokerName, brokerId and address. If this one replaces the "
            "other, stop the other first: the place is freed when its connection closes, after a silence of "
            f"{holder.heartbeat_timeout_s:g} s, or at once if it no longer answers"
        )
        log.warning("%s", text)
        return BrokerResponseError(ResponseCode.SYSTEM_ERROR, text)

    def _is_elected(self, registration: BrokerRegistration, master: BrokerLiveInfo) -> bool:
        """Return true if a registered slave of the name takes an id with a newer state, as after an election."""
        info = self.brokers.live.get(registration.broker.broker_addr)
        newer = registration.data_version.state_version > master.data_version.state_version
        return newer and info is not None and info.broker_name == master.broker_name

    def _check_limits(self, registration: BrokerRegistration, *, leads: bool) -> None:
        """Reject what exceeds a limit; a broker rejected only for its topics keeps its old ones."""
        broker, config = registration.broker, self._config
        if broker.broker_addr not in self.brokers.live:
            _check("maxBrokers", len(self.brokers.live) + 1, config.max_brokers, "brokers")
        if not leads:
            return
        held = self.topic_queues.queues_of(broker.broker_name)
        more = len(registration.queues.keys() - held.keys())
        mapped = sum(len(info.curr_id_map) for info in registration.mappings.values())
        try:
            count = len(registration.queues) if self._drops_others(registration) else len(held) + more
            _check("maxTopicsPerBroker", count, config.max_topics_per_broker, f"topics of {broker.broker_name}")
            if more or mapped:
                entries = self.topic_queues.entries() + more + mapped
                _check("maxTopicQueueEntries", entries, config.max_topic_queue_entries, "topics of all brokers")
        except BrokerResponseError:
            self.update_broker_info_update_timestamp(broker.cluster_name, broker.broker_addr, registration.connection)
            raise

    def _forget_former_self(self, registration: BrokerRegistration) -> None:
        """Forget the previous name or cluster of a broker that registers under another one."""
        info = self.brokers.live.get(registration.broker.broker_addr)
        now = (registration.broker.broker_name, registration.broker.cluster_name)
        if info is not None and (info.broker_name, info.cluster_name) != now:
            self._forget(registration.broker.broker_addr)

    def _enter(self, registration: BrokerRegistration) -> BrokerData:
        """Enter the broker into the broker tables, with the time of this registration."""
        broker, timeout_ms = registration.broker, registration.broker.heartbeat_timeout_ms
        former = self.brokers.live.get(broker.broker_addr)
        if former is None:
            log.info("broker %s:%d at %s registered", broker.broker_name, broker.broker_id, shown(broker.broker_addr))
        info = BrokerLiveInfo(
            cluster_name=broker.cluster_name,
            broker_name=broker.broker_name,
            broker_id=broker.broker_id,
            last_update=self._clock.monotonic(),
            heartbeat_timeout_s=DEFAULT_BROKER_EXPIRED_S if timeout_ms is None else timeout_ms / 1000,
            data_version=registration.data_version,
            connection=registration.connection,
            ha_server_addr=broker.ha_server_addr,
            filter_servers=registration.filter_servers,
            registration=registration if registration.digest else None,
        )
        group, changed = self.brokers.enter(broker.broker_addr, info)
        acting = bool(broker.enable_acting_master)
        if changed or group.enable_acting_master != acting or (former and former.filter_servers != info.filter_servers):
            self.answers.forget_topics(self.topic_queues.queues_of(broker.broker_name))
        group.enable_acting_master = acting
        return group

    @staticmethod
    def _leads(registration: BrokerRegistration, held: dict[int, str]) -> bool:
        """Return true for the master, or without a master for the slave with the smallest id: topics come from it."""
        broker = registration.broker
        others = [broker_id for broker_id, address in held.items() if address != broker.broker_addr]
        smallest = min([broker.broker_id, *others])
        return broker.broker_id == MASTER_ID or (
            broker.enable_acting_master is not None and broker.broker_id == smallest
        )

    def _drops_others(self, registration: BrokerRegistration) -> bool:
        return self._config.delete_topic_with_broker_registration and not registration.static_topics_sent

    def _take_topics(self, registration: BrokerRegistration, *, changed: bool) -> None:
        """Swap in the registered topics; those of an unchanged broker stay."""
        name = registration.broker.broker_name
        held = self.topic_queues.queues_of(name)
        if self._drops_others(registration):
            held = {topic: queues for topic, queues in held.items() if topic in registration.queues}
        self.topic_queues.replace(name, {**held, **registration.queues} if changed else {**registration.queues, **held})
        if changed:
            self.topic_queues.map(name, registration.mappings)

    def _result(self, group: BrokerData, registration: BrokerRegistration) -> RegisterBrokerResult:
        address = group.broker_addrs.get(MASTER_ID)
        master = self.brokers.live.get(address) if address is not None else None
        if registration.broker.broker_id == MASTER_ID or master is None:
            return RegisterBrokerResult()
        return RegisterBrokerResult(master.ha_server_addr, address)

    # -- leaving

    def unregister_broker(self, cluster_name: str, broker_addr: str, broker_name: str, connection: Connection) -> None:
        """Forget a broker of a cluster; its topics stay routed while another broker of its name lives.

        Raises:
            BrokerResponseError: NO_PERMISSION; the broker is alive and registered from another host.
        """
        info = self.brokers.live_info(cluster_name, broker_addr)
        if info is None or info.broker_name != broker_name:
            log.info("broker %s at %s unregisters, but was not registered", shown(broker_name), shown(broker_addr))
            return
        if not info.is_on_host_of(connection) and not info.is_gone(self._clock.monotonic()):
            text = (
                f"broker {broker_name} at {broker_addr} is alive and registered from {info.connection.remote_address}: "
                "only that host can unregister it; stop the broker, which unregisters itself"
            )
            log.warning("%s tried to unregister another broker: %s", connection.remote_address, text)
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, text)
        self._forget(broker_addr)

    def _forget(self, broker_addr: str) -> None:
        """Remove the broker at an address from all tables."""
        found = self.brokers.remove(broker_addr)
        if found is None:
            return
        group, broker_id = found
        log.info("broker %s:%d at %s is unregistered", group.broker_name, broker_id, shown(broker_addr))
        self.answers.forget_topics(self.topic_queues.queues_of(group.broker_name))
        if not group.broker_addrs:
            self.topic_queues.delete_broker(group.broker_name)
            return
        if group.enable_acting_master and not self.brokers.has_master(group.broker_name):
            self.wipe_write_perm_of_broker(group.broker_name)
        if broker_id < min(group.broker_addrs):
            self._notifier.smallest_id_left(group, broker_addr)

    def connection_closed(self, connection: Connection) -> None:
        """Forget the brokers that registered over a closed connection."""
        gone = [address for address, info in self.brokers.live.items() if info.connection is connection]
        for address in gone:
            self._forget(address)

    def scan_not_active_broker(self) -> None:
        """Close the connections of brokers that have been silent for too long, and forget the brokers."""
        now = self._clock.monotonic()
        for address, info in list(self.brokers.live.items()):
            if info.expired(now):
                self._expire(address, info)

    def _expire(self, address: str, info: BrokerLiveInfo) -> None:
        info.connection.close(f"the broker at {shown(address)} was silent for {info.heartbeat_timeout_s:g} s")
        self._forget(address)

    # -- liveness and versions

    def data_version(self, cluster_name: str, broker_addr: str) -> DataVersion | None:
        """Return the data version of a broker's last registration."""
        info = self.brokers.live_info(cluster_name, broker_addr)
        return None if info is None else info.data_version

    def is_broker_topic_config_changed(
        self, cluster_name: str, broker_addr: str, data_version: DataVersion | None
    ) -> bool:
        """Return true if a broker's topics differ from its last registration."""
        known = self.data_version(cluster_name, broker_addr)
        return known is None or known != data_version

    def update_broker_info_update_timestamp(self, cluster_name: str, broker_addr: str, connection: Connection) -> None:
        """Renew a broker's time of last heartbeat, if the request comes from its host."""
        info = self.brokers.live_info(cluster_name, broker_addr)
        if info is not None and info.is_on_host_of(connection):
            info.last_update = self._clock.monotonic()

    # -- topics

    def register_topic(self, topic: str, queues: list[QueueData]) -> None:
        """Route a topic to queues; do nothing if one of the brokers is unknown.

        Raises:
            BrokerResponseError: SYSTEM_ERROR; a limit is reached.
        """
        unknown = [data.broker_name for data in queues if data.broker_name not in self.brokers.by_name]
        if unknown:
            text = "topic %s is not registered: %d of its brokers are unknown, such as %s"
            log.warning(text, shown(topic), len(unknown), shown(unknown[0]))
            return
        more = {data.broker_name for data in queues} - self.topic_queues.queues(topic).keys()
        if more:
            entries = self.topic_queues.entries() + len(more)
            _check("maxTopicQueueEntries", entries, self._config.max_topic_queue_entries, "topics of all brokers")
        for name in more:
            count = len(self.topic_queues.queues_of(name)) + 1
            _check("maxTopicsPerBroker", count, self._config.max_topics_per_broker, f"topics of {name}")
        for data in queues:
            self.topic_queues.put(topic, data)

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """Forget a topic, or its queues in one cluster."""
        if cluster_name:
            self.topic_queues.delete(topic, self.brokers.clusters.get(cluster_name, set()))
        else:
            self.topic_queues.delete(topic)

    def wipe_write_perm_of_broker(self, broker_name: str) -> int:
        """Remove the write permission of all topics of a broker; return their number."""
        return self.topic_queues.set_permission(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm_of_broker(self, broker_name: str) -> int:
        """Set read and write permission for all topics of a broker; return their number."""
        return self.topic_queues.set_permission(broker_name, lambda _: PERM_READ_WRITE)

    def topics_by_cluster(self, cluster_name: str) -> list[str]:
        """Return the topics with queues on a broker of the cluster, each once."""
        return self.topic_queues.topics_of(sorted(self.brokers.clusters.get(cluster_name, ())))


def _check(setting: str, value: int, limit: int, what: str) -> None:
    if value > limit:
        text = f"{setting}: {value:,} {what} exceed the limit of {limit:,}; delete some or raise {setting}"
        log.warning("%s", text)
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, text)
