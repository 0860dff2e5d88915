"""Positions of the properties of many messages, found with numpy; ``message_properties.py`` has the grammar.

Producers write the same names in the same order, and values of few lengths. So messages whose properties have the same
length are compared with the layout of one of them, eight bytes at a time, from the first wanted pair on. Only the rest
is parsed pair by pair.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketbroker.codec.message.columns import Positions, gather

_NAME_END = b"\x01"
_PAIR_END = b"\x02"
_WORD = 8
# Fewest messages of one length that are worth a layout, and most layouts tried for one length.
_FEW = 16
_LAYOUTS = 4
# From so many messages on numpy is quicker word by word than row by row.
_TALL = 1024
_ONES = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_PAIR_ENDS = np.uint64(0x0202020202020202)

Words = npt.NDArray[np.uint64]


class Slices(NamedTuple):
    """Values in ``data``: start and length in bytes of each; length 0 if a message lacks the property."""

    starts: Positions
    lengths: Positions


def property_slices(
    data: npt.NDArray[np.uint8], at: Positions, lengths: Positions, *names: bytes
) -> tuple[Slices, ...]:
    """Return the values of each of ``names`` in the properties at ``at`` (ascending) of ``data``; shapes (n,).

    As in :func:`get_property`, an empty value is ignored, and the last of several values counts.
    """
    found = tuple(Slices(np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)) for _ in names)
    if not names:
        return found
    left = lengths > 0
    counts = np.bincount(lengths[left])
    for length in np.flatnonzero(counts >= _FEW).tolist():
        rows = np.flatnonzero(lengths == length)
        left[rows] = False
        left[_of_one_length(data, at, rows, length, names, found)] = True
    _pair_by_pair(data, at, lengths, np.flatnonzero(left), names, found)
    return found


def _of_one_length(
    data: npt.NDArray[np.uint8],
    at: Positions,
    rows: Positions,
    length: int,
    names: tuple[bytes, ...],
    found: tuple[Slices, ...],
) -> Positions:
    """Find the values of messages with equally long properties; return the messages without a common layout."""
    # Words are read that extend beyond the properties.
    near_end = at[rows] + length + _WORD > len(data)
    left, rows = rows[near_end], rows[~near_end]
    for _ in range(_LAYOUTS):
        if len(rows) < _FEW:
            break
        first = at[rows[0]]
        layout = _Layout(data[first : first + length].tobytes(), names)
        alike = layout.fits(data, at[rows] + layout.begin)
        members = rows[alike]
        for name, slices in zip(names, found, strict=True):
            begin, end = layout.values.get(name, (0, 0))
            slices.starts[members] = at[members] + begin
            slices.lengths[members] = end - begin
        rows = rows[~alike]
    return np.concatenate((left, rows))


class _Layout:
    """Layout of the properties of one message: bytes of names and separators, and positions of values.

    Bytes before the first of the wanted pairs are not compared: the last pair of a name counts, whatever they are. This
    pair has its separator before it, so that they cannot belong to it. If a name is missing, all bytes are compared.

    Args:
        raw: its properties.
        names: the wanted properties.

    Attributes:
        values: positions of the values that count, by name.
        begin: position of the first byte that is compared.
    """

    def __init__(self, raw: bytes, names: tuple[bytes, ...]) -> None:
        self.values: dict[bytes, tuple[int, int]] = {}
        of_value = np.zeros(len(raw) + _WORD, np.uint8)
        begin, length = 0, len(raw)
        while begin < length:
            end = raw.find(_PAIR_END, begin, length)
            end = length if end < 0 else end
            name_end = raw.find(_NAME_END, begin, end)
            if name_end >= 0:
                of_value[name_end + 1 : end] = 0xFF
                if name_end + 1 < end:
                    self.values[raw[begin:name_end]] = name_end + 1, end
            begin = end + 1
        # The separator before a name is compared as well.
        pairs = [self.values[name][0] - len(name) - 2 for name in names if name in self.values]
        self.begin = max(min(pairs), 0) if len(pairs) == len(names) else 0
        of_name = ~of_value
        of_name[length:] = 0
        compared = slice(self.begin, self.begin - (self.begin - length) // _WORD * _WORD)
        self._of_value, self._of_name = of_value[compared].view(np.uint64), of_name[compared].view(np.uint64)
        self._names = np.frombuffer(raw + bytes(_WORD), np.uint8)[compared].view(np.uint64) & self._of_name

    def fits(self, data: npt.NDArray[np.uint8], at: Positions) -> npt.NDArray[np.bool_]:
        """Return the messages with the same names and separators, and no pair separator within a value.

        Args:
            data: buffer with their properties.
            at: position of the first byte that is compared, of each.
        """
        count = len(self._names)
        if count > 1 and len(at) < _TALL:
            words = gather(data, f"V{count * _WORD}", at).view(np.uint64).reshape(len(at), count)
            return np.asarray(~_differences(words, self._of_value, self._of_name, self._names).any(axis=1))
        differences = np.zeros(len(at), np.uint64)
        for number, layout in enumerate(zip(self._of_value, self._of_name, self._names, strict=True)):
            differences |= _differences(gather(data, np.uint64, at + number * _WORD), *layout)
        found: npt.NDArray[np.bool_] = differences == 0
        return found


def _differences(
    words: Words, of_value: Words | np.uint64, of_name: Words | np.uint64, names: Words | np.uint64
) -> Words:
    """Return 0 for each word that fits its layout."""
    # A byte of it is zero where a value contains a separator.
    units = (words ^ _PAIR_ENDS) | ~of_value
    found: Words = ((units - _ONES) & ~units & _HIGH_BITS) | ((words & of_name) ^ names)
    return found


def _pair_by_pair(
    data: npt.NDArray[np.uint8],
    at: Positions,
    lengths: Positions,
    rows: Positions,
    names: tuple[bytes, ...],
    found: tuple[Slices, ...],
) -> None:
    """Find the values of the messages numbered ``rows``."""
    if not len(rows):
        return
    text, begins = _joined(data, at[rows], lengths[rows])
    ends = np.flatnonzero(text == _PAIR_END[0])
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
    owners = np.searchsorted(begins, starts, side="right") - 1
    to_data = at[rows] - begins
    for name, slices in zip(names, found, strict=True):
        value_at = starts + len(name) + 1
        chosen = np.flatnonzero(_begin_with(text, starts, name + _NAME_END) & (value_at < ends))
        of_data = to_data[owners[chosen]]
        # numpy keeps the last of several values of one message.
        slices.starts[rows[owners[chosen]]] = value_at[chosen] + of_data
        slices.lengths[rows[owners[chosen]]] = (ends - value_at)[chosen]


def _joined(data: npt.NDArray[np.uint8], at: Positions, lengths: Positions) -> tuple[npt.NDArray[np.uint8], Positions]:
    """Return the properties one after the other, each ended by a separator, and the start of those of each message."""
    whole = data.data
    raws = map(whole.__getitem__, map(slice, at.tolist(), (at + lengths).tolist()))
    text = np.frombuffer(_PAIR_END.join(raws) + _PAIR_END, np.uint8)
    return text, np.cumsum(lengths + 1) - lengths - 1


def _begin_with(text: npt.NDArray[np.uint8], starts: Positions, prefix: bytes) -> npt.NDArray[np.bool_]:
    """Return a mask of the ``starts`` at which ``prefix`` begins."""
    found = starts + len(prefix) <= len(text)
    members = np.flatnonzero(found)
    for number, byte in enumerate(prefix):
        members = members[text[starts[members] + number] == byte]
        if not len(members):
            break
    found[:] = False
    found[members] = True
    return found
