"""Masks of rows by topic, tag or key: over the bytes of records, and over Arrow columns."""

from collections.abc import Set
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketbroker.analytics.columns.arrow_slices import as_text, binary_slices
from rocketbroker.analytics.columns.property_columns import properties_text, property_values
from rocketbroker.codec.message.columns import rows_at
from rocketbroker.codec.message.message_const import (
    KEY_SEPARATOR,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
)
from rocketbroker.codec.message.property_slices import Slices
from rocketbroker.codec.storefile.record_columns import Records

# More texts than this are looked up in a table instead of compared one by one.
_COMPARED: Final = 16
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"

Mask = NDArray[np.bool_]


def text_rows(data: NDArray[np.uint8], slices: Slices, wanted: Set[str]) -> Mask:
    """Return a mask of the ``slices`` of ``data`` that are one of ``wanted``, shape (n,)."""
    if len(wanted) > _COMPARED or any(_REPLACEMENT in text for text in wanted):  # it stands for any invalid bytes
        return _to_mask(arrow_among(as_text(binary_slices(data, *slices)), wanted))
    mask = np.zeros(len(slices.starts), np.bool_)
    for text in wanted:
        raw = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
        rows = np.flatnonzero(slices.lengths == len(raw))
        if len(raw) and len(rows):
            rows = rows[(rows_at(data, slices.starts[rows], len(raw)) == raw).all(axis=1)]
        mask[rows] = True
    return mask


def tag_rows(records: Records, wanted: Set[str]) -> Mask:
    """Return a mask of the records with one of the tags ``wanted`` (the whole property TAGS), shape (n,)."""
    return _to_mask(arrow_among(property_values(properties_text(records), PROPERTY_TAGS), wanted))


def key_rows(records: Records, wanted: Set[str]) -> Mask:
    """Return a mask of the records with one of the keys ``wanted``: a word of KEYS, or UNIQ_KEY. Shape (n,)."""
    properties = properties_text(records)
    unique = property_values(properties, PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
    return _to_mask(arrow_keys(property_values(properties, PROPERTY_KEYS), unique, wanted))


def arrow_keys(keys: pa.Array, unique: pa.Array, wanted: Set[str]) -> pa.Array:
    """Return a mask of the rows with one of ``wanted`` as a word of ``keys`` or as ``unique``."""
    words = pc.split_pattern(keys, KEY_SEPARATOR)
    rows = pc.list_parent_indices(words).to_numpy()
    found = np.zeros(len(keys), np.bool_)
    found[rows[_to_mask(arrow_among(words.flatten(), wanted))]] = True
    return pc.or_(pa.array(found), arrow_among(unique, wanted))


def arrow_among(values: pa.Array, wanted: Set[Any]) -> pa.Array:
    """Return a mask of the ``values`` that are among ``wanted``; false for null."""
    return pc.is_in(values, value_set=pa.array(sorted(wanted), values.type), skip_nulls=True)


def _to_mask(values: pa.Array) -> Mask:
    mask: Mask = values.to_numpy(zero_copy_only=False)
    return mask
