"""Arrow arrays built from the bytes of a window, without Python objects for rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketbroker.codec.message.columns import Positions


def number_array(
    values: NDArray[Any], kind: pa.DataType | None = None, missing: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return numbers as an Arrow array over their own memory; null where ``missing``.

    ``kind`` is another type of the same width, such as a timestamp for int64. ``pa.array`` would do the same, but load
    pandas, which takes a third of a second in each Python worker of Spark.
    """
    native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [valid, pa.py_buffer(native)]
    return pa.Array.from_buffers(kind or pa.from_numpy_dtype(native.dtype), len(native), buffers)


def text_array(values: Sequence[str]) -> pa.Array:
    """Return a few texts as an Arrow array; like :func:`number_array`, without pandas."""
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

    The bytes are copied, so ``data`` may change afterwards. ``kind`` is string for bytes known to be UTF-8. Values are
    null where ``missing``.
    """
    # A binary array over the data itself: every second element is a slice, the others are the bytes between slices.
    offsets = np.empty(2 * len(at), np.int32)
    offsets[0::2], offsets[1::2] = at, at + lengths
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    both = pa.Array.from_buffers(kind or pa.binary(), max(len(offsets) - 1, 0), buffers)
    return both.take(number_array(np.arange(0, len(offsets), 2), missing=missing))


def as_text(values: pa.Array) -> pa.Array:
    """Return ``values`` as strings; invalid UTF-8 becomes U+FFFD, as in Java."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = (None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist())
        return pa.array(texts, pa.string())
