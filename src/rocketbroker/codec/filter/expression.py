"""Filter expression as a tree that compiles to a function (org.apache.rocketmq.filter.expression).

Logic has three values: an unknown property is neither true nor false, and a message is delivered only if the filter
is true.
"""

import operator
import re
from collections.abc import Callable, Sequence
from functools import partial
from math import copysign, isnan
from operator import itemgetter
from typing import Final

from rocketbroker.common.errors import CodecError

# Values of expressions, and Java's conversions between them (java.lang.Integer, Long, Double, Boolean).
#
# A property is a text. When compared with a number or a boolean, it is read as the same kind, by the rules of Java's
# ``valueOf``: ``"5.0"`` and ``" 5"`` are not Integers, ``" 5.0 "`` and ``"5d"`` are Doubles.


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


# Comparison of two values (org.apache.rocketmq.filter.expression.ComparisonExpression).
#
# The rules are RocketMQ's, and are not symmetric: the left value decides how the right one is read.

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


#: Values of the properties that the filter names, ordered by their numbers.
Values = Sequence[str | None]
Evaluate = Callable[[Values], Value]
#: Returns the number of a property name.
Numbering = Callable[[str], int]

RELATIONS: Final[dict[str, Callable[[int], bool]]] = {
    ">": lambda answer: answer > 0,
    ">=": lambda answer: answer >= 0,
    "<": lambda answer: answer < 0,
    "<=": lambda answer: answer <= 0,
}
TEXT_RELATIONS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


class Expression:
    """Part of a filter.

    Attributes:
        at: position of its first character.
        depth: depth of nesting.
        is_boolean: its result is true, false or unknown.
    """

    is_boolean = True

    def __init__(self, at: int, *operands: "Expression") -> None:
        self.at = at
        self.depth: int = 1 + max((operand.depth for operand in operands), default=0)

    def compiled(self, number_of: Numbering) -> Evaluate:
        """Return a function that evaluates the expression.

        It raises :class:`EvaluationError` where RocketMQ does, in the same order of evaluation.
        """
        raise NotImplementedError


class Constant(Expression):
    """A literal: text, number, TRUE, FALSE or NULL."""

    def __init__(self, at: int, value: Value) -> None:
        super().__init__(at)
        self.value = value
        self.is_boolean = value is None or isinstance(value, bool)
        self.is_number = isinstance(value, int | float) and not self.is_boolean

    def compiled(self, number_of: Numbering) -> Evaluate:
        value = self.value
        return lambda _values: value


class Property(Expression):
    """Value of a property, always a text; unknown if the message has none."""

    is_boolean = False

    def __init__(self, at: int, name: str) -> None:
        super().__init__(at)
        self.name = name

    def compiled(self, number_of: Numbering) -> Evaluate:
        return itemgetter(number_of(self.name))


class _Unary(Expression):
    def __init__(self, at: int, operand: Expression) -> None:
        super().__init__(at, operand)
        self.operand = operand


class Negate(_Unary):
    """Negative of a number; unknown for other values, and therefore for each property."""

    is_boolean = False

    def compiled(self, number_of: Numbering) -> Evaluate:
        operand = self.operand.compiled(number_of)

        def negate(values: Values) -> Value:
            value = operand(values)
            if isinstance(value, str | bool) or value is None:
                return None
            return JavaLong(-value) if isinstance(value, JavaLong) else -value

        return negate


class BooleanCast(_Unary):
    """Property used as a condition: false, whatever its text; unknown without the property."""

    def compiled(self, number_of: Numbering) -> Evaluate:
        operand = self.operand.compiled(number_of)
        return lambda values: None if operand(values) is None else False


class Not(_Unary):
    """Negation of a condition; unknown stays unknown."""

    def compiled(self, number_of: Numbering) -> Evaluate:
        operand = self.operand.compiled(number_of)

        def negation(values: Values) -> Value:
            value = operand(values)
            return None if value is None else not value

        return negation


class Logic(Expression):
    """AND or OR of conditions; those after the deciding one are not evaluated."""

    def __init__(self, at: int, parts: Sequence[Expression], *, is_and: bool) -> None:
        super().__init__(at, *parts)
        self.parts = parts
        # Value of a part that decides the whole: one false part makes AND false.
        self.decides = not is_and

    def compiled(self, number_of: Numbering) -> Evaluate:
        parts = [part.compiled(number_of) for part in self.parts]
        decides = self.decides

        def logic(values: Values) -> Value:
            result: bool | None = not decides
            for part in parts:
                value = part(values)
                if value is decides:
                    return decides
                if value is None:
                    result = None
            return result

        return logic


class Equal(Expression):
    """``=``, and ``IS NULL`` as a comparison with NULL."""

    def __init__(self, left: Expression, right: Expression) -> None:
        super().__init__(left.at, left, right)
        self.left, self.right = left, right

    def compiled(self, number_of: Numbering) -> Evaluate:
        quick = _compared_with_constant(self.left, "=", self.right, number_of)
        if quick is not None:
            return quick
        left, right = self.left.compiled(number_of), self.right.compiled(number_of)
        return lambda values: equal(left(values), right(values))


class Relational(Expression):
    """One of ``>``, ``>=``, ``<``, ``<=``, for numbers only."""

    def __init__(self, left: Expression, relation: str, right: Expression) -> None:
        super().__init__(left.at, left, right)
        self.left, self.relation, self.right = left, relation, right

    def compiled(self, number_of: Numbering) -> Evaluate:
        quick = _compared_with_constant(self.left, self.relation, self.right, number_of)
        if quick is not None:
            return quick
        left, right = self.left.compiled(number_of), self.right.compiled(number_of)
        holds = RELATIONS[self.relation]

        def relational(values: Values) -> Value:
            answer = order(left(values), right(values))
            return None if answer is None else holds(answer)

        return relational


class In(Expression):
    """IN and NOT IN: membership of a property in some texts; unknown without the property."""

    def __init__(self, operand: Property, elements: Sequence[str], *, is_not: bool) -> None:
        super().__init__(operand.at, operand)
        self.operand, self.elements, self.is_not = operand, frozenset(elements), is_not

    def compiled(self, number_of: Numbering) -> Evaluate:
        operand, elements, is_not = self.operand.compiled(number_of), self.elements, self.is_not

        def contained(values: Values) -> Value:
            value = operand(values)
            return None if value is None else (value in elements) is not is_not

        return contained


class TextMatch(Expression):
    """CONTAINS, STARTSWITH, ENDSWITH and their NOT; false, never unknown, for non-texts or an empty search."""

    def __init__(self, operand: Expression, relation: str, search: str, *, is_not: bool) -> None:
        super().__init__(operand.at, operand)
        self.operand, self.relation, self.search, self.is_not = operand, relation, search, is_not

    def compiled(self, number_of: Numbering) -> Evaluate:
        if not self.search:
            return lambda _values: False  # the operand is not evaluated, as in RocketMQ
        operand, search, is_not = self.operand.compiled(number_of), self.search, self.is_not
        holds = TEXT_RELATIONS[self.relation]

        def text_match(values: Values) -> Value:
            text = operand(values)
            return isinstance(text, str) and holds(text, search) is not is_not

        return text_match


def _compared_with_constant(
    left: Expression, relation: str, right: Expression, number_of: Numbering
) -> Evaluate | None:
    """Compile the commonest filter, a property compared with a literal, to as few calls as possible."""
    if not (isinstance(left, Property) and isinstance(right, Constant)):
        return None
    constant = right.value
    if isinstance(constant, str) and relation == "=":
        number = number_of(left.name)
        return lambda values: None if values[number] is None else values[number] == constant
    if not isinstance(constant, int) or isinstance(constant, bool):
        return None  # doubles have an order of their own
    number = number_of(left.name)
    read, holds = with_constant(relation, constant)

    def compared(values: Values) -> Value:
        text = values[number]
        return None if text is None else holds(read(text), constant)  # type: ignore[arg-type]  # a whole number

    return compared
