"""Progress of groups, rates and times of topics (AdminBrokerProcessor)."""

import logging
import time
from collections.abc import Iterable

from rocketbroker.broker.broker_stats_manager import GROUP_GET_NUMS, TOPIC_PUT_NUMS, BrokerStatsManager
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.codec.remoting.bodies.offset import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import shown
from rocketbroker.processor.support.long_answers import AnswerEncoder, LoopShare
from rocketbroker.processor.support.request_checks import check_known_group, check_known_topic, existing_topic
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_queries import MessageQueries


class GetTopicStatsInfoProcessor:
    """Answers offsets and last store time of each queue, those without messages included, and the rate of puts."""

    def __init__(
        self,
        broker_name: str,
        topics: TopicConfigManager,
        queues: ConsumeQueueStore,
        queries: MessageQueries,
        stats: BrokerStatsManager,
        encoder: AnswerEncoder,
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._queues = queues
        self._queries = queries
        self._stats = stats
        self._encoder = encoder

    async def process(
        self, _connection: Connection, command: RemotingCommand[GetTopicStatsInfoRequestHeader]
    ) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, INVALID_PARAMETER for an illegal name, or SYSTEM_ERROR if the topic
                has too many queues for one answer.
        """
        config = existing_topic(self._topics, command.header.topic)
        topic = config.topic_name
        queue_nums = max(config.read_queue_nums, config.write_queue_nums)
        self._encoder.check(queue_nums)
        table = {}
        share = LoopShare()
        for queue_id in range(queue_nums):
            table[MessageQueue(topic, self._broker_name, queue_id)] = self._queue(topic, queue_id)
            await share.turn()
        put = self._stats.view(TOPIC_PUT_NUMS, topic)
        body = TopicStatsTable(table, put.stats_minute.tps if put else 0.0)
        return response(body=await self._encoder.encode(body, queue_nums))

    def _queue(self, topic: str, queue_id: int) -> TopicOffset:
        end = self._queues.max_offset_in_queue(topic, queue_id)
        last = self._queries.message_store_timestamp(topic, queue_id, end - 1) if end > 0 else 0
        return TopicOffset(self._queues.min_offset_in_queue(topic, queue_id), end, last)


log = logging.getLogger(__name__)


class ConsumeStatsCollector:
    """Compares the offsets of groups with those of queues.

    Args:
        broker_name: name for the message queues.
        topics: the topics, with their numbers of queues.
        offsets: progress of the groups.
        consumers: subscriptions of the groups.
        queues: ends of the queues.
        queries: store times of messages.
        stats: rates.
        encoder: encoder of the answers, with their limit.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - one source for each figure
        self,
        broker_name: str,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
        queues: ConsumeQueueStore,
        queries: MessageQueries,
        stats: BrokerStatsManager,
        encoder: AnswerEncoder,
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._queues = queues
        self._queries = queries
        self._stats = stats
        self._encoder = encoder

    def topics_of(self, group: str) -> list[str]:
        """Return the topics that the group has offsets in, sorted."""
        return sorted(self._offsets.topics_of(group))

    def topics_of_groups(self) -> dict[str, list[str]]:
        """Return all groups that have offsets, with their sorted topics."""
        return {group: sorted(topics) for group, topics in self._offsets.group_topic_map().items()}

    def followed(self, group: str, committed: Iterable[str]) -> list[str]:
        """Return the topics that the group subscribes to; those with ``committed`` offsets while it has no client.

        A new group whose consumers hang has no offsets. RocketMQ leaves its topics out, so that its lag seems to be 0.
        A group that broadcasts keeps its offsets elsewhere.
        """
        info = self._consumers.group_info(group)
        if info is None or not info.subscription_table or info.is_broadcasting:
            return self.subscribed(group, committed)
        return sorted(info.subscription_table)

    def subscribed(self, group: str, topics: Iterable[str]) -> list[str]:
        """Select the topics that the group subscribes to; all while it has no client."""
        info = self._consumers.group_info(group)
        if info is None or not info.subscription_table:
            return list(topics)
        return [topic for topic in topics if topic in info.subscription_table]

    def count_queues(self, topics: Iterable[str]) -> int:
        """Count the queues of those topics that exist."""
        configs = map(self._topics.select, topics)
        return sum(config.read_queue_nums for config in configs if config is not None)

    def check(self, queues: int) -> None:
        """Check that one answer may have ``queues`` queues.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if there are too many.
        """
        self._encoder.check(queues)

    async def encode(self, body: RemotingSerializable, queues: int) -> bytes:
        """Encode statistics of ``queues`` queues."""
        return await self._encoder.encode(body, queues)

    async def offset_table(self, group: str, topic: str, share: LoopShare) -> dict[MessageQueue, OffsetWrapper] | None:
        """Return the queues of a topic as the group sees them, ``None`` if there is no such topic."""
        config = self._topics.select(topic)
        if config is None:
            log.debug("group %s has offsets in topic %s, which does not exist", group, shown(topic))
            return None
        table = {}
        for queue_id in range(config.read_queue_nums):
            table[MessageQueue(topic, self._broker_name, queue_id)] = self._queue(group, topic, queue_id)
            await share.turn()
        return table

    def is_order(self, topic: str) -> bool:
        """Return true if the topic is ordered."""
        return self._topics.is_order_topic(topic)

    def consume_tps(self, group: str, topic: str) -> float:
        """Return the number of messages a second that the group got from the topic in the last minute."""
        got = self._stats.view(GROUP_GET_NUMS, f"{topic}@{group}")
        return got.stats_minute.tps if got else 0.0

    def _queue(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        committed = max(0, self._offsets.query(group, topic, queue_id))
        pulled = self._offsets.query_pull(group, topic, queue_id)
        end = self._queues.max_offset_in_queue(topic, queue_id)
        last = self._queries.message_store_timestamp(topic, queue_id, committed - 1) if committed else 0
        return OffsetWrapper(end, committed, max(committed, pulled), max(0, last))


class GetConsumeStatsProcessor:
    """Answers committed and pulled offsets with the ends of the queues, and the consume rate of the group.

    The topics are those of ``topicList``, else ``topic``, else those to which the group subscribes, or in which it has
    offsets if no client is there. ``topic`` is limited to those to which it subscribes. Missing topics are left out.
    """

    def __init__(self, collector: ConsumeStatsCollector) -> None:
        self._collector = collector

    async def process(self, _connection: Connection, command: RemotingCommand[GetConsumeStatsRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the group or a topic is illegal; SYSTEM_ERROR if the topics have
                too many queues for one answer.
        """
        group = command.header.consumer_group
        check_known_group(group)
        stats = ConsumeStats()
        topics = list(dict.fromkeys(self._topics(command.header)))
        queues = self._collector.count_queues(topics)
        self._collector.check(queues)
        share = LoopShare()
        for topic in topics:
            table = await self._collector.offset_table(group, topic, share)
            await share.turn()
            if table is not None:
                stats.offset_table.update(table)
                stats.consume_tps += self._collector.consume_tps(group, topic)
        return response(body=await self._collector.encode(stats, queues))

    def _topics(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        group = header.consumer_group
        named = [topic for topic in (header.topic_list or "").split(";") if topic.strip()]
        single = [header.topic] if header.topic and header.topic.strip() else []
        for topic in named or single:
            check_known_topic(topic)
        if named or single:
            return named or self._collector.subscribed(group, single)
        return self._collector.followed(group, self._collector.topics_of(group))


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


class QueryConsumeTimeSpanProcessor:
    """Answers times for each queue; ``delayTime`` is the age of the group's next message, 0 without one."""

    def __init__(
        self,
        broker_name: str,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        queues: ConsumeQueueStore,
        queries: MessageQueries,
        clock: Clock,
        encoder: AnswerEncoder,
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._offsets = offsets
        self._queues = queues
        self._queries = queries
        self._clock = clock
        self._encoder = encoder

    async def process(
        self, _connection: Connection, command: RemotingCommand[QueryConsumeTimeSpanRequestHeader]
    ) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, INVALID_PARAMETER for an illegal name, or SYSTEM_ERROR if the topic
                has too many queues for one answer.
        """
        header = command.header
        check_known_group(header.group)
        config = existing_topic(self._topics, header.topic)
        self._encoder.check(config.write_queue_nums)
        spans = []
        share = LoopShare()
        for queue_id in range(config.write_queue_nums):
            spans.append(self._span(header.group, header.topic, queue_id))
            await share.turn()
        return response(body=await self._encoder.encode(QueryConsumeTimeSpanBody(spans), len(spans)))

    def _span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        queues, queries = self._queues, self._queries
        first = queries.earliest_message_time(topic, queue_id)
        end = queues.max_offset_in_queue(topic, queue_id)
        last = queries.message_store_timestamp(topic, queue_id, end - 1)
        offset = max(self._offsets.query(group, topic, queue_id), queues.min_offset_in_queue(topic, queue_id))
        consumed = queries.message_store_timestamp(topic, queue_id, offset - 1) if offset > 0 else first
        waits = self._clock.time_ms() - queries.message_store_timestamp(topic, queue_id, offset) if offset < end else 0
        queue = MessageQueue(topic, self._broker_name, queue_id)
        return QueueTimeSpan(queue, first, last, consumed, waits, _text(first), _text(last), _text(consumed))


def _text(time_ms: int) -> str:
    """Format a local time as ``2026-11-21#10:15:40:019`` (UtilAll.timeMillisToHumanString)."""
    seconds, rest = divmod(time_ms, 1000)
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(seconds))}:{rest:03d}"


_SHOWN = 255


class ViewBrokerStatsDataProcessor:
    """Answers the sums and rates of a counter."""

    def __init__(self, stats: BrokerStatsManager) -> None:
        self._stats = stats

    def process(self, _connection: Connection, command: RemotingCommand[ViewBrokerStatsDataRequestHeader]) -> Command:
        """Answer the request; SYSTEM_ERROR when nothing was counted under that name and key."""
        header = command.header
        data = self._stats.view(header.stats_name, header.stats_key)
        if data is None:
            remark = f"The stats <{header.stats_name[:_SHOWN]}> <{header.stats_key[:_SHOWN]}> not exist"
            return response(ResponseCode.SYSTEM_ERROR, remark)
        return response(body=BrokerStatsData(*(BrokerStatsItem(*window) for window in data)).encode())
