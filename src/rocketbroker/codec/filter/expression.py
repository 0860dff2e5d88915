"""Filter expression as a tree that compiles to a function (org.apache.rocketmq.filter.expression).

Logic has three values: an unknown property is neither true nor false, and a message is delivered only if the filter is
true.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final

from rocketbroker.codec.filter.comparison_expression import equal, order, with_constant
from rocketbroker.codec.filter.java_values import JavaLong, Value

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
    """Part of a filter: ``at`` is the position of its first character, ``depth`` its depth of nesting."""

    __slots__ = ("at", "depth")

    def __init__(self, at: int, *operands: "Expression") -> None:
        self.at = at
        self.depth: int = 1 + max((operand.depth for operand in operands), default=0)

    @property
    def is_boolean(self) -> bool:
        """True if its result is true, false or unknown."""
        return True

    def compiled(self, number_of: Numbering) -> Evaluate:
        """Return a function that evaluates the expression.

        It raises :class:`EvaluationError` where RocketMQ does, in the same order of evaluation.
        """
        raise NotImplementedError


class Constant(Expression):
    """A literal: text, number, TRUE, FALSE or NULL."""

    __slots__ = ("value",)

    def __init__(self, at: int, value: Value) -> None:
        super().__init__(at)
        self.value = value

    @property
    def is_boolean(self) -> bool:
        """True if it is TRUE, FALSE or NULL."""
        return self.value is None or isinstance(self.value, bool)

    @property
    def is_number(self) -> bool:
        """True if it is a number."""
        return isinstance(self.value, int | float) and not isinstance(self.value, bool)

    def compiled(self, number_of: Numbering) -> Evaluate:
        """See ``Expression``."""
        value = self.value
        return lambda _values: value


class Property(Expression):
    """Value of a property, always a text; unknown if the message has none."""

    __slots__ = ("name",)

    def __init__(self, at: int, name: str) -> None:
        super().__init__(at)
        self.name = name

    @property
    def is_boolean(self) -> bool:
        """False: its result is a text."""
        return False

    def compiled(self, number_of: Numbering) -> Evaluate:
        """See ``Expression``."""
        return itemgetter(number_of(self.name))


class _Unary(Expression):
    __slots__ = ("operand",)

    def __init__(self, at: int, operand: Expression) -> None:
        super().__init__(at, operand)
        self.operand = operand


class Negate(_Unary):
    """Negative of a number; unknown for other values, and therefore for each property."""

    __slots__ = ()

    @property
    def is_boolean(self) -> bool:
        """False: its result is a number."""
        return False

    def compiled(self, number_of: Numbering) -> Evaluate:
        """See ``Expression``."""
        operand = self.operand.compiled(number_of)

        def negate(values: Values) -> Value:
            value = operand(values)
            if isinstance(value, str | bool) or value is None:
                return None
            return JavaLong(-value) if isinstance(value, JavaLong) else -value

        return negate


class BooleanCast(_Unary):
    """Property used as a condition: false, whatever its text; unknown without the property."""

    __slots__ = ()

    def compiled(self, number_of: Numbering) -> Evaluate:
        """See ``Expression``."""
        operand = self.operand.compiled(number_of)
        return lambda values: None if operand(values) is None else False


class Not(_Unary):
    """Negation of a condition; unknown stays unknown."""

    __slots__ = ()

    def compiled(self, number_of: Numbering) -> Evaluate:
        """See ``Expression``."""
        operand = self.operand.compiled(number_of)

        def negation(values: Values) -> Value:
            value = operand(values)
            return None if value is None else not value

        return negation


class Logic(Expression):
    """AND or OR of conditions; those after the deciding one are not evaluated."""

    __slots__ = ("decides", "parts")

    def __init__(self, at: int, parts: Sequence[Expression], *, is_and: bool) -> None:
        super().__init__(at, *parts)
        self.parts = parts
        # Value of a part that decides the whole: one false part makes AND false.
        self.decides = not is_and

    def compiled(self, number_of: Numbering) -> Evaluate:
        """See ``Expression``."""
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

    __slots__ = ("left", "right")

    def __init__(self, left: Expression, right: Expression) -> None:
        super().__init__(left.at, left, right)
        self.left, self.right = left, right

    def compiled(self, number_of: Numbering) -> Evaluate:
        """See ``Expression``."""
        quick = _with_constant(self.left, "=", self.right, number_of)
        if quick is not None:
            return quick
        left, right = self.left.compiled(number_of), self.right.compiled(number_of)
        return lambda values: equal(left(values), right(values))


class Relational(Expression):
    """One of ``>``, ``>=``, ``<``, ``<=``, for numbers only."""

    __slots__ = ("left", "relation", "right")

    def __init__(self, left: Expression, relation: str, right: Expression) -> None:
        super().__init__(left.at, left, right)
        self.left, self.relation, self.right = left, relation, right

    def compiled(self, number_of: Numbering) -> Evaluate:
        """See ``Expression``."""
        quick = _with_constant(self.left, self.relation, self.right, number_of)
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

    __slots__ = ("elements", "is_not", "operand")

    def __init__(self, operand: Property, elements: Sequence[str], *, is_not: bool) -> None:
        super().__init__(operand.at, operand)
        self.operand, self.elements, self.is_not = operand, frozenset(elements), is_not

    def compiled(self, number_of: Numbering) -> Evaluate:
        """See ``Expression``."""
        operand, elements, is_not = self.operand.compiled(number_of), self.elements, self.is_not

        def contained(values: Values) -> Value:
            value = operand(values)
            return None if value is None else (value in elements) is not is_not

        return contained


class TextMatch(Expression):
    """CONTAINS, STARTSWITH, ENDSWITH and their NOT; false, never unknown, for non-texts or an empty search."""

    __slots__ = ("is_not", "operand", "relation", "search")

    def __init__(self, operand: Expression, relation: str, search: str, *, is_not: bool) -> None:
        super().__init__(operand.at, operand)
        self.operand, self.relation, self.search, self.is_not = operand, relation, search, is_not

    def compiled(self, number_of: Numbering) -> Evaluate:
        """See ``Expression``."""
        if not self.search:
            return lambda _values: False  # the operand is not evaluated, as in RocketMQ
        operand, search, is_not = self.operand.compiled(number_of), self.search, self.is_not
        holds = TEXT_RELATIONS[self.relation]

        def text_match(values: Values) -> Value:
            text = operand(values)
            return isinstance(text, str) and holds(text, search) is not is_not

        return text_match


def _with_constant(left: Expression, relation: str, right: Expression, number_of: Numbering) -> Evaluate | None:
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
