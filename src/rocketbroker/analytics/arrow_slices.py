"""Arrow values out of the bytes of a window, without a row of Python."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketbroker.codec.byte_columns import Positions


def binary_slices(
    data: NDArray[Any],
    at: Positions,
    lengths: Positions,
    kind: pa.DataType | None = None,
    missing: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """The ``lengths`` bytes at each of ``at`` of ``data``, which do not overlap and ascend, as an Arrow binary array.

    Copies, so that ``data`` may change afterwards. ``kind`` is string for what is known to be UTF-8; null where
    ``missing``.
    """
    # A binary array over the data itself has these slices as every second element, what lies between as the others.
    offsets = np.empty(2 * len(at), np.int32)
    offsets[0::2], offsets[1::2] = at, at + lengths
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    both = pa.Array.from_buffers(kind or pa.binary(), max(len(offsets) - 1, 0), buffers)
    return both.take(pa.array(np.arange(0, len(offsets), 2), mask=missing))


def as_text(values: pa.Array) -> pa.Array:
    """``values`` as strings; bytes that are no UTF-8 become U+FFFD, as in Java."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = (None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist())
        return pa.array(texts, pa.string())
