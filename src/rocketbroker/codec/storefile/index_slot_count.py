"""How many slots an IndexFile has: the file does not say, and neither slots nor entries can be read without.

Apart from the layout, since importing numpy takes longer than a broker's start may.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.storefile.dtypes import INDEX_ENTRY, INDEX_SLOT
from rocketbroker.codec.storefile.index_file_layout import (
    HASH_SLOT_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    IndexHeader,
)
from rocketbroker.common.errors import CodecError


def find_slot_count(header: IndexHeader, data: NDArray[np.uint8]) -> int:
    """maxHashSlotNum: the one number that the slots and the last entry of the file in ``data`` agree with.

    With other numbers something else stands where the last entry would be: by chance an entry of the same message
    whose slot would hold what it should. Then all entries decide.

    Raises:
        CodecError: several numbers are possible, or none; ``maxHashSlotNum`` of the broker's settings says which.
    """
    last = header.index_count - 1
    # The entries fill what header and slots leave, so the slots come in steps of five.
    most = (len(data) - INDEX_HEADER_SIZE - INDEX_SIZE * (last + 1)) // HASH_SLOT_SIZE
    rest = (len(data) - INDEX_HEADER_SIZE) // HASH_SLOT_SIZE % 5
    counts = np.arange(rest or 5, most + 1, 5)
    if last < 1 or not len(counts):
        raise CodecError("its slots cannot be told from its entries")
    at = INDEX_HEADER_SIZE + counts * HASH_SLOT_SIZE + last * INDEX_SIZE
    agree = _int64_at(data, at + 4) == header.end_phy_offset
    counts, at = counts[agree], at[agree]
    slots = _int32_at(data, at) % counts
    fitting = counts[_int32_at(data, INDEX_HEADER_SIZE + slots * HASH_SLOT_SIZE) == last]
    wrong = [_wrong_slots(data, int(count), last) for count in fitting] if len(fitting) > 1 else [0] * len(fitting)
    if not wrong or wrong.count(min(wrong)) > 1:
        raise CodecError("its slots cannot be told from its entries")
    return int(fitting[wrong.index(min(wrong))])


def _wrong_slots(data: NDArray[np.uint8], count: int, last: int) -> int:
    """How many of ``count`` slots do not lead to the newest of the entries 1 to ``last`` that they should lead to."""
    entries = np.frombuffer(data, INDEX_ENTRY, last, INDEX_HEADER_SIZE + count * HASH_SLOT_SIZE + INDEX_SIZE)
    expected = np.zeros(count, np.int64)
    expected[entries["key_hash"].astype(np.int64) % count] = np.arange(1, last + 1)  # of several numpy keeps the last
    return int(np.count_nonzero(expected != np.frombuffer(data, INDEX_SLOT, count, INDEX_HEADER_SIZE)))


def _int32_at(data: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.int64]:
    return _gather(data, ">i4", at)


def _int64_at(data: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.int64]:
    return _gather(data, ">i8", at)


def _gather(data: NDArray[np.uint8], kind: str, at: NDArray[np.int64]) -> NDArray[np.int64]:
    size = np.dtype(kind).itemsize
    view: NDArray[Any] = np.ndarray((len(data) - size + 1,), kind, buffer=data, strides=(1,))
    return view[at].astype(np.int64)
