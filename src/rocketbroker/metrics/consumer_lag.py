"""Lag of groups (org.apache.rocketmq.broker.metrics.ConsumerLagCalculator)."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rocketbroker.broker.client.consumer_group_info import is_tag_type, tag_codes_of
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.pop.pop_queues import PopQueues
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.pop_info import pop_retry_topics
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_estimate import TaggedRange
from rocketbroker.store.read.message_queries import MessageQueries

# Queues looked at before the loop serves others, at some microseconds each.
_AT_A_TIME: Final = 500
# Tags codes of the messages that count, ``None`` if all do.
TagCodes = frozenset[int] | None


@dataclass(slots=True)
class GroupLag:
    """Lag of a group in a topic.

    With ``estimateAccumulation`` messages that a filter by tags leaves out do not count, by a sample of each queue.
    Otherwise, and with a filter by SQL92, all count.

    Attributes:
        is_retry: true for the group's retry topic of POP; ``topic`` is then the topic of its messages.
        messages: stored and not consumed, in queues in which the group has committed an offset, as in RocketMQ.
        inflight: pulled or popped, and not consumed, in the same queues.
        ready: not pulled, in queues from which the group has pulled.
        queues: number of messages that are not consumed, by queue: all messages of a queue without an offset.
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

    def __init__(
        self,
        config: BrokerConfig,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        polling: PopLongPollingService,
    ) -> None:
        self._polling = polling
        self._config = config
        self._groups = groups
        self._consumers = consumers

    async def wake_filtered_pops(self) -> None:
        """Let held pops get past messages that their filters leave out (``enableNotifyBeforePopCalculateLag``)."""
        if self._config.enable_notify_before_pop_calculate_lag:
            await self._polling.wake_filtered()

    def topics(self) -> Iterator[tuple[str, str, TagCodes]]:
        """Yield each group with each of its topics, and the tags codes of the messages that count."""
        estimates = self._config.estimate_accumulation
        if self._config.use_static_subscription:
            for group, config in list(self._groups.groups.items()):
                # A set may name a topic twice; the last counts.
                for topic, named in {each.topic: each for each in config.subscription_data_set or ()}.items():
                    is_estimated = estimates and is_tag_type(named.expression_type)
                    yield group, topic, tag_codes_of(named.expression) if is_estimated else None
            return
        for group, info in list(self._consumers.groups.items()):
            if not info.is_broadcasting:
                for topic, each in list(info.subscription_table.items()):
                    yield group, topic, each.tag_codes if estimates else None


class _Filtered(NamedTuple):
    """Messages of a lag to which a filter applies.

    Attributes:
        is_ready: true if they are not pulled, false for those in flight.
        is_committed: the group has an offset in their queue.
    """

    messages: TaggedRange
    lag: GroupLag
    is_ready: bool
    is_committed: bool


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
        await self._subscriptions.wake_filtered_pops()
        found: list[GroupLag] = []
        # Messages whose age counts, and the lags to which their ages belong.
        oldest: list[tuple[str, int, int]] = []
        ages: list[tuple[GroupLag, bool]] = []
        filtered: list[_Filtered] = []
        looked_at = 0
        for lag, stored_in, queue_nums, tag_codes in self._lags():
            for queue_id in range(queue_nums):
                for offset, is_queueing in self._add_queue(lag, stored_in, queue_id, tag_codes, filtered):
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
        await self._apply_filters(filtered)
        await self._add_ages(oldest, ages)
        return found

    def _lags(self) -> Iterator[tuple[GroupLag, str, int, TagCodes]]:
        """Yield each lag with a topic that stores its messages, the queues of that, and the tags codes wanted.

        The retry topics of both versions of POP are one lag; the group wants all messages in them.
        """
        for group, topic, tag_codes in self._subscriptions.topics():
            if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
                continue
            yield GroupLag(group, topic, False), topic, self._queue_nums(topic), tag_codes
            retried = GroupLag(group, topic, True)
            for retry in pop_retry_topics(topic, group):
                yield retried, retry, self._queue_nums(retry), None

    def _queue_nums(self, topic: str) -> int:
        config = self._topics.select(topic)
        return config.write_queue_nums if config is not None else 0

    def _add_queue(
        self, lag: GroupLag, topic: str, queue_id: int, tag_codes: TagCodes, filtered: list[_Filtered]
    ) -> Iterator[tuple[int, bool]]:
        """Add a queue; yield the offsets of the oldest messages not consumed and, with true, not pulled.

        Messages to which a filter by tags is still to be applied are appended to ``filtered``.

        As in RocketMQ, a queue without a committed offset has no lag but what is popped, and one that was never pulled
        has no ready messages: a group that begins at the end does not lag by all that is stored until its first commit.
        The messages of one that never commits are in ``queues`` alone.
        """
        group, offsets = lag.group, self._offsets
        end = self._queues.max_offset_in_queue(topic, queue_id)
        begin = self._queues.min_offset_in_queue(topic, queue_id)
        committed, pulled = offsets.query(group, topic, queue_id), offsets.query_pull(group, topic, queue_id)
        is_committed, is_pulled = committed >= 0, pulled >= 0
        committed = max(committed, 0)
        popped = self._pops.find(topic, group, queue_id)
        messages = max(end - committed, 0)
        if popped is None:
            pulled = min(max(pulled, committed), max(end, committed)) if is_pulled else end
            inflight = pulled - committed
        else:
            inflight, pulled = popped.in_flight, committed if is_committed else end
            # A pop commits what it takes; that is consumed once it is acknowledged.
            messages += inflight if is_committed else 0
        ready = max(end - pulled, 0)
        if is_committed or popped is not None:
            lag.messages += messages if is_committed else inflight
            lag.inflight += inflight
        lag.ready += ready
        lag.queues[queue_id] = lag.queues.get(queue_id, 0) + messages
        if tag_codes is not None:
            if popped is None and inflight:
                taken = TaggedRange(topic, queue_id, committed, pulled, tag_codes)
                filtered.append(_Filtered(taken, lag, False, is_committed))
            if ready:
                left = TaggedRange(topic, queue_id, pulled, end, tag_codes)
                filtered.append(_Filtered(left, lag, True, is_committed))
        if is_committed and committed < end:
            yield max(committed, begin), False
        if ready:
            yield max(pulled, begin), True
        elif not is_pulled and not lag.is_retry and end > begin == 0:
            yield 0, True  # as in RocketMQ, which reads the time of offset 0

    async def _apply_filters(self, filtered: Sequence[_Filtered]) -> None:
        """Subtract the messages that filters leave out, by an estimate that a thread makes."""
        for first in range(0, len(filtered), _AT_A_TIME):
            some = filtered[first : first + _AT_A_TIME]
            counts = await self._queries.estimate_message_counts([each.messages for each in some])
            for (wanted, lag, is_ready, is_committed), count in zip(some, counts, strict=True):
                left_out = wanted.end - wanted.begin - count
                lag.queues[wanted.queue_id] -= left_out
                if is_committed:
                    lag.messages -= left_out
                if is_ready:
                    lag.ready -= left_out
                elif is_committed:
                    lag.inflight -= left_out

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
