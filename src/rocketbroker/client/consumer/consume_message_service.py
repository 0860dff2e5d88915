"""Consumption of held messages: the order in which they are given out, and what follows from their outcome.

``ConsumeMessageConcurrentlyService`` gives them out as they arrive, ``ConsumeMessageOrderlyService`` one at a time for
each queue (org.apache.rocketmq.client.impl.consumer).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from typing import Generic, TypeVar

from rocketbroker.client.consumer.offset_store import OffsetStore
from rocketbroker.client.consumer.process_queue import ProcessQueue
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.received_message import DEAD_LETTER_LEVEL, Outcome, ReceivedMessage, Settle
from rocketbroker.client.core.requests import check_success, client_request
from rocketbroker.codec.message.message_const import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
)
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.message.topic_validator import AUTO_CREATE_TOPIC_KEY_TOPIC, RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.headers.message import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.common.lifecycle import TaskOwner

log = logging.getLogger(__name__)

# Level of the first retry, 10 s by default.
_FIRST_RETRY_LEVEL = 3


class SendMessageBack:
    """Gives messages of one group back: by CONSUMER_SEND_MSG_BACK, else as a copy sent to the retry topic.

    Args:
        client: connections and routes.
        group: the consumer group.
        max_reconsume_times: retries before a message becomes a dead letter.
    """

    def __init__(self, client: ClientInstance, group: str, max_reconsume_times: int) -> None:
        self._client = client
        self._group = group
        self._max_reconsume_times = max_reconsume_times

    async def send_back(self, queue: MessageQueue, message: MessageExt, delay_level: int) -> bool:
        """Give a message back; return false after logging if the broker takes it in neither way.

        Args:
            queue: the queue it was pulled from.
            message: the message.
            delay_level: level of the retry; 0 lets it grow with each retry, -1 makes a dead letter.
        """
        try:
            await self._by_offset(queue, message, delay_level)
        except RocketBrokerError as error:
            log.info("message %s of group %s: %s; sending a copy", message.offset_msg_id, self._group, error)
        else:
            return True
        try:
            await self._as_copy(queue, message, delay_level)
        except RocketBrokerError as error:
            log.warning("message %s of group %s was not sent back: %s", message.offset_msg_id, self._group, error)
            return False
        return True

    async def _by_offset(self, queue: MessageQueue, message: MessageExt, delay_level: int) -> None:
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.commit_log_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.offset_msg_id,
            origin_topic=message.topic,
            max_reconsume_times=self._max_reconsume_times,
        )
        command = client_request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        check_success(await self._client.invoke_at_broker(queue, command))

    async def _as_copy(self, queue: MessageQueue, message: MessageExt, delay_level: int) -> None:
        properties = dict(message.properties)
        properties.pop(PROPERTY_TRANSACTION_PREPARED, None)
        properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, message.offset_msg_id)
        properties.setdefault(PROPERTY_RETRY_TOPIC, message.topic)
        properties[PROPERTY_DELAY_TIME_LEVEL] = str(delay_level or _FIRST_RETRY_LEVEL + message.reconsume_times)
        times = message.reconsume_times + 1
        if delay_level < 0:
            del properties[PROPERTY_DELAY_TIME_LEVEL]
            times = self._max_reconsume_times + 1
        topic = RETRY_GROUP_TOPIC_PREFIX + self._group
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=times,
            max_reconsume_times=self._max_reconsume_times,
            broker_name=queue.broker_name,
        )
        command = client_request(RequestCode.SEND_MESSAGE_V2, header, message.body)
        check_success(await self._client.invoke_at_broker(queue, command))


# Messages that are taken before the event loop gets a turn, in which it reads the answers to pulls.
_TAKEN_IN_A_ROW = 64
# Seconds before a message that could not be sent back is consumed again here.
_LOCAL_RETRY_S = 5.0
# Delay level of a message that exceeded consumeTimeout: 10 s by default.
_EXPIRED_LEVEL = 3


T = TypeVar("T")


class ConsumeMessageService(ABC, Generic[T]):
    """Gives out the messages of all queues of a consumer, as entries get ready.

    Args:
        group: the consumer group that messages show.
        offsets: store of the consumed offsets.
        send_back: gives failed messages back; None for broadcasting, where they are dropped.
        clock: source of time.
    """

    def __init__(self, group: str, offsets: OffsetStore, send_back: SendMessageBack | None, clock: Clock) -> None:
        self._group = group
        self._offsets = offsets
        self._send_back = send_back
        self._clock = clock
        self._ready: deque[T] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._wakes = False
        self._taken_in_a_row = 0
        self._closed = False
        self._tasks = TaskOwner("consume-message-service")

    @abstractmethod
    def put(self, held: ProcessQueue, messages: Iterable[MessageExt]) -> None:
        """Add messages that a queue now holds."""

    async def take(self) -> ReceivedMessage | None:
        """Wait for the next message and start its consumption; return None once closed."""
        try:
            while not self._closed:
                if self._taken_in_a_row >= _TAKEN_IN_A_ROW:
                    self._taken_in_a_row = 0
                    await asyncio.sleep(0)
                while self._ready:
                    self._taken_in_a_row += 1
                    if (received := self._begin(self._ready.popleft())) is not None:
                        return received
                if not self._closed:
                    await self._arrival()
        except asyncio.CancelledError:
            if self._ready:
                self._wake(1)  # in place of this task
            raise
        return None

    async def _arrival(self) -> None:
        """Wait for an entry, or for the close."""
        self._taken_in_a_row = 0
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            raise

    def _add(self, entries: Iterable[T]) -> None:
        """Give out more entries."""
        self._ready.extend(entries)
        if self._waiting and not self._wakes:
            self._wakes = True
            asyncio.get_running_loop().call_soon(self._wake_first)

    def _wake_first(self) -> None:
        """Wake one waiter, then the others if it leaves entries: a handler that never waits takes them all."""
        if self._ready:
            self._wake(1)
        asyncio.get_running_loop().call_soon(self._wake_others)

    def _wake_others(self) -> None:
        self._wakes = False
        self._wake(len(self._ready))

    def _wake(self, number: int) -> None:
        while number and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # else its task is cancelled
                waiter.set_result(None)
                number -= 1

    @abstractmethod
    def _begin(self, entry: T) -> ReceivedMessage | None:
        """Start the consumption of an entry's message, if it still has one."""

    async def expire(self, queues: Iterable[ProcessQueue], started_before: float) -> None:
        """Give up messages whose consumption began before a time."""
        for held in queues:
            for received in held.started_before(started_before):
                if received.outcome is None:  # else it ended while another one was sent back
                    await self._expire(held, received)

    async def _expire(self, held: ProcessQueue, received: ReceivedMessage) -> None:
        log.warning("message %s of %s exceeds consumeTimeout", received.message_ext.offset_msg_id, held.queue)

    def close(self) -> None:
        """Give out no more messages: all waiters return None."""
        self._closed = True
        self._ready.clear()
        self._wake(len(self._waiting))

    async def stop(self) -> None:
        """End pending retries and suspensions."""
        await self._tasks.stop()

    async def _settle(self, held: ProcessQueue, received: ReceivedMessage, outcome: Outcome, delay_level: int) -> None:
        """Remove a message that is done with and advance the offset of its queue; else consume it again.

        An unexpected error, such as one of an application's offset store, must not leave the message under way: the
        offset of its queue would stay before it until the consumer is closed.
        """
        message = received.message_ext
        done = False
        try:
            done = (
                outcome is Outcome.ACKNOWLEDGED
                or message not in held
                or await self._give_up(held, message, outcome, delay_level)
            )
            if done and held.remove(message):
                self._offsets.update(held.queue, held.commit_offset)
        except Exception:
            log.exception("consumer group %s: %r was not settled; it is consumed again", self._group, received)
            done = False
        if not done and message in held:
            message.reconsume_times += 1
            held.suspend(message)
        self._continue(held, message, done=done)

    async def _give_up(self, held: ProcessQueue, message: MessageExt, _outcome: Outcome, delay_level: int) -> bool:
        """Give a failed message to the broker; return false if it has to be consumed again here."""
        if self._send_back is None:
            log.warning("broadcasting: message %s is not consumed again", message.uniq_key or message.offset_msg_id)
            return True
        return await self._send_back.send_back(held.queue, message, delay_level)

    @abstractmethod
    def _continue(self, held: ProcessQueue, message: MessageExt, *, done: bool) -> None:
        """Give out what follows a settled message, or later the message again if it is not done."""


class ConsumeMessageConcurrentlyService(ConsumeMessageService[tuple[tuple[ProcessQueue, Settle], MessageExt]]):
    """Messages in the order of their arrival, any number at a time."""

    def put(self, held: ProcessQueue, messages: Iterable[MessageExt]) -> None:
        """Give out messages after those that arrived before."""
        self._add(zip(repeat((held, partial(self._settle, held))), messages))

    def _begin(self, entry: tuple[tuple[ProcessQueue, Settle], MessageExt]) -> ReceivedMessage | None:
        (held, settle), message = entry
        if message not in held:
            return None
        received = ReceivedMessage(message, held.queue, self._group, settle)
        held.start(received, self._clock.monotonic())
        return received

    async def _expire(self, held: ProcessQueue, received: ReceivedMessage) -> None:
        """Send back a message that took too long, so that the offset of its queue can advance."""
        await super()._expire(held, received)
        await received.retry_later(delay_level=_EXPIRED_LEVEL)

    def _continue(self, held: ProcessQueue, message: MessageExt, *, done: bool) -> None:
        if not done and message in held:
            self._tasks.start(self._put_again(held, message), "retry")

    async def _put_again(self, held: ProcessQueue, message: MessageExt) -> None:
        await asyncio.sleep(_LOCAL_RETRY_S)
        self.put(held, [message])


class ConsumeMessageOrderlyService(ConsumeMessageService[ProcessQueue]):
    """Messages of each queue in order, one at a time; a failed one suspends its queue.

    Args:
        group: the consumer group that messages show.
        offsets: store of the consumed offsets.
        send_back: makes dead letters; None for broadcasting, where failed messages are dropped.
        clock: source of time.
        suspend_s: seconds before a failed message is consumed again (suspendCurrentQueueTimeMillis).
        max_reconsume_times: retries before a message becomes a dead letter; -1 for no limit.
        is_locked: returns false if the lock of a queue has expired.
    """

    def __init__(
        self,
        group: str,
        offsets: OffsetStore,
        send_back: SendMessageBack | None,
        clock: Clock,
        suspend_s: float,
        max_reconsume_times: int,
        is_locked: Callable[[ProcessQueue], bool],
    ) -> None:
        super().__init__(group, offsets, send_back, clock)
        self._suspend_s = suspend_s
        self._max_reconsume_times = max_reconsume_times
        self._is_locked = is_locked
        # Queues that are ready, suspended, or have a message under way.
        self._active: set[ProcessQueue] = set()

    def put(self, held: ProcessQueue, _messages: Iterable[MessageExt]) -> None:
        """Let a queue give out its next message."""
        if held not in self._active and len(held) and not held.dropped:
            self._active.add(held)
            self._add((held,))

    def _begin(self, entry: ProcessQueue) -> ReceivedMessage | None:
        message = None if entry.dropped else entry.first
        if message is None:
            self._active.discard(entry)
        elif not self._is_locked(entry):
            self._tasks.start(self._ready_again(entry), "suspend")
        else:
            received = ReceivedMessage(message, entry.queue, self._group, partial(self._settle, entry))
            entry.start(received, self._clock.monotonic())
            return received
        return None

    async def _give_up(self, held: ProcessQueue, message: MessageExt, outcome: Outcome, _delay_level: int) -> bool:
        """Make a message that failed too often a dead letter, since the messages behind it wait for it."""
        if outcome is Outcome.RETRIED and not 0 <= self._max_reconsume_times <= message.reconsume_times:
            return False
        return await super()._give_up(held, message, outcome, DEAD_LETTER_LEVEL)

    def _continue(self, held: ProcessQueue, _message: MessageExt, *, done: bool) -> None:
        if done:
            self._active.discard(held)
            self.put(held, ())
        else:
            self._tasks.start(self._ready_again(held), "suspend")

    async def _ready_again(self, held: ProcessQueue) -> None:
        await asyncio.sleep(self._suspend_s)
        self._add((held,))
