"""Metadata of a call, such as client and deadline, and refusals that are answered in its body."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.proxy.messaging_pb2 import Code

_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])")
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


class StatusError(RocketBrokerError):
    """Refusal of a call, answered as Status in its body (GrpcProxyException)."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(slots=True)
class CallContext:
    """Metadata of a call (ProxyContext).

    Attributes:
        client_id: id of the client, never empty.
        language: language of the SDK, such as JAVA.
        client_version: version of the SDK.
        namespace: prefix of topics and groups, mostly empty.
        peer: ``ip:port`` of the client.
        deadline: time of the event loop at which the client stops waiting, or None.
    """

    client_id: str
    language: str
    client_version: str
    namespace: str
    peer: str
    deadline: float | None


def call_context(headers: Mapping[bytes, bytes], peer: str, now: float) -> CallContext:
    """Read the metadata of a call.

    Raises:
        StatusError: CLIENT_ID_REQUIRED if the client does not name itself.
    """

    def text(name: bytes) -> str:
        return headers.get(name, b"").decode("ascii", "replace")

    client_id = text(b"x-mq-client-id")
    if not client_id:
        raise StatusError(Code.CLIENT_ID_REQUIRED, "client id cannot be empty: send it as metadata x-mq-client-id")
    timeout = _TIMEOUT.fullmatch(headers.get(b"grpc-timeout", b""))
    return CallContext(
        client_id=client_id,
        language=text(b"x-mq-language"),
        client_version=text(b"x-mq-client-version"),
        namespace=text(b"x-mq-namespace"),
        peer=peer,
        deadline=now + int(timeout[1]) * _SECONDS[timeout[2]] if timeout else None,
    )
