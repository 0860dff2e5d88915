"""Compiled filters against an evaluator of their own, that knows neither the grammar nor the tree of the product."""

import re
import tracemalloc
from decimal import Decimal
from fractions import Fraction
from itertools import chain, repeat
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketbroker.codec.filter import sql_filter
from rocketbroker.codec.filter.selector_parser import parse
from rocketbroker.codec.filter.sql_filter import SqlFilter, compiled
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.message.raw_records import PropertyBlocks
from rocketbroker.common.errors import MQFilterError

NAMES = ("a", "b", "c")
PROPERTY_VALUES = ["1", "2", "10", "-3", "1.5", "2.50", "5e9", "3000000000", "x", "xy", "true", "FALSE", " 2", "'", "é"]
NUMBERS = ["1", "2", "10", "3000000000", "1.5", "2.5", "5E9", ".5"]
TEXTS = ["1", "x", "xy", "", "'", "é", "true"]


class WrongError(Exception):
    """RocketMQ would raise."""


# A tree is a tuple of a word and its parts; a leaf is a pair of kind and text.


def leaves() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.tuples(st.just("property"), st.sampled_from(NAMES)),
        st.tuples(st.just("number"), st.sampled_from(NUMBERS)),
    )


def comparable() -> st.SearchStrategy[Any]:
    return st.one_of(leaves(), st.tuples(st.just("text"), st.sampled_from(TEXTS)))


def simple() -> st.SearchStrategy[Any]:
    names = st.tuples(st.just("property"), st.sampled_from(NAMES))
    texts = st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6)
    words = st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"])
    return st.one_of(
        st.tuples(st.sampled_from(["=", "<>"]), comparable(), comparable()),
        st.tuples(st.sampled_from([">", ">=", "<", "<="]), leaves(), leaves()),
        st.tuples(st.sampled_from(["BETWEEN", "NOT BETWEEN"]), leaves(), names, leaves()),
        st.tuples(st.sampled_from(["IN", "NOT IN"]), names, texts),
        st.tuples(words, comparable(), st.sampled_from(TEXTS)),
        st.tuples(words.map("NOT {}".format), comparable(), st.sampled_from(TEXTS)),
        st.tuples(st.sampled_from(["IS NULL", "IS NOT NULL"]), comparable()),
        st.tuples(st.just("literal"), st.sampled_from(["TRUE", "FALSE", "NULL"])),
    )


TREES = st.recursive(
    simple(),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["AND", "OR"]), inner, inner),
        st.tuples(st.sampled_from(["AND", "OR"]), inner, inner, inner),
        st.tuples(st.just("NOT"), inner),
    ),
    max_leaves=8,
)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def written(tree: Any) -> str:  # noqa: PLR0911 - a case a line
    """The expression, with parentheses wherever they may stand."""
    word, *parts = tree
    match word:
        case "property" | "number" | "literal":
            return str(parts[0])
        case "text":
            return quoted(parts[0])
        case "AND" | "OR":
            return f" {word} ".join(f"({written(part)})" for part in parts)
        case "NOT":
            return f"NOT ({written(parts[0])})"
        case "BETWEEN" | "NOT BETWEEN":
            return f"{written(parts[0])} {word} {written(parts[1])} AND {written(parts[2])}"
        case "IN" | "NOT IN":
            return f"{written(parts[0])} {word} ({', '.join(map(quoted, parts[1]))})"
        case "IS NULL" | "IS NOT NULL":
            return f"{written(parts[0])} {word}"
        case _ if word.endswith(("CONTAINS", "WITH")):
            return f"{written(parts[0])} {word} {quoted(parts[1])}"
    return f"{written(parts[0])} {word} {written(parts[1])}"


def number_of(text: str, like: str) -> Fraction:
    """Text as the kind of number that a literal is."""
    if re.fullmatch("[0-9]+", like):
        bits = 31 if int(like) < 2**31 else 63
        if not re.fullmatch("[+-]?[0-9]+", text) or not -(2**bits) <= int(text) < 2**bits:
            raise WrongError(text)
        return Fraction(text)
    try:
        return Fraction(Decimal(text))
    except ArithmeticError:
        raise WrongError(text) from None


def compared(left: Any, right: Any, *, ordered: bool) -> int | None:
    """-1, 0 or 1; both are (kind, text) of a property or a literal."""
    is_text = [kind in {"property", "text"} for kind, _ in (left, right)]
    if all(is_text) and not ordered:
        return int(left[1] != right[1])
    texts = [text for _, text in (left, right)]
    if all(is_text):
        numbers = [number_of(text, "1.0") for text in texts]
    elif is_text[0]:
        numbers = [number_of(texts[0], texts[1]), Fraction(Decimal(texts[1]))]
    elif is_text[1]:
        numbers = [Fraction(Decimal(texts[0])), number_of(texts[1], texts[0])]
    else:
        numbers = [Fraction(Decimal(text)) for text in texts]
    return (numbers[0] > numbers[1]) - (numbers[0] < numbers[1])


def leaf(part: Any, properties: dict[str, str]) -> Any:
    kind, text = part
    return (kind, properties[text]) if kind == "property" and text in properties else part


def slow(tree: Any, properties: dict[str, str]) -> bool | None:  # noqa: C901, PLR0911, PLR0912 - a case a line
    """RocketMQ's results, rule by rule."""
    word, *parts = tree
    unknown = [part[0] == "property" and part[1] not in properties for part in parts if isinstance(part, tuple)]
    match word:
        case "literal":
            return {"TRUE": True, "FALSE": False, "NULL": None}[parts[0]]
        case "AND":
            seen = []
            for part in parts:
                seen.append(slow(part, properties))
                if seen[-1] is False:
                    return False
            return None if None in seen else True
        case "OR":
            inverted = ("AND", *(("NOT", part) for part in parts))
            return slow(("NOT", inverted), properties)
        case "NOT":
            value = slow(parts[0], properties)
            return None if value is None else not value
        case "IS NULL":
            return unknown[0]
        case "IS NOT NULL":
            return not unknown[0]
        case "BETWEEN":
            return slow(("AND", (">=", parts[0], parts[1]), ("<=", parts[0], parts[2])), properties)
        case "NOT BETWEEN":
            return slow(("OR", ("<", parts[0], parts[1]), (">", parts[0], parts[2])), properties)
        case "IN" | "NOT IN":
            return None if unknown[0] else bool((properties[parts[0][1]] in parts[1]) == (word == "IN"))
        case "<>":
            return slow(("NOT", ("=", *parts)), properties)
        case "=":
            if any(unknown):
                return True if all(unknown) else (None if unknown[0] else False)
            return compared(leaf(parts[0], properties), leaf(parts[1], properties), ordered=False) == 0
    if word in {">", ">=", "<", "<="}:
        if any(unknown):
            return None
        answer = compared(leaf(parts[0], properties), leaf(parts[1], properties), ordered=True)
        return answer in {">": {1}, ">=": {0, 1}, "<": {-1}, "<=": {-1, 0}}[word]
    kind, text = leaf(parts[0], properties)
    if unknown[0] or kind == "number" or not parts[1]:
        return False
    where = {"CONTAINS": ".*{}.*", "STARTSWITH": "{}.*", "ENDSWITH": ".*{}"}[word.removeprefix("NOT ")]
    found = re.fullmatch(where.format(re.escape(parts[1])), text) is not None
    return found is not str(word).startswith("NOT ")


def wanted(tree: Any, properties: dict[str, str]) -> bool:
    try:
        return slow(tree, properties) is True
    except WrongError:
        return False


PROPERTIES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(PROPERTY_VALUES))


@pytest.mark.long
@pytest.mark.proves("Filters", "SQL92 by RocketMQ's grammar and three-valued logic, as Apache's own filter says")
@settings(max_examples=300, deadline=None)
@given(TREES, st.lists(PROPERTIES, min_size=1, max_size=40))
def test_filters_match_what_the_rules_say(tree: Any, messages: list[dict[str, str]]):
    message_filter = compiled(written(tree))
    raws = [encode_properties({"KEYS": "k", **properties, "UNIQ_KEY": "u"}) for properties in messages]
    expected = [wanted(tree, properties) for properties in messages]

    assert message_filter.is_matched_by_commit_log(PropertyBlocks.of(raws)) == expected
    assert message_filter.is_matched_by_commit_log(PropertyBlocks.of(raws)) == expected, "results are remembered"
    assert [message_filter.is_matched_by_commit_log(PropertyBlocks.of([raw]))[0] for raw in raws] == expected


def test_one_text_is_compiled_once():
    assert compiled("a = 'once'") is compiled("a = 'once'")
    with pytest.raises(MQFilterError) as first:
        compiled("a = 'x' x")
    with pytest.raises(MQFilterError) as second:
        compiled("a = 'x' x")
    assert str(first.value) == str(second.value)
    assert first.value.position == second.value.position == 9
    assert compiled.__module__ == sql_filter.__name__


def test_the_cache_of_filters_is_bounded():
    first = compiled("a = 'bounded'")
    for number in range(sql_filter.MOST_COMPILED):
        compiled(f"a = {number}")
    assert compiled("a = 'bounded'") is not first


def test_the_cache_is_bounded():
    message_filter = compiled("a > 5 AND b IS NULL")
    for start in range(0, 20_000, 500):
        raws = [encode_properties({"a": str(number)}) for number in range(start, start + 500)]
        assert message_filter.is_matched_by_commit_log(PropertyBlocks.of(raws)) == [
            number > 5 for number in range(start, start + 500)
        ]
    assert 0 < len(sql_filter.cached_results(message_filter).by_values) <= sql_filter.MOST_KNOWN


def test_the_memory_of_all_results_is_bounded():
    """Bytes of the tables and of the results by values, for more filters than have results."""
    filters = [
        compiled(" OR ".join(f"{name}{number} = 'x'" for name in "abcdefgh"))
        for number in range(sql_filter.MOST_WITH_RESULTS + 8)
    ]
    raw = encode_properties({f"{name}{number}": "y" * 15 for name in "abcdefgh" for number in range(40)})
    blocks = PropertyBlocks.of([raw] * 30)
    tracemalloc.start()
    try:
        for each in filters:
            assert each.is_quick
            assert each.is_matched_by_commit_log(blocks) == [False] * 30
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert sql_filter.cached_results.cache_info().currsize == sql_filter.MOST_WITH_RESULTS
    assert used < sql_filter.MOST_WITH_RESULTS * 600 * 1024


@pytest.mark.parametrize("text", [" OR ".join(f"a{number} = 1" for number in range(9)), f"a = '{'x' * 260}'"])
def test_long_filters_are_for_threads_and_have_nocached_results(text: str):
    message_filter = compiled(text)
    before = sql_filter.cached_results.cache_info()
    raws = [encode_properties({"a": "x" * 260, "a8": str(number % 3)}) for number in range(60)]
    expected = ["'" in text or number % 3 == 1 for number in range(60)]

    assert not message_filter.is_quick
    assert message_filter.is_matched_by_commit_log(PropertyBlocks.of(raws)) == expected
    assert message_filter.is_matched_by_commit_log(PropertyBlocks.of(raws[:5])) == expected[:5]
    assert sql_filter.cached_results.cache_info() == before


@pytest.mark.parametrize("count", [10, 100])
def test_messages_are_examined_until_the_time_is_over(count: int):
    message_filter = compiled(f"n >= {count // 2}")
    blocks = PropertyBlocks.of([encode_properties({"n": str(number)}) for number in range(count)])
    expected = [number >= count // 2 for number in range(count)]

    # It is asked for before each value that is not known, except the first of them all.
    is_over = chain([False] * 6, repeat(True)).__next__
    assert message_filter.is_matched_by_commit_log(blocks, is_over) == expected[:7]
    assert message_filter.is_matched_by_commit_log(blocks, is_over) in (expected[:7], expected[:8])
    assert message_filter.is_matched_by_commit_log(blocks) == expected
    assert message_filter.is_matched_by_commit_log(blocks, is_over) == expected, "all are known"


def test_long_properties_are_searched_a_few_at_a_time():
    message_filter = compiled("n > 1 OR m > 1")
    raws = [encode_properties({"n": str(number % 3), "x": "x" * 1000}) for number in range(100)]
    expected = [number % 3 == 2 for number in range(100)]
    assert message_filter.is_matched_by_commit_log(PropertyBlocks.of(raws)) == expected

    found = message_filter.is_matched_by_commit_log(PropertyBlocks.of(raws), lambda: True)
    assert found == expected[: len(found)]
    assert 1 < len(found) <= sql_filter.BYTES_AT_A_TIME // 2 // 1000
    assert message_filter.is_matched_by_commit_log(PropertyBlocks.of(raws), lambda: False) == expected


def test_larger_parts_are_searched_while_there_is_time_over():
    message_filter = SqlFilter(parse("n > 1"), 5)
    raws = [encode_properties({"x": "x" * 1000, "n": str(number % 3)}) for number in range(600)]
    blocks, expected = PropertyBlocks.of(raws), [number % 3 == 2 for number in range(600)]

    def examined() -> int:
        found = message_filter.is_matched_by_commit_log(blocks, lambda: True)
        assert found == expected[: len(found)]
        return len(found)

    assert message_filter.is_matched_by_commit_log(blocks) == expected, "all are known now"
    fewest = examined()
    for _ in range(5):
        assert message_filter.is_matched_by_commit_log(blocks, lambda: False) == expected
    sizes = [examined() for _ in range(4)]
    assert fewest == sql_filter.BYTES_AT_A_TIME // len(raws[0])
    assert sizes == [sql_filter.MOST_BYTES_AT_A_TIME // len(raws[0]), sizes[0] // 2, fewest, fewest]


@pytest.mark.parametrize("text", ["a > 1.5", "a <> 5E10"])
@pytest.mark.parametrize("value", ["1" * 32_000 + "x", "1." + "1" * 32_000 + "x", "0x" + "1" * 32_000])
def test_a_long_property_that_is_no_number_takes_no_long_time(text: str, value: str):
    message_filter = compiled(text)
    start = perf_counter()

    assert message_filter.is_matched_by_commit_log(PropertyBlocks.of([encode_properties({"a": value})])) == [False]
    # A pattern that tries all ways to split the digits takes 45 s.
    assert perf_counter() - start < 5


def test_long_values_are_not_remembered():
    message_filter = compiled("a STARTSWITH 'x'")
    raw = encode_properties({"a": "x" * 20_000})
    before = len(sql_filter.cached_results(message_filter).by_values)
    assert message_filter.is_matched_by_commit_log(PropertyBlocks.of([raw, raw])) == [True, True]
    assert len(sql_filter.cached_results(message_filter).by_values) == before


@pytest.mark.parametrize("count", [0, 1, 100])
def test_a_filter_without_properties(count: int):
    for text, matched in (("TRUE", True), ("NULL", False), ("1 = 'x'", False), ("1 < 2", True)):
        assert compiled(text).is_matched_by_commit_log(PropertyBlocks.of([b"a\x011\x02"] * count)) == [matched] * count


def test_properties_that_are_no_utf_8():
    raw = b"a\x01\xff\xfe\x02b\x01\xc3\xa9\x02"
    assert compiled("b = 'é' AND a CONTAINS '\ufffd'").is_matched_by_commit_log(PropertyBlocks.of([raw, b""])) == [
        True,
        False,
    ]


def test_use():
    assert isinstance(compiled("a = 1"), SqlFilter)
