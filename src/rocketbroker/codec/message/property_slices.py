"""Where properties of many messages stand, found by numpy. ``message_properties.py`` has the grammar."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
_NAME_END = 1
_PAIR_END = 2


class Slices(NamedTuple):
    """Values in ``data``: where each begins and its length in bytes, 0 where a message has no such property."""

    starts: Positions
    lengths: Positions


def property_slices(
    data: npt.NDArray[np.uint8], at: Positions, lengths: Positions, *names: bytes
) -> tuple[Slices, ...]:
    """The values of each of ``names`` in the properties at ``at`` (ascending) of ``data``; shapes (n,).

    As in :func:`get_property` an empty value counts for nothing, and of several the last counts.
    """
    if not len(at):
        return tuple(Slices(at, at) for _ in names)
    stops = at + lengths
    separators = np.flatnonzero(data == _NAME_END)
    owners = np.searchsorted(at, separators, side="right") - 1
    inside = (owners >= 0) & (separators < stops[owners])
    separators, owners = separators[inside], owners[inside]
    pair_ends = np.append(np.flatnonzero(data == _PAIR_END), len(data))
    values_end = np.minimum(pair_ends[np.searchsorted(pair_ends, separators)], stops[owners])
    found = []
    for name in names:
        is_named = _is_named(data, separators, at[owners], name) & (values_end > separators + 1)
        slices = Slices(np.zeros(len(at), np.int64), np.zeros(len(at), np.int64))
        chosen = owners[is_named]
        # Of several values for one message numpy keeps the last.
        slices.starts[chosen] = separators[is_named] + 1
        slices.lengths[chosen] = (values_end - separators - 1)[is_named]
        found.append(slices)
    return tuple(found)


def _is_named(
    data: npt.NDArray[np.uint8], separators: Positions, first: Positions, name: bytes
) -> npt.NDArray[np.bool_]:
    """Before which of the separators stands ``name``, as a whole name."""
    begins = separators - len(name)
    follows = data[np.maximum(begins - 1, 0)] == _PAIR_END
    found: npt.NDArray[np.bool_] = (begins == first) | ((begins > first) & follows)
    for number, byte in enumerate(name):
        members = np.flatnonzero(found)
        found[members[data[begins[members] + number] != byte]] = False
    return found
