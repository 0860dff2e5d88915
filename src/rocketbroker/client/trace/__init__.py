"""Traces of messages: RocketMQ's own, and OpenTelemetry's."""
