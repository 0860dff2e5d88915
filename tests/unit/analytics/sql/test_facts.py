"""Rows of questions, and their sums: both engines of a question add up the same rows."""

import random

import pyarrow as pa
import pytest

from rocketbroker.analytics.sql.facts import DELAYS, QUEUES, GroupedSums, is_sent, retry_group
from tests.support.retry_names import RETRY_NAMES

INT = pa.int64()
SCHEMA = pa.schema([("a", pa.string()), ("b", INT), ("n", INT), ("low", INT), ("high", INT)])


@pytest.mark.parametrize(
    ("topic", "sent"),
    [
        ("orders", True),
        ("BenchmarkTest", True),
        ("rmq_sys_wheel_timer", False),
        ("TRANS_CHECK_MAX_TIME_TOPIC", False),
        ("RMQ_SYS_TRANS_HALF_TOPIC", False),
        ("SCHEDULE_TOPIC_XXXX", False),
        ("%RETRY%G", False),
        ("%DLQ%G", False),
    ],
)
def test_messages_of_topics_closed_to_producers_were_not_sent(topic: str, sent: bool) -> None:
    assert is_sent(pa.chunked_array([[topic]])).to_pylist() == [sent]


@pytest.mark.parametrize(("name", "properties", "group"), RETRY_NAMES)
def test_the_group_follows_from_the_name_and_the_message(name: str, properties: dict[str, str], group: str) -> None:
    assert retry_group(f"%RETRY%{name}", properties.get("ORIGIN_GROUP")) == group


def test_a_delay_beyond_int64_is_unknown_and_still_a_message():
    times = {"store_timestamp": [(1 << 63) - 1, 5], "born_timestamp": [-1, 3]}
    batch = pa.RecordBatch.from_pydict({"broker": ["a", "a"], "topic": ["T", "T"], **times})
    assert sorted(DELAYS.of(batch).column("took").to_pylist(), key=str) == [2, None]


def test_a_column_that_a_question_can_do_without_is_null():
    batch = pa.RecordBatch.from_pydict({"topic": ["T", "T"], "queue_id": pa.array([1, 1], pa.int32())})
    (row,) = QUEUES.of(batch).to_pylist()
    assert row == {"broker": None, "topic": "T", "queue_id": 1, "messages": 2, "bytes": None, "end": None}
    with pytest.raises(KeyError):
        QUEUES.of(batch.select(["queue_id"]))


@pytest.mark.parametrize("pending", [1, 50, 10_000])
def test_sums_are_those_of_all_rows_whenever_they_are_put_together(pending: int):
    chance, added = random.Random(3), GroupedSums(SCHEMA, {"n": "sum", "low": "min", "high": "max"}, pending)
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
