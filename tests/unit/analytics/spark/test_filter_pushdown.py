"""Filters of Spark as selections: rows of the selection and the filters that are left are those of all filters."""

import operator
import random
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from rocketbroker.analytics.columns.selection import NOTHING, Selection
from rocketbroker.analytics.spark.filter_pushdown import push_filters
from rocketbroker.analytics.tables.table_reader import find_table
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.table_rows import in_ms, table_rows

EVERYTHING = Selection()
MS = 1_795_255_162_876
AT = datetime.fromtimestamp(MS / 1000, UTC)


def push(*filters: Filter, table: str = "messages", schema: pa.Schema | None = None, selection=EVERYTHING):
    found = find_table(table)
    return push_filters(filters, found, schema or found.schema, selection)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (EqualTo(("topic",), "T"), Selection(topics={"T"})),
        (EqualNullSafe(("topic",), "T"), Selection(topics={"T"})),
        (In(("topic",), ("T", "U")), Selection(topics={"T", "U"})),
        (EqualTo(("broker",), "b"), Selection(brokers={"b"})),
        (In(("broker",), ("a", "b")), Selection(brokers={"a", "b"})),
        (EqualTo(("tags",), "A"), Selection(tags={"A"})),
        (EqualTo(("queue_id",), 3), Selection(queue_ids={3})),
        (In(("queue_id",), (3, 4)), Selection(queue_ids={3, 4})),
        (EqualTo(("queue_offset",), 7), Selection(queue_offsets=(7, 8))),
        (GreaterThan(("queue_offset",), 7), Selection(queue_offsets=(8, 1 << 63))),
        (LessThanOrEqual(("queue_offset",), 7), Selection(queue_offsets=(-(1 << 63), 8))),
        (GreaterThanOrEqual(("physical_offset",), 7), Selection(physical_offsets=(7, 1 << 63))),
        (LessThanOrEqual(("queue_offset",), (1 << 63) - 1), Selection(queue_offsets=(-(1 << 63), 1 << 63))),
        (EqualTo(("queue_offset",), (1 << 63) - 1), Selection(queue_offsets=((1 << 63) - 1, 1 << 63))),
        (LessThan(("physical_offset",), 7), Selection(physical_offsets=(-(1 << 63), 7))),
    ],
)
def test_what_is_taken_over(given, expected):
    assert push(given) == (expected, [])


@pytest.mark.parametrize(
    ("kind", "since", "until"),
    [
        (EqualTo, 0, 1),
        (GreaterThan, 1, None),
        (GreaterThanOrEqual, 0, None),
        (LessThan, None, 0),
        (LessThanOrEqual, None, 1),
    ],
)
def test_times_narrow_and_are_given_back_unless_they_are_numbers(kind, since, until):
    expected = Selection(None if since is None else MS + since, None if until is None else MS + until)
    given = kind(("store_timestamp",), AT)
    assert push(given) == (expected, [given])
    elsewhere = kind(("store_timestamp",), AT.astimezone(timezone(timedelta(hours=5, minutes=30))))
    assert push(elsewhere) == (expected, [elsewhere])
    number = kind(("store_timestamp",), MS)
    assert push(number, schema=in_ms("messages")) == (expected, [])


def test_microseconds_are_between_milliseconds():
    between = AT + timedelta(microseconds=500)
    for kind, expected in (
        (GreaterThan, Selection(since_ms=MS + 1)),
        (GreaterThanOrEqual, Selection(since_ms=MS + 1)),
        (LessThan, Selection(until_ms=MS + 1)),
        (LessThanOrEqual, Selection(until_ms=MS + 1)),
        (EqualTo, EVERYTHING),
    ):
        given = kind(("store_timestamp",), between)
        assert push(given) == (expected, [given])


def test_times_before_1970_are_rounded_the_same_way():
    early = datetime(1969, 12, 31, 23, 59, 59, 999_500, UTC)  # half a millisecond before
    given = GreaterThanOrEqual(("store_timestamp",), early)
    assert push(given).selection == Selection(since_ms=0)
    assert push(LessThanOrEqual(("store_timestamp",), early)).selection == Selection(until_ms=0)


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("keys",), "k1"),
        EqualTo(("keys",), "k1 k2"),
        In(("keys",), ("k1", "k1 k9")),
        EqualTo(("uniq_key",), "k1"),
    ],
)
def test_keys_narrow_and_are_given_back(given):
    assert push(given) == (Selection(keys={"k1"}), [given])


def test_two_conditions_on_keys_do_not_exclude_each_other():
    filters = [EqualTo(("keys",), "k1"), EqualTo(("uniq_key",), "U")]
    assert push(*filters) == (Selection(keys={"k1"}), filters)


@pytest.mark.parametrize(
    "given",
    [
        Not(EqualTo(("topic",), "T")),
        IsNull(("tags",)),
        IsNotNull(("topic",)),
        StringStartsWith(("topic",), "T"),
        StringEndsWith(("topic",), "T"),
        StringContains(("keys",), "k"),
        EqualTo(("topic",), None),
        EqualNullSafe(("tags",), None),
        In(("topic",), ("T", None)),
        In(("queue_id",), (1, 2.5)),
        EqualTo(("queue_id",), True),
        EqualTo(("queue_id",), 1.0),
        GreaterThan(("queue_id",), 1),
        GreaterThan(("topic",), "T"),
        In(("queue_offset",), (1, 2)),
        EqualTo(("keys",), " k"),
        EqualTo(("uniq_key",), ""),
        EqualTo(("body",), b"x"),
        EqualTo(("size",), 1),
        EqualTo(("properties", "TAGS"), "A"),
        GreaterThan(("store_timestamp",), datetime(2026, 11, 21)),  # noqa: DTZ001 - of no zone
        EqualTo(("born_timestamp",), AT),
    ],
)
def test_what_is_left_to_spark(given):
    assert push(given) == (EVERYTHING, [given])


def test_filters_hold_all_at_once_and_beside_what_is_selected_already():
    found = push(
        In(("topic",), ("T", "U")),
        EqualTo(("topic",), "T"),
        GreaterThan(("queue_offset",), 3),
        LessThan(("queue_offset",), 9),
        selection=Selection(exact=True, queue_ids={1}),
    )
    assert found == (Selection(topics={"T"}, queue_offsets=(4, 9), queue_ids={1}, exact=True), [])
    assert push(EqualTo(("topic",), "T"), EqualTo(("topic",), "U")).selection.is_nothing
    assert push(LessThan(("queue_offset",), 3), GreaterThan(("queue_offset",), 3)).selection == NOTHING


def test_a_column_that_a_table_calls_otherwise():
    real = EqualTo(("real_topic",), "T")
    stored = EqualTo(("topic",), "SCHEDULE_TOPIC_XXXX")
    assert push(real, stored, table="delayed") == (Selection(topics={"T"}), [stored])
    assert push(EqualTo(("topic",), "T"), table="subscription_groups").left == [EqualTo(("topic",), "T")]


_OPERATORS = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, values: value in values,
}


def holds(row, given) -> bool:
    value = row[given.attribute[0]]
    return value is not None and _OPERATORS[type(given)](value, given.value)


@pytest.mark.long
def test_any_filters_give_the_rows_that_they_say(tmp_path):
    writer = CommitLogWriter(tmp_path, file_size=1 << 14)
    chance = random.Random(5)
    for number in range(300):
        writer.append(
            b"body",
            b"T%d" % chance.randrange(4),
            b"KEYS\x01k%d k%d\x02UNIQ_KEY\x01k%d\x02TAGS\x01t%d\x02" % (*(chance.randrange(5) for _ in range(4)),)
            if chance.random() < 0.9
            else b"",
            queue_id=chance.randrange(3),
            queue_offset=chance.randrange(50),
            store_timestamp=MS + number,
        )
    rows = table_rows(tmp_path, "messages")
    values = {name: [row[name] for row in rows] for name in rows[0]}
    columns = ("broker", "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "keys", "uniq_key",
               "tags", "size")  # fmt: skip
    for _ in range(300):
        filters = []
        for name in chance.sample(columns, chance.randrange(1, 4)):
            kind = chance.choice(list(_OPERATORS))
            some = [value for value in chance.choices(values[name], k=8) if value is not None]
            filters.append(kind((name,), tuple(some) if kind is In else some[0]))
        selection, left = push_filters(filters, find_table("messages"), in_ms("messages"), EVERYTHING)
        found = [row for row in table_rows(tmp_path, "messages", selection) if all(holds(row, each) for each in left)]
        assert found == [row for row in rows if all(holds(row, each) for each in filters)], filters


@pytest.mark.parametrize(
    "given",
    [
        GreaterThanOrEqual(("queue_offset",), 5),
        GreaterThan(("queue_offset",), 5),
        LessThanOrEqual(("queue_offset",), (1 << 63) - 1),
        EqualTo(("queue_offset",), (1 << 63) - 1),
    ],
)
def test_a_damaged_record_with_the_highest_number_is_chosen_as_spark_does(tmp_path, given):
    CommitLogWriter(tmp_path).append(queue_offset=(1 << 63) - 1)
    selection, left = push(given)
    assert left == []
    (row,) = table_rows(tmp_path, "messages", selection)
    batch = pa.RecordBatch.from_pylist([{"queue_offset": row["queue_offset"]}])
    assert selection.arrow_mask(batch).to_pylist() == [True]
