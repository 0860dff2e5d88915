"""Calls of a gRPC client, as values: contexts, settings, and a telemetry stream that records."""

import itertools
from collections.abc import Awaitable
from typing import Any

import pytest

from rocketbroker.proxy.call_context import CallContext, StatusError
from rocketbroker.proxy.messaging_pb2 import (
    ClientType,
    FilterExpression,
    Message,
    MessageType,
    Publishing,
    Resource,
    Settings,
    Subscription,
    SubscriptionEntry,
    SystemProperties,
    TelemetryCommand,
)

CONTEXT = CallContext("client-1", "JAVA", "5.1.0", "", "127.0.0.1:5000", None)
_numbers = itertools.count()


class Stream:
    """Telemetry stream of a client; ``sent`` are the commands that it got."""

    def __init__(self) -> None:
        self.sent: list[TelemetryCommand] = []

    def send(self, command: TelemetryCommand) -> None:
        """Record a command."""
        self.sent.append(command)


def producer(*topics: str) -> TelemetryCommand:
    """Return the settings of a producer."""
    publishing = Publishing(topics=[Resource(name=topic) for topic in topics])
    return TelemetryCommand(settings=Settings(client_type=ClientType.PRODUCER, publishing=publishing))


def consumer(
    group: str, kind: ClientType = ClientType.PUSH_CONSUMER, filtered_by: FilterExpression | None = None
) -> TelemetryCommand:
    """Return the settings of a consumer of topic Orders."""
    entry = SubscriptionEntry(topic=Resource(name="Orders"), expression=filtered_by or FilterExpression())
    subscription = Subscription(group=Resource(name=group), subscriptions=[entry])
    return TelemetryCommand(settings=Settings(client_type=kind, subscription=subscription))


def message(body: bytes = b"body", topic: str = "Orders", **system: Any) -> Message:
    """Return a message to send, with an id of its own and these system properties."""
    fields: dict[str, Any] = {
        "message_id": f"01{next(_numbers):032X}",
        "message_type": MessageType.NORMAL,
        **system,
    }
    properties = SystemProperties(**fields)
    return Message(topic=Resource(name=topic), body=body, system_properties=properties)


async def refusal(call: Awaitable[object]) -> StatusError:
    """Return the error of a call that is refused."""
    with pytest.raises(StatusError) as raised:
        await call
    return raised.value
