"""TAGS, UNIQ_KEY and KEYS of the messages of a batch, by column."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rocketbroker.codec.message.message_properties import find_properties

_UNIQUE_KEY: Final = b"UNIQ_KEY\x01"
_PAIR_END: Final = b"\x02"


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
    """:func:`find_properties` for the raw properties of each message, at least one.

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
    unique_key, _, _ = rest.partition(_PAIR_END)
    if not unique_key or (before and not before.endswith(_PAIR_END)) or _UNIQUE_KEY in rest:
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
    if _PAIR_END in joined_keys:
        return None
    tags, _, keys, _ = find_properties(first)
    return FoundColumns((tags,) * count, unique_keys, (keys,) * count, b"" if keys else joined_keys)
