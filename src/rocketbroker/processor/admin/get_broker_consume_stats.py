"""GET_BROKER_CONSUME_STATS (317): how far all groups are (AdminBrokerProcessor.fetchAllConsumeStatsInBroker)."""

from collections.abc import Iterable

from rocketbroker.broker.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.remoting.bodies.statistics import ConsumeStats, ConsumeStatsList, OffsetWrapper
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.subscription_group import GetConsumeStatsInBrokerHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.common.config import BrokerConfig
from rocketbroker.processor.admin.consume_stats import ConsumeStatsCollector


class GetBrokerConsumeStatsProcessor:
    """Answers statistics by topic for each group, and how much all of them have still to consume.

    Pulled offsets are told too; RocketMQ leaves them at 0 here, so that its ``totalInflightDiff`` is negative.
    """

    def __init__(
        self, config: BrokerConfig, groups: SubscriptionGroupManager, collector: ConsumeStatsCollector
    ) -> None:
        self._config = config
        self._groups = groups
        self._collector = collector

    def process(self, _connection: Connection, command: RemotingCommand[GetConsumeStatsInBrokerHeader]) -> Command:
        """Answer the request; with ``isOrder`` only ordered topics."""
        only_order = command.header.is_order
        body = ConsumeStatsList(broker_addr=f"{self._config.broker_ip1}:{self._config.listen_port}")
        for group in list(self._groups.groups):
            stats = self._stats_of(group, only_order=only_order)
            body.consume_stats_list.append({group: stats})
            for topic in stats:
                body.total_diff += total_diff(topic.offset_table.values())
                body.total_inflight_diff += total_inflight_diff(topic.offset_table.values())
        return response(body=body.encode())

    def _stats_of(self, group: str, *, only_order: bool) -> list[ConsumeStats]:
        collector = self._collector
        found = []
        for topic in collector.subscribed(group, collector.topics_of(group)):
            if only_order and not collector.is_order(topic):
                continue
            table = collector.offset_table(group, topic)
            if table is not None:
                found.append(ConsumeStats(table, collector.consume_tps(group, topic)))
        return found


def total_diff(queues: Iterable[OffsetWrapper]) -> int:
    """Messages that are not consumed yet."""
    return sum(queue.broker_offset - queue.consumer_offset for queue in queues)


def total_inflight_diff(queues: Iterable[OffsetWrapper]) -> int:
    """Messages that are pulled and not consumed yet."""
    return sum(queue.pull_offset - queue.consumer_offset for queue in queues)
