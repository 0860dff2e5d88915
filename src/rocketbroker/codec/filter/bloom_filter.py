"""Bits of a consumer in the bit maps of messages (org.apache.rocketmq.filter.util.BloomFilter).

No bit maps are made here; the positions are in ``consumerFilter.json``, whose readers expect them.
"""

from math import ceil, e, log, log2
from typing import Final

# BrokerConfig's maxErrorRateOfBloomFilter in percent and expectConsumerNumUseFilter.
ERROR_RATE: Final = 20
EXPECTED_CONSUMERS: Final = 32

_M64: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


def bit_count(error_rate: int, expected: int) -> int:
    """Return the size in bits of a map for a number of consumers and an error rate in percent; a multiple of 8."""
    bits = ceil(expected * log2(100 / error_rate) * log2(e))
    return -(-bits // 8) * 8


def bit_positions(text: str, error_rate: int, expected: int) -> list[int]:
    """Return the bit positions of ``text``, which in RocketMQ is ``<group>#<topic>``."""
    hashed = murmur3(text.encode())
    low, high = hashed & 0xFFFFFFFF, hashed >> 32
    bits = bit_count(error_rate, expected)
    positions = []
    for number in range(1, ceil(log(error_rate / 100, 0.5)) + 1):
        combined = low + number * high & 0xFFFFFFFF
        # As a Java int it may be negative, and is then inverted.
        positions.append((combined ^ 0xFFFFFFFF if combined >> 31 else combined) % bits)
    return positions


def murmur3(data: bytes) -> int:
    """Return the first 64 bits of MurmurHash3 x64 128 with seed 0, as Guava's ``murmur3_128`` computes them."""
    first = second = 0
    tail_at = len(data) // 16 * 16
    for at in range(0, tail_at, 16):
        first ^= _mixed_first(int.from_bytes(data[at : at + 8], "little"))
        first = (_rotated(first, 27) + second) * 5 + 0x52DCE729 & _M64
        second ^= _mixed_second(int.from_bytes(data[at + 8 : at + 16], "little"))
        second = (_rotated(second, 31) + first) * 5 + 0x38495AB5 & _M64
    second ^= _mixed_second(int.from_bytes(data[tail_at + 8 :], "little"))
    first ^= _mixed_first(int.from_bytes(data[tail_at : tail_at + 8], "little"))
    first ^= len(data)
    second ^= len(data)
    first = first + second & _M64
    second = second + first & _M64
    return _finished(first) + _finished(second) & _M64


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _M64


def _mixed_first(value: int) -> int:
    return _rotated(value * _C1 & _M64, 31) * _C2 & _M64


def _mixed_second(value: int) -> int:
    return _rotated(value * _C2 & _M64, 33) * _C1 & _M64


def _finished(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _M64
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _M64
    return value ^ value >> 33
