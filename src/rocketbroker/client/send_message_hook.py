"""Hooks around each try of a send (org.apache.rocketmq.client.hook.SendMessageHook)."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rocketbroker.client.message import Message, MessageType
from rocketbroker.client.send_result import SendResult
from rocketbroker.codec.message.message_ext import MessageQueue


class SendMessageContext(msgspec.Struct):
    """One try of a send. ``result`` or ``error`` is set when it is over.

    ``start_ms`` is the time at which it began. The error of a cancelled send is a CancelledError; a one-way send that
    left has neither. Group and messages have their names without the namespace, ``queue`` has it.
    """

    producer_group: str
    messages: Sequence[Message]
    unique_ids: str
    msg_type: MessageType
    queue: MessageQueue
    broker_addr: str
    start_ms: int
    result: SendResult | None = None
    error: BaseException | None = None


class SendMessageHook(Protocol):
    """Called on the event loop; an error is logged and changes nothing."""

    def send_message_before(self, context: SendMessageContext) -> None:
        """Note a try before its request is sent."""

    def send_message_after(self, context: SendMessageContext) -> None:
        """Note the result of a try."""
