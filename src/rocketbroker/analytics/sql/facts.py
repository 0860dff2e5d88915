"""Rows that messages give for each question, as sums by group: the one definition of what a job and the report count.

These are Arrow functions over batches and not SQL, since the report and ``count`` run without Spark. Spark applies them
to each batch where it is read, so that only sums leave the Python worker; the SQL files beside this one go on from
there. The report adds the same sums up in its own process.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.columns.arrow_columns import number_array, text_array
from rocketbroker.codec.message.message_const import (
    KEY_SEPARATOR,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_ORIGIN_GROUP,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
)
from rocketbroker.codec.message.topic_validator import (
    DLQ_GROUP_TOPIC_PREFIX,
    NOT_ALLOWED_SEND_TOPIC_SET,
    RETRY_GROUP_TOPIC_PREFIX,
    SYSTEM_TOPIC_PREFIX,
)

How = Literal["sum", "min", "max"]
Columns = Mapping[str, pa.Array]

_TEXT: Final = pa.string()
_INT: Final = pa.int64()
_TOPIC: Final = (("broker", _TEXT), ("topic", _TEXT))
_MESSAGES: Final = ("messages", _INT)
_MINUTE_MS: Final = 60_000
# Topics that only brokers write: their messages are in transit to another topic, or were sent long before.
_CLOSED: Final = text_array(sorted(NOT_ALLOWED_SEND_TOPIC_SET))
_NOT_SENT: Final = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX)
# Between group and topic in the name of a pop retry topic. Both names may contain the first; enableRetryTopicV2 writes
# the second, which neither may contain (org.apache.rocketmq.common.KeyBuilder).
_POP_RETRY: Final = "_"
_POP_RETRY_V2: Final = "+"


@dataclass(frozen=True, slots=True)
class Fact:
    """Rows of messages for one question.

    Attributes:
        name: its name in the option ``fact`` of the Spark format.
        reads: the columns of ``messages`` that it needs; times may be timestamps or ms since 1970.
        optional: those that may be missing; what is made from them is null then.
        schema: the columns of its rows; those in ``how`` are aggregated, the others identify a group.
        how: aggregates, none if each row stands for itself.
        rows: makes the rows of columns, which need not be grouped.
    """

    name: str
    reads: tuple[str, ...]
    optional: tuple[str, ...]
    schema: pa.Schema
    how: Mapping[str, How]
    rows: Callable[..., pa.Table]

    def rows_of(self, batch: pa.RecordBatch, **options: Any) -> pa.Table:
        """Return the rows of a batch of messages, not grouped."""
        there = {name for name in self.reads if name not in self.optional or name in batch.schema.names}
        column = {name: batch.column(name) if name in there else pa.nulls(batch.num_rows) for name in self.reads}
        return self.rows(column, **options)

    def of(self, batch: pa.RecordBatch, **options: Any) -> pa.Table:
        """Return the grouped rows of a batch of messages, with the columns of ``schema``."""
        return grouped(self.rows_of(batch, **options), self.schema, self.how)

    def each(self, batches: Iterator[pa.RecordBatch], **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield the grouped rows of batches, each by itself: memory does not grow with the number of groups."""
        for batch in batches:
            yield from self.of(batch, **options).to_batches()


def grouped(rows: pa.Table, schema: pa.Schema, how: Mapping[str, How]) -> pa.Table:
    """Return the aggregates of ``rows`` by the columns of ``schema`` that ``how`` does not aggregate."""
    if not how:
        return rows.select(schema.names).cast(schema)
    by = [name for name in schema.names if name not in how]
    found = rows.group_by(by).aggregate(list(how.items()))
    columns = [found.column(f"{name}_{how[name]}" if name in how else name) for name in schema.names]
    return pa.table(columns, names=schema.names).cast(schema)


class GroupedSums:
    """Aggregates of tables, as ``grouped`` makes them, over many batches in bounded memory."""

    def __init__(self, schema: pa.Schema, how: Mapping[str, How], pending: int = 200_000) -> None:
        self._schema = schema
        self._how = how
        # Rows are grouped with the others once this many, and as many as there are groups, are pending.
        self._most = pending
        self._parts: list[pa.Table] = []
        self._pending = 0
        self._groups = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows; columns as in the schema, in any order, and others, which are left out."""
        if rows.num_rows:
            self._parts.append(grouped(rows, self._schema, self._how))
            self._pending += self._parts[-1].num_rows
        if self._pending > max(self._most, self._groups):
            self._compact()

    def result(self) -> pa.Table:
        """Return the aggregates, sorted by group."""
        return self.peek().sort_by([(name, "ascending") for name in self._schema.names if name not in self._how])

    def keep(self, mask: pa.Array) -> None:
        """Drop the groups, in the order of ``peek``, for which ``mask`` is false."""
        self._parts = [self._parts[0].filter(mask)]
        self._groups = self._parts[0].num_rows

    def peek(self) -> pa.Table:
        """Return the aggregates so far, unsorted."""
        self._compact()
        return self._parts[0]

    def _compact(self) -> None:
        if len(self._parts) != 1:
            whole = pa.concat_tables(self._parts) if self._parts else self._schema.empty_table()
            self._parts = [grouped(whole, self._schema, self._how)]
        self._pending, self._groups = 0, self._parts[0].num_rows


def in_ms(times: pa.Array) -> pa.Array:
    """Return times in ms since 1970; a timestamp outside the calendar is null already."""
    if pa.types.is_timestamp(times.type):
        return times.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(_INT)
    return times.cast(_INT)


def _ones(count: int) -> pa.Array:
    return number_array(np.ones(count, np.int64))


def _null_safe(function: Callable[..., Any], *values: pa.Array) -> pa.Array:
    """Return a function of numpy arrays for Arrow arrays, null where one of them is; it returns (values, missing)."""
    found, missing = function(*(pc.fill_null(each, 0).to_numpy() for each in values))
    for each in values:
        if each.null_count:
            missing = missing | each.is_null().to_numpy(zero_copy_only=False)
    return number_array(found, missing=missing)


def _traffic(column: Columns, interval_ms: int = _MINUTE_MS) -> pa.Table:
    """Place messages in intervals counted from 1970; ``from_ms`` is any number where a damaged time is."""
    times = in_ms(column["store_timestamp"])
    starts = _null_safe(lambda ms: (ms // interval_ms * interval_ms, np.zeros(len(ms), np.bool_)), times)
    return _counted(column, from_ms=starts, bytes=column["size"])


def _counted(column: Columns, **more: pa.Array) -> pa.Table:
    """Return rows of one message each by broker and topic."""
    base = {"broker": column["broker"], "topic": column["topic"]}
    return pa.table(base | more | {"messages": _ones(len(column["topic"]))})


def _keys(column: Columns) -> pa.Table:
    """Return a row for each word of KEYS, repeated words once, and one without a key for each message with keys.

    The latter count the messages with keys in the same pass, also while a broker writes.
    """
    words = pc.split_pattern(column["keys"], KEY_SEPARATOR)
    each = pa.table({"row": pc.list_parent_indices(words), "key": pc.list_flatten(words)})
    each = each.filter(pc.not_equal(each.column("key"), ""))
    rows = pc.unique(each.column("row"))
    if each.num_rows > len(rows):
        each = each.group_by(["row", "key"]).aggregate([])
    parts = [each.select(["row", "key"]), pa.table({"row": rows, "key": pa.nulls(len(rows), _TEXT)})]
    both = pa.concat_tables(parts)
    of = {name: column[name].take(both.column("row").combine_chunks()) for name in ("broker", "topic", "size")}
    return _counted(of, key=both.column("key"), bytes=of["size"])


def _queues(column: Columns) -> pa.Table:
    end = pc.add(column["queue_offset"].cast(_INT), 1)
    return _counted(column, queue_id=column["queue_id"], bytes=column["size"].cast(_INT), end=end)


def took(stored: pa.Array, born: pa.Array) -> pa.Array:
    """Return the ms from birth to storage; null if either is unknown, or if they are too far apart for int64."""

    def difference(later: Any, earlier: Any) -> tuple[Any, Any]:
        found = later - earlier
        return found, ((later ^ earlier) & (later ^ found)) < 0

    return _null_safe(difference, in_ms(stored), in_ms(born))


def _delays(column: Columns) -> pa.Table:
    """Keep messages of topics to which producers send: a retry or a dead letter only shows how long its group tried."""
    rows = _counted(column, took=took(column["store_timestamp"], column["born_timestamp"]))
    return rows.filter(is_sent(rows.column("topic")))


def is_sent(topics: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a mask of the topics to which producers send, as opposed to those that only brokers write."""
    written = pc.is_in(topics, _CLOSED)
    for prefix in _NOT_SENT:
        written = pc.or_(written, pc.starts_with(topics, prefix))
    return pc.invert(written)


def retry_group(topic: str, origin_group: str | None) -> str:
    """Return the consumer group of the retry topic ``topic``.

    Pull consumers retry in ``%RETRY%GROUP``, pop consumers in ``%RETRY%GROUP+TOPIC`` or ``%RETRY%GROUP_TOPIC``. The
    last form may also belong to a group GROUP_TOPIC; ``origin_group``, the property ORIGIN_GROUP of any message in it,
    names the group of a popped message. The first brokers with pop did not store that: GROUP_TOPIC is returned.
    """
    name = topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
    if _POP_RETRY_V2 in name:
        return name.partition(_POP_RETRY_V2)[0]
    return origin_group if origin_group is not None and name.startswith(origin_group + _POP_RETRY) else name


def _retried(column: Columns) -> pa.Table:
    """Return a row for each retry and dead letter.

    Its original topic is RETRY_TOPIC, else DLQ_ORIGIN_TOPIC, else what the name of a pop retry topic says. ``allowed``
    is MAX_RECONSUME_TIMES as stored, ``origin_id`` the same for all tries of a message.
    """
    topics = column["topic"]
    rows = pc.or_(pc.starts_with(topics, RETRY_GROUP_TOPIC_PREFIX), pc.starts_with(topics, DLQ_GROUP_TOPIC_PREFIX))
    table = pa.table(dict(column)).filter(rows).combine_chunks()
    column = {name: table.column(name).combine_chunks() for name in table.column_names}

    def property_of(name: str) -> pa.Array:
        return pc.map_lookup(column["properties"], pa.scalar(name), "last")

    groups, of_pop = list[str](), list[str]()
    for topic, origin in zip(column["topic"].to_pylist(), property_of(PROPERTY_ORIGIN_GROUP).to_pylist(), strict=True):
        is_dead = topic.startswith(DLQ_GROUP_TOPIC_PREFIX)
        groups.append(topic.removeprefix(DLQ_GROUP_TOPIC_PREFIX) if is_dead else retry_group(topic, origin))
        of_pop.append("" if is_dead else topic[len(RETRY_GROUP_TOPIC_PREFIX) + len(groups[-1]) + 1 :])
    named = text_array(of_pop)
    return pa.table(
        column
        | {
            "is_dead": pc.starts_with(column["topic"], DLQ_GROUP_TOPIC_PREFIX),
            "group_name": text_array(groups),
            "origin_topic": pc.coalesce(
                property_of(PROPERTY_RETRY_TOPIC),
                property_of(PROPERTY_DLQ_ORIGIN_TOPIC),
                pc.if_else(pc.equal(named, ""), None, named),
            ),
            "allowed": property_of(PROPERTY_MAX_RECONSUME_TIMES),
            "origin_id": pc.coalesce(property_of(PROPERTY_ORIGIN_MESSAGE_ID), column["msg_id"].cast(_TEXT)),
            "stored_ms": in_ms(column["store_timestamp"]),
            "age": took(column["store_timestamp"], column["born_timestamp"]),
        }
    )


#: Messages and bytes of whole records by topic and interval; ``from_ms`` is its start, ms since 1970.
TRAFFIC: Final = Fact(
    "traffic",
    ("broker", "topic", "store_timestamp", "size"),
    (),
    pa.schema([*_TOPIC, ("from_ms", _INT), _MESSAGES, ("bytes", _INT)]),
    {"messages": "sum", "bytes": "sum"},
    _traffic,
)
#: Messages by topic and size of the whole record in bytes.
SIZES: Final = Fact(
    "sizes",
    ("broker", "topic", "size"),
    (),
    pa.schema([*_TOPIC, ("size", _INT), _MESSAGES]),
    {"messages": "sum"},
    lambda column: _counted(column, size=column["size"]),
)
#: Messages by topic and key, and the messages of a topic with any key, for which ``key`` is null.
KEYS: Final = Fact(
    "keys",
    ("broker", "topic", "keys", "size"),
    (),
    pa.schema([*_TOPIC, ("key", _TEXT), _MESSAGES, ("bytes", _INT)]),
    {"messages": "sum", "bytes": "sum"},
    _keys,
)
#: Messages by queue, and the queue offset after its last message.
QUEUES: Final = Fact(
    "queues",
    ("broker", "topic", "queue_id", "queue_offset", "size"),
    ("broker", "queue_offset", "size"),
    pa.schema([*_TOPIC, ("queue_id", pa.int32()), _MESSAGES, ("bytes", _INT), ("end", _INT)]),
    {"messages": "sum", "bytes": "sum", "end": "max"},
    _queues,
)
#: Sent messages by topic and the ms from birth to storage; less than 0 if the producer's clock was ahead.
DELAYS: Final = Fact(
    "delays",
    ("broker", "topic", "store_timestamp", "born_timestamp"),
    (),
    pa.schema([*_TOPIC, ("took", _INT), _MESSAGES]),
    {"messages": "sum"},
    _delays,
)
#: Retries and dead letters one by one.
RETRIED: Final = Fact(
    "retried",
    (
        *("broker", "topic", "queue_id", "queue_offset", "store_timestamp", "born_timestamp"),
        *("reconsume_times", "msg_id", "properties"),
    ),
    ("broker", "queue_id", "queue_offset", "born_timestamp", "msg_id"),
    pa.schema(
        [
            *_TOPIC,
            *(("queue_id", pa.int32()), ("queue_offset", _INT), ("reconsume_times", pa.int32())),
            *(("is_dead", pa.bool_()), ("group_name", _TEXT), ("origin_topic", _TEXT)),
            *(("allowed", _TEXT), ("origin_id", _TEXT), ("stored_ms", _INT), ("age", _INT)),
        ]
    ),
    {},
    _retried,
)

#: All facts by name.
FACTS: Final = {fact.name: fact for fact in (TRAFFIC, SIZES, KEYS, QUEUES, DELAYS, RETRIED)}
