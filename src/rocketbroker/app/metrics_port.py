"""Metrics and health of a broker: what its exporter reads.

Nothing here is imported without an exporter.
"""

from collections.abc import Awaitable
from typing import Protocol

from rocketbroker.app.access_control import AccessControl
from rocketbroker.app.broker_replication import SLAVE, BrokerReplication, BrokerRole
from rocketbroker.app.metrics_service import MetricsService, Source, exporter_of
from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.pop.pop_check_points import PopCheckPoints
from rocketbroker.broker.timer.timer_message_store import TimerMessageStore
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.load import BrokerSettings
from rocketbroker.common.histogram import Histogram
from rocketbroker.metrics.broker_metrics import BrokerMetricsManager, BrokerTables, OwnMetrics
from rocketbroker.metrics.consumer_lag import ConsumerLagCalculator, Subscriptions
from rocketbroker.metrics.family import Report
from rocketbroker.metrics.health import BrokerHealth
from rocketbroker.metrics.loop_watch import BOUNDS_S, LoopWatch
from rocketbroker.metrics.pop_metrics import PopMetricsManager
from rocketbroker.metrics.proxy_metrics import GrpcFigures, ProxyMetrics
from rocketbroker.metrics.remoting_metrics import RemotingMetricsManager
from rocketbroker.metrics.replication_metrics import ReplicationMetrics
from rocketbroker.metrics.store_metrics import DefaultStoreMetricsManager
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.store.clean.disk_watch import MeasureDisk
from rocketbroker.store.message_store import MessageStore
from rocketbroker.transport.access import ProtectedMode
from rocketbroker.transport.remoting_server import RemotingServer


class BrokerParts(Protocol):
    """Parts of a broker that its metrics read; ``BrokerController`` has them."""

    store: MessageStore
    stats: BrokerStatsManager
    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager
    consumer_offsets: ConsumerOffsetManager
    producers: ProducerManager
    consumers: ConsumerManager
    polling: PopLongPollingService
    timer: TimerMessageStore
    replication: BrokerReplication
    health: BrokerHealth

    access: AccessControl | None

    @property
    def grpc_figures(self) -> GrpcFigures | None:
        """Figures of the gRPC port in this process, ``None`` without one."""


class BrokerMetricsPort(MetricsService):
    """The exporter, and what it reads.

    Args:
        settings: all settings.
        broker: the parts of the broker.
        check_points: those of POP.
        fast_failure: sends that wait.
        server: the server whose requests are timed.
        measure_disk: measures the disk of a folder.
        clock: source of the time.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        broker: BrokerParts,
        check_points: PopCheckPoints,
        fast_failure: BrokerFastFailure,
        server: RemotingServer,
        measure_disk: MeasureDisk,
        clock: Clock,
    ) -> None:
        config, store, replication = settings.broker, broker.store, broker.replication
        meters = broker.stats.meters
        assert meters is not None, "they exist while metrics do"
        self._is_serving = False
        self.reading = _Reading(self)
        tables = BrokerTables(
            broker.topic_configs,
            broker.subscription_groups,
            broker.producers,
            broker.consumers,
            broker.stats,
            meters,
            fast_failure,
        )
        lag = ConsumerLagCalculator(
            Subscriptions(config, broker.subscription_groups, broker.consumers, broker.polling),
            broker.consumer_offsets,
            check_points.queues,
            broker.topic_configs,
            store.queues,
            store.queries,
            clock,
        )
        loop_watch, acknowledged = LoopWatch(), Histogram(BOUNDS_S)
        fast_failure.times = acknowledged
        is_slave = BrokerRole(settings.store.broker_role) in SLAVE
        copying = ReplicationMetrics(replication.service, replication.client, clock, is_slave=is_slave)
        self._metrics = BrokerMetricsManager(
            config,
            tables,
            lag,
            RemotingMetricsManager(server, None if broker.access is None else broker.access.guard),
            DefaultStoreMetricsManager(store, broker.timer, meters, clock, measure_disk),
            PopMetricsManager(check_points, meters, clock),
            OwnMetrics(loop_watch, copying, broker.health, acknowledged, _proxy(config, broker.grpc_figures)),
        )
        source = Source(
            self._report,
            broker.health,
            ProtectedMode(settings.transport),
            settings.transport.bind_address,
            clock,
            tls=server.tls,
        )
        super().__init__(exporter_of(config, source), loop_watch, copying)

    def open(self) -> None:
        """Serve metrics from now on: what they read has started."""
        self._is_serving = True

    async def close(self) -> None:
        """Export a last time; there are no metrics after it."""
        try:
            await self.finish()
        finally:
            self._is_serving = False

    def _report(self) -> Awaitable[Report] | None:
        return self._metrics.report() if self._is_serving else None


class _Reading:
    """Time in which the parts that metrics read are running, so that requests are counted to the last.

    The port itself starts before those parts and stops after them, for its probes.
    """

    def __init__(self, port: BrokerMetricsPort) -> None:
        self._port = port

    async def start(self) -> None:
        self._port.open()

    async def stop(self) -> None:
        await self._port.close()


def _proxy(config: BrokerConfig, grpc: GrpcFigures | None) -> ProxyMetrics | None:
    if grpc is None:
        return None
    grpc.calls = {}
    names = {"cluster": config.broker_cluster_name, "node_id": config.broker_name, "proxy_mode": "local"}
    return ProxyMetrics(names, grpc)
