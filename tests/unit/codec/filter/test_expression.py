"""Three-valued logic, and what each kind of expression gives for values of each kind."""

from itertools import product

import pytest

from rocketbroker.codec.filter.expression import EvaluationError
from rocketbroker.codec.filter.selector_parser import parse

ERROR = "error"


def result(text: str, **properties: str) -> object:
    names: dict[str, int] = {}
    evaluate = parse(text).compiled(lambda name: names.setdefault(name, len(names)))
    try:
        return evaluate([properties.get(name) for name in names])
    except EvaluationError:
        return ERROR


WORD = {True: "TRUE", False: "FALSE", None: "NULL"}
#  left, right: AND, OR
TRUTH = {
    (True, True): (True, True),
    (True, False): (False, True),
    (True, None): (None, True),
    (False, True): (False, True),
    (False, False): (False, False),
    (False, None): (False, None),
    (None, True): (None, True),
    (None, False): (False, None),
    (None, None): (None, None),
}


@pytest.mark.proves("Filters", "SQL92 by RocketMQ's grammar and three-valued logic, as Apache's own filter says")
@pytest.mark.parametrize(("left", "right"), TRUTH)
def test_truth_tables(left: bool | None, right: bool | None):
    both, either = TRUTH[left, right]
    assert result(f"{WORD[left]} AND {WORD[right]}") is both
    assert result(f"{WORD[left]} OR {WORD[right]}") is either


@pytest.mark.parametrize(("value", "contrary"), [(True, False), (False, True), (None, None)])
def test_not(value: bool | None, contrary: bool | None):
    assert result(f"NOT {WORD[value]}") is contrary


@pytest.mark.parametrize("values", list(product([True, False, None], repeat=3)))
def test_three_in_a_row_are_as_two_and_one(values: tuple[bool | None, ...]):
    a, b, c = (WORD[value] for value in values)
    for word in ("AND", "OR"):
        assert result(f"{a} {word} {b} {word} {c}") is result(f"({a} {word} {b}) {word} {c}")
        assert result(f"{a} {word} {b} {word} {c}") is result(f"{a} {word} ({b} {word} {c})")


@pytest.mark.parametrize(
    ("text", "unknown", "of_5"),
    [
        ("a = 5", None, True),
        ("a <> 5", None, False),
        ("5 = a", False, True),
        ("5 <> a", True, False),
        ("a = '5'", None, True),
        ("a > 4", None, True),
        ("4 < a", None, True),
        ("a BETWEEN 1 AND 5", None, True),
        ("a NOT BETWEEN 1 AND 5", None, False),
        ("a IN ('5')", None, True),
        ("a NOT IN ('5')", None, False),
        ("a IS NULL", True, False),
        ("a IS NOT NULL", False, True),
        ("a CONTAINS '5'", False, True),
        ("a NOT CONTAINS '6'", False, True),
        ("a STARTSWITH '5'", False, True),
        ("a NOT STARTSWITH '5'", False, False),
        ("a ENDSWITH '5'", False, True),
        ("a NOT ENDSWITH '5'", False, False),
        ("a CONTAINS ''", False, False),
        ("a NOT CONTAINS ''", False, False),
        ("a", None, False),
        ("NOT a", None, True),
        ("-a = 5", None, None),
        ("a = a", True, True),
        ("a = TRUE", None, False),
    ],
)
def test_an_unknown_property(text: str, unknown: bool | None, of_5: bool | None):
    assert result(text) is unknown
    assert result(text, a="5") is of_5


@pytest.mark.parametrize(
    ("text", "a", "expected"),
    [
        # An int on one side: the text must be one, of 32 bits, without blanks and fraction.
        ("a = 5", "+5", True),
        ("a = 5", "005", True),
        ("a = 5", "5.0", ERROR),
        ("a = 5", " 5", ERROR),
        ("a = 5", "5_0", ERROR),
        ("a > 5", "2147483647", True),
        ("a > 5", "2147483648", ERROR),
        ("a < 5", "-2147483648", True),
        ("a < 5", "-2147483649", ERROR),
        ("a > 5", "9" * 5000, ERROR),
        ("a > -5", "-4", True),
        # A literal beyond 32 bits makes it a long.
        ("a < 2147483648", "2147483647", True),
        ("a = 9223372036854775807", "9223372036854775807", True),
        ("a > 2147483648", "9223372036854775808", ERROR),
        ("a = -2147483649", "-2147483649", True),
        # A double takes all that Java reads as one.
        ("a = 5.5", " 5.50 ", True),
        ("a = 5.5", "5.5d", True),
        ("a = 5.5", "55e-1F", True),
        ("a = 5.5", "0x1.6p2", True),
        ("a = 5.5", "5_5", ERROR),
        ("a = 5.5", "nan", ERROR),
        ("a > 5.5", "NaN", True),
        ("a < 5.5", "-Infinity", True),
        ("a > 5.5", "1e999", True),
        ("a > 5.5", "abc", ERROR),
        ("a = 5.5", "", None),
        # TRUE and FALSE, and texts that are no numbers.
        ("a = TRUE", "tRuE", True),
        ("a = TRUE", "1", False),
        ("a <> FALSE", "yes", False),
        ("a = 'abc'", "abc", True),
        ("a = 'abc'", "ABC", False),
        ("TRUE = a", "true", ERROR),
        # A comparison gives a boolean, which is no text.
        ("(a = 1) = TRUE", "1", True),
        ("(a = 1) = 1", "1", False),
        ("(a = 1) CONTAINS '1'", "1", False),
        ("NOT a = 1", "1", False),
        ("'axb' CONTAINS 'x' AND a = 'é'", "é", True),
    ],
)
def test_how_values_are_read(text: str, a: str, expected: object):
    properties = {"a": a} if a else {}
    assert result(text, **properties) is expected


@pytest.mark.parametrize(
    ("a", "b", "less", "equal"),
    [
        ("1", "1.0", False, False),
        ("9", "10", True, False),
        ("-0.0", "0.0", True, False),
        ("1", "NaN", True, False),
        ("NaN", "NaN", False, True),
        ("NaN", "1", False, False),
        ("a", "b", ERROR, False),
    ],
)
def test_two_properties(a: str, b: str, less: object, equal: bool):
    assert result("a < b", a=a, b=b) is less
    assert result("a = b", a=a, b=b) is equal


def test_one_of_two_properties_is_missing():
    assert result("a = b", a="1") is False
    assert result("a = b", b="1") is None
    assert result("a = b") is True
    assert result("a < b", a="1") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 = 1", True),
        ("1 = 1.0", True),
        ("2147483648 > 1", True),
        ("9007199254740993 = 9007199254740992.0", True),
        ("1 < 1.5", True),
        ("1 = TRUE", False),
        ("'true' = TRUE", True),
        ("TRUE = TRUE", True),
        ("'1' = 1", True),
        ("1 = '1'", True),
        ("1 = 'x'", ERROR),
        ("-TRUE IS NULL", True),
        ("-'1' IS NULL", True),
        ("-(-1) = 1", True),
    ],
)
def test_literals_alone(text: str, expected: object):
    assert result(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b = 'x' OR a > 5", True),
        ("a > 5 OR b = 'x'", ERROR),
        ("b = 'y' AND a > 5", False),
        ("a > 5 AND b = 'y'", ERROR),
        ("a BETWEEN 1 AND 2 OR b = 'x'", ERROR),
        ("(a > 5) CONTAINS 'x'", ERROR),
        ("(a > 5) CONTAINS ''", False),
    ],
)
def test_conditions_after_the_deciding_one_are_not_evaluated(text: str, expected: object):
    assert result(text, a="abc", b="x") is expected
