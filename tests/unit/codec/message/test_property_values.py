"""One by one and by numpy the same values are found."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.property_slices import property_slices
from rocketbroker.codec.message.property_values import property_values, values_at
from rocketbroker.codec.message.record_properties import PropertyBlocks

PIECES = st.lists(st.sampled_from([b"a", b"aa", b"b", b"\x01", b"\x02", b"1", b"22", b"\xff"]), max_size=12)
RAWS = st.lists(PIECES.map(b"".join), max_size=60)


def many_values(raws: list[bytes], names: list[bytes]) -> list[list[bytes]]:
    lengths = np.array([len(raw) for raw in raws], np.int64)
    # Some bytes before and behind, as in a record.
    data = memoryview(bytes(16) + b"".join(raws) + bytes(16))
    starts = 16 + np.cumsum(lengths) - lengths
    return [values_at(data, each) for each in property_slices(np.frombuffer(data, np.uint8), starts, lengths, *names)]


@given(RAWS)
def test_values_are_those_of_get_property(raws: list[bytes]):
    names = [b"a", b"b", b"aa"]
    expected = [[get_property(raw, name) or b"" for raw in raws] for name in names]

    assert property_values(PropertyBlocks.of(raws), names) == expected
    assert many_values(raws, names) == expected


@pytest.mark.parametrize("count", [1, 23, 500])
def test_values_of_all_messages(count: int):
    raws = [b"KEYS\x01k%d\x02a\x01%d\x02" % (number, number) for number in range(count)]
    expected = [[b"%d" % number for number in range(count)], [b""] * count]

    assert property_values(PropertyBlocks.of(raws), [b"a", b"x"]) == expected
    assert many_values(raws, [b"a", b"x"]) == expected


def test_values_of_many_lengths():
    raws = [b"a\x01%s\x02b\x01%s\x02" % (b"x" * number, b"y" * (number % 3)) for number in range(200)]
    expected = [[b"x" * number for number in range(200)], [b"y" * (number % 3) for number in range(200)]]

    assert many_values(raws, [b"a", b"b"]) == expected


def test_messages_without_properties():
    assert property_values(PropertyBlocks.of([b""] * 100), [b"a"]) == [[b""] * 100]
    assert property_values(PropertyBlocks.of([]), [b"a"]) == [[]]
    assert many_values([b""] * 100, [b"a"]) == [[b""] * 100]
