import random
from collections import Counter

import pyarrow as pa
import pytest

from rocketbroker.analytics.report import facts
from rocketbroker.analytics.report.facts import GroupedSums, TopKeys

INT = pa.int64()
SCHEMA = pa.schema([("a", pa.string()), ("b", INT), ("n", INT), ("low", INT), ("high", INT)])
KEYS = pa.schema([("topic", pa.string()), ("key", pa.string()), ("messages", pa.int64())])


@pytest.mark.parametrize("pending", [1, 50, 10_000])
def test_sums_are_those_of_all_rows_whenever_they_are_put_together(monkeypatch: pytest.MonkeyPatch, pending: int):
    monkeypatch.setattr(facts, "_PENDING", pending)
    chance, added = random.Random(3), GroupedSums(SCHEMA, {"n": "sum", "low": "min", "high": "max"})
    expected: dict[tuple[str, int], list[int]] = {}
    for _ in range(30):
        rows = [(chance.choice("xyz"), chance.randrange(9), chance.randrange(100)) for _ in range(chance.randrange(40))]
        added.add(table_of(rows))
        for a, b, n in rows:
            total = expected.setdefault((a, b), [0, n, n])
            expected[a, b] = [total[0] + n, min(total[1], n), max(total[2], n)]
    found = added.result()
    assert found.schema == SCHEMA
    assert [tuple(row.values()) for row in found.to_pylist()] == [(*key, *expected[key]) for key in sorted(expected)]
    assert added.peek().num_rows == len(expected)


def table_of(rows: list[tuple[str, int, int]]) -> pa.Table:
    a, b, n = ([row[at] for row in rows] for at in range(3))
    values = pa.array(n, pa.int64())
    texts, numbers = pa.array(a, pa.string()), pa.array(b, pa.int64())
    return pa.table({"a": texts, "b": numbers, "n": values, "low": values, "high": values})


def test_nothing_added_is_an_empty_table():
    assert GroupedSums(SCHEMA, {"n": "sum", "low": "min", "high": "max"}).result() == SCHEMA.empty_table()


def keys_table(keys: list[str]) -> pa.Table:
    ones = pa.array([1] * len(keys), pa.int64())
    return pa.table({"topic": pa.array(["t"] * len(keys)), "key": pa.array(keys, pa.string()), "messages": ones})


def test_keys_that_all_have_room_are_counted_exactly():
    top, keys = TopKeys(KEYS, most=100), [f"k{number % 13}" for number in range(300)] + ["hot"] * 50
    for at in range(0, len(keys), 40):
        top.add(keys_table(keys[at : at + 40]))
    assert top.missed == 0
    expected = sorted(Counter(keys).items(), key=lambda pair: (-pair[1], pair[0]))[:5]
    assert [(row["key"], row["messages"]) for row in top.result(5).to_pylist()] == expected


def test_of_too_many_keys_the_most_frequent_stay_and_what_may_be_missed_is_reported():
    chance, top, counted = random.Random(5), TopKeys(KEYS, most=200), Counter[str]()
    for _ in range(60):
        keys = [f"rare{chance.randrange(10**9)}" for _ in range(100)] + ["hot"] * 30 + ["warm"] * 12
        chance.shuffle(keys)
        counted.update(keys)
        top.add(keys_table(keys))
    found = {row["key"]: row["messages"] for row in top.result(10).to_pylist()}
    assert list(found)[:2] == ["hot", "warm"]
    assert top.missed > 0
    for key, messages in found.items():
        assert messages <= counted[key] <= messages + top.missed
