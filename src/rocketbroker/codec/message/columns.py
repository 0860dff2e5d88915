"""Values, texts and hashes at many positions of a buffer, gathered with numpy.

Apart from the plain decoders because importing numpy takes 0.2 s, longer than a broker may take to start.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import DTypeLike, NDArray

from rocketbroker.codec.message.tags_code import extend_hash

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


# ``String.hashCode`` of many keys at once, with numpy.
#
# Keys of one length are the rows of a matrix; its product with the powers of 31 is their hashes. This is separate from
# ``tags_code.py`` because importing numpy takes 0.2 s.

#: Longer keys are hashed one by one, so that the table of powers stays short.
_LONGEST = 1024


def java_hash_many(
    keys: Sequence[bytes], prefix_hashes: Sequence[int] | npt.NDArray[np.int32] | None = None
) -> npt.NDArray[np.int32]:
    """Return the hash of each key's text (``keys`` are UTF-8), as int32 of shape ``(len(keys),)``.

    With ``prefix_hashes``, of the same length, each key is hashed as if it followed the prefix with that hash.
    """
    prefixes = _prefixes(prefix_hashes, len(keys))
    joined = b"".join(keys)
    hashes = np.empty(len(keys), np.uint32)
    if not joined.isascii():
        _one_by_one(keys, prefixes, range(len(keys)), hashes)
        return hashes.view(np.int32)
    units = np.frombuffer(joined, np.uint8)
    all_lengths = set(map(len, keys))
    if len(all_lengths) == 1 and len(keys[0]) <= _LONGEST:
        return _of_one_length(units.reshape(len(keys), -1), prefixes).view(np.int32)
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    starts = np.cumsum(lengths) - lengths
    for length in all_lengths:
        rows = np.flatnonzero(lengths == length)
        if length > _LONGEST:
            _one_by_one(keys, prefixes, rows.tolist(), hashes)
            continue
        hashes[rows] = _of_one_length(units[starts[rows, None] + np.arange(length)], prefixes[rows])
    return hashes.view(np.int32)


def java_hash_joined(keys: bytes, prefix_hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return the hashes of joined keys of equal lengths, each of which follows one of ``prefix_hashes``."""
    count = len(prefix_hashes)
    length = len(keys) // count
    if length <= _LONGEST and keys.isascii():
        units = np.frombuffer(keys, np.uint8).reshape(count, length)
        return _of_one_length(units, prefix_hashes.view(np.uint32)).view(np.int32)
    return java_hash_many([keys[at : at + length] for at in range(0, len(keys), length)], prefix_hashes)


def java_hash_slices(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    prefix_hashes: npt.NDArray[np.int32] | None = None,
) -> npt.NDArray[np.int32]:
    """Return the hashes of the keys at ``starts`` of ``data`` that are ``lengths`` bytes long, shape (n,)."""
    prefixes = _prefixes(prefix_hashes, len(starts))
    hashes = prefixes.copy()
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        if length <= _LONGEST:
            units = rows_at(data, starts[rows], length)
            hashes[rows] = _of_one_length(units, prefixes[rows])
            rows = rows[(units >= 0x80).any(axis=1)] if units.max() >= 0x80 else rows[:0]
        for row in rows.tolist():
            key = data[starts[row] : starts[row] + length].tobytes()
            hashes[row] = extend_hash(int(prefixes[row]), key) & 0xFFFFFFFF
    return hashes.view(np.int32)


def index_key_hashes(java_hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return IndexFile's ``keyHash`` for hashes of built keys: the absolute value, or 0 for the int32 without one."""
    hashes = np.abs(java_hashes)
    return np.maximum(hashes, 0, out=hashes)


def index_key_hash_many(
    keys: Sequence[bytes], prefix_hashes: Sequence[int] | npt.NDArray[np.int32] | None = None
) -> npt.NDArray[np.int32]:
    """Return IndexFile's ``keyHash`` of each key: the absolute value of its hash, or 0 for the int32 without one."""
    return index_key_hashes(java_hash_many(keys, prefix_hashes))


def _prefixes(prefix_hashes: Sequence[int] | npt.NDArray[np.int32] | None, count: int) -> npt.NDArray[np.uint32]:
    if prefix_hashes is None:
        return np.zeros(count, np.uint32)
    prefixes = np.asarray(prefix_hashes, np.int32).view(np.uint32)
    if len(prefixes) != count:
        raise ValueError(f"{count} keys need as many prefix hashes, not {len(prefixes)}")
    return prefixes


def _of_one_length(units: npt.NDArray[np.uint8], prefixes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the hashes of the keys that are the rows of a matrix."""
    length = units.shape[1]
    sums: npt.NDArray[np.uint32] = np.einsum("ij,j->i", units, _powers(length))
    return prefixes * _power(length) + sums


def _one_by_one(
    keys: Sequence[bytes], prefixes: npt.NDArray[np.uint32], members: Sequence[int], hashes: npt.NDArray[np.uint32]
) -> None:
    for index in members:
        hashes[index] = extend_hash(int(prefixes[index]), keys[index]) & 0xFFFFFFFF


@lru_cache(maxsize=_LONGEST + 1)
def _powers(length: int) -> npt.NDArray[np.uint32]:
    return np.array([pow(31, exponent, 1 << 32) for exponent in range(length - 1, -1, -1)], np.uint32)


@lru_cache(maxsize=_LONGEST + 1)
def _power(length: int) -> np.uint32:
    return np.uint32(pow(31, length, 1 << 32))
