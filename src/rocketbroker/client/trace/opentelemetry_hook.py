"""Spans and metrics of sends and consumption by OpenTelemetry, with the extra ``opentelemetry``.

Names and attributes are those of OpenTelemetry's conventions for messaging.
"""

import msgspec

from rocketbroker.client.core.message import Message, SendMessageContext
from rocketbroker.client.core.options import checked
from rocketbroker.client.core.received_message import Outcome, ReceivedMessage
from rocketbroker.common.clock import Clock, SystemClock

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode
except ImportError as error:
    raise ImportError("OpenTelemetry is missing: pip install 'rocketbroker[opentelemetry]'") from error


_NAME = "rocketbroker.client"
_MS = 1_000_000


class OpenTelemetryHook:
    """Hook of producers and consumers: ``Producer(..., hooks=[OpenTelemetryHook()])``.

    Each try of a send is a span ``<topic> send``, each consumption a span ``<topic> process``. The latter has a link to
    the span in which the message was made (``with_trace_context``).

    Args:
        clock: source of time.
    """

    @checked
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._tracer = trace.get_tracer(_NAME)
        meter = metrics.get_meter(_NAME)
        self._sent = meter.create_counter("messaging.client.sent.messages", unit="{message}")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", unit="{message}")
        self._send_duration = meter.create_histogram("messaging.client.operation.duration", unit="s")
        self._process_duration = meter.create_histogram("messaging.process.duration", unit="s")

    def send_message_before(self, context: SendMessageContext) -> None:
        """Ignore the beginning of a try; its context has the time."""

    def send_message_after(self, context: SendMessageContext) -> None:
        """Record a try of a send."""
        topic, number = context.messages[0].topic, len(context.messages)
        host, _, port = context.broker_addr.rpartition(":")
        attributes: dict[str, str | int] = {
            **_attributes("send", topic),
            "messaging.destination.partition.id": str(context.queue.queue_id),
            "server.address": host.strip("[]"),
            "server.port": int(port),
        }
        span = self._tracer.start_span(
            f"{topic} send",
            kind=SpanKind.PRODUCER,
            attributes={**attributes, **_identity(context)},
            start_time=context.start_ms * _MS,
        )
        if context.error is not None:
            attributes["error.type"] = type(context.error).__name__
            span.record_exception(context.error)
            span.set_status(Status(StatusCode.ERROR, str(context.error)))
        end_ms = self._clock.time_ms()
        span.end(end_ms * _MS)
        self._sent.add(number, attributes)
        self._send_duration.record((end_ms - context.start_ms) / 1000, attributes)

    def consume_message(self, received: ReceivedMessage) -> None:
        """Record a consumption from now to its outcome."""
        attributes = {**_attributes("process", received.topic), "messaging.consumer.group.name": received.group}
        creator = trace.get_current_span(propagate.extract(received.properties)).get_span_context()
        start = self._clock.monotonic()
        span = self._tracer.start_span(
            f"{received.topic} process",
            kind=SpanKind.CONSUMER,
            attributes={**attributes, "messaging.message.id": received.msg_id},
            links=[Link(creator)] if creator.is_valid else [],
        )

        def end(outcome: Outcome) -> None:
            if outcome is not Outcome.ACKNOWLEDGED:
                span.set_status(Status(StatusCode.ERROR, outcome.value))
                attributes["error.type"] = outcome.name
            span.end()
            self._consumed.add(1, attributes)
            self._process_duration.record(self._clock.monotonic() - start, attributes)

        received.observers += (end,)


def with_trace_context(message: Message) -> Message:
    """Return a message whose properties name the current span, to which its consumption is linked."""
    fields: dict[str, str] = {}
    propagate.inject(fields)
    return msgspec.structs.replace(message, properties={**message.properties, **fields})


def _identity(context: SendMessageContext) -> dict[str, str | int]:
    if len(context.messages) == 1:
        return {"messaging.message.id": context.unique_ids}
    return {"messaging.batch.message_count": len(context.messages)}


def _attributes(operation: str, topic: str) -> dict[str, str | int]:
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }
