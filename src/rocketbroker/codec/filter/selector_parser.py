"""Parser of SQL92 filters (org.apache.rocketmq.filter.parser.SelectorParser).

Grammar and checks are RocketMQ's, even where they surprise: NOT binds tighter than ``=``, there is no LIKE, IN takes
only texts, and ``<`` and its like take no texts. Unlike in RocketMQ, text after a complete expression is an error, and
expressions are bounded in length and depth.

This module is imported when the first filter is compiled: lark and its tables take about 0.1 s.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from rocketbroker.codec.filter.expression import (
    DOUBLE_MIN,
    INTEGER_MAX,
    LONG_MAX,
    BooleanCast,
    Constant,
    Equal,
    Expression,
    In,
    JavaLong,
    Logic,
    Negate,
    Not,
    Property,
    Relational,
    TextMatch,
    order,
)
from rocketbroker.common.errors import MQFilterError

#: Longest expression in characters. The event loop parses it, at about 10 µs for each word.
MAX_LENGTH: Final = 4096
#: Greatest nesting of parentheses, NOT and comparisons; AND and OR in a row count once.
MAX_DEPTH: Final = 64
# Names of tokens in error messages.
_MOST_EXPECTED: Final = 8
_SHOWN: Final = 40

_GRAMMAR: Final = r"""
start: either
?either: both (_OR both)*
?both: equality (_AND equality)*
?equality: comparison
    | equality _EQUAL comparison                            -> equal
    | equality _NOT_EQUAL comparison                        -> not_equal
    | equality _IS NULL                                     -> is_null
    | equality _IS _NOT NULL                                -> is_not_null
?comparison: unary
    | comparison RELATION unary                             -> relational
    | comparison TEXT_RELATION STRING                       -> text_match
    | comparison _NOT TEXT_RELATION STRING                  -> not_text_match
    | comparison _BETWEEN unary _AND unary                  -> between
    | comparison _NOT _BETWEEN unary _AND unary             -> not_between
    | comparison _IN _LEFT STRING (_COMMA STRING)* _RIGHT   -> contained
    | comparison _NOT _IN _LEFT STRING (_COMMA STRING)* _RIGHT -> not_contained
?unary: _PLUS unary
    | _MINUS unary                                          -> negate
    | _NOT unary                                            -> negation
    | primary
?primary: STRING                                            -> text
    | DECIMAL                                               -> decimal
    | FLOAT                                                 -> floating
    | TRUE                                                  -> true
    | FALSE                                                 -> false
    | NULL                                                  -> null
    | ID                                                    -> variable
    | _LEFT either _RIGHT                                   -> parenthesis

_EQUAL: "="
_NOT_EQUAL: "<>"
RELATION: /<=|>=|<(?!>)|>/
_LEFT: "("
_RIGHT: ")"
_COMMA: ","
_PLUS: "+"
_MINUS: "-"
STRING: /'(?:''|[^'])*'/
FLOAT.1: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL: /0|[1-9][0-9]*[lL]?/
ID: /[a-zA-Z_$][a-zA-Z0-9_$]*/
%declare _NOT _AND _OR _BETWEEN _IN _IS TRUE FALSE NULL TEXT_RELATION

SPACE: /[ \t\n\r\f]+/
LINE_COMMENT.2: /--[^\n\r]*/
BLOCK_COMMENT.2: /\/\*[^*]*\*(?:\*|[^*\/][^*]*\*)*\//
%ignore SPACE
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""

# Words, in any case, that cannot be names of properties.
_KEYWORDS: Final = {
    "NOT": "_NOT",
    "AND": "_AND",
    "OR": "_OR",
    "BETWEEN": "_BETWEEN",
    "IN": "_IN",
    "IS": "_IS",
    "TRUE": "TRUE",
    "FALSE": "FALSE",
    "NULL": "NULL",
    "CONTAINS": "TEXT_RELATION",
    "STARTSWITH": "TEXT_RELATION",
    "ENDSWITH": "TEXT_RELATION",
}
_SHOWN_AS: Final[Mapping[str, str]] = {
    **{terminal: word for word, terminal in _KEYWORDS.items()},
    "TEXT_RELATION": "CONTAINS",
    "_EQUAL": "'='",
    "_NOT_EQUAL": "'<>'",
    "RELATION": "'>'",
    "_LEFT": "'('",
    "_RIGHT": "')'",
    "_COMMA": "','",
    "_PLUS": "'+'",
    "_MINUS": "'-'",
    "STRING": "a text in single quotes",
    "FLOAT": "a number",
    "DECIMAL": "a number",
    "ID": "a property",
    "$END": "the end",
}


def parse(expression: str) -> Expression:
    """Return the tree of an expression, whose result is true, false or unknown.

    Raises:
        MQFilterError: The expression is invalid, is longer than ``MAX_LENGTH``, or is nested deeper than ``MAX_DEPTH``.
    """
    if len(expression) > MAX_LENGTH:
        reason = f"the expression has {len(expression):,} characters; the limit is {MAX_LENGTH:,}"
        raise MQFilterError(MAX_LENGTH + 1, reason)
    try:
        tree: Any = _PARSER.parse(expression)
    except UnexpectedToken as error:
        raise _unexpected(expression, error) from None
    except UnexpectedCharacters as error:
        at: int = error.pos_in_stream or 0  # type: ignore[redundant-expr]
        what = "this text has no closing quote" if expression[at] == "'" else "unexpected character"
        raise MQFilterError(at + 1, f"{expression[at : at + _SHOWN]!r} is not understood: {what}") from None
    assert isinstance(tree, Expression)
    return tree


def _unexpected(expression: str, error: UnexpectedToken) -> MQFilterError:
    names = sorted({_SHOWN_AS[name] for name in error.accepts or ()}, key=lambda name: (not name.isalpha(), name))
    right = f"{', '.join(names[:_MOST_EXPECTED])}{' and others' if len(names) > _MOST_EXPECTED else ''}"
    if error.token.type == "$END":
        return MQFilterError(len(expression) + 1, f"the expression ends too early; expected {right}")
    found = str(error.token)[:_SHOWN]
    return MQFilterError((error.token.start_pos or 0) + 1, f"{found!r} is not allowed here; expected {right}")


def _keyword(token: Token) -> Token:
    terminal = _KEYWORDS.get(token.upper())
    return token if terminal is None else Token.new_borrow_pos(terminal, token, token)


def _text_of(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _condition(value: Expression) -> Expression:
    """Return an expression as a condition (SelectorParser.asBooleanExpression)."""
    if value.is_boolean:
        return value
    if isinstance(value, Property):
        return _bounded(BooleanCast(value.at, value))
    raise MQFilterError(value.at + 1, "a number or text is not a condition; compare it with something")


def _bounded(value: Expression) -> Expression:
    if value.depth > MAX_DEPTH:
        raise MQFilterError(
            value.at + 1, f"the expression is nested more than {MAX_DEPTH} levels deep, which is the limit"
        )
    return value


def _check_number(value: Expression) -> Expression:
    """Check an operand of ``<`` and its like (ComparisonExpression.checkLessThanOperand)."""
    if value.is_boolean or (isinstance(value, Constant) and not value.is_number):
        raise MQFilterError(value.at + 1, "only numbers and properties can be compared by <, <=, >, >= and BETWEEN")
    return value


def _relational(left: Expression, relation: str, right: Expression) -> Expression:
    return _bounded(Relational(_check_number(left), relation, _check_number(right)))


def _equal(left: Expression, right: Expression) -> Expression:
    for value in (left, right):
        if isinstance(value, Constant) and value.value is None:
            raise MQFilterError(value.at + 1, "NULL cannot be compared by = and <>; use IS NULL or IS NOT NULL")
    constants = isinstance(left, Constant) and isinstance(right, Constant)
    if constants and left.is_boolean and not right.is_boolean:
        raise MQFilterError(left.at + 1, "TRUE and FALSE cannot be compared with a number or text")
    return _bounded(Equal(left, right))


def _logic(parts: tuple[Expression, ...], *, is_and: bool) -> Expression:
    return _bounded(Logic(parts[0].at, [_condition(part) for part in parts], is_and=is_and))


def _contained(left: Expression, texts: tuple[Token, ...], *, is_not: bool) -> Expression:
    if not isinstance(left, Property):
        raise MQFilterError(left.at + 1, "only a property is allowed before IN")
    return _bounded(In(left, [_text_of(text) for text in texts], is_not=is_not))


def _text_match(left: Expression, relation: Token, text: Token, *, is_not: bool) -> Expression:
    return _bounded(TextMatch(left, relation.upper(), _text_of(text), is_not=is_not))


def _negated(value: Expression) -> Expression:
    return _bounded(Not(value.at, value))


@v_args(inline=True)
class _Builder(Transformer[Token, Expression]):
    """Builds the tree, bottom up, while the parser reads."""

    def start(self, whole: Expression) -> Expression:
        return _condition(whole)

    def either(self, *parts: Expression) -> Expression:
        return _logic(parts, is_and=False)

    def both(self, *parts: Expression) -> Expression:
        return _logic(parts, is_and=True)

    def equal(self, left: Expression, right: Expression) -> Expression:
        return _equal(left, right)

    def not_equal(self, left: Expression, right: Expression) -> Expression:
        return _negated(_equal(left, right))

    def is_null(self, left: Expression, null: Token) -> Expression:
        return _bounded(Equal(left, self.null(null)))

    def is_not_null(self, left: Expression, null: Token) -> Expression:
        return _negated(self.is_null(left, null))

    def relational(self, left: Expression, relation: Token, right: Expression) -> Expression:
        return _relational(left, str(relation), right)

    def text_match(self, left: Expression, relation: Token, text: Token) -> Expression:
        return _text_match(left, relation, text, is_not=False)

    def not_text_match(self, left: Expression, relation: Token, text: Token) -> Expression:
        return _text_match(left, relation, text, is_not=True)

    def between(self, value: Expression, low: Expression, high: Expression) -> Expression:
        both = (_relational(value, ">=", low), _relational(value, "<=", high))
        if isinstance(low, Constant) and isinstance(high, Constant) and (order(high.value, low.value) or 0) < 0:
            raise MQFilterError(
                low.at + 1, f"BETWEEN {low.value} AND {high.value}: the first bound must not exceed the second"
            )
        return _logic(both, is_and=True)

    def not_between(self, value: Expression, low: Expression, high: Expression) -> Expression:
        return _logic((_relational(value, "<", low), _relational(value, ">", high)), is_and=False)

    def contained(self, left: Expression, *texts: Token) -> Expression:
        return _contained(left, texts, is_not=False)

    def not_contained(self, left: Expression, *texts: Token) -> Expression:
        return _contained(left, texts, is_not=True)

    def negate(self, operand: Expression) -> Expression:
        return _bounded(Negate(operand.at, operand))

    def negation(self, operand: Expression) -> Expression:
        return _negated(_condition(operand))

    def parenthesis(self, inner: Expression) -> Expression:
        # It adds only its depth, which is that of the parser's stack in RocketMQ.
        inner.depth += 1
        return _bounded(inner)

    def text(self, token: Token) -> Expression:
        return Constant(token.start_pos or 0, _text_of(token))

    def decimal(self, token: Token) -> Expression:
        at, value = token.start_pos or 0, int(token.rstrip("lL")[:_SHOWN])
        if value > LONG_MAX:
            raise MQFilterError(at + 1, f"{token[:_SHOWN]} exceeds {LONG_MAX}, the greatest whole number")
        return Constant(at, value if value <= INTEGER_MAX else JavaLong(value))

    def floating(self, token: Token) -> Expression:
        at, value = token.start_pos or 0, float(token)
        if not DOUBLE_MIN <= value < float("inf"):
            reason = f"{token[:_SHOWN]} is not between 4.9E-324 and 1.7976931348623157E308; write zero as 0"
            raise MQFilterError(at + 1, reason)
        return Constant(at, value)

    def true(self, token: Token) -> Expression:
        return Constant(token.start_pos or 0, True)

    def false(self, token: Token) -> Expression:
        return Constant(token.start_pos or 0, False)

    def null(self, token: Token) -> Expression:
        return Constant(token.start_pos or 0, None)

    def variable(self, token: Token) -> Expression:
        return Property(token.start_pos or 0, str(token))


_CALLBACKS: Final[dict[str, Callable[[Token], Token]]] = {"ID": _keyword}
_PARSER: Final = Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder(), lexer_callbacks=_CALLBACKS)
