"""Spans and metrics of a send and a consumption."""

import asyncio

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from rocketbroker.client.consumer.push_consumer import PushConsumer
from rocketbroker.client.core.errors import SendFailedError
from rocketbroker.client.core.message import Message, MessageType, SendMessageContext
from rocketbroker.client.producer.producer import Producer
from rocketbroker.client.trace.opentelemetry_hook import OpenTelemetryHook, with_trace_context
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.testing import RocketMQServer


def metrics_of(reader: InMemoryMetricReader) -> list[Metric]:
    data = reader.get_metrics_data()
    assert data is not None
    return [
        metric for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
    ]


async def test_a_send_and_a_consumption_are_linked_spans_with_metrics(monkeypatch: pytest.MonkeyPatch):
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader])
    monkeypatch.setattr(trace, "get_tracer", tracers.get_tracer)
    monkeypatch.setattr(metrics, "get_meter", meters.get_meter)
    hook = OpenTelemetryHook()
    async with RocketMQServer() as mq:
        host, _, port = mq.broker_addr.rpartition(":")
        producer = Producer("orders", mq.namesrv_addr, hooks=[hook], retry_times_when_send_failed=0)
        async with producer, PushConsumer("billing", mq.namesrv_addr, hooks=[hook]) as consumer:
            await consumer.subscribe("T")
            with tracers.get_tracer("test").start_as_current_span("order") as order:
                sent = await producer.send(with_trace_context(Message("T", b"body")))
            async with asyncio.timeout(60):
                async for message in consumer:
                    await message.ack()
                    break
            mq.faults.answer(1)
            with pytest.raises(SendFailedError):
                await producer.send(Message("T", b"body"))
    spans = {span.name: span for span in exporter.get_finished_spans() if span.status.is_ok or span.name != "T send"}
    failed = [span for span in exporter.get_finished_spans() if not span.status.is_ok]
    process: ReadableSpan = spans["T process"]
    assert process.kind is SpanKind.CONSUMER
    assert process.attributes is not None
    assert process.attributes["messaging.message.id"] == sent.msg_id
    assert process.attributes["messaging.consumer.group.name"] == "billing"
    assert [link.context.span_id for link in process.links] == [order.get_span_context().span_id]
    assert spans["T send"].kind is SpanKind.PRODUCER
    assert spans["T send"].attributes == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": str(sent.message_queue.queue_id),
        "messaging.message.id": sent.msg_id,
        "server.address": host,
        "server.port": int(port),
    }
    assert [span.name for span in failed] == ["T send"]
    assert {metric.name for metric in metrics_of(reader)} == {
        "messaging.client.sent.messages",
        "messaging.client.consumed.messages",
        "messaging.client.operation.duration",
        "messaging.process.duration",
    }
    meters.shutdown()
    tracers.shutdown()


def context_of(number: int) -> SendMessageContext:
    """Return a try of a send of some messages."""
    messages = [Message("T", b"body")] * number
    queue = MessageQueue("NS%T", "broker-a", 3)
    return SendMessageContext("orders", messages, "id", MessageType.NORMAL, queue, "[::1]:10911", 1)


def test_cancelled_sends_are_errors_and_batches_have_their_size(monkeypatch: pytest.MonkeyPatch):
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader])
    monkeypatch.setattr(trace, "get_tracer", tracers.get_tracer)
    monkeypatch.setattr(metrics, "get_meter", meters.get_meter)
    hook = OpenTelemetryHook()
    cancelled, batch = context_of(1), context_of(5)
    cancelled.error = asyncio.CancelledError()
    hook.send_message_after(cancelled)
    hook.send_message_after(batch)
    first, second = exporter.get_finished_spans()
    assert first.attributes is not None
    assert second.attributes is not None
    assert [(span.name, span.status.is_ok) for span in (first, second)] == [("T send", False), ("T send", True)]
    assert (first.attributes["server.address"], first.attributes["server.port"]) == ("::1", 10911)
    assert "messaging.batch.message_count" not in first.attributes
    assert second.attributes["messaging.batch.message_count"] == 5
    points = [point for metric in metrics_of(reader) for point in metric.data.data_points]
    attributes = [dict(point.attributes or {}) for point in points]
    assert {each.get("error.type") for each in attributes} == {"CancelledError", None}
    assert not any("messaging.batch.message_count" in each for each in attributes)
    meters.shutdown()
    tracers.shutdown()
