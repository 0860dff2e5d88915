"""Reads the bodies of requests."""

from typing import TypeVar

from rocketbroker.codec.remoting.bodies.remoting_serializable import Buffer, RemotingSerializable
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError

T = TypeVar("T", bound=RemotingSerializable)


def read_body(body: Buffer, kind: type[T]) -> T:
    """The body of a request.

    Raises:
        BrokerResponseError: SYSTEM_ERROR, it is no JSON, or a field is missing or of the wrong type, which is named.
    """
    try:
        return kind.decode(body)
    except CodecError as error:
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"the body of the request: {error}") from None
