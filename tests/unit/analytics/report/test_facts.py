"""Counts of keys in bounded memory."""

import random
from collections import Counter

import pyarrow as pa

from rocketbroker.analytics.report.facts import TopKeys

KEYS = pa.schema([("topic", pa.string()), ("key", pa.string()), ("messages", pa.int64())])


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
