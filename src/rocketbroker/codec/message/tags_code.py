"""Java's ``String.hashCode`` and what RocketMQ makes of it: tag codes and index hashes.
Answers to ``MessageExtBrokerInner.tagsString2tagsCode``.

    hashCode(s) = s[0]*31^(n-1) + s[1]*31^(n-2) + … + s[n-1], over UTF-16 code units, kept to int32
    hashCode(a + b) = hashCode(a)*31^len(b) + hashCode(b)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from struct import unpack
from typing import Final

_CHUNK: Final = 256
_POWERS: Final = tuple(pow(31, exponent, 1 << 32) for exponent in range(_CHUNK - 1, -1, -1))
#: Longer tags are hashed each time, so that the cache stays small whatever clients send.
_LONGEST_CACHED: Final = 128


def java_hash(text: str) -> int:
    """``text.hashCode()`` as an int32."""
    return _signed(_extend(0, _code_units(text)))


def java_hash_bytes(utf8: bytes) -> int:
    """``hashCode()`` of the text whose UTF-8 is ``utf8``; wrong bytes count as U+FFFD, as Java reads them."""
    return extend_hash(0, utf8)


def extend_hash(prefix_hash: int, utf8: bytes) -> int:
    """``hashCode()`` of a text that hashes to ``prefix_hash``, followed by the text of ``utf8``, as an int32."""
    return _signed(_extend(prefix_hash, utf8 if utf8.isascii() else _code_units(utf8.decode("utf-8", "replace"))))


def tags_code(tags: str | None) -> int:
    """``tagsCode`` of a ConsumeQueue entry: the hash of ``TAGS``, 0 when the message has none."""
    return tags_code_bytes(tags.encode("utf-8", "surrogatepass")) if tags else 0


def tags_code_bytes(tags: bytes | None) -> int:
    """:func:`tags_code` for the UTF-8 bytes as a record holds them; the commonest are remembered."""
    if not tags:
        return 0
    return _cached(tags) if len(tags) <= _LONGEST_CACHED else java_hash_bytes(tags)


@lru_cache(maxsize=4096)
def _cached(tags: bytes) -> int:
    return java_hash_bytes(tags)


def _code_units(text: str) -> Sequence[int]:
    if text.isascii():
        return text.encode()
    return unpack(f">{len(data) // 2}H", data) if (data := text.encode("utf-16-be", "surrogatepass")) else ()


def _extend(value: int, units: Sequence[int]) -> int:
    for start in range(0, len(units), _CHUNK):
        part = units[start : start + _CHUNK]
        value = (value * pow(31, len(part), 1 << 32) + sum(map(mul, part, _POWERS[-len(part) :]))) & 0xFFFFFFFF
    return value & 0xFFFFFFFF


def _signed(value: int) -> int:
    return value - 0x100000000 if value & 0x80000000 else value
