"""Properties of a message as they stand in a JSON header, with their separators escaped.

    properties := (name \\u0001 value \\u0002)*        the last separator may be missing

What precedes and follows the unique id is the same in many messages of a sender. It is decoded once and remembered.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from rocketbroker.codec.message.message_properties import FoundProperties, find_properties

_UNIQUE_KEY: Final = rb"UNIQ_KEY\u0001"
_RAW_UNIQUE_KEY: Final = b"UNIQ_KEY\x01"
_PAIR_END: Final = rb"\u0002"
_RAW_PAIR_END: Final = b"\x02"
# Bounds of what is remembered: so many texts of each kind, none of them longer.
_REMEMBERED_TEXTS: Final = 4096
_REMEMBERED_LENGTH: Final = 512

# Raw bytes, TAGS and KEYS of whole pairs. A bare tuple, since each message has two.
_Pairs = tuple[bytes, bytes | None, bytes | None]
# Pairs before the unique id, with its name behind them; pairs behind it, with the separator before them.
_before: dict[bytes, _Pairs] = {}
_behind: dict[bytes, _Pairs] = {}
_decode: Final = msgspec.json.Decoder(str).decode


def decode_plain(texts: Sequence[bytes]) -> tuple[list[bytes], list[FoundProperties]] | None:
    """Return the raw properties of messages, each ended by a separator, and what ``find_properties`` finds in them.

    Returns ``None`` if one of them has no unique id of letters and digits, a property for the broker or a NUL, or is no
    text of a JSON string.
    """
    properties: list[bytes] = []
    found: list[FoundProperties] = []
    for text in texts:
        first, _, rest = text.partition(_UNIQUE_KEY)
        unique_key, _, last = rest.partition(_PAIR_END)
        before = _before.get(first) or _read_before(first)
        behind = _behind.get(last) or _read_behind(last)
        if before is None or behind is None or not unique_key.isalnum():
            return None
        properties.append(before[0] + unique_key + behind[0])
        found.append((behind[1] or before[1], unique_key, behind[2] or before[2], False))
    return properties, found


def _read_before(text: bytes) -> _Pairs | None:
    pairs = _read(text)
    if pairs is None or (text and not pairs[0].endswith(_RAW_PAIR_END)):
        return None  # the name of another property ends like that of the unique id
    return _remember(_before, text, (pairs[0] + _RAW_UNIQUE_KEY, *pairs[1:]))


def _read_behind(text: bytes) -> _Pairs | None:
    pairs = _read(text)
    if pairs is None:
        return None
    ended = pairs[0] if pairs[0].endswith(_RAW_PAIR_END) else pairs[0] + _RAW_PAIR_END
    return _remember(_behind, text, (_RAW_PAIR_END + ended if pairs[0] else ended, *pairs[1:]))


def _read(text: bytes) -> _Pairs | None:
    """Decode pairs; return ``None`` if they are special."""
    try:
        raw = _decode(b'"%b"' % text).encode()
    except (msgspec.MsgspecError, UnicodeError):
        return None
    tags, unique_key, keys, is_special = find_properties(raw)
    return None if unique_key is not None or is_special or b"\0" in raw else (raw, tags, keys)


def _remember(texts: dict[bytes, _Pairs], text: bytes, pairs: _Pairs) -> _Pairs:
    if len(text) <= _REMEMBERED_LENGTH:
        if len(texts) >= _REMEMBERED_TEXTS:
            texts.clear()
        texts[text] = pairs
    return pairs
