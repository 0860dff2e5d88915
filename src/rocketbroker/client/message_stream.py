"""Messages of many queues, pulled at once and yielded one by one (the pull loop of DefaultLitePullConsumerImpl).

One task for each queue pulls ahead into a bounded buffer: a slow reader stops the pulling, not the other way round.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from rocketbroker.client.consumer.damaged_messages import CLOCK_MARGIN_MS, DamagedMessages
from rocketbroker.client.errors import ClientError, ClientStateError, TopicRouteError
from rocketbroker.client.failure_log import FailureLog
from rocketbroker.client.pull_result import PullResult, PullStatus
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import BrokerResponseError, RemotingError, RocketBrokerError
from rocketbroker.common.lifecycle import TaskOwner, stop_all

log = logging.getLogger(__name__)

# Refusals that pass: the broker is busy, starting, or does not have what the client told it yet.
PASSING_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)

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
    if isinstance(error, BrokerResponseError):
        return error.code in PASSING_CODES
    return isinstance(error, RemotingError | ClientError) and not isinstance(error, ClientStateError)
