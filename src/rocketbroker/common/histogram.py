"""Counts of values by size, for metrics."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Number of values, their sum and their distribution.

    Args:
        bounds: upper bounds of the buckets, ascending; one more bucket holds the rest.
    """

    __slots__ = ("bounds", "buckets", "count", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.count = 0
        self.sum: float = 0

    def add(self, value: float, count: int = 1) -> None:
        """Add values that are equal."""
        self.count += count
        self.sum += value * count
        self.buckets[bisect_left(self.bounds, value)] += count

    def take(self, other: "Histogram") -> None:
        """Add the values of a histogram with the same bounds."""
        self.count += other.count
        self.sum += other.sum
        self.buckets = [own + its for own, its in zip(self.buckets, other.buckets, strict=True)]
