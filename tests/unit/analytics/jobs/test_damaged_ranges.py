"""Offsets in damaged ranges; without Spark."""

import random

import pyarrow as pa

from rocketbroker.analytics.jobs.damaged_ranges import DamagedRanges

SCHEMA = pa.schema([("broker", pa.string()), ("low", pa.int64()), ("high", pa.int64())])
Range = tuple[str, int, int]


def ranges_of(rows: list[Range]) -> DamagedRanges:
    return DamagedRanges(pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA))


def test_they_have_what_a_plain_loop_finds_in_them() -> None:
    """Ranges touch, lie in each other and are of several brokers."""
    numbers = random.Random(7)
    for count in (1, 3, 40):
        rows = [
            ("ab"[number % 2], low := numbers.randrange(500), low + numbers.randrange(60)) for number in range(count)
        ]
        offsets = [(numbers.choice("abc"), numbers.randrange(-5, 600)) for _ in range(500)]
        brokers, values = (pa.array(column) for column in zip(*offsets, strict=True))
        assert ranges_of(rows).have(brokers, values).tolist() == [
            any(broker == of and low <= offset < high for of, low, high in rows) for broker, offset in offsets
        ]


def test_many_ranges_are_not_gone_through_for_each_offset() -> None:
    count = 200_000
    rows = pa.table(
        {"broker": pa.repeat("a", count), "low": range(0, count * 10, 10), "high": range(5, count * 10, 10)}
    )
    offsets = pa.array(range(0, count * 10, 7))
    found = DamagedRanges(rows).have(pa.repeat("a", len(offsets)), offsets)
    assert found.tolist() == [offset % 10 < 5 for offset in range(0, count * 10, 7)]
