"""Ranges of commit logs without a valid record, and a test for offsets in them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.codec.message.columns import Positions


class DamagedRanges:
    """Ranges of commit logs: ``broker``, ``low`` and ``high``, the physical offset after the range.

    The driver and each worker keep them in memory, 16 bytes per range. Lookups bisect, where a join would compare each
    row with each range.
    """

    def __init__(self, ranges: pa.Table) -> None:
        self._of = {broker: _ordered(ranges, broker) for broker in ranges.column("broker").unique().to_pylist()}

    def have(self, brokers: pa.Array, offsets: pa.Array) -> NDArray[np.bool_]:
        """Return a mask of the ``offsets`` that lie in a range of their broker."""
        found, values = np.zeros(len(offsets), np.bool_), offsets.to_numpy()
        for broker, (lows, highs) in self._of.items():
            chosen = np.flatnonzero(pc.equal(brokers, broker).to_numpy(zero_copy_only=False))
            last = np.searchsorted(lows, values[chosen], "right") - 1
            found[chosen] = (last >= 0) & (values[chosen] < highs[last])
        return found

    def column(self) -> Column:
        """Return a column: true if the ``physical_offset`` of a row lies in a range of its ``broker``."""
        if not self._of:
            return F.lit(False)
        # Missing in Spark's type stubs; the kind of function follows from its annotations.
        is_damaged = F.arrow_udf(self._have, "boolean")  # type: ignore[attr-defined]
        found: Column = is_damaged("broker", "physical_offset")
        return found

    def _have(self, brokers: pa.Array, offsets: pa.Array) -> pa.Array:
        return pa.array(self.have(brokers, offsets))


def _ordered(ranges: pa.Table, broker: str) -> tuple[Positions, Positions]:
    """Return the starts of ranges, ascending, and the farthest end of the ranges up to each."""
    mine = ranges.filter(pc.equal(ranges.column("broker"), broker))
    lows, highs = mine.column("low").to_numpy(), mine.column("high").to_numpy()
    order = np.argsort(lows, kind="stable")
    return lows[order], np.maximum.accumulate(highs[order])
