"""Values of some properties of many messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.record_properties import PropertyBlocks

if TYPE_CHECKING:
    from rocketbroker.codec.message.property_slices import Slices

# Up to so many different lengths, all values of one length are read at a time.
_FEW_LENGTHS: Final = 16


def property_values(blocks: PropertyBlocks, names: Sequence[bytes]) -> list[list[bytes]]:
    """Return, for each of ``names``, the values of all messages; empty for a message without one."""
    raws = blocks.raws()
    return [[get_property(raw, name) or b"" for raw in raws] for name in names]


def values_at(data: memoryview, slices: Slices) -> list[bytes]:
    """Return the values of many messages, found by ``property_slices``."""
    import numpy as np

    from rocketbroker.codec.byte_columns import gather

    starts, lengths = slices
    distinct = np.unique(lengths[lengths > 0]).tolist()
    if len(distinct) > _FEW_LENGTHS:
        places = map(slice, starts.tolist(), (starts + lengths).tolist())
        return list(map(bytes, map(data.__getitem__, places)))
    values = np.full(len(starts), b"", object)
    for length in distinct:
        rows = np.flatnonzero(lengths == length)
        values[rows] = gather(np.frombuffer(data, np.uint8), f"V{length}", starts[rows]).astype(object)
    found: list[bytes] = values.tolist()
    return found
