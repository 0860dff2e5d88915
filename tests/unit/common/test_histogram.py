"""Distributions of values."""

from rocketbroker.common.histogram import Histogram


def test_a_value_counts_in_the_first_bucket_that_holds_it():
    times = Histogram((1, 10))
    for value in (1, 1.5, 10, 11):
        times.add(value)

    assert times.buckets == [1, 2, 1]
    assert (times.count, times.sum) == (4, 23.5)


def test_equal_values_count_together():
    times = Histogram((1, 10))
    times.add(2, 3)
    other = Histogram((1, 10))
    other.add(20)
    times.take(other)

    assert times.buckets == [0, 3, 1]
    assert (times.count, times.sum) == (4, 26)
