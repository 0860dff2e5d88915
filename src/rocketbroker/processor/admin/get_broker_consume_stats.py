"""GET_BROKER_CONSUME_STATS (317): progress of all groups (AdminBrokerProcessor.fetchAllConsumeStatsInBroker)."""

from collections.abc import Iterable

from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.codec.remoting.bodies.offset import ConsumeStats, ConsumeStatsList, OffsetWrapper
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import GetConsumeStatsInBrokerHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.common.config import BrokerConfig
from rocketbroker.processor.admin.consume_stats import ConsumeStatsCollector
from rocketbroker.processor.support.loop_share import LoopShare


class GetBrokerConsumeStatsProcessor:
    """Answers statistics by topic for each group, and the total lag.

    Pulled offsets are included; RocketMQ leaves them at 0 here, so that its ``totalInflightDiff`` is negative.
    """

    def __init__(
        self, config: BrokerConfig, groups: SubscriptionGroupManager, collector: ConsumeStatsCollector
    ) -> None:
        self._config = config
        self._groups = groups
        self._collector = collector

    async def process(
        self, _connection: Connection, command: RemotingCommand[GetConsumeStatsInBrokerHeader]
    ) -> Command:
        """Answer the request; with ``isOrder`` only ordered topics.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if there are too many queues for one answer.
        """
        only_order = command.header.is_order
        body = ConsumeStatsList(broker_addr=join_address(self._config.broker_ip1, self._config.listen_port))
        share = LoopShare()
        topics = self._collector.topics_of_groups()
        queues = 0
        for group in list(self._groups.groups):
            wanted = self._wanted(group, topics.get(group, ()), only_order=only_order)
            queues += self._collector.count_queues(wanted)
            self._collector.check(queues)
            stats = await self._stats_of(group, wanted, share)
            await share.turn()
            body.consume_stats_list.append({group: stats})
            for topic in stats:
                body.total_diff += total_diff(topic.offset_table.values())
                body.total_inflight_diff += total_inflight_diff(topic.offset_table.values())
        return response(body=await self._collector.encode(body, queues))

    def _wanted(self, group: str, topics: Iterable[str], *, only_order: bool) -> list[str]:
        collector = self._collector
        followed = collector.followed(group, topics)
        return [topic for topic in followed if collector.is_order(topic)] if only_order else followed

    async def _stats_of(self, group: str, topics: Iterable[str], share: LoopShare) -> list[ConsumeStats]:
        collector = self._collector
        found = []
        for topic in topics:
            table = await collector.offset_table(group, topic, share)
            if table is not None:
                found.append(ConsumeStats(table, collector.consume_tps(group, topic)))
        return found


def total_diff(queues: Iterable[OffsetWrapper]) -> int:
    """Count messages that are not consumed yet."""
    return sum(queue.broker_offset - queue.consumer_offset for queue in queues)


def total_inflight_diff(queues: Iterable[OffsetWrapper]) -> int:
    """Count messages that are pulled and not consumed yet."""
    return sum(queue.pull_offset - queue.consumer_offset for queue in queues)
