"""Hooks around the consumption of messages, traces among them (org.apache.rocketmq.client.hook.ConsumeMessageHook)."""

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.received_message import Outcome, ReceivedMessage
from rocketbroker.client.producer.message_sender import trace_dispatcher
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.common.clock import Clock

log = logging.getLogger(__name__)


class ConsumeMessageHook(Protocol):
    """Called on the event loop; an error is logged and changes nothing."""

    def consume_message(self, received: ReceivedMessage) -> None:
        """Note a message before it is consumed; add to its ``observers`` to learn its outcome."""


class ConsumeHooks:
    """Hooks of one consumer. False if there are none.

    Args:
        client: says whether traces are enabled, and sends them.
        group: the consumer group.
        hooks: the consumer's own hooks.
        clock: source of time.
    """

    def __init__(self, client: ClientInstance, group: str, hooks: Sequence[ConsumeMessageHook], clock: Clock) -> None:
        self._group = group
        self._namespace = client.namespace
        self._trace = trace_dispatcher(client, group, clock)
        self._hooks = tuple(hooks) if self._trace is None else (*hooks, self._trace)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def start(self) -> None:
        """Start to send traces."""
        if self._trace is not None:
            self._trace.start()

    async def stop(self) -> None:
        """Send the rest of the traces."""
        if self._trace is not None:
            await self._trace.stop()

    def call(self, received: ReceivedMessage) -> None:
        """Call the hooks before the consumption of a message; log their errors."""
        for hook in self._hooks:
            try:
                hook.consume_message(received)
            except Exception:
                log.exception("consumer %s: the hook %r failed", self._group, hook)

    def begin(self, message: MessageExt, queue: MessageQueue) -> ReceivedMessage:
        """Call the hooks for a message that is given out as a record; ``end`` it with its outcome."""
        received = ReceivedMessage(message, queue, self._namespace.unwrap(self._group), keep_outcome)
        received.topic = self._namespace.unwrap(received.topic)
        self.call(received)
        return received

    def end(self, messages: Iterable[ReceivedMessage], outcome: Outcome) -> None:
        """Note the outcome of messages that ``begin`` returned, the first one of each."""
        for received in messages:
            if received.outcome is None:
                received.outcome = outcome
                received.call_observers(outcome)


async def keep_outcome(_message: ReceivedMessage, _outcome: Outcome, _delay_level: int) -> None:
    """Leave the offsets alone: they do not follow from the outcome of this message."""
