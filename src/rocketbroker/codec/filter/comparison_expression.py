"""Comparison of two values (org.apache.rocketmq.filter.expression.ComparisonExpression).

The rules are RocketMQ's, and are not symmetric: the left value decides how the right one is read.
"""

import operator
from collections.abc import Callable
from typing import Final

from rocketbroker.codec.filter.java_values import (
    EvaluationError,
    JavaLong,
    Value,
    compare_doubles,
    read_boolean,
    read_double,
    read_integer,
    read_long,
)

# ComparisonExpression.__compare for values that cannot be compared.
_LESS: Final = -1
_READERS: Final[dict[type, Callable[[str], int | float]]] = {
    int: read_integer,
    JavaLong: read_long,
    float: read_double,
    bool: read_boolean,
}


# For whole numbers; Double.compareTo has its own order for others.
_OPERATORS: Final[dict[str, Callable[[int, int], bool]]] = {
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def with_constant(relation: str, constant: int) -> tuple[Callable[[str], int | float], Callable[[int, int], bool]]:
    """Return how a text compares with a whole number: a reader of the text, and the operator.

    The reader raises :class:`EvaluationError` for a text that is not such a number.
    """
    return _READERS[type(constant)], _OPERATORS[relation]


def equal(left: Value, right: Value) -> bool | None:
    """Return the result of ``=``: unknown if only ``left`` is unknown, false if only ``right`` is, true if both are.

    Raises:
        EvaluationError: A text is not such a number.
    """
    if left is None:
        return None if right is not None else True
    if right is None:
        return False
    if type(left) is type(right):
        return left == right
    return _compare(left, right) == 0


def order(left: Value, right: Value) -> int | None:
    """Return a number below, at or above 0 as ``left`` is less, equal or greater; ``None`` if one is unknown.

    Raises:
        EvaluationError: A text is not a number.
    """
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return compare_doubles(read_double(left), read_double(right))
    return _compare(left, right)


def _compare(left: str | int | float, right: str | int | float) -> int:
    if isinstance(left, bool) and isinstance(right, str):
        # RocketMQ reads the boolean as text here, which raises.
        raise EvaluationError("a boolean on the left cannot be compared with a property")
    first: int | float = _READERS[type(right)](left) if isinstance(left, str) else left
    second: int | float = _READERS[type(left)](right) if isinstance(right, str) else right
    if isinstance(first, bool) is not isinstance(second, bool):
        return _LESS
    if isinstance(first, float) or isinstance(second, float):
        return compare_doubles(float(first), float(second))
    return (first > second) - (first < second)
