"""Message for the application, which it acknowledges or gives back."""

import logging
from collections.abc import Awaitable, Callable
from enum import Enum

from rocketbroker.client.core.errors import ClientStateError, InvalidMessageError
from rocketbroker.codec.message.message_const import PROPERTY_KEYS, PROPERTY_RETRY_TOPIC
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX

log = logging.getLogger(__name__)

#: Delay level that makes a message a dead letter at once.
DEAD_LETTER_LEVEL = -1


class Outcome(Enum):
    """Result of the consumption of a message."""

    ACKNOWLEDGED = "acknowledged"
    RETRIED = "given back for a retry"
    DEAD = "made a dead letter"


Settle = Callable[["ReceivedMessage", Outcome, int], Awaitable[None]]


class ReceivedMessage:
    """Message given to a handler, or yielded by a consumer.

    Call one of ``ack``, ``retry_later`` and ``dead_letter``, or none: a handler or loop body that ends acknowledges,
    and one that raises gives the message back.

    Attributes:
        message_ext: the record as it was pulled.
        topic: topic that the message was sent to, also for a retry.
        queue: queue that it was pulled from; for a retry one of the group's retry topic.
        group: the consumer group, without the namespace.
        outcome: result of the consumption, None before it.
        observers: called with the result.
    """

    __slots__ = ("_settle", "group", "message_ext", "observers", "outcome", "queue", "topic")

    def __init__(self, message_ext: MessageExt, queue: MessageQueue, group: str, settle: Settle) -> None:
        self.message_ext = message_ext
        self.queue = queue
        self._settle = settle
        self.outcome: Outcome | None = None
        self.group = group
        self.observers: tuple[Callable[[Outcome], None], ...] = ()
        self.topic = original_topic(message_ext)

    def __repr__(self) -> str:
        queue = self.queue
        return f"<ReceivedMessage {self.msg_id} {self.topic} {queue.broker_name}/{queue.queue_id}@{self.queue_offset}>"

    @property
    def body(self) -> bytes:
        """Content."""
        return self.message_ext.body

    @property
    def tags(self) -> str | None:
        """Tag, None if there is none."""
        return self.message_ext.tags

    @property
    def keys(self) -> str | None:
        """Keys, several joined by blanks; None if there are none."""
        return self.message_ext.get_property(PROPERTY_KEYS)

    @property
    def properties(self) -> dict[str, str]:
        """All properties, RocketMQ's own included."""
        return self.message_ext.properties

    @property
    def msg_id(self) -> str:
        """Id that the producer's ``SendResult`` has, the same for all retries."""
        return self.message_ext.uniq_key or self.message_ext.offset_msg_id

    @property
    def priority(self) -> int | None:
        """Priority, None if there is none."""
        return self.message_ext.priority

    @property
    def queue_offset(self) -> int:
        """Offset in ``queue``."""
        return self.message_ext.queue_offset

    @property
    def reconsume_times(self) -> int:
        """Number of earlier deliveries to the group."""
        return self.message_ext.reconsume_times

    @property
    def born_timestamp(self) -> int:
        """Time of the send, in ms since 1970."""
        return self.message_ext.born_timestamp

    @property
    def store_timestamp(self) -> int:
        """Time at which the broker stored it, in ms since 1970."""
        return self.message_ext.store_timestamp

    async def ack(self) -> None:
        """Acknowledge: the group has consumed the message.

        Raises:
            ClientStateError: the message has another outcome already.
        """
        await self._finish(Outcome.ACKNOWLEDGED, 0)

    async def retry_later(self, *, delay_level: int = 0) -> None:
        """Give the message back for a retry.

        Args:
            delay_level: level of the broker's messageDelayLevel, counted from 1; 0 starts with level 3 (10 s) and
                grows. An orderly consumer suspends the queue instead and needs no level.

        Raises:
            ClientStateError: the message has another outcome already.
        """
        if delay_level < 0:
            raise InvalidMessageError(f"delay_level is {delay_level}; give 0 or a level from 1, or call dead_letter()")
        await self._finish(Outcome.RETRIED, delay_level)

    async def dead_letter(self) -> None:
        """Give the message up: the broker moves it to the group's dead letters.

        Raises:
            ClientStateError: the message has another outcome already.
        """
        await self._finish(Outcome.DEAD, DEAD_LETTER_LEVEL)

    async def _finish(self, outcome: Outcome, delay_level: int) -> None:
        if self.outcome is not None:
            if self.outcome is outcome:
                return
            raise ClientStateError(
                f"message {self.msg_id} was already {self.outcome.value}; settle each message once, within "
                "consume_timeout_s"
            )
        self.outcome = outcome
        if self.observers:
            self.call_observers(outcome)
        await self._settle(self, outcome, delay_level)

    def call_observers(self, outcome: Outcome) -> None:
        """Call the observers; log their errors."""
        for observer in self.observers:
            try:
                observer(outcome)
            except Exception:
                log.exception("message %s: the observer %r failed", self.msg_id, observer)


def original_topic(message: MessageExt) -> str:
    """Return the topic that a message was sent to, also for one of a retry topic."""
    if message.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return message.get_property(PROPERTY_RETRY_TOPIC) or message.topic
    return message.topic
