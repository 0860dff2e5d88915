"""Values of some properties of many messages."""

from collections.abc import Sequence
from typing import Final

from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.record_properties import MANY, PropertyBlocks

# Up to so many different lengths, all values of one length are read at a time.
_FEW_LENGTHS: Final = 16


def property_values(blocks: PropertyBlocks, names: Sequence[bytes]) -> list[list[bytes]]:
    """Return, for each of ``names``, the values of all messages; empty for a message without one."""
    if len(blocks) < MANY:
        raws = blocks.raws()
        return [[get_property(raw, name) or b"" for raw in raws] for name in names]
    return _values_many(blocks, names)


def _values_many(blocks: PropertyBlocks, names: Sequence[bytes]) -> list[list[bytes]]:
    import numpy as np

    from rocketbroker.codec.byte_columns import gather
    from rocketbroker.codec.message.property_slices import property_slices

    if not len(blocks.data):
        return [[b""] * len(blocks) for _ in names]
    data = np.frombuffer(blocks.data, np.uint8)
    columns = []
    for starts, lengths in property_slices(data, blocks.starts, blocks.lengths, *names):
        distinct = np.unique(lengths[lengths > 0]).tolist()
        if len(distinct) > _FEW_LENGTHS:
            places = map(slice, starts.tolist(), (starts + lengths).tolist())
            columns.append(list(map(bytes, map(blocks.data.__getitem__, places))))
            continue
        values = np.full(len(blocks), b"", object)
        for length in distinct:
            rows = np.flatnonzero(lengths == length)
            values[rows] = gather(data, f"V{length}", starts[rows]).astype(object)
        columns.append(values.tolist())
    return columns
