"""Properties as Arrow columns, without a row of Python. Answers to ``MessageDecoder.string2messageProperties``.

properties := (name 0x01 value 0x02)*, the last 0x02 optional. A pair with an empty name or value does not count; of
several with one name the last does.
"""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.codec.message.message_const import PROPERTY_SEPARATOR

_PAIR = r"(?s)^(?P<name>[^\x01]+)\x01(?P<value>.+)$"


def property_values(properties: pa.Array, name: str) -> pa.Array:
    """The value of the property ``name`` in each string of ``properties``; null where there is none."""
    pattern = rf"(?s)^(?:.*\x02)?{re.escape(name)}\x01(?P<value>[^\x02]+)"
    return pc.struct_field(pc.extract_regex(properties, pattern), "value")


def properties_map(properties: pa.Array) -> pa.MapArray:
    """Each string of ``properties`` as a map from name to value, in stored order."""
    parts = pc.split_pattern(properties, PROPERTY_SEPARATOR)
    rows = pc.list_parent_indices(parts).to_numpy()
    pairs = pc.extract_regex(parts.flatten(), _PAIR)
    is_pair = pc.is_valid(pairs)
    pairs, rows = pairs.filter(is_pair), rows[is_pair.to_numpy(zero_copy_only=False)]
    names = pc.struct_field(pairs, "name")
    kept = _last_of_each_name(rows, names)
    counts = np.bincount(rows[kept], minlength=len(properties))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    chosen = pa.array(kept)
    return pa.MapArray.from_arrays(pa.array(offsets), names.take(chosen), pc.struct_field(pairs, "value").take(chosen))


def _last_of_each_name(rows: np.ndarray, names: pa.Array) -> np.ndarray:
    """Indices of the pairs that no later pair of the same row and name follows, ascending."""
    encoded = names.dictionary_encode()
    codes = rows.astype(np.int64) * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
    _, from_behind = np.unique(codes[::-1], return_index=True)
    return np.sort(len(codes) - 1 - from_behind)
