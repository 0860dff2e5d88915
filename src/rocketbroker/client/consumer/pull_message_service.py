"""Pull loops: of the queues of a group's member, and of an iteration (DefaultMQPushConsumerImpl.pullMessage)."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence

from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from rocketbroker.client.consumer.process_queue import HeldBytes, ProcessQueue
from rocketbroker.client.consumer.pull_api_wrapper import PullAPIWrapper
from rocketbroker.client.core.errors import BrokerAnswerError, ClientError, ClientStateError, TopicRouteError
from rocketbroker.client.core.pull_result import PullResult, PullStatus
from rocketbroker.client.core.requests import FailureLog, QueueOffsets
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.remoting.bodies.client import SubscriptionData
from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.errors import RemotingError, RocketBrokerError
from rocketbroker.common.lifecycle import TaskOwner, stop_all

log = logging.getLogger(__name__)

#: Difference that the clocks of client and broker may have, where no message of a queue was pulled.
CLOCK_MARGIN_MS = 10_000
# Seconds between two lines about one queue.
_REMIND_S = 60.0


class DamagedMessages:
    """Retries and skips the damaged messages of one queue.

    Damage may pass: a broker fails over to one with a sound copy, or a record was read while it was being mended. So it
    is pulled again for a while. Later messages then matter more than one that nobody can read: it is skipped, as are
    those that follow it at once. Otherwise a damaged page would hold up its queue for a minute a message.

    Args:
        queue: the queue.
        retry_s: seconds for which the first damaged message in a row is pulled again.
        monotonic: seconds of a clock that never goes back.
    """

    def __init__(self, queue: MessageQueue, retry_s: float, monotonic: Callable[[], float]) -> None:
        self._queue = queue
        self._retry_s = retry_s
        self._monotonic = monotonic
        self._since: float | None = None
        self._logged_at = float("-inf")
        self._skipped = 0

    def sound(self) -> None:
        """Note that the next message could be read."""
        if self._skipped:
            log.error("%s: %d damaged messages were skipped; the next one is sound", self._queue, self._skipped)
        self._since, self._logged_at, self._skipped = None, float("-inf"), 0

    def skips(self, result: PullResult) -> bool:
        """Return true if the damaged message at the offset of the next pull is to be skipped; log it each minute."""
        now = self._monotonic()
        if self._since is None:
            self._since = now
        skip = now - self._since >= self._retry_s
        self._skipped += skip
        if now - self._logged_at >= _REMIND_S:
            self._logged_at = now
            done = "skipped" if skip else f"pulled again, for {self._retry_s:g} s (damaged_message_retry_s)"
            text = "%s: the message at %d is damaged and %s: %s; see mqstore check at the broker"
            log.error(text, self._queue, result.next_begin_offset, done, result.damage)
        return skip


async def after_a_move(
    offsets: QueueOffsets, queue: MessageQueue, offset: int, result: PullResult, known_ms: int
) -> int:
    """Return where to continue a queue that does not have an offset; log the move.

    A queue that ends below it belongs to a topic that was deleted and made again, or has lost its last messages.
    All messages of the former are new, and those of the latter were consumed. They differ in their store times: the
    queue is new if its first message is younger than what the consumer knew of the old one.

    Args:
        offsets: asks the brokers.
        queue: the queue.
        offset: the offset that does not exist.
        result: the answer to the pull at it.
        known_ms: store time of the last message that was pulled, or time at which the queue was taken.

    Raises:
        RocketBrokerError: a broker does not answer.
    """
    begin, end = result.min_offset, result.max_offset
    if end < offset and await offsets.search_offset(queue, known_ms + 1) <= begin:
        log.warning(
            "%s ends at %d, below %d, and its messages are new: its topic was made again; it is consumed from its "
            "beginning, %d",
            queue,
            end,
            offset,
            begin,
        )
        return begin
    log.warning("%s continues at %d instead of %d, which does not exist", queue, result.next_begin_offset, offset)
    return result.next_begin_offset


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
            start = held.last_pull = self._clock.monotonic()
            try:
                result = await self._pull_api.pull(
                    held.queue, held.next_offset, self._batch_size, subscription, _SUSPEND_TIMEOUT_S
                )
                if result.messages:
                    self._stats.add_pull(held.queue.topic, self._clock.monotonic() - start, len(result.messages))
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
                # Else the queue was given up or moved while the broker held the pull. What came then belongs to its
                # next owner, who starts at the group's offset. Nothing is awaited from this look to the end of the put.
                before = held.next_offset
                messages = held.put(result.messages)
                held.next_offset = result.next_begin_offset
                if messages:
                    self._put(held, messages)
                elif not len(held):
                    self._skip(held)  # else the offset waits for what is held
                if held.next_offset != before and result.messages:
                    damaged.sound()
                if result.damage and damaged.skips(result):
                    held.next_offset += 1
                    if not len(held):
                        self._skip(held)
                elif result.damage:
                    await asyncio.sleep(_RETRY_S)


# Messages of many queues, pulled at once and yielded one by one (the pull loop of DefaultLitePullConsumerImpl).
#
# One task for each queue pulls ahead into a bounded buffer: a slow reader stops the pulling, not the other way round.


Batch = tuple[MessageQueue, list[MessageExt], int]


class MessageStream:
    """Messages of some queues, until it is closed.

    Args:
        find_queues: gives the queues; asked again and again, since topics grow. TopicRouteError is waited out.
        pull: pulls from a queue at an offset; the broker may hold it for the seconds given.
        start_offset: gives the first offset of a queue.
        commit: keeps that all before an offset was consumed; None to keep nothing.
        suspend_timeout_s: how long the broker may hold a pull.
        retry_delay_s: how long to wait after a failed pull (pullTimeDelayMillsWhenException).
        commit_interval_s: how often to commit (autoCommitIntervalMillis).
        rescan_interval_s: how often to ask for queues.
        after_a_move: returns where to continue after an offset that does not exist.
        damaged_retry_s: how long a damaged message is pulled again before it is skipped.
        time_ms: wall clock.
        buffered_batches: how many pull results may wait for the reader.

    Attributes:
        queue: queue of the message that was yielded last.
    """

    queue: MessageQueue

    def __init__(  # noqa: PLR0913 - the settings of DefaultLitePullConsumer
        self,
        *,
        find_queues: Callable[[], Awaitable[Sequence[MessageQueue]]],
        pull: Callable[[MessageQueue, int, float], Awaitable[PullResult]],
        start_offset: Callable[[MessageQueue], Awaitable[int]],
        commit: Callable[[MessageQueue, int], Awaitable[None]] | None = None,
        suspend_timeout_s: float = 20.0,
        retry_delay_s: float = 1.0,
        commit_interval_s: float = 5.0,
        rescan_interval_s: float = 30.0,
        buffered_batches: int = 16,
        after_a_move: Callable[[MessageQueue, int, PullResult, int], Awaitable[int]] | None = None,
        damaged_retry_s: float = 60.0,
        time_ms: Callable[[], int] | None = None,
    ) -> None:
        self._after_a_move = after_a_move or _as_told
        self._damaged_retry_s = damaged_retry_s
        self._time_ms = time_ms or SystemClock().time_ms
        self._find_queues = find_queues
        self._pull = pull
        self._start_offset = start_offset
        self._commit = commit
        self._suspend_timeout_s = suspend_timeout_s
        self._retry_delay_s = retry_delay_s
        self._commit_interval_s = commit_interval_s
        self._rescan_interval_s = rescan_interval_s
        self._buffer: asyncio.Queue[Batch | RocketBrokerError] = asyncio.Queue(buffered_batches)
        # Offset after the message that was yielded last, None once the next one was asked for.
        self._given_out: int | None = None
        self._pulled: set[MessageQueue] = set()
        self._consumed: dict[MessageQueue, int] = {}
        self._committed: dict[MessageQueue, int] = {}
        self._failures = FailureLog(log)
        self._tasks = TaskOwner("message-stream")

    async def messages(self) -> AsyncGenerator[MessageExt, None]:
        """Yield the messages; an error that waiting does not mend ends it."""
        await self._first_scan()
        self._tasks.every(self._rescan_interval_s, self._rescan, "rescan")
        if self._commit is not None:
            self._tasks.every(self._commit_interval_s, self.commit, "commit")
        try:
            while True:
                batch = await self._buffer.get()
                if isinstance(batch, RocketBrokerError):
                    raise batch
                queue, messages, next_offset = batch
                self.queue = queue
                for message in messages:
                    self._given_out = following = message.queue_offset + 1
                    yield message
                    self._consumed[queue] = following
                self._given_out = None
                self._consumed[queue] = next_offset
        finally:
            await stop_all(self._tasks.stop, self.commit)

    def accept(self) -> None:
        """Count the message that was yielded last as consumed."""
        if self._given_out is not None:
            self._consumed[self.queue] = self._given_out

    async def commit(self) -> None:
        """Commit what was consumed since the last commit; a failure is logged and tried again at the next time."""
        if self._commit is None:
            return
        for queue, offset in list(self._consumed.items()):
            if self._committed.get(queue) == offset:
                continue
            try:
                await self._commit(queue, offset)
                self._committed[queue] = offset
            except RocketBrokerError as error:
                self._failures.warning("commit of offset %d of %s failed: %s", offset, queue, error)

    async def _first_scan(self) -> None:
        """Find the queues; wait for a topic that does not exist yet."""
        waiting = False
        while True:
            try:
                return await self._rescan()
            except TopicRouteError as error:
                if not waiting:
                    log.warning("%s; waiting until the topic exists", error)
                waiting = True
            await asyncio.sleep(self._retry_delay_s)

    async def _rescan(self) -> None:
        for queue in await self._find_queues():
            if queue not in self._pulled:
                self._pulled.add(queue)
                self._tasks.start(self._pull_queue(queue), f"pull-{queue.broker_name}-{queue.queue_id}")

    async def _pull_queue(self, queue: MessageQueue) -> None:
        offset: int | None = None
        known_ms = self._time_ms() - CLOCK_MARGIN_MS
        damaged = DamagedMessages(queue, self._damaged_retry_s, time.monotonic)
        while True:
            try:
                if offset is None:
                    offset = await self._start_offset(queue)
                result = await self._pull(queue, offset, self._suspend_timeout_s)
                following = result.next_begin_offset
                if result.pull_status is PullStatus.OFFSET_ILLEGAL:
                    following = await self._after_a_move(queue, offset, result, known_ms)
            except RocketBrokerError as error:
                if not passes(error):
                    await self._buffer.put(error)
                    return
                delay_s = self._retry_delay_s
                self._failures.warning("pulls of %s fail and are repeated every %g s: %s", queue, delay_s, error)
                await asyncio.sleep(self._retry_delay_s)
                continue
            if result.messages:
                known_ms = result.messages[-1].store_timestamp
                damaged.sound()
            skips = bool(result.damage) and damaged.skips(result)
            following += skips
            if result.messages or following != offset:
                await self._buffer.put((queue, result.messages, following))
            offset = following
            if result.damage and not skips:
                await asyncio.sleep(self._retry_delay_s)


async def _as_told(_queue: MessageQueue, _offset: int, result: PullResult, _known_ms: int) -> int:
    return result.next_begin_offset


def passes(error: RocketBrokerError) -> bool:
    """Return true if a failed pull may succeed a little later."""
    if isinstance(error, BrokerAnswerError):
        return error.retriable
    return isinstance(error, RemotingError | ClientError) and not isinstance(error, ClientStateError)
