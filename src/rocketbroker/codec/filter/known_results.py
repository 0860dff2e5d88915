"""Results of a filter by the values of the properties that it names, looked up for many messages at a time.

The values of a message have two places in a table, from a hash: the second is for those whose first place is taken. The
table is replaced as a whole, because several threads read it. A value is two words: its first eight bytes; and up to
seven more below its length, so that no two values have the same words.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketbroker.codec.message.columns import Positions, gather
from rocketbroker.codec.message.property_slices import Slices

Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_WORD: Final = 8
_LONGEST: Final = 2 * _WORD - 1
_PLACE_BITS: Final = 12
# Bytes of a value in its first word and in its second, by its length.
_FIRST: Final = np.array([(1 << 8 * min(length, _WORD)) - 1 for length in range(_LONGEST + 1)], np.uint64)
_SECOND: Final = np.array([(1 << 8 * max(length - _WORD, 0)) - 1 for length in range(_LONGEST + 1)], np.uint64)
# Odd, with bits all over the word: the upper bits of a product depend on all bytes.
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_LENGTH_SHIFT: Final = np.uint64(56)
_PLACE_SHIFT: Final = np.uint64(64 - _PLACE_BITS)
_OTHER_SHIFT: Final = np.uint64(64 - 2 * _PLACE_BITS)
_PLACE_MASK: Final = np.uint64((1 << _PLACE_BITS) - 1)
# Both words of a place without a result. No value has them: their length is 255.
_FREE: Final = np.uint64(0xFFFFFFFFFFFFFFFF)


class _Table(NamedTuple):
    """Words of the values, and the result for them, by place."""

    words: list[Words]
    matched: Mask

    def holds(self, words: list[Words], places: Positions) -> Mask:
        """Return the rows whose words are at their ``places``."""
        found: Mask = self.words[0][places] == words[0]
        for word, of_table in zip(words[1:], self.words[1:], strict=True):
            found &= of_table[places] == word
        return found

    def is_free(self, places: Positions) -> Mask:
        """Return the places without a result."""
        found: Mask = self.words[1][places] == _FREE
        return found


class KnownResults:
    """Results for combinations of values of at most 15 bytes each.

    Args:
        count: number of values of each message.
    """

    __slots__ = ("_table",)

    def __init__(self, count: int) -> None:
        empty = [np.full(1 << _PLACE_BITS, _FREE) for _ in range(2 * count)]
        self._table = _Table(empty, np.zeros(1 << _PLACE_BITS, np.bool_))

    def matched(
        self, data: npt.NDArray[np.uint8], columns: Sequence[Slices], results_of: Callable[[list[Slices]], list[bool]]
    ) -> list[bool]:
        """Return the result for each message, up to the first for which ``results_of`` has none.

        Args:
            data: buffer of at least 16 bytes with the values.
            columns: values of the messages, by property.
            results_of: returns the results for values that are not known, or for the first of them.
        """
        table = self._table
        words, is_short = _words_of(data, columns)
        mixed = words[0] * _FACTOR
        for word in words[1:]:
            mixed = (mixed ^ word) * _FACTOR
        places = (mixed >> _PLACE_SHIFT).astype(np.intp)
        known = table.holds(words, places)
        known &= is_short
        matched = table.matched[places]
        rows = np.flatnonzero(~known)
        if len(rows):
            others = (mixed[rows] >> _OTHER_SHIFT & _PLACE_MASK).astype(np.intp)
            is_other = table.holds([word[rows] for word in words], others) & is_short[rows]
            matched[rows] = table.matched[others]
            rows, others = rows[~is_other], others[~is_other]
        if len(rows):
            results = results_of([Slices(starts[rows], lengths[rows]) for starts, lengths in columns])
            left, rows = rows[len(results) :], rows[: len(results)]
            matched[rows] = results
            free = table.is_free(places[rows])
            self._add(table, np.where(free, places[rows], others[: len(rows)]), words, matched, rows, is_short[rows])
            if len(left):
                matched = matched[: left[0]]
        found: list[bool] = matched.tolist()
        return found

    def _add(
        self, table: _Table, places: Positions, words: list[Words], matched: Mask, rows: Positions, is_short: Mask
    ) -> None:
        """Put the results of those of ``rows`` that are short at their ``places``, one at each."""
        rows = rows[is_short]
        chosen, first = np.unique(places[is_short], return_index=True)
        rows = rows[first]
        replaced = _Table([each.copy() for each in table.words], table.matched.copy())
        for word, of_table in zip(words, replaced.words, strict=True):
            of_table[chosen] = word[rows]
        replaced.matched[chosen] = matched[rows]
        self._table = replaced


def _words_of(data: npt.NDArray[np.uint8], columns: Sequence[Slices]) -> tuple[list[Words], Mask]:
    """Return both words of each value, and a mask of the messages whose values are all short enough for them."""
    words: list[Words] = []
    is_short = np.ones(len(columns[0].starts), np.bool_)
    for starts, lengths in columns:
        fits = (lengths <= _LONGEST) & (starts <= len(data) - 2 * _WORD)
        if not fits.all():
            is_short &= fits
            starts, lengths = np.where(fits, starts, 0), np.where(fits, lengths, 0)  # noqa: PLW2901 - of any others
        second = lengths.astype(np.uint64) << _LENGTH_SHIFT
        if lengths.max(initial=0) > _WORD:
            second |= gather(data, "<u8", starts + _WORD) & _SECOND[lengths]
        words += [gather(data, "<u8", starts) & _FIRST[lengths], second]
    return words, is_short
