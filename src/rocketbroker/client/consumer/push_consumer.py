"""Consumer that shares the queues of its group (org.apache.rocketmq.client.consumer.DefaultMQPushConsumer)."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Any, Self, Unpack

import msgspec

from rocketbroker.client.consumer.consume_hooks import ConsumeHooks, ConsumeMessageHook, keep_outcome
from rocketbroker.client.consumer.consume_message_service import (
    ConsumeMessageConcurrentlyService,
    ConsumeMessageOrderlyService,
    ConsumeMessageService,
    SendMessageBack,
)
from rocketbroker.client.consumer.consumer_settings import ConsumerOptions, ConsumerSettings
from rocketbroker.client.consumer.group_consumer import GroupConsumer
from rocketbroker.client.consumer.message_listener import Handler, MessageListener
from rocketbroker.client.consumer.process_queue import ProcessQueue
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import ClientStateError
from rocketbroker.client.core.options import Count, Seconds, SecondsFrom0, checked
from rocketbroker.client.core.received_message import Outcome, ReceivedMessage
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.client import CMResult, ConsumeMessageDirectlyResult, ConsumeType, MessageModel
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.common.lifecycle import TaskOwner, stop_all

log = logging.getLogger(__name__)


class LeftMessages:
    """Messages that loops have left without an outcome.

    A loop body that was left by ``break`` acknowledges, one that raised gives the message back. No iterator learns
    which of the two it was, so both wait here until the next loop begins or the consumer is closed.
    """

    def __init__(self) -> None:
        self._messages: list[ReceivedMessage] = []

    def add(self, message: ReceivedMessage) -> None:
        """Keep the message of a loop that was left."""
        self._messages.append(message)

    async def settle(self, error: BaseException | None) -> None:
        """Acknowledge the messages, or give them back because of an exception that is being handled."""
        while self._messages:
            message = self._messages.pop()
            if message.outcome is not None:
                continue
            if error is None:
                await message.ack()
            elif isinstance(error, Exception):
                await message.retry_later()


class MessageIterator:
    """Yields messages; asking for the next one acknowledges the one before.

    Args:
        take: waits for the next message; None ends the loop.
        left: takes the last message of a loop that was left.
    """

    def __init__(self, take: Callable[[], Awaitable[ReceivedMessage | None]], left: LeftMessages) -> None:
        self._take = take
        self._left = left
        self._current: ReceivedMessage | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        current, self._current = self._current, None
        if current is None:
            await self._left.settle(sys.exception())
        elif current.outcome is None:
            await current.ack()
        self._current = await self._take()
        if self._current is None:
            raise StopAsyncIteration
        return self._current

    def __del__(self) -> None:
        if self._current is not None:
            self._left.add(self._current)


_MAX_RECONSUME_TIMES = 16
_INT_MAX = 2**31 - 1


class PushConsumer(GroupConsumer):
    """Receives the messages of its share of the queues, which changes as members of the group join and leave.

    ``async with PushConsumer("group", "127.0.0.1:9876") as consumer: await consumer.subscribe("topic")``, then
    ``async for message in consumer``; or give it a ``handler``. A message whose loop body or handler ends is
    acknowledged; one whose body or handler raises is sent back for a retry.

    Args:
        group: the consumer group.
        config: ``host:port`` of the name servers, joined by ``;``, or a ClientConfig; not needed with ``client``.
        client: an instance to share with others, which its owner starts and stops.
        handler: function of one message; a coroutine function, or a plain one that is called in a thread. It returns
            None or True to acknowledge, False for a retry, or an ``Outcome``; another value counts as a failure.
        concurrency: number of messages that ``handler`` gets at the same time.
        orderly: consume the messages of each queue in order; a failed one suspends its queue.
        max_reconsume_times: retries before a message becomes a dead letter; -1 for 16, or no limit if orderly.
        consume_timeout_s: seconds after which a message counts as failed (consumeTimeout).
        suspend_current_queue_s: seconds before an orderly consumer repeats a failed message.
        stop_timeout_s: seconds that ``close`` waits for handlers.
        hooks: called before each message is consumed.
        options: the settings of ``ConsumerOptions``.

    Raises:
        OptionError: unknown option, or a value that is not allowed.
        HandlerError: the handler cannot be called with one message.
    """

    @checked
    def __init__(  # noqa: PLR0913 - the settings of DefaultMQPushConsumer
        self,
        group: str,
        config: str | ClientConfig = "",
        *,
        client: ClientInstance | None = None,
        handler: Handler | None = None,
        concurrency: Count = 20,
        orderly: bool = False,
        max_reconsume_times: Annotated[int, msgspec.Meta(ge=-1)] = -1,
        consume_timeout_s: Seconds = 900.0,
        suspend_current_queue_s: SecondsFrom0 = 1.0,
        stop_timeout_s: SecondsFrom0 = 10.0,
        hooks: Sequence[ConsumeMessageHook] = (),
        clock: Clock | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        settings = ConsumerSettings(consume_type=ConsumeType.CONSUME_PASSIVELY, orderly=orderly, **options)
        super().__init__(group, config, client, settings, clock)
        self._orderly = orderly
        self._concurrency = concurrency
        self._consume_timeout_s = consume_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._listener: MessageListener | None = None
        if handler is not None:
            self._listener = MessageListener(
                handler,
                concurrency,
                consume_timeout_s,
                self._stats,
                self._clock,
                orderly=orderly,
                hold_pulls=self._queues.hold_pulls,
            )
        self._left = LeftMessages()
        self._service = self._consume_message_service(max_reconsume_times, suspend_current_queue_s)
        self._tasks = TaskOwner("push-consumer")
        self._hooks = ConsumeHooks(self._client, self.group, hooks, self._clock)
        if settings.message_model is MessageModel.CLUSTERING:
            self._queues.subscribe_to_retries(RETRY_GROUP_TOPIC_PREFIX + self.group)

    def _consume_message_service(self, max_reconsume_times: int, suspend_s: float) -> ConsumeMessageService[Any]:
        unlimited = _INT_MAX if self._orderly else _MAX_RECONSUME_TIMES
        times = unlimited if max_reconsume_times < 0 else max_reconsume_times
        send_back = None
        if self._settings.message_model is MessageModel.CLUSTERING:
            send_back = SendMessageBack(self._client, self.group, times)
        group = self._client.namespace.unwrap(self.group)
        if not self._orderly:
            return ConsumeMessageConcurrentlyService(group, self._offsets, send_back, self._clock)
        return ConsumeMessageOrderlyService(
            group, self._offsets, send_back, self._clock, suspend_s, times, self._queues.table.is_locked
        )

    async def start(self) -> None:
        """Start, and take the queues of the topics subscribed to before.

        Raises:
            ClientStateError: the consumer was closed, or the group has a consumer on the same client.
            SubscriptionError, TopicRouteError: as in ``subscribe``.
        """
        await super().start()
        self._hooks.start()
        if self._listener is not None:
            for number in range(self._concurrency):
                self._tasks.start(self._work(self._listener), f"work-{number}")
        else:
            self._tasks.every(min(self._consume_timeout_s, 60.0), self._expire, "expire")

    async def _finish(self) -> None:
        """Wait for handlers."""
        await stop_all(
            lambda: self._left.settle(self._closing_error),
            self._service.close,
            self._wait_for_handlers,
            self._tasks.stop,
            self._service.stop,
            None if self._listener is None else self._listener.stop,
            self._hooks.stop,
        )

    async def _wait_for_handlers(self) -> None:
        if self._listener is None:
            return
        try:
            async with asyncio.timeout(self._stop_timeout_s):
                for held in list(self._queues.table.queues.values()):
                    await held.wait_idle()
        except TimeoutError:
            log.warning("consumer %s stops although handlers run for over %g s", self.group, self._stop_timeout_s)

    def __aiter__(self) -> MessageIterator:
        """Return an iterator over this consumer's messages, which ends when the consumer is closed.

        Asking for the next message acknowledges the one before. The last message of a loop that was left is
        acknowledged by the next loop or by ``close``; it is given back if an exception leaves ``async with``. An
        exception that is caught between the loop and ``async with`` is not seen: call ``retry_later`` there.

        Raises:
            ClientStateError: the consumer is not started, is closed, or has a handler.
        """
        self._check_started()
        if self._listener is not None:
            raise ClientStateError(f"consumer {self.group} has a handler; iterate a consumer without one")
        return MessageIterator(self._take(), self._left)

    def _take(self) -> Callable[[], Awaitable[ReceivedMessage | None]]:
        """Return the function that waits for a message: the service's own unless there is more to do."""
        return self._take_noted if self._hooks or self._client.config.namespace else self._service.take

    async def _take_noted(self) -> ReceivedMessage | None:
        received = await self._service.take()
        if received is not None:
            received.topic = self._client.namespace.unwrap(received.topic)
            self._hooks.call(received)
        return received

    def _put(self, held: ProcessQueue, messages: Iterable[MessageExt]) -> None:
        self._service.put(held, messages)

    async def _work(self, listener: MessageListener) -> None:
        take, threads = self._take(), listener.threads
        while True:
            if threads is not None:
                await threads.wait_free()
            if (message := await take()) is None:
                return
            try:
                await listener.consume(message)
            except Exception:
                # Without its workers, an open consumer would consume nothing.
                log.exception("consumer %s: the consumption of %r failed", self.group, message)
                if message.outcome is None:
                    await message.retry_later()

    async def _expire(self) -> None:
        before = self._clock.monotonic() - self._consume_timeout_s
        await self._service.expire(list(self._queues.table.queues.values()), before)

    async def consume_directly(self, message: MessageExt, broker_name: str) -> ConsumeMessageDirectlyResult:
        """Call the handler with one message and return the result.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if the consumer has no handler.
        """
        if self._listener is None:
            remark = f"consumer {self.group} has no handler: it is read by a loop, which takes no message on request"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
        start = self._clock.monotonic()
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        namespace = self._client.namespace
        received = ReceivedMessage(message, queue, namespace.unwrap(self.group), keep_outcome)
        received.topic = namespace.unwrap(received.topic)
        error = await self._listener.consume(received)
        result = CMResult.CR_SUCCESS if received.outcome is Outcome.ACKNOWLEDGED else CMResult.CR_LATER
        if error is not None:
            result = CMResult.CR_THROW_EXCEPTION
        return ConsumeMessageDirectlyResult(
            order=self._orderly,
            consume_result=result,
            remark=None if error is None else f"{type(error).__name__}: {error}",
            spent_time_mills=round((self._clock.monotonic() - start) * 1000),
        )
