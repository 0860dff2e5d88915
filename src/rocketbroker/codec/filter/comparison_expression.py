"""How two values compare (org.apache.rocketmq.filter.expression.ComparisonExpression).

RocketMQ's rules, which are not symmetric: what stands on the left decides how the other is read.
"""

import operator
from collections.abc import Callable
from functools import partial
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

# ComparisonExpression.__compare for values that do not compare.
_LESS: Final = -1
_READERS: Final[dict[type, Callable[[str], int | float]]] = {
    int: read_integer,
    JavaLong: read_long,
    float: read_double,
    bool: read_boolean,
}


# Of whole numbers; for others Double.compareTo has an order of its own.
_OPERATORS: Final[dict[str, Callable[[int, int], bool]]] = {
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def with_constant(relation: str, constant: Value) -> Callable[[str], bool] | None:
    """Compares a text on the left with a literal on the right, as ``equal`` and ``order`` do but quicker.

    ``None`` when there is no quicker way. The function raises :class:`EvaluationError` for a text that is no number.
    """
    if isinstance(constant, str) and relation == "=":
        return partial(operator.eq, constant)
    if isinstance(constant, int) and not isinstance(constant, bool):
        read, holds = _READERS[type(constant)], _OPERATORS[relation]
        return lambda text: holds(read(text), constant)  # type: ignore[arg-type]  # it reads whole numbers
    return None


def equal(left: Value, right: Value) -> bool | None:
    """``=``: unknown when only the left one is unknown, false when only the right one is, true when both are.

    Raises:
        EvaluationError: a text is no such number.
    """
    if left is None:
        return None if right is not None else True
    if right is None:
        return False
    if type(left) is type(right):
        return left == right
    return _compare(left, right) == 0


def order(left: Value, right: Value) -> int | None:
    """Below, at or above 0 as ``left`` is less, equal or greater; ``None`` when one is unknown.

    Raises:
        EvaluationError: a text is no number.
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
