"""Base of the JSON bodies (org.apache.rocketmq.remoting.protocol.RemotingSerializable)."""

from functools import cache
from typing import Any, Self, TypeVar

import msgspec

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.common.errors import CodecError

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class RemotingSerializable(msgspec.Struct, rename="camel"):
    """A body: snake_case attributes, RocketMQ's camelCase names on the wire; what is ``None`` is left out."""

    def encode(self) -> bytes:
        """The body as fastjson writes it: fields by alphabet, integer and object keys without quotes."""
        return fastjson.dumps(self)

    @classmethod
    def decode(cls, body: Buffer) -> Self:
        """Read a body in any of the dialects that clients write; unknown fields are skipped.

        Raises:
            CodecError: it is no JSON, or a field is missing or of the wrong type; the text names it.
        """
        return decode_body(body, cls)


def decode_body(body: Buffer, kind: type[T]) -> T:
    """Read a JSON body as ``kind``.

    Raises:
        CodecError: it is no JSON, or a field is missing or of the wrong type; the text names it.
    """
    try:
        decoded: T = _decoder(kind)(body)  # type: ignore[arg-type]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Unquoted keys, nulls where Java has a default, or an error: read without types, then say what is wrong.
        decoded = body_from(fastjson.loads(body), kind)
    return decoded


def body_from(value: Any, kind: type[T]) -> T:
    """Give what ``fastjson.loads`` read its type.

    Raises:
        CodecError: a field is missing or of the wrong type; the text names it.
    """
    try:
        return msgspec.convert(_tidy(value), kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise CodecError(f"{kind.__name__}: {error}") from None
    except RecursionError:
        raise CodecError(f"{kind.__name__}: nested too deep") from None


@cache
def _decoder(kind: type[Any]) -> Any:
    return msgspec.json.Decoder(kind, strict=False).decode


def _tidy(value: Any) -> Any:
    """Leave out nulls, which mean a field's default, and make object keys the message queues that they are."""
    if isinstance(value, dict):
        return {_key(key): _tidy(item) for key, item in value.items() if item is not None}
    return [_tidy(item) for item in value] if isinstance(value, list) else value


def _key(key: Any) -> Any:
    return body_from(key.as_dict(), MessageQueue) if isinstance(key, fastjson.ObjectKey) else key
