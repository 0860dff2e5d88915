"""Values of expressions, and Java's conversions between them (java.lang.Integer, Long, Double, Boolean).

A property is a text. When compared with a number or a boolean, it is read as the same kind, by the rules of Java's
``valueOf``: ``"5.0"`` and ``" 5"`` are not Integers, ``" 5.0 "`` and ``"5d"`` are Doubles.
"""

import re
from functools import partial
from math import copysign, isnan
from typing import Final

from rocketbroker.common.errors import CodecError


class EvaluationError(CodecError):
    """Values that cannot be compared; RocketMQ raises here, and does not deliver the message."""


class JavaLong(int):
    """Integer literal beyond Java's ``int``: a text compared with it may be as large as a ``long``."""

    __slots__ = ()


#: ``None`` is the value of an unknown property, and "unknown" in logic.
Value = str | int | float | bool | None

INTEGER_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MIN: Final = 5e-324

_WHOLE: Final = re.compile(r"[+-]?\d+\Z")
_SPACE: Final = "".join(map(chr, range(0x21)))
# Neither has two ways to split a row of digits: trying them all would take seconds for a long property.
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?P<word>NaN|Infinity)|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)\Z"
)
_HEX_DOUBLE: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?\Z")


def _read_whole(most: int, text: str) -> int:
    # Most texts are digits only; int() alone would accept blanks and underscores as well.
    if text.isdecimal() or _WHOLE.match(text):
        try:
            number = int(text)
        except ValueError:  # more digits than Python reads
            number = most + 1
        if -most - 1 <= number <= most:
            return number
    raise EvaluationError(f"{text[:64]!r} is not a whole number from {-most - 1} to {most}")


#: ``Integer.valueOf``; :class:`EvaluationError` for anything else.
read_integer = partial(_read_whole, INTEGER_MAX)
#: ``Long.valueOf``; :class:`EvaluationError` for anything else.
read_long = partial(_read_whole, LONG_MAX)


def read_double(text: str) -> float:
    """Return the value of ``Double.valueOf``; :class:`EvaluationError` for anything else."""
    text = text.strip(_SPACE)
    if _DOUBLE.match(text):
        # The suffix may not follow a word such as Infinity, and no such word ends with it.
        return float(text if text[-1] in "Ny" else text.rstrip("fFdD"))
    if _HEX_DOUBLE.match(text):
        try:
            return float.fromhex(text.rstrip("fFdD"))
        except OverflowError:
            return copysign(float("inf"), -1.0 if text.startswith("-") else 1.0)
    raise EvaluationError(f"{text[:64]!r} is not a number")


def read_boolean(text: str) -> bool:
    """Return the value of ``Boolean.valueOf``: true for "true" in any case, false for everything else."""
    return text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Return the result of ``Double.compareTo``: NaN equals itself and exceeds all others, -0.0 is less than 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    keys = [(isnan(value), copysign(1.0, value) if value == 0 else 0.0) for value in (left, right)]
    return (keys[0] > keys[1]) - (keys[0] < keys[1])
