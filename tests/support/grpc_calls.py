"""Calls of the gRPC service by grpcio alone, for tests."""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from rocketbroker.common.certificates import ServerCertificate
from rocketbroker.proxy import messaging_pb2
from rocketbroker.proxy.grpc_server import SERVICE

TIMEOUT_S = 20.0
_METHODS = messaging_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name


def metadata_of(client_id: str) -> tuple[tuple[str, str], ...]:
    """Return what a client sends with each call."""
    return (("x-mq-client-id", client_id), ("x-mq-language", "PYTHON"), ("x-mq-client-version", "5.1.2"))


METADATA = metadata_of("client-1")
_DATE = "20260101T000000Z"


def signed(user: tuple[str, str], client_id: str = "client-1") -> tuple[tuple[str, str], ...]:
    """Return what a client of a user, ``(name, secret)``, sends with each call."""
    digest = hmac.digest(user[1].encode(), _DATE.encode(), hashlib.sha1).hex()
    text = f"MQv2-HMAC-SHA1 Credential={user[0]}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return (*metadata_of(client_id), ("x-mq-date-time", _DATE), ("authorization", text))


def method(channel: grpc.Channel | grpc.aio.Channel, name: str) -> Callable[..., Any]:
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


def send_once(
    endpoints: str, topic: str, body: bytes, authority: bytes = b"", own: ServerCertificate | None = None
) -> int:
    """Send a message and return the code of the reply's status.

    Args:
        endpoints: address of the port.
        topic: topic of the message.
        body: its body.
        authority: certificate of the authority of the port; plain text without it.
        own: key and certificate of the client.
    """
    message_id = f"01{secrets.token_hex(16).upper()}"
    system = messaging_pb2.SystemProperties(message_id=message_id, message_type=messaging_pb2.NORMAL)
    sent = messaging_pb2.Message(topic=messaging_pb2.Resource(name=topic), body=body, system_properties=system)
    key, chain = (None, None) if own is None else (own.key, own.chain)
    trusted = grpc.ssl_channel_credentials(authority, key, chain) if authority else None
    with grpc.secure_channel(endpoints, trusted) if trusted else grpc.insecure_channel(endpoints) as channel:
        reply = method(channel, "SendMessage")(messaging_pb2.SendMessageRequest(messages=[sent]))
    return int(reply.status.code)
