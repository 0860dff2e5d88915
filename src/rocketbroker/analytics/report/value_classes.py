"""Classes of values for histograms and percentiles: their first three decimal digits.

A few thousand counts give percentiles of any number of values, at most 1 % too high. Powers of ten, and all numbers of
three digits followed by zeros, are borders of classes.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

_EXACT: Final = 1000
_LEADS: Final = 900  # 100 to 999
_POWERS: Final = 10 ** np.arange(19, dtype=np.int64)
#: The class of all values below 0.
BELOW: Final = -1

Ints = npt.NDArray[np.int64]


def class_of(values: Ints) -> Ints:
    """Return the class of each value, shape (n,); classes ascend with the values."""
    scale = _POWERS[np.maximum(np.searchsorted(_POWERS, values, side="right") - 3, 0)]
    classes = _EXACT + (np.searchsorted(_POWERS, scale) - 1) * _LEADS + values // scale - _LEADS // 9
    return np.where(values < 0, BELOW, np.where(values < _EXACT, values, classes)).astype(np.int64)


def largest_of(value_class: int) -> int:
    """Return the largest value of a class; -1 for those below 0."""
    if value_class < _EXACT:
        return value_class
    power, lead = divmod(value_class - _EXACT, _LEADS)
    return int((lead + _LEADS // 9 + 1) * 10 ** (power + 1)) - 1


def quantile(classes: Ints, counts: Ints, part: float) -> int:
    """Return a value that at least ``part`` (0 to 1) of all values do not exceed: the largest of its class.

    ``classes`` ascend and ``counts``, not all 0, are the numbers of their values; both have shape (n,).
    """
    reached = int(np.searchsorted(np.cumsum(counts), part * counts.sum() - 1e-9))
    return largest_of(int(classes[min(reached, len(classes) - 1)]))
