"""Hooks around the consumption of a message (org.apache.rocketmq.client.hook.ConsumeMessageHook)."""

from typing import Protocol

from rocketbroker.client.consumer.received_message import ReceivedMessage


class ConsumeMessageHook(Protocol):
    """Called on the event loop; an error is logged and changes nothing."""

    def consume_message(self, received: ReceivedMessage) -> None:
        """Note a message before it is consumed; add to its ``observers`` to learn its outcome."""
