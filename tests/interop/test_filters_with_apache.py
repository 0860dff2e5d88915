"""Our filters and Apache's own say the same of the same properties, and refuse the same expressions.

None of them has words behind its end, which Apache's parser passes over and ours refuses.
"""

import random
from pathlib import Path

import pytest

from rocketbroker.codec.filter.expression import EvaluationError
from rocketbroker.codec.filter.selector_parser import parse
from rocketbroker.common.errors import MQFilterError
from tests.support.java import Java

CASES = 20_000
SEED = 20_261_122

VALUES = [
    *("1", "2", "10", "-3", "+4", "007", "1.5", "2.50", " 2", "2 ", "5e9", "1e400", "-1e400", "3000000000"),
    *("-3000000000", "9223372036854775807", "9223372036854775808", "5d", "5F", "0x1p3", "NaN", "Infinity", "-0.0"),
    *(".", "0.0", "1_0", "true", "TRUE", "false", "yes", "x", "xy", "axb", "'", "é", "\u0664", "\uff11"),
]  # fmt: skip
LITERALS = [
    *("1", "2", "10", "0", "3L", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808"),
    *("1.5", "2.5", "5E9", ".5", "5.", "0.0", "1E400", "'1'", "'x'", "'xy'", "''", "''''", "'é'"),
    *("TRUE", "FALSE", "NULL"),
]  # fmt: skip
NAMES = ["a", "b", "c"]


def operand(choose: random.Random, depth: int) -> str:
    kind = choose.random()
    if kind < 0.5:
        return choose.choice(NAMES)
    if kind < 0.85:
        return choose.choice(["", "", "", "-", "+", "- "]) + choose.choice(LITERALS)
    return f"({condition(choose, depth - 1)})" if depth > 0 else "b"


def texts(choose: random.Random) -> str:
    return ", ".join(choose.choice(["'1'", "'x'", "'2'", "''", "'é'"]) for _ in range(choose.randint(1, 6)))


def condition(choose: random.Random, depth: int = 3) -> str:
    """Any expression, mostly one that is right."""
    left = operand(choose, depth)
    negation = choose.choice(["", "NOT "])
    match choose.randint(0, 11):
        case 0 | 1 | 2:
            return f"{left} {choose.choice(['=', '<>'])} {operand(choose, depth)}"
        case 3 | 4 | 5:
            return f"{left} {choose.choice(['<', '<=', '>', '>='])} {operand(choose, depth)}"
        case 6:
            return f"{left} {negation}BETWEEN {operand(choose, depth)} AND {operand(choose, depth)}"
        case 7:
            return f"{choose.choice(NAMES)} {negation}IN ({texts(choose)})"
        case 8:
            word = choose.choice(["CONTAINS", "startswith", "EndsWith"])
            return f"{left} {negation}{word} {texts(choose).partition(',')[0]}"
        case 9:
            return f"{left} IS {negation}NULL"
        case 10:
            return f"NOT {operand(choose, depth)}"
    words = [condition(choose, depth - 1) if depth > 0 else left for _ in range(choose.randint(1, 3))]
    return choose.choice([" AND ", " OR ", " and/* */"]).join(words)


def cases() -> list[tuple[str, dict[str, str]]]:
    choose = random.Random(SEED)
    made = []
    for _ in range(CASES):
        properties = {name: choose.choice(VALUES) for name in NAMES if choose.random() < 0.75}
        made.append((condition(choose), properties))
    return made


def ours(expression: str, properties: dict[str, str]) -> str:
    names: dict[str, int] = {}
    try:
        evaluate = parse(expression).compiled(lambda name: names.setdefault(name, len(names)))
    except MQFilterError:
        return "REFUSED"
    try:
        value = evaluate([properties.get(name) for name in names])
    except EvaluationError:
        return "ERROR"
    return "null" if value is None else str(value).lower()


@pytest.mark.proves("Filters", "SQL92 by RocketMQ's grammar and three-valued logic, as Apache's own filter says")
@pytest.mark.java
def test_filters_agree_with_apaches(java: Java, tmp_path: Path):
    asked = cases()
    lines = [
        "\t".join([expression, *(part for pair in properties.items() for part in pair)])
        for expression, properties in asked
    ]
    (tmp_path / "cases").write_text("\n".join(lines) + "\n")
    done = java.run("Selector", str(tmp_path / "cases"))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr

    theirs = done.stdout.split()
    assert len(theirs) == CASES
    differing = [
        (expression, properties, answer, ours(expression, properties))
        for (expression, properties), answer in zip(asked, theirs, strict=True)
        if answer != ours(expression, properties)
    ]
    assert differing == [], f"{len(differing)} differ"
    for answer in ("REFUSED", "ERROR", "true", "false", "null"):
        assert theirs.count(answer) > CASES // 50, answer
