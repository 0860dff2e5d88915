"""Values of some properties in the properties of many messages: by numpy where they are many."""

from collections.abc import Sequence
from typing import Final

from rocketbroker.codec.message.message_properties import get_property

# From so many messages on numpy is quicker, whose import takes longer than a broker's start may.
_MANY: Final = 24


def property_values(raws: Sequence[bytes], names: Sequence[bytes]) -> list[list[bytes]]:
    """For each of ``names`` the values in ``raws``, the properties of each message; empty where there is none."""
    if len(raws) < _MANY or not any(raws):
        return [[get_property(raw, name) or b"" for raw in raws] for name in names]
    return _values_many(raws, names)


def _values_many(raws: Sequence[bytes], names: Sequence[bytes]) -> list[list[bytes]]:
    import numpy as np

    from rocketbroker.codec.message.property_slices import property_slices

    text = b"".join(raws)
    lengths = np.fromiter(map(len, raws), np.int64, len(raws))
    starts = np.cumsum(lengths) - lengths
    found = property_slices(np.frombuffer(text, np.uint8), starts, lengths, *names)
    return [
        list(map(text.__getitem__, map(slice, begins.tolist(), (begins + sizes).tolist()))) for begins, sizes in found
    ]
