"""Metrics of a broker (org.apache.rocketmq.broker.metrics.BrokerMetricsManager).

Figures are read from the tables and counters of the parts when a page is asked for. Only what no part has is counted on
the way of a message, in ``MessageMeters``.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.message_meters import MessageMeters
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.pop_info import normal_topic
from rocketbroker.codec.message.topic_validator import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    is_system_group,
    is_system_topic,
)
from rocketbroker.codec.remoting.bodies.client import ConsumeType
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.metrics_settings import parse_labels
from rocketbroker.common.histogram import Histogram
from rocketbroker.metrics.consumer_lag import ConsumerLagCalculator, GroupLag
from rocketbroker.metrics.family import Block, Family, Labels, Overflow, Report, Samples, counter, gauge, histogram
from rocketbroker.metrics.health import BrokerHealth
from rocketbroker.metrics.loop_watch import LoopWatch
from rocketbroker.metrics.pop_metrics import PopMetricsManager
from rocketbroker.metrics.proxy_metrics import ProxyMetrics
from rocketbroker.metrics.remoting_metrics import RemotingMetricsManager
from rocketbroker.metrics.replication_metrics import ReplicationMetrics
from rocketbroker.metrics.store_metrics import DefaultStoreMetricsManager

_SCOPE: Final = "broker-meter"
_MODES: Final = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
# Ordinals of MQVersion.Version, in which each release follows its snapshot.
_V4_0_0_SNAPSHOT: Final = 212
_V5_9_9: Final = 611


def version_name(version: int) -> str:
    """Return the name of a client's version as RocketMQ's metrics have it (``v5_5_0``)."""
    if not _V4_0_0_SNAPSHOT <= version <= _V5_9_9:
        return str(version)
    number, is_release = divmod(version - _V4_0_0_SNAPSHOT, 2)
    name = f"v{4 + number // 100}_{number // 10 % 10}_{number % 10}"
    return name if is_release else f"{name}_snapshot"


class WaitingSends(Protocol):
    """The sends that are not acknowledged yet."""

    waiting: int


@dataclass(frozen=True, slots=True)
class BrokerTables:
    """Tables of a broker that metrics read, and its counters."""

    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    producers: ProducerManager
    consumers: ConsumerManager
    stats: BrokerStatsManager
    meters: MessageMeters
    sends: WaitingSends


class BrokerMetricsManager:
    """All metrics of a broker.

    Args:
        config: the switches, and the names in labels.
        tables: what the broker knows.
        lag: lag of groups.
        remoting: times of requests.
        store: the store.
        pop: POP.
        own: metrics that RocketMQ lacks: the event loop, replication and health.
    """

    def __init__(
        self,
        config: BrokerConfig,
        tables: BrokerTables,
        lag: ConsumerLagCalculator,
        remoting: RemotingMetricsManager,
        store: DefaultStoreMetricsManager,
        pop: PopMetricsManager,
        own: "OwnMetrics",
    ) -> None:
        self._config = config
        self._tables = tables
        self._lag = lag
        self._remoting = remoting
        self._store = store
        self._pop = pop
        self._own = own
        self._overflow = Overflow()

    async def report(self) -> Report:
        """Return all metrics; their samples are read when an exporter asks for them."""
        config = self._config
        labels = {
            **parse_labels(config.metrics_label),
            "cluster": config.broker_cluster_name,
            "node_type": "broker",
            "node_id": config.broker_name,
        }
        if config.metrics_in_delta:
            labels["aggregation"] = "delta"
        lags = await self._lag.look() if config.enable_lag_and_dlq_metrics else []
        blocks = [
            Block(_SCOPE, await self._families(lags)),
            Block("", [*await self._store.own(), *self._own_families(lags)]),
        ]
        instance = f"{config.broker_name}_{config.broker_id}"
        return Report(labels, config.metrics_otel_cardinality_limit, blocks, self._overflow, instance)

    async def _families(self, lags: list[GroupLag]) -> list[Family]:
        config = self._config
        found: list[Family] = []
        if self._own.proxy is not None:
            found.append(self._own.proxy.up())
        if config.enable_stats_metrics:
            found += self._stats()
        if config.enable_request_metrics:
            found += [*self._messages(), *self._remoting.creations()]
        if config.enable_connection_metrics:
            found += self._connections()
        if config.enable_lag_and_dlq_metrics:
            found += [*_lag_families(lags), *self._dead_letters()]
        if config.enable_transaction_metrics:
            found += self._transactions()
        if config.enable_remoting_metrics:
            found += self._remoting.rpc()
        if config.enable_message_store_metrics:
            found += await self._store.families()
        if config.enable_pop_metrics:
            found += self._pop.families()
        return found

    def _own_families(self, lags: list[GroupLag]) -> Iterator[Family]:
        yield from self._own.families()
        yield from self._remoting.refusals()
        yield from self._remoting.access()
        yield from self._remoting.tls()
        consumers = self._tables.consumers
        yield counter(
            "rocketbroker_subscription_conflicts_total",
            [({}, consumers.conflict_count)],
            "Times that clients of a group began to disagree about its subscriptions.",
        )
        yield gauge(
            "rocketbroker_consumer_queue_lag_messages",
            _queue_lags(lags),
            "Messages of a queue that a group has not consumed.",
        )

    def _is_system(self, topic: str) -> str:
        config = self._config
        own = (config.broker_name, config.broker_cluster_name)
        return str(is_system_topic(topic) or topic in own).lower()

    def _stats(self) -> Iterator[Family]:
        tables = self._tables
        # RocketMQ's thread pools are not here: only sends wait, for disk or slaves.
        yield gauge("rocketmq_processor_watermark", [({"processor": "send"}, tables.sends.waiting)])
        yield gauge("rocketmq_broker_permission", [({}, self._config.broker_permission)])
        yield gauge("rocketmq_topic_number", [({}, len(tables.topics.topics))])
        yield gauge("rocketmq_consumer_group_number", [({}, len(tables.groups.groups))])

    def _messages(self) -> Iterator[Family]:
        sends = [(key, each) for key, each in self._tables.meters.sends.items() if each.nums]

        def labels(topic: str, kind: str) -> Labels:
            return {"topic": topic, "message_type": kind, "is_system": self._is_system(topic)}

        yield counter("rocketmq_messages_in_total", ((labels(*key), each.nums) for key, each in sends))
        yield counter("rocketmq_throughput_in_total", ((labels(*key), each.size) for key, each in sends))
        sizes = ((labels(*key), each.sizes) for key, each in sends)
        yield histogram("rocketmq_message_size", sizes, "Incoming messages size")
        yield counter("rocketmq_messages_out_total", self._out(is_bytes=False))
        yield counter("rocketmq_throughput_out_total", self._out(is_bytes=True))

    def _out(self, *, is_bytes: bool) -> Samples:
        """Yield what groups got: a series of pulls, and one with ``is_retry`` of pops; then the broker's own reads."""
        retried: Counter[tuple[str, str, str]] = Counter()
        for key, item in list(self._tables.stats.gets.items()):
            topic, _, group = key.partition("@")
            labels = {
                "topic": normal_topic(topic, group),
                "consumer_group": group,
                "is_system": str(is_system_group(group) or is_system_topic(topic)).lower(),
            }
            popped = item.popped_size if is_bytes else item.popped
            if popped and labels["topic"] != topic:
                # A topic has a retry topic for each version of POP.
                retried[labels["topic"], group, labels["is_system"]] += popped
            elif popped:
                yield {**labels, "is_retry": "false"}, popped
            pulled = item.nums - item.popped
            if not pulled or topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)):
                yield None
                continue
            yield labels, item.size - item.popped_size if is_bytes else pulled
        for (topic, group, is_system), number in retried.items():
            yield {"topic": topic, "consumer_group": group, "is_system": is_system, "is_retry": "true"}, number
        for (topic, group), reads in list(self._tables.meters.own_reads.items()):
            labels = {"topic": topic, "consumer_group": group, "is_system": "true"}
            yield labels, reads.size if is_bytes else reads.nums

    def _connections(self) -> Iterator[Family]:
        yield gauge("rocketmq_producer_connections", self._producer_connections())
        yield gauge("rocketmq_consumer_connections", self._consumer_connections())

    def _producer_connections(self) -> Samples:
        found: Counter[tuple[str, str]] = Counter()
        for channels in list(self._tables.producers.groups.values()):
            found.update(map(_client, channels.values()))
            yield None
        for (language, version), number in found.items():
            yield {"language": language, "version": version, "protocol_type": "remoting"}, number

    def _consumer_connections(self) -> Samples:
        for group, info in list(self._tables.consumers.groups.items()):
            clients = Counter(map(_client, info.channels.values()))
            yield None
            for (language, version), number in clients.items():
                labels = {
                    "consumer_group": group,
                    "language": language,
                    "version": version,
                    "consume_mode": _MODES[info.consume_type or ConsumeType.CONSUME_PASSIVELY],
                    "protocol_type": "remoting",
                    "is_system": str(is_system_group(group)).lower(),
                }
                yield labels, number

    def _dead_letters(self) -> Iterator[Family]:
        yield counter("rocketmq_send_to_dlq_messages_total", self._dead_letter_samples())

    def _dead_letter_samples(self) -> Samples:
        for key, item in list(self._tables.stats.dead_letters.items()):
            topic, _, group = key.partition("@")
            labels = {"consumer_group": group, "topic": topic, "is_system": str(is_system_group(group)).lower()}
            yield (labels, item.nums) if item.nums else None

    def _transactions(self) -> Iterator[Family]:
        meters = self._tables.meters
        for name, table in (
            ("rocketmq_commit_messages_total", meters.committed),
            ("rocketmq_rollback_messages_total", meters.rolled_back),
        ):
            yield counter(name, [({"topic": topic}, number) for topic, number in table.items()])
        # RocketMQ's unit: seconds under the name of milliseconds.
        yield histogram(
            "rocketmq_finish_message_latency_milliseconds",
            [({"topic": topic}, times) for topic, times in meters.finish_latency.items()],
            "Transaction finish latency",
        )
        half = [({"topic": topic}, number) for topic, number in meters.half_messages.items()]
        yield gauge("rocketmq_half_messages", half)


class OwnMetrics:
    """Metrics that RocketMQ lacks: the event loop, replication, health and acknowledgements.

    Attributes:
        proxy: those of the gRPC port in this process, ``None`` without one.
    """

    def __init__(
        self,
        loop: LoopWatch,
        replication: ReplicationMetrics,
        health: BrokerHealth,
        acknowledged: Histogram,
        proxy: ProxyMetrics | None = None,
    ) -> None:
        self.proxy = proxy
        self._loop = loop
        self._replication = replication
        self._health = health
        self._acknowledged = acknowledged

    def families(self) -> Iterator[Family]:
        """Yield the metrics."""
        yield from self._loop.families()
        yield from self._replication.families()
        if self.proxy is not None:
            yield from self.proxy.calls()
        yield histogram(
            "rocketbroker_store_to_acknowledge_seconds",
            [({}, self._acknowledged)] if self._acknowledged.count else (),
            "Time from the store of a message to its acknowledgement, of sends that wait for disk or slaves.",
        )
        yield gauge(
            "rocketbroker_ready",
            [({"condition": each.name}, int(each.ok)) for each in self._health.ready()],
            "1 for each condition of /readyz that holds.",
        )


def _client(channel: ClientChannelInfo) -> tuple[str, str]:
    return channel.language.lower(), version_name(channel.version)


def _lag_families(lags: list[GroupLag]) -> Iterator[Family]:
    def of(lag: GroupLag) -> Labels:
        is_system = is_system_group(lag.group) or is_system_topic(lag.topic)
        return {
            "consumer_group": lag.group,
            "topic": lag.topic,
            "is_retry": str(lag.is_retry).lower(),
            "is_system": str(is_system).lower(),
        }

    yield gauge("rocketmq_consumer_lag_messages", ((of(lag), lag.messages) for lag in lags))
    yield gauge("rocketmq_consumer_lag_latency_milliseconds", ((of(lag), lag.latency_ms) for lag in lags))
    yield gauge("rocketmq_consumer_inflight_messages", ((of(lag), lag.inflight) for lag in lags))
    yield gauge("rocketmq_consumer_queueing_latency_milliseconds", ((of(lag), lag.queueing_ms) for lag in lags))
    yield gauge("rocketmq_consumer_ready_messages", ((of(lag), lag.ready) for lag in lags))


def _queue_lags(lags: list[GroupLag]) -> Samples:
    """Yield the lag of each queue that has one: most queues have none, and there may be very many."""
    for lag in lags:
        for queue_id, number in lag.queues.items():
            if not number:
                yield None
                continue
            labels = {"consumer_group": lag.group, "topic": lag.topic, "is_retry": str(lag.is_retry).lower()}
            yield {**labels, "queue_id": str(queue_id)}, number
