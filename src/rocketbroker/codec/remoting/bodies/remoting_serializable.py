"""Base of the JSON bodies (org.apache.rocketmq.remoting.protocol.RemotingSerializable), and the plainest of them."""

from collections.abc import Callable
from functools import cache
from typing import Any, Self, TypeVar

import msgspec

from rocketbroker.codec.java_types import Long
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting import fastjson
from rocketbroker.common.errors import CodecError

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class RemotingSerializable(msgspec.Struct, rename="camel"):
    """JSON body: snake_case attributes, RocketMQ's camelCase names on the wire; ``None`` is left out."""

    def encode(self) -> bytes:
        """Return the body as fastjson writes it: fields sorted by name, integer and object keys without quotes."""
        return fastjson.dumps(self)

    @classmethod
    def decode(cls, body: Buffer, *, most_values: int | None = None) -> Self:
        """Decode a body in any of the dialects that clients write; unknown fields are skipped.

        Args:
            body: JSON.
            most_values: limit of the values in a body that is not plain JSON; ``None`` for a trusted peer.

        Raises:
            CodecError: It is not JSON, or a field is missing or of the wrong type; the text names it.
        """
        return decode_body(body, cls, most_values)


def decode_body(
    body: Buffer, kind: type[T], most_values: int | None = None, translate: Callable[[Any], Any] = lambda value: value
) -> T:
    """Decode a JSON body as ``kind``.

    Args:
        body: JSON.
        kind: type of the result.
        most_values: limit of the values in a body that is not plain JSON; ``None`` for a trusted peer.
        translate: turns what some clients write into the fields of ``kind``, in a body that is not plain.

    Raises:
        CodecError: It is not JSON, or a field is missing or of the wrong type; the text names it.
    """
    try:
        decoded: T = _decoder(kind)(body)  # type: ignore[arg-type]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # Unquoted keys, nulls where Java has a default, or errors: decode without types, then name the fault.
        if most_values is not None:
            _check_values(body, kind, most_values, error)
        decoded = body_from(translate(fastjson.loads(body)), kind)
    return decoded


def _check_values(body: Buffer, kind: type[Any], limit: int, error: Exception) -> None:
    """Reject a body with too many values to decode in Python, at some 5 µs each.

    Raises:
        CodecError: They exceed the limit.
    """
    text = bytes(body)
    # Separators within strings are counted as well.
    values = text.count(b",") + text.count(b"[") + text.count(b"{")
    if values > limit:
        raise CodecError(
            f"{kind.__name__}: {error}; a body with a wrong field or an unquoted key may have {limit:,} values, "
            f"and this one has about {values:,}"
        )


def body_from(value: Any, kind: type[T]) -> T:
    """Convert the result of ``fastjson.loads`` to a type.

    Raises:
        CodecError: A field is missing or of the wrong type; the text names it.
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
    """Return the value without nulls, which mean a field's default, and with message queues as object keys."""
    if isinstance(value, dict):
        return {_key(key): _tidy(item) for key, item in value.items() if item is not None}
    return [_tidy(item) for item in value] if isinstance(value, list) else value


def _key(key: Any) -> Any:
    return body_from(key.as_dict(), MessageQueue) if isinstance(key, fastjson.ObjectKey) else key


class DataVersion(RemotingSerializable):
    """Version of a table; tables are equal if all three numbers are. ``timestamp`` in ms."""

    timestamp: Long = 0
    counter: Long = 0
    state_version: Long = 0

    def next_version(self, now_ms: int, state_version: int = 0) -> None:
        """Count a change."""
        self.timestamp = now_ms
        self.state_version = state_version
        self.counter += 1

    def copy(self) -> Self:
        """Return an independent version with the same numbers."""
        return type(self)(self.timestamp, self.counter, self.state_version)


class KVTable(RemotingSerializable):
    """Texts by name: runtime information (28), a namespace of the KV configuration (219), order topics (103)."""

    table: dict[str, str] = {}


class TopicList(RemotingSerializable):
    """Names of topics (206, 224, 304, 305, 311 to 313, 343); ``broker_addr`` where one broker gave them."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class GroupList(RemotingSerializable):
    """Names of groups (300)."""

    group_list: list[str] = []
