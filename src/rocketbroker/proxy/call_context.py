"""Metadata of a call, such as client and deadline, and refusals that are answered in its body."""

from collections.abc import Mapping
from dataclasses import dataclass

from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.proxy.messaging_pb2 import Code


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


def call_context(metadata: Mapping[str, str | bytes], peer: str, deadline: float | None) -> CallContext:
    """Read the metadata of a call.

    Raises:
        StatusError: CLIENT_ID_REQUIRED if the client does not name itself.
    """
    client_id = metadata.get("x-mq-client-id")
    if not client_id:
        raise StatusError(Code.CLIENT_ID_REQUIRED, "client id cannot be empty: send it as metadata x-mq-client-id")
    return CallContext(
        client_id=str(client_id),
        language=str(metadata.get("x-mq-language", "")),
        client_version=str(metadata.get("x-mq-client-version", "")),
        namespace=str(metadata.get("x-mq-namespace", "")),
        peer=peer,
        deadline=deadline,
    )
