"""``find_properties`` of many messages at once: numpy compares the first eight bytes of all pairs as integers.

Apart from ``message_properties.py``, since importing numpy takes longer than a broker's start may.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

_PAIR_END: Final = 2
_NAME_END: Final = 1
_WORD: Final = 8
_TAGS: Final = b"TAGS\x01"
_KEYS: Final = b"KEYS\x01"
_UNIQUE_KEY: Final = b"UNIQ_KEY"
_SHORT_NAME_SHIFT: Final = np.uint64(8 * (_WORD - len(_TAGS)))

Column = npt.NDArray[np.int64]
Found = list[bytes | None]


def find_properties_many(raws: Sequence[bytes]) -> tuple[Found, Found, Found]:
    """TAGS, UNIQ_KEY and KEYS of each of ``raws``, ``None`` where missing: three lists."""
    text = b"\x02".join(raws) + b"\x02"
    units = np.frombuffer(text + bytes(_WORD + 1), np.uint8)
    ends = np.flatnonzero(units == _PAIR_END)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
    # Where the last pair of each message ends.
    bounds = np.cumsum(np.fromiter(map(len, raws), np.int64, len(raws)) + 1) - 1
    words = np.ndarray((len(text) + 1,), ">u8", buffer=units, strides=(1,))[starts].astype(np.uint64)
    short = words >> _SHORT_NAME_SHIFT
    unique = (words == int.from_bytes(_UNIQUE_KEY, "big")) & (units[starts + _WORD] == _NAME_END)

    def values(chosen: npt.NDArray[np.bool_], name_length: int) -> Found:
        begins, stops = starts[chosen] + name_length, ends[chosen]
        owners = np.searchsorted(bounds, stops)
        if len(owners) == len(raws) and (owners[1:] > owners[:-1]).all():
            # One in each message, as nearly always.
            single: Found = list(map(text.__getitem__, map(slice, begins.tolist(), stops.tolist())))
            return [value or None for value in single] if (begins == stops).any() else single
        found: Found = [None] * len(raws)
        for owner, begin, stop in zip(owners.tolist(), begins.tolist(), stops.tolist(), strict=True):
            # Of several pairs the last with a value counts.
            found[owner] = text[begin:stop] or found[owner]
        return found

    return (
        values(short == int.from_bytes(_TAGS, "big"), len(_TAGS)),
        values(unique, len(_UNIQUE_KEY) + 1),
        values(short == int.from_bytes(_KEYS, "big"), len(_KEYS)),
    )
