"""Pull loop of a queue (DefaultMQPushConsumerImpl.pullMessage)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from rocketbroker.client.consumer.damaged_messages import CLOCK_MARGIN_MS, DamagedMessages, after_a_move
from rocketbroker.client.consumer.flow_control import HeldBytes
from rocketbroker.client.consumer.process_queue import ProcessQueue
from rocketbroker.client.failure_log import FailureLog
from rocketbroker.client.pull_api_wrapper import PullAPIWrapper
from rocketbroker.client.pull_result import PullResult, PullStatus
from rocketbroker.client.queue_offsets import QueueOffsets
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.remoting.bodies.client import SubscriptionData
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import RocketBrokerError

log = logging.getLogger(__name__)

_SUSPEND_TIMEOUT_S = 15.0
# Seconds before a failed pull is repeated.
_RETRY_S = 1.0


class PullMessageService:
    """Pulls queues while there is room for their messages.

    Args:
        pull_api: sends pulls.
        subscriptions: subscriptions by topic.
        held_bytes: waits for room.
        stats: counts pulls.
        clock: source of time.
        batch_size: most messages of a pull (pullBatchSize).
        put: takes the messages of a queue.
        skip: called when the filter skips messages of a queue of which nothing is held.
        damaged_retry_s: seconds for which a damaged message is pulled again before it is skipped.
        offsets: asks the brokers for offsets.
        move: continues queues elsewhere when their offset does not exist, or was reset.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that a pull touches
        self,
        *,
        pull_api: PullAPIWrapper,
        subscriptions: Mapping[str, SubscriptionData],
        held_bytes: HeldBytes,
        stats: ConsumerStats,
        clock: Clock,
        batch_size: int,
        put: Callable[[ProcessQueue, Iterable[MessageExt]], None],
        skip: Callable[[ProcessQueue], None],
        move: Callable[[Mapping[MessageQueue, int]], Awaitable[None]],
        damaged_retry_s: float,
        offsets: QueueOffsets,
    ) -> None:
        self._damaged_retry_s = damaged_retry_s
        self._offsets = offsets
        self._pull_api = pull_api
        self._subscriptions = subscriptions
        self._held_bytes = held_bytes
        self._stats = stats
        self._clock = clock
        self._batch_size = batch_size
        self._put = put
        self._skip = skip
        self._move = move
        self._failures = FailureLog(log)

    async def run(self, held: ProcessQueue) -> None:
        """Pull a queue until it is dropped, or its topic is no longer subscribed to."""
        damaged = DamagedMessages(held.queue, self._damaged_retry_s, self._clock.monotonic)
        taken_ms = self._clock.time_ms()
        while not held.dropped and (subscription := self._subscriptions.get(held.queue.topic)) is not None:
            await self._held_bytes.wait_for_room(held)
            try:
                result = await self._pull(held, subscription)
                if result.pull_status is PullStatus.OFFSET_ILLEGAL:
                    known_ms = held.last_stored_ms or taken_ms - CLOCK_MARGIN_MS
                    offset = await after_a_move(self._offsets, held.queue, held.next_offset, result, known_ms)
            except RocketBrokerError as error:
                self._failures.warning("pulls of %s fail and are repeated every %g s: %s", held.queue, _RETRY_S, error)
                await asyncio.sleep(_RETRY_S)
                continue
            if result.pull_status is PullStatus.OFFSET_ILLEGAL:
                await self._move({held.queue: offset})
            elif not held.dropped:
                before = held.next_offset
                self._accept(held, result)
                if held.next_offset != before and result.messages:
                    damaged.sound()
                if result.damage and damaged.skips(result):
                    held.next_offset += 1
                    if not len(held):
                        self._skip(held)
                elif result.damage:
                    await asyncio.sleep(_RETRY_S)

    async def _pull(self, held: ProcessQueue, subscription: SubscriptionData) -> PullResult:
        start = held.last_pull = self._clock.monotonic()
        result = await self._pull_api.pull(
            held.queue, held.next_offset, self._batch_size, subscription, _SUSPEND_TIMEOUT_S
        )
        if result.messages:
            self._stats.add_pull(held.queue.topic, self._clock.monotonic() - start, len(result.messages))
        return result

    def _accept(self, held: ProcessQueue, result: PullResult) -> None:
        messages = held.put(result.messages)
        held.next_offset = result.next_begin_offset
        if messages:
            self._put(held, messages)
        elif not len(held):
            self._skip(held)
