"""Spans and metrics of a send and a consumption."""

import asyncio

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from rocketbroker.client.errors import SendFailedError
from rocketbroker.client.message import Message
from rocketbroker.client.opentelemetry_hook import OpenTelemetryHook, with_trace_context
from rocketbroker.client.producer import Producer
from rocketbroker.client.push_consumer import PushConsumer
from rocketbroker.testing import RocketMQServer


def names_of(reader: InMemoryMetricReader) -> set[str]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


async def test_a_send_and_a_consumption_are_linked_spans_with_metrics(monkeypatch: pytest.MonkeyPatch):
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader])
    monkeypatch.setattr(trace, "get_tracer", tracers.get_tracer)
    monkeypatch.setattr(metrics, "get_meter", meters.get_meter)
    hook = OpenTelemetryHook()
    async with RocketMQServer() as mq:
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
    assert [span.name for span in failed] == ["T send"]
    assert names_of(reader) == {
        "messaging.client.sent.messages",
        "messaging.client.consumed.messages",
        "messaging.client.operation.duration",
        "messaging.process.duration",
    }
    meters.shutdown()
    tracers.shutdown()
