"""One request or response of the remoting protocol (org.apache.rocketmq.remoting.protocol.RemotingCommand)."""

from typing import Any, Generic, TypeVar

import msgspec

from rocketbroker.codec.remoting.java_types import Int

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2
# MQVersion.Version.V5_5_0.ordinal(): clients enable features by the server's version.
CURRENT_VERSION = 513

H = TypeVar("H")


class RemotingCommand(
    msgspec.Struct,
    Generic[H],
    rename={
        "header": "extFields",
        "serialize_type": "serializeTypeCurrentRPC",
        "body": "_body",
        "received_at": "_receivedAt",
        "is_suspended": "_isSuspended",
    },
):
    """A command with its custom header.

    ``header`` is the typed header struct if the code has one, else the raw ``extFields`` (``dict[str, str]``) or
    ``None``. ``body`` is a bytes-like object; in a handler it is a view of the receive buffer, valid only during the
    call. ``received_at`` is a time of the event loop in seconds, ``is_suspended`` marks a held request; both are set
    only for a request that is not answered at once.
    """

    code: Int
    header: H = None  # type: ignore[assignment]
    flag: Int = 0
    language: str = "JAVA"
    opaque: Int = 0
    remark: str | None = None
    serialize_type: str = "JSON"
    version: Int = CURRENT_VERSION
    body: Any = b""
    # Set by the connection that received a request, whatever the peer sent.
    received_at: float = 0.0
    is_suspended: bool = False

    @property
    def is_response(self) -> bool:
        """True for the answer to a request."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """True if the sender expects no answer."""
        return bool(self.flag & FLAG_ONEWAY)


# A command whose header may be of any shape.
Command = RemotingCommand[Any]


def request(code: int, header: object = None, body: bytes = b"", *, oneway: bool = False) -> Command:
    """Return a request; its sender sets the opaque."""
    return RemotingCommand(int(code), header, flag=FLAG_ONEWAY if oneway else 0, body=body)


def response(code: int = 0, remark: str | None = None, header: object = None, body: bytes = b"") -> Command:
    """Return an answer; its sender copies the opaque of the request."""
    return RemotingCommand(int(code), header, flag=FLAG_RESPONSE, remark=remark, body=body)
