"""Properties of a message (MessageDecoder.string2messageProperties, messageProperties2String).

    properties := (name 0x01 value 0x02)*        UTF-8; the last 0x02 may be missing

A pair without a value or without a name is ignored; of two pairs with one name the later counts. The functions on raw
bytes need no dict: the broker reads only two or three properties of each message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.common.errors import CodecError

#: Most bytes that a record's int16 propertiesLength can express.
MAX_PROPERTIES_LENGTH: Final = 32767
# The broker adds properties to a copy: times of a timer message (62 bytes and TIMER_ROLL_TIMES), checks of a half
# message (85), the origin, delay and real place of a message sent back (below 700 with the longest names). A message
# that was acknowledged has to be deliverable, so what is sent leaves room for all of them.
_ROOM_FOR_COPIES: Final = 1024
#: Most bytes of properties, with those that the broker adds at once, in a message that is sent.
MAX_SENT_PROPERTIES_LENGTH: Final = MAX_PROPERTIES_LENGTH - _ROOM_FOR_COPIES


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return ``properties`` as bytes in the mapping's order; :class:`CodecError` as in :func:`check_property`."""
    for name, value in properties.items():
        check_property(name, value)
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()]).encode()


def decode_properties(raw: ReadableBuffer) -> dict[str, str]:
    """Return all pairs in ``raw``; bytes that are not UTF-8 become U+FFFD, as in Java."""
    found = {}
    for pair in str(raw, "utf-8", "replace").split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            found[name] = value
    return found


def get_property(raw: ReadableBuffer, name: bytes) -> bytes | None:
    """Return the value of property ``name`` in ``raw``, or ``None``, without decoding other pairs."""
    data = bytes(raw) if type(raw) is memoryview else raw
    start = name + b"\x01"
    at = data.rfind(start)
    while at >= 0:
        # A name that only ends like this one is preceded by a byte other than a separator.
        if at == 0 or data[at - 1] == 2:
            value_at = at + len(start)
            stop = data.find(b"\x02", value_at)
            # An empty pair is ignored, so it hides no earlier one.
            if value := bytes(data[value_at:] if stop < 0 else data[value_at:stop]):
                return value
        at = data.rfind(start, 0, at)
    return None


def split_keys(keys: bytes) -> list[bytes]:
    """Return the keys in a value of ``KEYS``: split at blanks alone, as in Java; a tab is part of a key."""
    return [key for key in keys.split(b" ") if key]


def get_property_text(raw: ReadableBuffer, name: str) -> str | None:
    """Return the value of :func:`get_property` as text."""
    value = get_property(raw, name.encode())
    return None if value is None else value.decode("utf-8", "replace")


#: Properties that a broker reads from each message: TAGS, UNIQ_KEY, KEYS, and true if one of ``BROKER_PROPERTIES`` is
#: present. A bare tuple, because one is made for each message.
FoundProperties = tuple[bytes | None, bytes | None, bytes | None, bool]

#: Properties that make the broker do more than store the message, or that only it sets.
BROKER_PROPERTIES: Final = frozenset(
    {
        b"DELAY",
        b"TRAN_MSG",
        b"TIMER_DELIVER_MS",
        b"TIMER_DELAY_SEC",
        b"TIMER_DELAY_MS",
        b"TIMER_DEL_UNIQKEY",
        b"MSG_REGION",
        b"TRACE_ON",
        b"CLUSTER",
        b"INNER_NUM",
        b"POP_CK",
        b"_SYS_MSG_PRIORITY_",
    }
)
_UNIQUE_KEY: Final = b"UNIQ_KEY\x01"
_PAIR_END: Final = 2
# Bounds of the cache: number of texts, and the longest of them.
_REMEMBERED_TEXTS: Final = 4096
_REMEMBERED_LENGTH: Final = 256
_remembered: dict[bytes, FoundProperties] = {}


def find_properties(raw: bytes) -> FoundProperties:
    """Return TAGS, UNIQ_KEY and KEYS of ``raw``, ``None`` if missing, and true if a property is for the broker.

    The bytes before and after the unique id are the same in many messages of a sender, and are cached.
    """
    before, name, rest = raw.partition(_UNIQUE_KEY)
    if not name or (before and before[-1] != _PAIR_END):
        return _scan(raw)
    unique_key, _, after = rest.partition(b"\x02")
    tags, other_key, keys, special = _remembered.get(after) or _remember(after)
    if other_key or not unique_key:
        return _scan(raw)
    if before:
        found = _remembered.get(before) or _remember(before)
        return tags or found[0], unique_key, keys or found[2], special or found[3]
    return tags, unique_key, keys, special


def _remember(raw: bytes) -> FoundProperties:
    found = _scan(raw)
    if len(raw) <= _REMEMBERED_LENGTH:
        if len(_remembered) >= _REMEMBERED_TEXTS:
            _remembered.clear()
        _remembered[raw] = found
    return found


def _scan(raw: bytes) -> FoundProperties:
    tags = unique_key = keys = None
    special = False
    for pair in raw.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        if name == b"TAGS":
            tags = value or tags
        elif name == b"UNIQ_KEY":
            unique_key = value or unique_key
        elif name == b"KEYS":
            keys = value or keys
        elif name in BROKER_PROPERTIES:
            special = True
    return tags, unique_key, keys, special


def append_property(raw: bytes, name: bytes, value: bytes) -> bytes:
    """Return ``raw`` with one more pair at its end; ``name`` must not be in it yet."""
    separator = b"" if not raw or raw.endswith(b"\x02") else b"\x02"
    return b"%b%b%b\x01%b\x02" % (raw, separator, name, value)


def remove_property(raw: bytes, name: bytes) -> bytes:
    """Return ``raw`` without any pair called ``name``; the other bytes stay unchanged."""
    prefix = name + b"\x01"
    if prefix not in raw:
        return raw
    pairs = raw.split(b"\x02")
    kept = [pair for pair in pairs if not pair.startswith(prefix)]
    return raw if len(kept) == len(pairs) else b"\x02".join(kept)


def replace_property(raw: bytes, name: bytes, value: bytes) -> bytes:
    """Return ``raw`` with ``name`` set to ``value`` at its end, without older pairs of that name."""
    return append_property(remove_property(raw, name), name, value)


def check_property(name: str, value: str) -> None:
    """Raise :class:`CodecError` unless ``name`` and ``value`` can be one pair."""
    if not name or not value:
        raise CodecError(f"property {name!r} = {value!r}: neither name nor value may be empty")
    for text in (name, value):
        if "\x01" in text or "\x02" in text:
            raise CodecError(f"property {name!r} = {value!r} holds a separator (0x01 or 0x02); remove it")


def check_properties_length(raw: ReadableBuffer) -> None:
    """Raise :class:`CodecError` if ``raw`` is longer than a record's int16 length can express."""
    if len(raw) > MAX_PROPERTIES_LENGTH:
        raise CodecError(f"message properties take {len(raw)} bytes; at most {MAX_PROPERTIES_LENGTH} are allowed")


_PAIR_END_BYTES: Final = b"\x02"


class FoundColumns(NamedTuple):
    """Properties of the messages of a batch, each as long as the batch; None for a message without.

    ``joined_unique_keys`` are the unique keys if they have equal lengths, all messages the same tags, and none has
    keys; else empty.
    """

    tags: Sequence[bytes | None]
    unique_keys: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    joined_unique_keys: bytes = b""


def find_properties_of_batch(raws: Sequence[bytes], length: int | None = None) -> FoundColumns:
    """Return the results of :func:`find_properties` for the raw properties of messages, at least one.

    ``length`` is that of each if all are known to have the same.
    """
    found = None
    if length is not None or len(set(map(len, raws))) == 1:
        found = _differ_in_unique_key(raws)
    if found is None:
        tags, unique_keys, keys, _ = zip(*map(find_properties, raws), strict=True)
        found = FoundColumns(tags, unique_keys, keys)
    return found


def unique_key_span(raw: bytes) -> tuple[int, int] | None:
    """Return begin and end of the unique id in raw properties; ``None`` without one, or with two."""
    before, name, rest = raw.partition(_UNIQUE_KEY)
    unique_key, _, _ = rest.partition(_PAIR_END_BYTES)
    if not unique_key or (before and not before.endswith(_PAIR_END_BYTES)) or _UNIQUE_KEY in rest:
        return None
    begin = len(before) + len(name)
    return begin, begin + len(unique_key)


def _differ_in_unique_key(raws: Sequence[bytes]) -> FoundColumns | None:
    """Return the properties, of equal lengths, of messages that differ in the unique id alone, as most do."""
    first, count = raws[0], len(raws)
    span = unique_key_span(first)
    if span is None:
        return None
    begin, end = span
    after = first[end:]
    # The bytes between the unique ids of two messages prove every message but the first before its id, and every one
    # but the last after it. The first is the pattern; nothing follows the last, so it is compared by itself.
    if not raws[-1].endswith(after):
        return None
    joined = b"".join(raws)
    unique_keys = joined[begin : len(joined) - len(after)].split(after + first[:begin])
    if len(unique_keys) != count or set(map(len, unique_keys)) != {end - begin}:
        return None
    joined_keys = b"".join(unique_keys)
    if _PAIR_END_BYTES in joined_keys:
        return None
    tags, _, keys, _ = find_properties(first)
    return FoundColumns((tags,) * count, unique_keys, (keys,) * count, b"" if keys else joined_keys)
