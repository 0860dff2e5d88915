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
        """Return the body as fastjson writes it: fields by alphabet, integer and object keys without quotes."""
        return fastjson.dumps(self)

    @classmethod
    def decode(cls, body: Buffer, *, most_values: int | None = None) -> Self:
        """Read a body in any of the dialects that clients write; unknown fields are skipped.

        Args:
            body: JSON.
            most_values: bounds the work on a body that is not plain JSON of this kind; ``None`` for a trusted peer.

        Raises:
            CodecError: it is no JSON, or a field is missing or of the wrong type; the text names it.
        """
        return decode_body(body, cls, most_values)


def decode_body(body: Buffer, kind: type[T], most_values: int | None = None) -> T:
    """Read a JSON body as ``kind``.

    Raises:
        CodecError: it is no JSON, or a field is missing or of the wrong type; the text names it.
    """
    try:
        decoded: T = _decoder(kind)(body)  # type: ignore[arg-type]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # Unquoted keys, nulls where Java has a default, or an error: read without types, then say what is wrong.
        if most_values is not None:
            check_values(body, kind, most_values, error)
        decoded = body_from(fastjson.loads(body), kind)
    return decoded


def check_values(body: Buffer, kind: type[Any], limit: int, error: Exception) -> None:
    """Refuse a body whose values are too many to be read one by one in Python, some 5 µs each.

    Raises:
        CodecError: they are over the limit.
    """
    text = bytes(body)
    # Those within strings are counted as well.
    values = text.count(b",") + text.count(b"[") + text.count(b"{")
    if values > limit:
        raise CodecError(
            f"{kind.__name__}: {error}; a body with a wrong field or an unquoted key may hold {limit:,} values, "
            f"and this one has about {values:,}"
        )


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
