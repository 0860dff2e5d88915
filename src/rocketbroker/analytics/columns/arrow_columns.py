"""Arrow arrays made from the bytes of records, properties among them, without Python objects for rows."""

import re
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.record_columns import Records


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


# Properties, as ``MessageDecoder.string2messageProperties`` reads them.
#
# properties := (name 0x01 value 0x02)*, the last 0x02 optional. A pair with an empty name or value is ignored;
# of several pairs with the same name the last one counts.

_NAME_END: Final = 1
_PAIR_END: Final = 2
# Marks the end of a message whose last pair has no separator.
_MESSAGE_END: Final = 3
# Repeated names are found by a lookup table if it has at most this many places for each pair.
_PLACES: Final = 64


def properties_text(records: Records) -> pa.Array:
    """Return the properties of each record as one string, as stored."""
    return as_text(binary_slices(records.data, records.properties_at, records.properties_length))


def property_values(properties: pa.Array, name: str) -> pa.Array:
    """Return the value of a property in each string of ``properties``; null where it is missing."""
    pattern = rf"(?s)^(?:.*\x02)?{re.escape(name)}\x01(?P<value>[^\x02]+)"
    return pc.struct_field(pc.extract_regex(properties, pattern), "value")


def properties_map(properties: pa.Array) -> pa.MapArray:
    """Return each string of ``properties`` as a map from name to value, in stored order."""
    data, offsets = _text_buffers(properties)
    pairs = _pairs(data, offsets)
    names = binary_slices(data, pairs.name_at, pairs.name_length, pa.string())
    rows, kept = pairs.rows, _last_of_each_name(pairs.rows, names)
    if kept is not None:
        names, rows = names.take(number_array(kept)), rows[kept]
        pairs = _Pairs(*(column[kept] for column in pairs))
    values = binary_slices(data, pairs.value_at, pairs.value_length, pa.string())
    counts = np.bincount(rows, minlength=len(properties))
    begins = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.MapArray.from_arrays(number_array(begins), names, values)


def with_properties(batch: pa.RecordBatch, names: Collection[str] | None) -> pa.RecordBatch:
    """Return ``batch`` with only the properties ``names`` in its column ``properties``; all if None."""
    at = batch.schema.get_field_index("properties")
    if names is None or at < 0:
        return batch
    maps = batch.column(at)
    kept = pc.is_in(maps.keys, value_set=pa.array(sorted(names), pa.string()))
    before = np.concatenate(([0], np.cumsum(kept.to_numpy(zero_copy_only=False)))).astype(np.int32)
    begins = number_array(before[maps.offsets.to_numpy()])
    left = pa.MapArray.from_arrays(begins, maps.keys.filter(kept), maps.items.filter(kept), mask=maps.is_null())
    return batch.set_column(at, batch.schema.field(at), left)


class _Pairs(NamedTuple):
    """Columns of pairs, shape (n,): index of the message, and the positions of name and value in the text."""

    rows: Positions
    name_at: Positions
    name_length: Positions
    value_at: Positions
    value_length: Positions


def _text_buffers(texts: pa.Array) -> tuple[NDArray[np.uint8], Positions]:
    """Return the bytes of all strings, the start of each and the end of the last."""
    _, offsets, data = texts.buffers()
    if not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    places = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    whole = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return whole[places[0] : places[-1]], places - places[0]


def _pairs(data: NDArray[np.uint8], offsets: Positions) -> _Pairs:
    """Return all pairs with a name and a value, in stored order."""
    at, kinds = _separators(data, offsets)
    marks = np.flatnonzero(kinds == _NAME_END)
    before, behind = marks - 1, marks + 1
    name_at, value_at = at[before] + (kinds[before] == _PAIR_END), at[marks] + 1
    name_length, value_length = at[marks] - name_at, at[behind] - value_at
    rows = (np.cumsum(kinds == _MESSAGE_END) - 1)[marks]
    found = _Pairs(rows, name_at, name_length, value_at, value_length)
    counts = (name_length > 0) & (value_length > 0)
    return found if counts.all() else _Pairs(*(column[counts] for column in found))


def _separators(data: NDArray[np.uint8], offsets: Positions) -> tuple[Positions, NDArray[np.uint8]]:
    """Return the positions of separators and their kinds, with each message's start and the last one's end.

    Of each pair only the first name separator is included.
    """
    inside = np.flatnonzero(data - np.uint8(_NAME_END) <= _PAIR_END - _NAME_END)
    # The sort is stable: a message's start precedes a separator at the same position.
    at = np.concatenate((offsets, inside))
    kinds = np.concatenate((np.full(len(offsets), _MESSAGE_END, np.uint8), data[inside]))
    order = np.argsort(at, kind="stable")
    at, kinds = at[order], kinds[order]
    kept = (kinds != _NAME_END) | (np.roll(kinds, 1) != _NAME_END)
    return at[kept], kinds[kept]


def _last_of_each_name(rows: Positions, names: pa.Array) -> Positions | None:
    """Return the indexes of the last pair of each row and name, ascending; ``None`` if that is all pairs."""
    encoded = names.dictionary_encode()
    different = max(len(encoded.dictionary), 1)
    codes = rows * different + np.from_dlpack(encoded.indices)
    if len(codes) and int(codes[-1]) < len(codes) * _PLACES and np.bincount(codes).max() == 1:
        return None
    _, from_behind = np.unique(codes[::-1], return_index=True)
    return np.sort(len(codes) - 1 - from_behind)
