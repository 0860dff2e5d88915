"""Progress of groups, rates and times of topics (AdminBrokerProcessor)."""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass

from rocketbroker.broker.broker_stats_manager import GROUP_GET_NUMS, TOPIC_PUT_NUMS, BrokerStatsManager
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.consumer_order_info_manager import ConsumerOrderInfoManager
from rocketbroker.broker.pop.pop_queues import PopQueues
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.codec.message.pop_info import normal_topic, pop_retry_topics
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
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import shown
from rocketbroker.processor.support.long_answers import AnswerEncoder, LoopShare
from rocketbroker.processor.support.request_checks import check_known_group, check_known_topic, existing_topic
from rocketbroker.processor.support.request_family import answers
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_queries import MessageQueries

log = logging.getLogger(__name__)
_SHOWN = 255


@dataclass(frozen=True, slots=True)
class StatisticsRequests:
    """Requests about progress, rates and times."""

    broker_name: str
    topics: TopicConfigManager
    queues: ConsumeQueueStore
    queries: MessageQueries
    stats: BrokerStatsManager
    encoder: AnswerEncoder
    consumers: ConsumerManager
    config: BrokerConfig
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    pops: PopQueues
    orders: ConsumerOrderInfoManager
    clock: Clock

    @answers(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader)
    async def get_topic_stats_info(
        self, _connection: Connection, command: RemotingCommand[GetTopicStatsInfoRequestHeader]
    ) -> Command:
        """Answer offsets and last store time of each queue, those without messages included, and the rate of puts.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, INVALID_PARAMETER for an illegal name, or SYSTEM_ERROR if the topic
                has too many queues for one answer.
        """
        config = existing_topic(self.topics, command.header.topic)
        topic = config.topic_name
        queue_nums = max(config.read_queue_nums, config.write_queue_nums)
        self.encoder.check(queue_nums)
        table = {}
        share = LoopShare()
        for queue_id in range(queue_nums):
            table[MessageQueue(topic, self.broker_name, queue_id)] = self._queue(topic, queue_id)
            await share.turn()
        put = self.stats.view(TOPIC_PUT_NUMS, topic)
        body = TopicStatsTable(table, put.stats_minute.tps if put else 0.0)
        return response(body=await self.encoder.encode(body, queue_nums))

    def _queue(self, topic: str, queue_id: int) -> TopicOffset:
        end = self.queues.max_offset_in_queue(topic, queue_id)
        last = self.queries.message_store_timestamp(topic, queue_id, end - 1) if end > 0 else 0
        return TopicOffset(self.queues.min_offset_in_queue(topic, queue_id), end, last)

    @answers(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader)
    async def get_consume_stats(
        self, _connection: Connection, command: RemotingCommand[GetConsumeStatsRequestHeader]
    ) -> Command:
        """Answer committed and pulled offsets with the ends of the queues, and the consume rate of the group.

        The topics are those of ``topicList``, else ``topic``, else those to which the group subscribes, or in
        which it has offsets if no client is there. ``topic`` is limited to those to which it subscribes.
        Missing topics are left out.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the group or a topic is illegal; SYSTEM_ERROR if the topics have
                too many queues for one answer.
        """
        group = command.header.consumer_group
        check_known_group(group)
        stats = ConsumeStats()
        topics = list(dict.fromkeys(self._topics(command.header)))
        queues = self._count_queues(topics)
        self.encoder.check(queues)
        share = LoopShare()
        for topic in topics:
            table = await self._offset_table(group, topic, share)
            await share.turn()
            if table is not None:
                stats.offset_table.update(table)
                stats.consume_tps += self._consume_tps(group, topic)
        return response(body=await self.encoder.encode(stats, queues))

    def _topics(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        group = header.consumer_group
        named = [topic for topic in (header.topic_list or "").split(";") if topic.strip()]
        single = [header.topic] if header.topic and header.topic.strip() else []
        for topic in named or single:
            check_known_topic(topic)
        if named or single:
            return named or self._subscribed(group, single)
        return self._followed(group, sorted(self.offsets.topics_of(group)))

    def _followed(self, group: str, committed: Iterable[str]) -> list[str]:
        """Return the topics that the group subscribes to; those with ``committed`` offsets while it has no client.

        A new group whose consumers hang has no offsets. RocketMQ leaves its topics out, so that its lag seems to be 0.
        A group that broadcasts keeps its offsets elsewhere. No client subscribes to the retry topics of POP.
        """
        info = self.consumers.group_info(group)
        if info is None or not info.subscription_table or info.is_broadcasting:
            return self._subscribed(group, committed)
        # A pop commits an offset.
        committed = set(committed)
        popped = {topic for topic in committed if self.consumers.has_popped(group, topic)}
        subscribed = info.subscription_table.keys() | popped
        retries = {name for topic in subscribed for name in pop_retry_topics(topic, group)}
        return sorted(subscribed | retries & committed)

    def _subscribed(self, group: str, topics: Iterable[str]) -> list[str]:
        """Select the topics that the group subscribes to or has popped lately; all while it has no client."""
        info = self.consumers.group_info(group)
        if info is None or not info.subscription_table:
            return list(topics)
        table, has_popped = info.subscription_table, self.consumers.has_popped
        return [topic for topic in topics if topic in table or has_popped(group, normal_topic(topic, group))]

    def _count_queues(self, topics: Iterable[str]) -> int:
        """Count the queues of those topics that exist."""
        configs = map(self.topics.select, topics)
        return sum(config.read_queue_nums for config in configs if config is not None)

    async def _offset_table(self, group: str, topic: str, share: LoopShare) -> dict[MessageQueue, OffsetWrapper] | None:
        """Return the queues of a topic as the group sees them, ``None`` if there is no such topic."""
        config = self.topics.select(topic)
        if config is None:
            log.debug("group %s has offsets in topic %s, which does not exist", group, shown(topic))
            return None
        table = {}
        for queue_id in range(config.read_queue_nums):
            table[MessageQueue(topic, self.broker_name, queue_id)] = self._progress(group, topic, queue_id)
            await share.turn()
        return table

    def _consume_tps(self, group: str, topic: str) -> float:
        """Return the number of messages a second that the group got from the topic in the last minute."""
        got = self.stats.view(GROUP_GET_NUMS, f"{topic}@{group}")
        return got.stats_minute.tps if got else 0.0

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        committed = max(0, self.offsets.query(group, topic, queue_id))
        pulled = self.offsets.query_pull(group, topic, queue_id)
        end = self.queues.max_offset_in_queue(topic, queue_id)
        last = self.queries.message_store_timestamp(topic, queue_id, committed - 1) if committed else 0
        progress = OffsetWrapper(end, committed, max(committed, pulled), max(0, last))
        self._add_pops(progress, group, topic, queue_id)
        return progress

    def _add_pops(self, progress: OffsetWrapper, group: str, topic: str, queue_id: int) -> None:
        """Add the messages in flight of a group that pops; RocketMQ shows none.

        A pop commits the offset after its messages, an ordered one that of the first without an acknowledgement: its
        batch lies behind the offset, with what is acknowledged after a gap.
        """
        popped, where = self.pops.find(topic, group, queue_id), (topic, group, queue_id)
        batch = self.orders.info(*where)
        if popped is None and batch is None:
            return
        committed, returns = progress.consumer_offset, self.orders.next_visible_ms(*where)
        ordered = self.orders.in_flight(*where)
        acknowledged = sum(offset >= committed for offset in self.orders.acknowledged(*where))
        progress.pop_in_flight, progress.pop_revive_time = ordered, returns
        progress.pop_waiting = max(progress.broker_offset - committed - acknowledged - ordered, 0)
        if popped is not None:
            progress.pop_in_flight += popped.in_flight
            times = [each for each in (popped.first_revive_time, returns) if each is not None]
            progress.pop_revive_time = min(times, default=None)
        progress.pull_offset = committed + progress.pop_in_flight

    @answers(RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader)
    async def get_broker_consume_stats(
        self, _connection: Connection, command: RemotingCommand[GetConsumeStatsInBrokerHeader]
    ) -> Command:
        """Answer statistics by topic for each group, and the total lag. With ``isOrder`` only ordered topics.

        Pulled offsets are included; RocketMQ leaves them at 0 here, so that its ``totalInflightDiff`` is
        negative.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if there are too many queues for one answer.
        """
        only_order = command.header.is_order
        body = ConsumeStatsList(broker_addr=join_address(self.config.broker_ip1, self.config.listen_port))
        share = LoopShare()
        topics = {group: sorted(topics) for group, topics in self.offsets.group_topic_map().items()}
        queues = 0
        for group in list(self.groups.groups):
            wanted = self._wanted(group, topics.get(group, ()), only_order=only_order)
            queues += self._count_queues(wanted)
            self.encoder.check(queues)
            stats = await self._stats_of(group, wanted, share)
            await share.turn()
            body.consume_stats_list.append({group: stats})
            for topic in stats:
                body.total_diff += total_diff(topic.offset_table.values())
                body.total_inflight_diff += total_inflight_diff(topic.offset_table.values())
        return response(body=await self.encoder.encode(body, queues))

    def _wanted(self, group: str, topics: Iterable[str], *, only_order: bool) -> list[str]:
        followed = self._followed(group, topics)
        return [topic for topic in followed if self.topics.is_order_topic(topic)] if only_order else followed

    async def _stats_of(self, group: str, topics: Iterable[str], share: LoopShare) -> list[ConsumeStats]:
        found = []
        for topic in topics:
            table = await self._offset_table(group, topic, share)
            if table is not None:
                found.append(ConsumeStats(table, self._consume_tps(group, topic)))
        return found

    @answers(RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanRequestHeader)
    async def query_consume_time_span(
        self, _connection: Connection, command: RemotingCommand[QueryConsumeTimeSpanRequestHeader]
    ) -> Command:
        """Answer times for each queue; ``delayTime`` is the age of the group's next message, 0 without one.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, INVALID_PARAMETER for an illegal name, or SYSTEM_ERROR if the topic
                has too many queues for one answer.
        """
        header = command.header
        check_known_group(header.group)
        config = existing_topic(self.topics, header.topic)
        self.encoder.check(config.write_queue_nums)
        spans = []
        share = LoopShare()
        for queue_id in range(config.write_queue_nums):
            spans.append(self._span(header.group, header.topic, queue_id))
            await share.turn()
        return response(body=await self.encoder.encode(QueryConsumeTimeSpanBody(spans), len(spans)))

    def _span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        queues, queries = self.queues, self.queries
        first = queries.earliest_message_time(topic, queue_id)
        end = queues.max_offset_in_queue(topic, queue_id)
        last = queries.message_store_timestamp(topic, queue_id, end - 1)
        offset = max(self.offsets.query(group, topic, queue_id), queues.min_offset_in_queue(topic, queue_id))
        consumed = queries.message_store_timestamp(topic, queue_id, offset - 1) if offset > 0 else first
        waits = self.clock.time_ms() - queries.message_store_timestamp(topic, queue_id, offset) if offset < end else 0
        queue = MessageQueue(topic, self.broker_name, queue_id)
        return QueueTimeSpan(queue, first, last, consumed, waits, _text(first), _text(last), _text(consumed))

    @answers(RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequestHeader)
    def view_broker_stats_data(
        self, _connection: Connection, command: RemotingCommand[ViewBrokerStatsDataRequestHeader]
    ) -> Command:
        """Answer the sums and rates of a counter. SYSTEM_ERROR when nothing was counted under that name and
        key.
        """
        header = command.header
        data = self.stats.view(header.stats_name, header.stats_key)
        if data is None:
            remark = f"The stats <{header.stats_name[:_SHOWN]}> <{header.stats_key[:_SHOWN]}> not exist"
            return response(ResponseCode.SYSTEM_ERROR, remark)
        return response(body=BrokerStatsData(*(BrokerStatsItem(*window) for window in data)).encode())


def total_diff(queues: Iterable[OffsetWrapper]) -> int:
    """Count messages that are not consumed yet."""
    return sum(queue.broker_offset - queue.consumer_offset for queue in queues)


def total_inflight_diff(queues: Iterable[OffsetWrapper]) -> int:
    """Count messages that are pulled and not consumed yet."""
    return sum(queue.pull_offset - queue.consumer_offset for queue in queues)


def _text(time_ms: int) -> str:
    """Format a local time as ``2026-11-21#10:15:40:019`` (UtilAll.timeMillisToHumanString)."""
    seconds, rest = divmod(time_ms, 1000)
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(seconds))}:{rest:03d}"
