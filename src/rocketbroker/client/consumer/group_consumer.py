"""Common part of the consumers that share the queues of their group."""

import logging
import sys
import threading
import traceback
from abc import abstractmethod
from collections.abc import Iterable, Mapping

from rocketbroker.client.consumer.consumer_settings import ConsumerSettings
from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from rocketbroker.client.consumer.group_queues import GroupQueues
from rocketbroker.client.consumer.offset_store import OffsetStore
from rocketbroker.client.consumer.process_queue import ProcessQueue
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.client_instance import ClientInstance, GroupMember
from rocketbroker.client.core.errors import ClientStateError
from rocketbroker.client.core.options import checked
from rocketbroker.client.core.pull_result import MessageSelector
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.remoting.bodies.client import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.lifecycle import stop_all

log = logging.getLogger(__name__)

_MIB = 1024 * 1024


def running_info(
    properties: dict[str, str],
    queues: GroupQueues,
    offsets: OffsetStore,
    stats: ConsumerStats,
    clock: Clock,
    *,
    with_stacks: bool,
) -> ConsumerRunningInfo:
    """Return the state of a consumer, with the stacks of all threads if wanted."""
    # Adding it turns monotonic times into wall times, in seconds.
    difference = clock.time_ms() / 1000 - clock.monotonic()

    def info(held: ProcessQueue) -> ProcessQueueInfo:
        first, last = held.offset_range
        return ProcessQueueInfo(
            commit_offset=offsets.offsets.get(held.queue, held.commit_offset),
            cached_msg_min_offset=first,
            cached_msg_max_offset=last,
            cached_msg_count=len(held),
            cached_msg_size_in_mib=held.bytes // _MIB,
            locked=queues.table.is_locked(held),
            last_lock_timestamp=round((held.last_lock + difference) * 1000),
            dropped=held.dropped,
            last_pull_timestamp=round((held.last_pull + difference) * 1000),
            last_consume_timestamp=round((held.last_consume + difference) * 1000),
        )

    return ConsumerRunningInfo(
        properties=properties,
        subscription_set=list(queues.subscriptions.by_topic.values()),
        mq_table={queue: info(held) for queue, held in sorted(queues.table.queues.items())},
        status_table=stats.status(),
        jstack=_stacks() if with_stacks else None,
    )


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )


class GroupConsumer(GroupMember):
    """Consumer that gets a share of its group's queues, and answers brokers about it."""

    kind = "consumer"

    def __init__(
        self,
        group: str,
        config: str | ClientConfig,
        client: ClientInstance | None,
        settings: ConsumerSettings,
        clock: Clock | None,
    ) -> None:
        super().__init__(group, config, client)
        self._settings = settings
        self._clock = clock or SystemClock()
        self._start_time_ms = self._clock.time_ms()
        self._closed = False
        self._stats = ConsumerStats(self._clock)
        self._offsets = settings.offsets(self.group, self._client)
        self._queues = GroupQueues(
            client=self._client,
            group=self.group,
            settings=settings,
            offsets=self._offsets,
            stats=self._stats,
            clock=self._clock,
            put=self._put,
            skip=self._skip,
        )

    @abstractmethod
    def _put(self, held: ProcessQueue, messages: Iterable[MessageExt]) -> None:
        """Take pulled messages."""

    def _skip(self, held: ProcessQueue) -> None:
        """Let the offset pass messages that the filter skips."""
        self._offsets.update(held.queue, held.commit_offset)

    @checked
    async def subscribe(self, topic: str, expression: str | MessageSelector = "*") -> None:
        """Subscribe to a topic, or replace its filter.

        A topic that does not exist yet is waited for in the background. Otherwise the start offsets of this consumer's
        queues are known on return, so that messages sent from now on arrive.

        Args:
            topic: the topic.
            expression: ``*``, tags joined by ``||``, or ``MessageSelector.by_sql("a > 5")``.

        Raises:
            InvalidMessageError: invalid topic, or an expression that looks like SQL.
            SubscriptionError: another consumer of the group in this process has the topic with another filter.
            TopicRouteError: the topic does not exist and ``require_topic`` is set.
            BrokerResponseError: the broker cannot apply the filter.
        """
        if self._closed:
            self._check_started()
        await self._queues.subscribe(self._client.namespace.wrap(topic), expression)

    async def unsubscribe(self, topic: str) -> None:
        """Give up the queues of a topic."""
        self._check_started()
        await self._queues.unsubscribe(self._client.namespace.wrap(topic))

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """Queues that this consumer has now, in order."""
        return tuple(sorted(self._queues.table.queues))

    async def start(self) -> None:
        """Start, and take the queues of the topics subscribed to before.

        Raises:
            ClientStateError: the consumer was closed, the group has a consumer on the same client, or another consumer
                has the file of its offsets.
            SubscriptionError, TopicRouteError: as in ``subscribe``.
        """
        if self._closed:
            raise ClientStateError(f"consumer {self.group} was closed; make a new {type(self).__name__}")
        self._offsets.open()
        try:
            self._client.register_consumer(self.group, self)
        except ClientStateError:
            self._offsets.close()
            raise
        try:
            await super().start()
        except BaseException:
            self._client.unregister_consumer(self.group)
            self._offsets.close()
            raise
        try:
            await self._queues.start()
        except BaseException:
            await self.close()
            raise

    def _join(self) -> None:
        self._queues.join()

    async def _leave(self) -> None:
        """Finish what is under way, commit what was consumed, and unregister."""
        self._closed = True
        self._client.unregister_consumer(self.group)
        await stop_all(
            self._queues.stop_pulling,
            self._finish,
            self._queues.stop,
            self._offsets.close,
            lambda: self._client.heartbeats.unregister_consumer(self.group),
        )

    @abstractmethod
    async def _finish(self) -> None:
        """End the consumption of held messages."""

    def rebalance_soon(self) -> None:
        """Rebalance: members have joined or left."""
        self._queues.rebalance_soon()

    def connection_lost(self) -> None:
        """Renew the locks: a broker that restarts has forgotten them."""
        self._queues.connection_lost()

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue queues of a topic at other offsets."""
        log.info("consumer %s: offsets of topic %s are reset", self.group, topic)
        await self._queues.table.move({queue: at for queue, at in offsets.items() if queue.topic == topic})

    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:
        """Return the consumed offsets of a topic."""
        return {queue: at for queue, at in self._offsets.offsets.items() if queue.topic == topic}

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """Return the state of the consumer."""
        properties = {
            "PROP_NAMESERVER_ADDR": ";".join(self._client.name_server.source) + ";",
            "PROP_CONSUME_TYPE": self._settings.consume_type.value,
            "PROP_CONSUMEORDERLY": str(self._settings.locks_queues).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._start_time_ms),
        }
        return running_info(properties, self._queues, self._offsets, self._stats, self._clock, with_stacks=with_stacks)

    @abstractmethod
    async def consume_directly(self, message: MessageExt, broker_name: str) -> ConsumeMessageDirectlyResult:
        """Consume one message on request of an administrator."""
