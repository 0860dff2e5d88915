"""The bits of a consumer, compared with published values of the hash."""

import pytest

from rocketbroker.codec.filter.bloom_filter import ERROR_RATE, EXPECTED_CONSUMERS, bit_count, bit_positions, murmur3


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (b"", "0000000000000000"),
        (b"The quick brown fox jumps over the lazy dog", "6c1b07bc7bbc4be3"),
        (b"hello", "029bbd41b3a7d8cb"),
    ],
)
def test_murmur3(text: bytes, digest: str):
    assert murmur3(text).to_bytes(8, "little").hex() == digest


def test_size_of_the_map():
    assert bit_count(ERROR_RATE, EXPECTED_CONSUMERS) == 112
    assert bit_count(20, 64) == 216
    assert bit_count(10, 20) == 96


def test_positions_lie_in_the_map():
    for number in range(100):
        positions = bit_positions(f"group{number}#topic", ERROR_RATE, EXPECTED_CONSUMERS)
        assert len(positions) == 3
        assert all(0 <= position < 112 for position in positions)
