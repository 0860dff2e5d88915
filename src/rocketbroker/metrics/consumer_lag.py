"""Lag of groups (org.apache.rocketmq.broker.metrics.ConsumerLagCalculator)."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.pop.pop_queues import PopQueues
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.pop_info import pop_retry_topics
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_queries import MessageQueries

# Queues looked at before the loop serves others, at some microseconds each.
_AT_A_TIME: Final = 500


@dataclass(slots=True)
class GroupLag:
    """Lag of a group in a topic, all its messages counted: those that a filter leaves out too.

    Attributes:
        is_retry: true for the group's retry topic of POP; ``topic`` is then the topic of its messages.
        messages: stored and not consumed.
        inflight: pulled or popped, and not consumed.
        ready: not pulled.
        queues: number of messages that are not consumed, by queue.
        latency_ms: age of the oldest message that is not consumed.
        queueing_ms: age of the oldest that is not pulled.
    """

    group: str
    topic: str
    is_retry: bool
    messages: int = 0
    inflight: int = 0
    ready: int = 0
    queues: dict[int, int] = field(default_factory=dict)
    latency_ms: int = 0
    queueing_ms: int = 0


class Subscriptions:
    """The groups that have a lag, and their topics.

    Those are the groups that are online: groups that broadcast keep their offsets elsewhere, and are left out. With
    ``useStaticSubscription`` they are the groups whose settings name their topics, online or not.
    """

    def __init__(self, config: BrokerConfig, groups: SubscriptionGroupManager, consumers: ConsumerManager) -> None:
        self._config = config
        self._groups = groups
        self._consumers = consumers

    def topics(self) -> Iterator[tuple[str, list[str]]]:
        """Yield groups and their topics."""
        if self._config.use_static_subscription:
            for group, config in list(self._groups.groups.items()):
                if config.subscription_data_set:
                    yield group, sorted({each.topic for each in config.subscription_data_set})
            return
        for group, info in list(self._consumers.groups.items()):
            if not info.is_broadcasting:
                yield group, list(info.subscription_table)


class ConsumerLagCalculator:
    """Looks at the offsets of groups."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        offsets: ConsumerOffsetManager,
        pops: PopQueues,
        topics: TopicConfigManager,
        queues: ConsumeQueueStore,
        queries: MessageQueries,
        clock: Clock,
    ) -> None:
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._pops = pops
        self._topics = topics
        self._queues = queues
        self._queries = queries
        self._clock = clock

    async def look(self) -> list[GroupLag]:
        """Return the lag of each group in each of its topics; others run in between."""
        found: list[GroupLag] = []
        # Messages whose age counts, and the lags to which their ages belong.
        oldest: list[tuple[str, int, int]] = []
        ages: list[tuple[GroupLag, bool]] = []
        looked_at = 0
        for lag, stored_in, queue_nums in self._lags():
            for queue_id in range(queue_nums):
                for offset, is_queueing in self._add_queue(lag, stored_in, queue_id):
                    oldest.append((stored_in, queue_id, offset))
                    ages.append((lag, is_queueing))
                looked_at += 1
                if not looked_at % _AT_A_TIME:
                    await asyncio.sleep(0)
            looked_at += 1
            if not looked_at % _AT_A_TIME:
                await asyncio.sleep(0)
            if queue_nums and (not found or found[-1] is not lag):
                found.append(lag)
        await self._add_ages(oldest, ages)
        return found

    def _lags(self) -> Iterator[tuple[GroupLag, str, int]]:
        """Yield each lag with a topic that stores its messages, and the queues of that.

        The retry topics of both versions of POP are one lag.
        """
        for group, topics in self._subscriptions.topics():
            for topic in topics:
                if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
                    continue
                yield GroupLag(group, topic, False), topic, self._queue_nums(topic)
                retried = GroupLag(group, topic, True)
                for retry in pop_retry_topics(topic, group):
                    yield retried, retry, self._queue_nums(retry)

    def _queue_nums(self, topic: str) -> int:
        config = self._topics.select(topic)
        return config.write_queue_nums if config is not None else 0

    def _add_queue(self, lag: GroupLag, topic: str, queue_id: int) -> Iterator[tuple[int, bool]]:
        """Add a queue; yield the offsets of the oldest messages not consumed and, with true, not pulled."""
        group, offsets = lag.group, self._offsets
        end = self._queues.max_offset_in_queue(topic, queue_id)
        committed = max(offsets.query(group, topic, queue_id), 0)
        popped = self._pops.find(topic, group, queue_id)
        if popped is not None:
            # A pop commits what it takes; that is consumed once it is acknowledged.
            inflight, pulled = popped.in_flight, committed
            messages = max(end - committed, 0) + inflight
        else:
            pulled = min(max(offsets.query_pull(group, topic, queue_id), committed), max(end, committed))
            inflight, messages = pulled - committed, max(end - committed, 0)
        ready = max(end - pulled, 0)
        lag.messages += messages
        lag.inflight += inflight
        lag.ready += ready
        lag.queues[queue_id] = lag.queues.get(queue_id, 0) + messages
        begin = self._queues.min_offset_in_queue(topic, queue_id)
        if committed < end:
            yield max(committed, begin), False
        if ready:
            yield max(pulled, begin), True

    async def _add_ages(self, places: Sequence[tuple[str, int, int]], ages: Sequence[tuple[GroupLag, bool]]) -> None:
        """Set the age of the oldest messages, which a thread reads."""
        if not places:
            return
        now = self._clock.time_ms()
        for first in range(0, len(places), _AT_A_TIME):
            times = await self._queries.store_timestamps(places[first : first + _AT_A_TIME])
            for stored_ms, (lag, is_queueing) in zip(times, ages[first : first + _AT_A_TIME], strict=True):
                age_ms = max(now - stored_ms, 0) if stored_ms >= 0 else 0
                if is_queueing:
                    lag.queueing_ms = max(lag.queueing_ms, age_ms)
                else:
                    lag.latency_ms = max(lag.latency_ms, age_ms)
