"""Decoding of request bodies."""

from typing import TypeVar

from rocketbroker.codec.remoting.bodies.remoting_serializable import Buffer, RemotingSerializable
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError

T = TypeVar("T", bound=RemotingSerializable)

# Bodies of official clients are plain JSON, which msgspec decodes at some 300 MB per second; the other dialects are
# decoded in Python, this many values in 15 ms on a quiet machine.
MOST_VALUES = 5_000


def read_body(body: Buffer, kind: type[T]) -> T:
    """Decode the body of a request.

    Raises:
        BrokerResponseError: SYSTEM_ERROR if it is not JSON, or a field is missing or of the wrong type; the remark
            names the field.
    """
    try:
        return kind.decode(body, most_values=MOST_VALUES)
    except CodecError as error:
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"the body of the request: {error}") from None
