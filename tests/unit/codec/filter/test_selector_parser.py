"""The filter language: its expressions, and place and reason of each rejection."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketbroker.codec.filter.expression import Evaluate
from rocketbroker.codec.filter.selector_parser import MAX_DEPTH, MAX_LENGTH, parse
from rocketbroker.common.errors import MQFilterError


def evaluator(text: str) -> tuple[Evaluate, list[str]]:
    names: dict[str, int] = {}
    return parse(text).compiled(lambda name: names.setdefault(name, len(names))), list(names)


def result(text: str, **properties: str) -> object:
    evaluate, names = evaluator(text)
    return evaluate([properties.get(name) for name in names])


def refused(text: str) -> tuple[int, str]:
    with pytest.raises(MQFilterError) as error:
        parse(text)
    assert str(error.value) == f"Invalid MessageSelector. At character {error.value.position}: {error.value.reason}"
    return error.value.position, error.value.reason


# The expressions of RocketMQ's own tests (ParserTest, ExpressionTest), with properties for which they are true.
TRUE_OF = {
    "a=3 and b<>4 And c>5 AND d<=4": {"a": "3", "b": "5", "c": "6", "d": "1"},
    "a=3  and    b<>4 And c>5 AND d<=4": {"a": "3", "b": "5", "c": "6", "d": "1"},
    "a=3 or b<>4 Or c>5 OR d<=4": {"a": "4", "b": "4", "c": "5", "d": "4"},
    "a in ('3', '4', '5')": {"a": "4"},
    "(a not in ('6', '4', '5')) or (b in ('3', '4', '5'))": {"a": "6", "b": "5"},
    "(a between 2 and 10) AND (b not between 6 and 9)": {"a": "10", "b": "10"},
    "a is null": {},
    "a is not null": {"a": "x"},
    "a <= now": {"a": "1", "now": "2"},
    "a=3 and b contains 'xxx' and c not contains 'xxx'": {"a": "3", "b": "axxxb", "c": "axxb"},
    "a=TRUE OR b=FALSE": {"a": "x", "b": "x"},
    "a is null OR a='hello'": {"a": "hello"},
    "TAGS is not null and TAGS='''''tag'''''": {"TAGS": "''tag''"},
    "a > 3.1E10": {"a": "3.1415E10"},
    "a > b": {"a": "20", "b": "10"},
    "a not in ('4', '4', '5') and b between 3 and 10 and c not startswith 'axbc'": {"a": "3", "b": "3", "c": "axbdc"},
}


@pytest.mark.parametrize(("text", "properties"), TRUE_OF.items())
def test_expressions_of_rocketmq_are_read(text: str, properties: dict[str, str]):
    assert result(text, **properties) is True


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a = 1 OR b = 1 AND c = 1", "a = 1 OR (b = 1 AND c = 1)"),
        ("a > 1 = b > 1", "(a > 1) = (b > 1)"),
        ("NOT a IS NULL", "(NOT a) IS NULL"),
        ("NOT (a = 1) AND b = 1", "(NOT (a = 1)) AND b = 1"),
        ("a BETWEEN 1 AND 2 AND b = 1", "(a BETWEEN 1 AND 2) AND b = 1"),
        ("a = 1 IS NULL", "(a = 1) IS NULL"),
        ("- - 1 = a", "1 = a"),
        ("+ 1 = a", "1 = a"),
        ("a=1--c=2\nAND b=1", "a = 1 AND b = 1"),
        ("a=1 -- and no more", "a = 1"),
        ("a/* ** * / */=/**/1", "a = 1"),
        ("a\t=\r\n\f1", "a = 1"),
        ("a NoT iN ('1')", "a NOT IN ('1')"),
        ("a = 1L", "a = 1"),
        ("a = .5", "a = 5E-1"),
        ("a = 1.", "a = 1.0e0"),
    ],
)
@pytest.mark.parametrize("a", [None, "1", "2", "0.5"])
@pytest.mark.parametrize("b", [None, "1", "2"])
def test_precedence_comments_and_spellings(text: str, same: str, a: str | None, b: str | None):
    properties = {name: value for name, value in {"a": a, "b": b}.items() if value is not None}

    def outcome(expression: str) -> object:
        try:
            return result(expression, **properties)
        except ValueError as error:
            return type(error)

    assert outcome(text) == outcome(same)


@pytest.mark.parametrize("name", ["notx", "_a", "$a", "a$9", "ORDER", "nullable", "iS_"])
def test_names_that_begin_as_words_do(name: str):
    assert evaluator(f"{name} = 1")[1] == [name]
    assert result(f"{name} = 1", **{name: "1"}) is True
    assert result(f"{name.swapcase()} = 1", **{name: "1"}) is None, "names have a case"


WRONG = [
    ("", 1, "the expression ends too early"),
    ("a = ", 5, "the expression ends too early"),
    ("a and between 2 and 10", 7, "'between' is not allowed here"),
    ("a LIKE 'x%'", 3, "'LIKE' is not allowed here; expected AND, BETWEEN, CONTAINS, IN, IS, NOT, OR, '<>' and others"),
    ("a = 1 b = 2", 7, "'b' is not allowed here"),
    ("a = 1 1", 7, "'1' is not allowed here"),
    ("a = 007", 6, "'0' is not allowed here"),
    ("a = 1)", 6, "')' is not allowed here"),
    ("(a = 1", 7, "the expression ends too early"),
    ("a ; b", 3, "unexpected character"),
    ("é = 1", 1, "unexpected character"),
    ("a = 'x", 5, "this text has no closing quote"),
    ("a == 1", 4, "'=' is not allowed here"),
    ("a != 1", 3, "unexpected character"),
    ("a IN (3)", 7, "'3' is not allowed here; expected a text in single quotes"),
    ("a IN ()", 7, "')' is not allowed here"),
    ("a NOT NULL", 7, "'NULL' is not allowed here; expected BETWEEN, CONTAINS, IN"),
    ("a CONTAINS b", 12, "'b' is not allowed here; expected a text in single quotes"),
    ("'a' IN ('a')", 1, "only a property is allowed before IN"),
    ("5", 1, "a number or text is not a condition; compare it with something"),
    ("a = 1 OR 'x'", 10, "a number or text is not a condition; compare it with something"),
    ("a = 1 AND -b", 12, "a number or text is not a condition; compare it with something"),
    ("NOT 1", 5, "a number or text is not a condition; compare it with something"),
    ("a > 'x'", 5, "only numbers and properties can be compared by <"),
    ("a > TRUE", 5, "only numbers and properties can be compared by <"),
    ("NULL > a", 1, "only numbers and properties can be compared by <"),
    ("a > 1 > 2", 1, "only numbers and properties can be compared by <"),
    ("a BETWEEN 'a' AND 'b'", 11, "only numbers and properties can be compared by <"),
    ("a BETWEEN NULL AND 2", 11, "only numbers and properties can be compared by <"),
    ("a BETWEEN 10 AND 0", 11, "BETWEEN 10 AND 0: the first bound must not exceed the second"),
    ("a = NULL", 5, "NULL cannot be compared by = and <>; use IS NULL or IS NOT NULL"),
    ("NULL <> a", 1, "NULL cannot be compared by = and <>; use IS NULL or IS NOT NULL"),
    ("TRUE = 1", 1, "TRUE and FALSE cannot be compared with a number or text"),
    ("a = 9223372036854775808", 5, "9223372036854775808 exceeds 9223372036854775807"),
    ("a = 1E999", 5, "1E999 is not between 4.9E-324 and 1.7976931348623157E308"),
    ("a = 0.0", 5, "0.0 is not between 4.9E-324 and 1.7976931348623157E308; write zero as 0"),
]


@pytest.mark.proves(
    "Filters",
    "a bad expression is rejected with position and reason, one that is nested too deep as well",
)
@pytest.mark.parametrize(("text", "position", "reason"), WRONG)
def test_an_invalid_expression_is_rejected_with_position_and_reason(text: str, position: int, reason: str):
    assert refused(text) == (position, refused(text)[1])
    assert refused(text)[1].startswith(reason) or reason in refused(text)[1]


def test_the_longest_expression():
    longest = f"a = '{'x' * (MAX_LENGTH - 6)}'"
    assert len(longest) == MAX_LENGTH
    parse(longest)
    assert refused(longest + " ") == (4097, "the expression has 4,097 characters; the limit is 4,096")


NESTED = {
    "parentheses": lambda n: "(" * n + "a" + ")" * n,
    "NOT": lambda n: "NOT " * n + "a",
    "minus": lambda n: "a = " + "- " * n + "1",
    "comparisons": lambda n: "a" + " = FALSE" * n,
    "logic": lambda n: "(a AND " * n + "a" + ")" * n,
    "texts": lambda n: "a" + " CONTAINS 'a'" * n,
}


@pytest.mark.proves(
    "Filters",
    "a bad expression is rejected with position and reason, one that is nested too deep as well",
)
@pytest.mark.parametrize("kind", NESTED)
def test_an_expression_nested_too_deep_is_rejected(kind: str):
    evaluate, _ = evaluator(NESTED[kind](MAX_DEPTH // 2 - 2))
    evaluate(["1"])
    for times in (MAX_DEPTH + 1, 600, 1000):
        text = NESTED[kind](times)
        if len(text) <= MAX_LENGTH:
            assert refused(text)[1] == "the expression is nested more than 64 levels deep, which is the limit"


def test_a_thousand_parentheses_without_an_end():
    assert refused("(" * 1000)[0] == 1001


def test_alternatives_in_a_row_are_not_nested():
    assert result(" OR ".join(f"a = {n}" for n in range(330)), a="329") is True
    assert result(" AND ".join(["a <> 1"] * 350), a="2") is True
    assert result("a IN (" + ",".join(f"'{n}'" for n in range(600)) + ")", a="599") is True


def test_the_expected_words_are_those_allowed_there():
    reason = refused("(a = 1 b")[1]
    words = re.findall(r"[A-Z]+|'.'", reason.partition("is not allowed here; expected ")[2])
    assert "AND" in words
    assert "IS" in words
    assert "the end" not in reason


WORDS = ["a", "NOT", "AND", "OR", "=", "<>", "<=", "(", ")", ",", "-", "IN", "IS", "NULL", "BETWEEN", "CONTAINS"]
PIECES = st.sampled_from(
    [*WORDS, "1", "1.5", "'x'", "TRUE", " ", "\n", "--", "/*", "*/", "'", "é", "\x00", "0x1", "\u017f"]
)


@pytest.mark.long
@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=40).map(" ".join) | st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=40))
def test_any_text_is_an_expression_or_is_rejected_at_a_place_in_it(text: str):
    refusal = None
    try:
        parse(text)
    except MQFilterError as error:
        refusal = error
    assert refusal is None or (1 <= refusal.position <= len(text) + 1 and refusal.reason)
