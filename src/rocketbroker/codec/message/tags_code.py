"""Java's ``String.hashCode``, and the tag codes and index hashes derived from it (tagsString2tagsCode).

hashCode(s) = s[0]*31^(n-1) + s[1]*31^(n-2) + … + s[n-1], over UTF-16 code units, kept to int32
hashCode(a + b) = hashCode(a)*31^len(b) + hashCode(b)
"""

from __future__ import annotations

from functools import lru_cache
from struct import unpack
from typing import Final

_INT32: Final = 0xFFFFFFFF
_LANE: Final = 0xFFFFFFFFFFFFFFFF
_CHUNK: Final = 64
_POWERS: Final = tuple(pow(31, exponent, 1 << 32) for exponent in range(_CHUNK + 1))
_MASK_8: Final = int.from_bytes(b"\x00\xff" * (_CHUNK // 2), "big")
_MASK_16: Final = int.from_bytes(b"\x00\x00\xff\xff" * (_CHUNK // 4), "big")
_MASK_32: Final = int.from_bytes((b"\x00" * 4 + b"\xff" * 4) * (_CHUNK // 8), "big")
#: Longer tags are not cached, so that the cache stays small whatever clients send.
_LONGEST_CACHED: Final = 128


def java_hash(text: str) -> int:
    """Return ``text.hashCode()`` as an int32."""
    return _signed(_extend(0, text))


def java_hash_bytes(utf8: bytes) -> int:
    """Return the ``hashCode()`` of the text whose UTF-8 is ``utf8``; invalid bytes count as U+FFFD, as in Java."""
    return extend_hash(0, utf8)


def extend_hash(prefix_hash: int, utf8: bytes) -> int:
    """Return, as an int32, the ``hashCode()`` of a text with hash ``prefix_hash`` followed by the text of ``utf8``."""
    return _signed(_extend(prefix_hash, utf8 if utf8.isascii() else utf8.decode("utf-8", "replace")))


def tags_code(tags: str | None) -> int:
    """Return the ``tagsCode`` of a ConsumeQueue entry: the hash of ``TAGS``, 0 without tags."""
    return tags_code_bytes(tags.encode("utf-8", "surrogatepass")) if tags else 0


def tags_code_bytes(tags: bytes | None) -> int:
    """Return :func:`tags_code` for the UTF-8 bytes of a record; the commonest are cached."""
    if not tags:
        return 0
    return _cached(tags) if len(tags) <= _LONGEST_CACHED else java_hash_bytes(tags)


@lru_cache(maxsize=4096)
def _cached(tags: bytes) -> int:
    return java_hash_bytes(tags)


def _extend(value: int, text: bytes | str) -> int:
    if isinstance(text, str) and not text.isascii():
        units = text.encode("utf-16-be", "surrogatepass")
        for unit in unpack(f">{len(units) // 2}H", units):
            value = (value * 31 + unit) & _INT32
        return value & _INT32
    ascii_text = text.encode() if isinstance(text, str) else text
    for start in range(0, len(ascii_text), _CHUNK):
        part = ascii_text[start : start + _CHUNK]
        value = (value * _POWERS[len(part)] + _fold(part)) & _INT32
    return value & _INT32


def _fold(part: bytes) -> int:
    # The bytes are lanes of one long integer. Each step joins neighbours, x[i]*31^k + x[i+1], in lanes twice as wide:
    # three long multiplications instead of a short one per byte. One more byte makes a value at most 5 bits longer (31
    # < 2^5) and its lane 8 bits wider, so none overflows.
    lanes = int.from_bytes(part, "big")
    lanes = (lanes >> 8 & _MASK_8) * 31 + (lanes & _MASK_8)
    lanes = (lanes >> 16 & _MASK_16) * 31**2 + (lanes & _MASK_16)
    lanes = (lanes >> 32 & _MASK_32) * 31**4 + (lanes & _MASK_32)
    value, power = lanes & _LANE, _POWERS[8]
    while lanes := lanes >> 64:
        value += (lanes & _LANE) * power
        power = power * _POWERS[8] & _INT32
    return value


def _signed(value: int) -> int:
    return value - 0x100000000 if value & 0x80000000 else value
