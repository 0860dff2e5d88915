"""Arrow values out of the bytes of a window, without a row of Python."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketbroker.codec.byte_columns import Positions


def number_array(
    values: NDArray[Any], kind: pa.DataType | None = None, missing: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return numbers as an Arrow array over their own memory; null where ``missing``.

    ``kind`` is another type of the same width, such as a timestamp for int64. ``pa.array`` would do the same, and load
    pandas for it, a third of a second in each Python worker of Spark.
    """
    native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [valid, pa.py_buffer(native)]
    return pa.Array.from_buffers(kind or pa.from_numpy_dtype(native.dtype), len(native), buffers)


def text_array(values: Sequence[str]) -> pa.Array:
    """Return a few texts as an Arrow array, without pandas as :func:`number_array`."""
    encoded = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def binary_slices(
    data: NDArray[Any],
    at: Positions,
    lengths: Positions,
    kind: pa.DataType | None = None,
    missing: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """Return ``lengths`` bytes from each of ``at`` in ``data`` as an Arrow array; they ascend and do not overlap.

    Copies, so that ``data`` may change afterwards. ``kind`` is string for what is known to be UTF-8; null where
    ``missing``.
    """
    # A binary array over the data itself has these slices as every second element, what lies between as the others.
    offsets = np.empty(2 * len(at), np.int32)
    offsets[0::2], offsets[1::2] = at, at + lengths
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    both = pa.Array.from_buffers(kind or pa.binary(), max(len(offsets) - 1, 0), buffers)
    return both.take(number_array(np.arange(0, len(offsets), 2), missing=missing))


def as_text(values: pa.Array) -> pa.Array:
    """``values`` as strings; bytes that are no UTF-8 become U+FFFD, as in Java."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = (None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist())
        return pa.array(texts, pa.string())
