"""Calls of the gRPC service by grpcio alone, for tests."""

from collections.abc import Callable, Sequence
from typing import Any

import grpc

from rocketbroker.proxy import messaging_pb2
from rocketbroker.proxy.grpc_server import SERVICE

TIMEOUT_S = 20.0
_METHODS = messaging_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name


def metadata_of(client_id: str) -> tuple[tuple[str, str], ...]:
    """Return what a client sends with each call."""
    return (("x-mq-client-id", client_id), ("x-mq-language", "PYTHON"), ("x-mq-client-version", "5.1.2"))


METADATA = metadata_of("client-1")


def method(channel: grpc.Channel, name: str) -> Callable[..., Any]:
    """Return a method of the service in values; streams are iterated."""
    described = _METHODS[name]
    request, reply = (getattr(messaging_pb2, kind.name) for kind in (described.input_type, described.output_type))
    kind = (
        f"{'stream' if described.client_streaming else 'unary'}_{'stream' if described.server_streaming else 'unary'}"
    )
    call = getattr(channel, kind)(f"/{SERVICE}/{name}", request.SerializeToString, reply.FromString)

    def called(request: Any, metadata: Sequence[tuple[str, str]] = METADATA, timeout: float | None = TIMEOUT_S) -> Any:
        return call(request, timeout=timeout, metadata=metadata)

    return called
