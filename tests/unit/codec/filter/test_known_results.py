"""Tests of KnownResults: each message gets the result of its own values, known or not."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.filter.known_results import KnownResults
from rocketbroker.codec.message.property_slices import Slices
from rocketbroker.codec.message.raw_records import values_at

VALUES = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=9)), min_size=1, max_size=50)


class Table:
    """Results of even sums of bytes; counts the values that were not known.

    ``after`` bytes follow the values. Values among the last 16 bytes of a buffer are never known.
    """

    def __init__(self, count: int, after: int = 16) -> None:
        self._after = after
        self.known = KnownResults(count)
        self.asked = 0

    def matched(self, rows: Sequence[tuple[bytes, ...]]) -> list[bool]:
        raws = list(zip(*rows, strict=True))
        data = b"".join(value for column in raws for value in column).ljust(16, b"\xff") + bytes(self._after)
        columns, at = [], 0
        for column in raws:
            lengths = np.array([len(value) for value in column], np.int64)
            columns.append(Slices(at + np.cumsum(lengths) - lengths, lengths))
            at += int(lengths.sum())

        def results_of(unknown: list[Slices]) -> list[bool]:
            values = [values_at(memoryview(data), each) for each in unknown]
            self.asked += len(values[0])
            return [is_even(*each) for each in zip(*values, strict=True)]

        return self.known.matched(np.frombuffer(data, np.uint8), columns, results_of)


def is_even(*values: bytes) -> bool:
    return sum(map(sum, values)) % 2 == 0


@given(st.lists(VALUES, min_size=1, max_size=4), st.sampled_from([0, 16]))
def test_the_results_are_those_of_the_values(passes: list[list[tuple[bytes, bytes]]], after: int):
    table = Table(2, after)
    for rows in passes * 2:
        assert table.matched(rows) == [is_even(*row) for row in rows]


def test_values_are_asked_for_once():
    table = Table(1)
    rows = [(b"%d" % (number % 100),) for number in range(3000)]
    # Some values share a place of the table: the second pass gives the others their second place.
    table.matched(rows)
    table.matched(rows)
    asked = table.asked
    for _ in range(5):
        assert table.matched(rows) == [is_even(*row) for row in rows]

    assert table.asked == asked


@pytest.mark.parametrize("length", [7, 8, 9, 15, 16, 200])
def test_values_that_differ_in_one_byte_or_in_length(length: int):
    values = [b"", bytes(length), bytes(length - 1), bytes(length - 1) + b"\x01", b"\x01" + bytes(length - 1)]
    table = Table(1)
    for _ in range(2):
        rows = [(value,) for value in values] * 10
        assert table.matched(rows) == [is_even(*row) for row in rows]


def test_more_values_than_places():
    table = Table(1)
    for start in range(0, 20_000, 5_000):
        rows = [(b"%d" % number,) for number in range(start, start + 5_000)]
        assert table.matched(rows) == [is_even(*row) for row in rows]
        assert table.matched(rows) == [is_even(*row) for row in rows]
