"""Pulls messages (org.apache.rocketmq.client.consumer.DefaultMQPullConsumer, and its loop)."""

import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dis import opname
from enum import Enum
from functools import partial
from typing import Any, Self
from weakref import WeakSet

from rocketbroker.client.consumer.consume_hooks import ConsumeHooks, ConsumeMessageHook
from rocketbroker.client.consumer.pull_api_wrapper import PullAPIWrapper, check_filter
from rocketbroker.client.consumer.pull_message_service import MessageStream, after_a_move
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.client_instance import ClientInstance, GroupMember
from rocketbroker.client.core.errors import BrokerNotFoundError, TopicRouteError
from rocketbroker.client.core.message import check_topic
from rocketbroker.client.core.options import Count, CountFrom0, Seconds, SecondsFrom0, SecondsOrForever, checked
from rocketbroker.client.core.pull_result import MessageSelector, PullResult, selector_of, subscription_data
from rocketbroker.client.core.received_message import Outcome, ReceivedMessage
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.remoting.bodies.client import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.errors import CorruptRecordError, RemotingError
from rocketbroker.common.lifecycle import stop_all


class StartFrom(Enum):
    """Start of an iteration in a queue."""

    COMMITTED = "where the group stopped; for a new group at the first message"
    FIRST = "at the first message"
    LAST = "after the last message"


class _Iteration(AsyncGenerator[MessageExt, None]):
    """Messages of a stream, and the end of the loops over them.

    A loop that was left by ``break`` has consumed its last message, one that raised has not. The second must never pass
    for the first: the message would be lost, also where the program catches the exception and reads on. Only ``_Loop``
    can tell them apart, and it takes what it does not know for an exception: a message then comes again. An iteration
    that is merely dropped waits in ``left`` until the next one, or the close of the consumer, can close it.

    Args:
        messages: the messages.
        accept: counts the last one as consumed.
        left: takes an iteration that was dropped.
    """

    def __init__(
        self, messages: AsyncGenerator[MessageExt, None], accept: Callable[[], None], left: list["_Iteration"]
    ) -> None:
        self._messages = messages
        self._accept = accept
        self._left = left
        self._open = False
        self._failed = False

    def __aiter__(self) -> "_Loop":
        return _Loop(self)

    async def __anext__(self) -> MessageExt:
        self._open, self._failed = True, False
        return await self._messages.__anext__()

    async def asend(self, _value: None) -> MessageExt:
        return await anext(self)

    async def athrow(self, *error: Any) -> MessageExt:
        return await self._messages.athrow(*error)

    async def aclose(self) -> None:
        await self.settle(sys.exception())

    def fail(self) -> None:
        """Note that a loop did not consume its last message."""
        self._failed = True

    async def settle(self, error: BaseException | None) -> None:
        """Close the iteration, which an error has ended or none."""
        self._open = False
        if error is None and not self._failed:
            self._accept()
        await self._messages.aclose()

    def __del__(self) -> None:
        if self._open:
            self._left.append(self)


class _Loop(_Iteration):
    """Iterator of one ``async for``, which alone refers to it and so drops it at its end.

    ``break`` and ``return`` drop it by an instruction that pops it. An exception drops it while the instruction that
    raised is still the current one, and before the exception is visible here.
    """

    def __init__(self, iteration: _Iteration) -> None:
        self._iteration = iteration

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        return await self._iteration.__anext__()

    async def athrow(self, *error: Any) -> MessageExt:
        return await self._iteration.athrow(*error)

    async def aclose(self) -> None:
        await self._iteration.aclose()

    # The iterator alone can tell the two ends apart: a loop closes no iterator, so no method of it is called; and while
    # an exception unwinds the stack, ``sys.exception()`` is still None or an older one, and the frame's line is that of
    # the raise, which may stand on the line of a ``break``. A rule without the instruction would have to take all ends
    # for one: for ``break``, and a message whose body raised would be lost; or for an exception, and each loop that is
    # left would have its last message twice. Any instruction but the two that pop counts as an exception, so that a
    # newer interpreter with other names repeats messages and loses none.
    def __del__(self) -> None:
        frame = sys._getframe(1)
        if opname[frame.f_code.co_code[frame.f_lasti]] not in {"POP_TOP", "POP_ITER"}:
            self._iteration.fail()


class PullConsumer(GroupMember):
    """Pulls from queues that the caller chooses; nothing is shared out among the consumers of a group.

    Args:
        group: the consumer group.
        config: ``host:port`` of the name servers, joined by ``;``, or a ClientConfig; not needed with ``client``.
        client: an instance to share with others, which its owner starts and stops.
        consumer_pull_timeout_s: how long a pull may take on top of the time that the broker may hold it.
        hooks: called with each message. The consumption of a message of ``pull`` ends at once, that of a message of
            ``iterate`` when the next one is asked for, or the consumer is closed.
    """

    kind = "consumer"

    @checked
    def __init__(
        self,
        group: str,
        config: str | ClientConfig = "",
        *,
        client: ClientInstance | None = None,
        consumer_pull_timeout_s: Seconds = 10.0,
        hooks: Sequence[ConsumeMessageHook] = (),
        clock: Clock | None = None,
    ) -> None:
        super().__init__(group, config, client)
        self._pull_api = PullAPIWrapper(self._client, self.group, consumer_pull_timeout_s)
        self._clock = clock or SystemClock()
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._hooks = ConsumeHooks(self._client, self.group, hooks, self._clock)
        # The message that each iteration has given out, if there are hooks.
        self._given_out: dict[MessageStream, ReceivedMessage] = {}
        self._streams: WeakSet[MessageStream] = WeakSet()
        self._left: list[_Iteration] = []

    async def start(self) -> None:
        """Start; each broker learns of the group on first use."""
        await super().start()
        self._hooks.start()

    async def _leave(self) -> None:
        await stop_all(
            lambda: self._settle_left(self._closing_error),
            *(stream.commit for stream in self._streams),
            # An iteration that is still open may be closed later than this.
            lambda: self._hooks.end(self._given_out.values(), Outcome.RETRIED),
            self._hooks.stop,
            lambda: self._client.heartbeats.unregister_consumer(self.group),
        )

    async def fetch_subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that a topic can be read from, in order (fetchSubscribeMessageQueues)."""
        self._check_started()
        topic = self._client.namespace.wrap(topic)
        check_topic(topic)
        return (await self._client.routes.route(topic)).subscribe_queues

    @checked
    async def pull(
        self,
        queue: MessageQueue,
        offset: CountFrom0,
        max_nums: Count = 32,
        *,
        expression: str | MessageSelector = "*",
        suspend_timeout_s: SecondsFrom0 = 0.0,
    ) -> PullResult:
        """Return the messages of a queue from an offset on.

        Args:
            queue: queue to pull from.
            offset: the queue offset of the first message wanted.
            max_nums: at most so many messages; the broker has a limit of its own.
            expression: ``*``, tags joined by ``||``, or ``MessageSelector.by_sql("a > 5")``.
            suspend_timeout_s: how long the broker holds the request while there is no message.

        Raises:
            TopicRouteError, BrokerNotFoundError, NameServerError: no address for the broker.
            BrokerResponseError: it refused.
            RemotingError: it does not answer.
            CorruptRecordError: the first message is damaged; those before a damaged one are returned.
        """
        result = await self._pull(queue, offset, max_nums, selector_of(expression), suspend_timeout_s)
        if result.damage and result.next_begin_offset <= offset:
            raise CorruptRecordError(f"{queue} at {offset}: {result.damage}; pull from {offset + 1} to skip it")
        if self._hooks:
            observed = [self._hooks.begin(message, queue) for message in result.messages]
            self._hooks.end(observed, Outcome.ACKNOWLEDGED)
        return result

    async def _pull(
        self, queue: MessageQueue, offset: int, max_nums: int, selector: MessageSelector, suspend_timeout_s: float
    ) -> PullResult:
        self._check_started()
        subscription = self._subscribe(queue.topic, selector)
        return await self._pull_api.pull(queue, offset, max_nums, subscription, suspend_timeout_s)

    @checked
    def iterate(
        self,
        topic: str,
        *,
        expression: str | MessageSelector = "*",
        start_from: StartFrom = StartFrom.COMMITTED,
        queues: Iterable[MessageQueue] | None = None,
        commit: bool = True,
        max_nums: Count = 32,
        damaged_message_retry_s: SecondsOrForever = 60.0,
    ) -> AsyncGenerator[MessageExt, None]:
        """Yield the messages of all queues of a topic, in order within each queue, without end.

        A message counts as consumed when the next one is asked for, and when the loop is left by ``break``, but not
        when an exception ends the loop, caught or not. Consumed offsets are committed every few seconds and when the
        iteration is closed, so that after a crash some messages come twice and none is lost. An iteration that was left
        is closed by the next one, with the consumer, or at once by ``aclosing``.

        Args:
            topic: the topic.
            expression: ``*``, tags joined by ``||``, or ``MessageSelector.by_sql("a > 5")``.
            start_from: where to start in each queue.
            queues: only these queues of the topic; by default all, new ones included as they appear.
            commit: whether to commit offsets.
            max_nums: how many messages are pulled at once.
            damaged_message_retry_s: seconds for which a message with a wrong checksum is pulled again before it is
                skipped; 0 skips it at once, ``math.inf`` never.

        A topic that does not exist yet is waited for.

        Raises:
            InvalidMessageError: the expression looks like SQL.
            BrokerResponseError: a broker cannot apply the filter, or refuses in another way that waiting does not mend.
        """
        selector = selector_of(expression)
        chosen = None if queues is None else tuple(queues)
        checked = False

        async def find_queues() -> tuple[MessageQueue, ...]:
            nonlocal start_from, checked
            await self._settle_left(sys.exception())  # this iteration may begin where they ended
            try:
                found = await self.fetch_subscribe_queues(topic) if chosen is None else chosen
            except TopicRouteError:
                # A topic created from now on has new messages only.
                start_from = StartFrom.FIRST if start_from is StartFrom.LAST else start_from
                raise
            if not checked:
                checked = True
                # A broker that is away is waited for by the pulls.
                with suppress(RemotingError, BrokerNotFoundError):
                    await check_filter(
                        self._client, self.group, self._subscribe(self._client.namespace.wrap(topic), selector)
                    )
            return found

        stream = MessageStream(
            find_queues=find_queues,
            pull=lambda queue, offset, suspend_timeout_s: self._pull(
                queue, offset, max_nums, selector, suspend_timeout_s
            ),
            start_offset=lambda queue: self._start_offset(queue, start_from),
            commit=self.commit_offset if commit else None,
            after_a_move=partial(after_a_move, self._client.offsets),
            damaged_retry_s=damaged_message_retry_s,
            time_ms=self._clock.time_ms,
        )
        self._streams.add(stream)
        messages = self._observed(stream) if self._hooks else stream.messages()
        return _Iteration(messages, lambda: self._accept(stream), self._left)

    async def _settle_left(self, error: BaseException | None) -> None:
        """Close the iterations that were left; see ``_Iteration``."""
        while self._left:
            await self._left.pop().settle(error)

    def _accept(self, stream: MessageStream) -> None:
        """Count the last message of a stream as consumed."""
        stream.accept()
        if received := self._given_out.get(stream):
            self._hooks.end([received], Outcome.ACKNOWLEDGED)

    async def _observed(self, stream: MessageStream) -> AsyncGenerator[MessageExt, None]:
        """Call the hooks around the consumption of each message."""
        async with aclosing(stream.messages()) as messages:
            async for message in messages:
                received = self._given_out[stream] = self._hooks.begin(message, stream.queue)
                outcome = Outcome.RETRIED
                try:
                    yield message
                    outcome = Outcome.ACKNOWLEDGED
                finally:
                    del self._given_out[stream]
                    self._hooks.end([received], outcome)

    async def committed_offset(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group has committed for a queue, None if there is none (fetchConsumeOffset)."""
        return await self._client.offsets.committed(self.group, queue)

    async def commit_offset(self, queue: MessageQueue, offset: int) -> None:
        """Keep that the group has consumed all messages of a queue before an offset (updateConsumeOffset)."""
        await self._client.offsets.commit(self.group, queue, offset)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset after the last message of a queue."""
        return await self._client.offsets.max_offset(queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message of a queue that is still there."""
        return await self._client.offsets.min_offset(queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message of a queue stored at that time or after it."""
        return await self._client.offsets.search_offset(queue, timestamp_ms)

    async def _start_offset(self, queue: MessageQueue, start_from: StartFrom) -> int:
        if start_from is StartFrom.LAST:
            return await self.max_offset(queue)
        if start_from is StartFrom.COMMITTED:
            committed = await self.committed_offset(queue)
            if committed is not None:
                return committed
        return await self.min_offset(queue)

    def _subscribe(self, topic: str, selector: MessageSelector) -> SubscriptionData:
        known = self._subscriptions.get(topic)
        if known is not None and (known.sub_string, known.expression_type) == (
            selector.expression,
            selector.expression_type,
        ):
            return known
        added = self._subscriptions[topic] = subscription_data(topic, selector, self._clock.time_ms())
        self._join()
        return added

    def _join(self) -> None:
        self._client.heartbeats.register_consumer(
            ConsumerData(
                self.group,
                ConsumeType.CONSUME_ACTIVELY,
                MessageModel.CLUSTERING,
                ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                list(self._subscriptions.values()),
                unit_mode=self._client.config.unit_mode,
            )
        )
