"""Values and texts at many positions of a buffer, gathered with numpy."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Positions = NDArray[np.int64]

# Up to so many different texts are each compared with all that are left; further ones are looked up one by one.
_COMPARED = 32


def gather(data: NDArray[np.uint8], dtype: DTypeLike, positions: Positions) -> NDArray[Any]:
    """Return the values of ``dtype`` at ``positions`` of ``data``, aligned or not."""
    kind = np.dtype(dtype)
    # np.take would copy the overlapping view as a whole: fancy indexing reads only what is asked for.
    return np.ndarray((len(data) - kind.itemsize + 1,), kind, buffer=data, strides=(1,))[positions]


def rows_at(data: NDArray[np.uint8], positions: Positions, length: int) -> NDArray[np.uint8]:
    """Return the ``length`` bytes at each of ``positions``, at least one: shape (n, ``length``)."""
    return gather(data, f"V{length}", positions).view(np.uint8).reshape(len(positions), length)


def distinct_texts(
    data: NDArray[np.uint8], starts: Positions, lengths: Positions
) -> tuple[list[bytes], NDArray[np.int64]]:
    """Return the different texts of ``lengths`` bytes at ``starts``, and the number of each in them, shape (n,)."""
    texts: list[bytes] = []
    numbers = np.full(len(starts), -1, np.int64)
    left = np.arange(len(starts))
    while len(left) and len(texts) < _COMPARED:
        first = left[0]
        text = data[starts[first] : starts[first] + lengths[first]]
        alike = lengths[left] == len(text)
        if len(text):
            candidates = left[alike]
            alike[alike] = (rows_at(data, starts[candidates], len(text)) == text).all(axis=1)
        numbers[left[alike]] = len(texts)
        texts.append(text.tobytes())
        left = left[~alike]
    known = {text: number for number, text in enumerate(texts)}
    for at in left.tolist():
        one = data[starts[at] : starts[at] + lengths[at]].tobytes()
        numbers[at] = known.setdefault(one, len(known))
    return list(known), numbers
