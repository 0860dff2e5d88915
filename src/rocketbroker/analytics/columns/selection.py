"""Selection of messages: decides which parts of a store are read and which rows are returned."""

import operator
import re
from collections.abc import Callable, Container, Iterator, Mapping, Set
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketbroker.analytics.columns.arrow_columns import (
    as_text,
    binary_slices,
    number_array,
    properties_text,
    property_values,
)
from rocketbroker.codec.message.columns import Positions, rows_at
from rocketbroker.codec.message.message_const import (
    KEY_SEPARATOR,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
)
from rocketbroker.codec.message.property_slices import Slices
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.common.errors import ConfigError

# More texts than this are looked up in a table instead of compared one by one.
_COMPARED: Final = 16
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"

# Criteria with the columns that each depends on, the costlier ones last.
_CRITERIA: Final = {
    "broker": ("broker",),
    "store_timestamp": ("store_timestamp",),
    "queue_offset": ("queue_offset",),
    "physical_offset": ("physical_offset",),
    "queue_id": ("queue_id",),
    "topic": ("topic",),
    "topic_times": ("topic", "store_timestamp"),
    "queue_ranges": ("topic", "queue_id", "queue_offset"),
    "tags": ("tags",),
    "keys": ("keys", "uniq_key"),
}
_PROPERTIES: Final = {
    "tags": PROPERTY_TAGS,
    "keys": PROPERTY_KEYS,
    "uniq_key": PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
}

Mask = NDArray[np.bool_]


def text_rows(data: NDArray[np.uint8], slices: Slices, wanted: Set[str]) -> Mask:
    """Return a mask of the ``slices`` of ``data`` that are one of ``wanted``, shape (n,)."""
    if len(wanted) > _COMPARED or any(_REPLACEMENT in text for text in wanted):  # it stands for any invalid bytes
        return _among(as_text(binary_slices(data, *slices)), wanted)
    mask = np.zeros(len(slices.starts), np.bool_)
    for text in wanted:
        raw = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
        rows = np.flatnonzero(slices.lengths == len(raw))
        if len(raw) and len(rows):
            rows = rows[(rows_at(data, slices.starts[rows], len(raw)) == raw).all(axis=1)]
        mask[rows] = True
    return mask


def _with_key(keys: pa.Array, unique: pa.Array, wanted: Set[str]) -> Mask:
    """Return a mask of the rows with one of ``wanted`` as a word of ``keys`` or as ``unique``."""
    words = pc.split_pattern(keys, KEY_SEPARATOR)
    rows = pc.list_parent_indices(words).to_numpy()
    found = _among(unique, wanted).copy()
    found[rows[_among(words.flatten(), wanted)]] = True
    return found


def _among(values: pa.Array, wanted: Set[Any]) -> Mask:
    """Return a mask of the ``values`` that are among ``wanted``; false for null."""
    among = pc.is_in(values, value_set=pa.array(sorted(wanted), values.type), skip_nulls=True)
    mask: Mask = among.to_numpy(zero_copy_only=False)
    return mask


#: First number, and the number after the last one; ``None`` for no limit.
Range = tuple[int | None, int | None]
_UNLIMITED: Final[Range] = (None, None)


def _between(values: pa.Array, low: int | None, high: int | None) -> Mask:
    """Return a mask of the numbers from ``low`` to before ``high``; false for null."""
    mask: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(values, 0).to_numpy()
    if low is not None:
        mask = mask & (numbers >= low)
    if high is not None and high <= _HIGHEST:
        mask = mask & (numbers < high)
    return mask


def _topic_rows(topics: pa.Array, named: Container[str]) -> Iterator[tuple[str, Positions]]:
    """Yield each topic that is ``named`` with the numbers of its rows."""
    encoded = topics.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy()
    for code, topic in enumerate(encoded.dictionary.to_pylist()):
        if topic in named:
            yield topic, np.flatnonzero(codes == code)


def _times_mask(topics: pa.Array, times: pa.Array, ranges: Mapping[str, Range]) -> Mask:
    mask = np.ones(len(topics), np.bool_)
    for topic, rows in _topic_rows(topics, ranges):
        mask[rows] = _between(_millis(times).take(number_array(rows)), *ranges[topic])
    return mask


def _ranges_mask(
    topics: pa.Array, queue_ids: pa.Array, offsets: pa.Array, ranges: Mapping[str, Mapping[int, Range]]
) -> Mask:
    mask = np.ones(len(topics), np.bool_)
    for topic, rows in _topic_rows(topics, ranges):
        numbers = queue_ids.take(number_array(rows))
        for queue_id, bounds in ranges[topic].items():
            of_queue = rows[_among(numbers, {queue_id})]
            mask[of_queue] = _between(offsets.take(number_array(of_queue)), *bounds)
    return mask


def _millis(times: pa.Array) -> pa.Array:
    """Return store times in ms since 1970."""
    if pa.types.is_timestamp(times.type):
        return times.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    return times


def _record_column(records: Records, name: str) -> pa.Array:
    if name == "topic":
        return as_text(binary_slices(records.data, records.topic_at, records.topic_length))
    return number_array(records.field(name).astype(np.int64))


_T = TypeVar("_T")
_K = TypeVar("_K")
_SETS: Final = ("topics", "queue_ids", "tags", "keys", "brokers")
_RANGES: Final = ("queue_offsets", "physical_offsets")
# Largest int64. A higher bound leaves the range open: a damaged record may hold this number itself.
_HIGHEST: Final = (1 << 63) - 1


def _check_texts(name: str, values: Set[Any]) -> None:
    for value in values:
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise ConfigError(f"{name}: {value!r} is not valid UTF-8, so no message can have it") from error


@dataclass(frozen=True, slots=True)
class Selection:
    """Criteria that a message must all meet; ``None`` means any.

    ``since_ms`` (inclusive) and ``until_ms`` (exclusive) are store times in ms since 1970; ranges of offsets go from
    their first number to before their second. A message has one of ``keys`` if that is a word of its property KEYS or
    its unique id. ``topic_pattern`` is a regular expression of the whole name. ``topic_times`` (store times by topic)
    and ``queue_ranges`` (queue offsets by topic and queue) limit what they name and nothing else.

    Every returned row meets the criteria. Readers skip parts of the log, assuming that store times do not go back by
    more than a second and that ConsumeQueues point to all messages of their topics. ``exact`` reads the whole log.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    topics: Set[str] | None = None
    queue_ids: Set[int] | None = None
    tags: Set[str] | None = None
    keys: Set[str] | None = None
    queue_offsets: tuple[int, int] | None = None
    physical_offsets: tuple[int, int] | None = None
    brokers: Set[str] | None = None
    topic_pattern: str | None = None
    topic_times: Mapping[str, Range] | None = field(default=None, hash=False)
    queue_ranges: Mapping[str, Mapping[int, Range]] | None = field(default=None, hash=False)
    exact: bool = False

    def __post_init__(self) -> None:
        if self.since_ms is not None and self.until_ms is not None and self.since_ms >= self.until_ms:
            raise ConfigError(
                f"since {self.since_ms} is not before until {self.until_ms} (ms since 1970): the range is empty"
            )
        for name in _SETS:
            given = getattr(self, name)
            if isinstance(given, str):
                raise ConfigError(f"{name}: {given!r} is one value; give a set of values")
            if given is not None:
                object.__setattr__(self, name, frozenset(given))
                _check_texts(name, given)
        for name in _RANGES:
            bounds = getattr(self, name)
            if bounds is not None and bounds[0] >= bounds[1]:
                raise ConfigError(f"{name}: the range from {bounds[0]} to before {bounds[1]} is empty")
        try:
            re.compile(self.topic_pattern or "")
        except re.error as error:
            raise ConfigError(f"topic_pattern: {self.topic_pattern!r} is no regular expression: {error}") from error
        queues = (self.queue_ranges or {}).values()
        for low, high in [*(self.topic_times or {}).values(), *(each for of in queues for each in of.values())]:
            if low is not None and high is not None and low > high:
                raise ConfigError(f"topic_times, queue_ranges: the range from {low} to before {high} is reversed")

    @property
    def is_all(self) -> bool:
        """True if every message is selected."""
        return all(getattr(self, each.name) is None for each in fields(self) if each.name != "exact")

    @property
    def is_nothing(self) -> bool:
        """True if no message can be selected."""
        return any(values is not None and not values for values in (getattr(self, name) for name in _SETS))

    @property
    def times(self) -> "Selection":
        """The selection by brokers and times alone."""
        return Selection(since_ms=self.since_ms, until_ms=self.until_ms, brokers=self.brokers, exact=self.exact)

    @property
    def time_span(self) -> Range:
        """Store times between which all selected messages are."""
        span, times = (self.since_ms, self.until_ms), self.topic_times
        if times is None or not self.topics or not self.topics <= times.keys():
            return span
        lows, highs = zip(*(times[topic] for topic in self.topics), strict=True)
        return _narrower(span, (None if None in lows else min(lows), None if None in highs else max(highs)))

    def has_topic(self, topic: str) -> bool:
        """Return true if messages of a topic can be selected."""
        pattern = self.topic_pattern
        return (self.topics is None or topic in self.topics) and (
            pattern is None or re.fullmatch(pattern, topic) is not None
        )

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Return true if messages of a queue can be selected."""
        return self.has_topic(topic) and (self.queue_ids is None or queue_id in self.queue_ids)

    def offsets_of(self, topic: str, queue_id: int) -> Range:
        """Return the range of the selected queue offsets of a queue."""
        return _narrower(
            self.queue_offsets or _UNLIMITED, (self.queue_ranges or {}).get(topic, {}).get(queue_id, _UNLIMITED)
        )

    @property
    def _criteria(self) -> tuple[str, ...]:
        values = {
            "broker": self.brokers,
            "topic": self.topic_pattern if self.topics is None else self.topics,
            "queue_id": self.queue_ids,
            "queue_offset": self.queue_offsets,
            "physical_offset": self.physical_offsets,
            "store_timestamp": self.since_ms if self.since_ms is not None else self.until_ms,
            "topic_times": self.topic_times,
            "queue_ranges": self.queue_ranges,
            "tags": self.tags,
            "keys": self.keys,
        }
        return tuple(name for name in _CRITERIA if values[name] is not None)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table ``messages`` that the selection depends on."""
        return tuple(dict.fromkeys(column for name in self._criteria for column in _CRITERIA[name]))

    def and_(self, other: "Selection") -> "Selection":
        """Return the selection of the messages that both select.

        Raises:
            ConfigError: both select keys, or topics by a pattern.
        """
        for name in ("keys", "topic_pattern"):
            given = {getattr(self, name), getattr(other, name)} - {None}
            if len(given) > 1:
                raise ConfigError(f"two selections by {name} cannot be combined; select by {name} once")
        since, until = _either(max, self.since_ms, other.since_ms), _either(min, self.until_ms, other.until_ms)
        sets, ranges = (
            {name: _either(combine, getattr(self, name), getattr(other, name)) for name in names}
            for names, combine in ((_SETS, operator.and_), (_RANGES, _overlap))
        )
        no_time = since is not None and until is not None and since >= until
        if no_time or any(bounds is not None and bounds[0] >= bounds[1] for bounds in ranges.values()):
            return NOTHING
        return Selection(
            since,
            until,
            **sets,
            **ranges,
            topic_pattern=other.topic_pattern if self.topic_pattern is None else self.topic_pattern,
            topic_times=_either(partial(_joined, _narrower), self.topic_times, other.topic_times),
            queue_ranges=_either(partial(_joined, partial(_joined, _narrower)), self.queue_ranges, other.queue_ranges),
            exact=self.exact or other.exact,
        )

    def of_broker(self, broker: str) -> "Selection":
        """Return the selection that applies to one broker's store."""
        if self.brokers is None:
            return self
        return replace(self, brokers=None) if broker in self.brokers else NOTHING

    def of_records(self, records: Records) -> Records:
        """Return the selected records; the costlier criteria are checked last, on the remaining records."""
        for name in self._criteria:
            if len(records) and name != "broker":  # that of the store
                mask = self._record_mask(name, records)
                records = records if mask.all() else Records(records.base, records.data, records.starts[mask])
        return records

    def arrow_mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return a mask of the selected rows of ``batch``, whose columns are named and typed as in ``messages``."""
        for name in self.columns:
            if name not in batch.schema.names:
                raise ConfigError(f"selection by {name}: the columns are only {', '.join(batch.schema.names)}")
        mask = np.ones(batch.num_rows, np.bool_)
        for name in self._criteria:
            mask &= self._column_mask(name, batch.column)
        return pa.array(mask)

    def _record_mask(self, name: str, records: Records) -> Mask:
        if name == "topic" and self.topics is not None and self.topic_pattern is None:
            return text_rows(records.data, Slices(records.topic_at, records.topic_length), self.topics)
        if name in _PROPERTIES:
            properties = properties_text(records)
            return self._column_mask(name, lambda column: property_values(properties, _PROPERTIES[column]))
        return self._column_mask(name, partial(_record_column, records))

    def _column_mask(self, name: str, column: Callable[[str], pa.Array]) -> Mask:
        values = column(_CRITERIA[name][0])
        if name == "topic_times":
            return _times_mask(values, column("store_timestamp"), self.topic_times or {})
        if name == "queue_ranges":
            return _ranges_mask(values, column("queue_id"), column("queue_offset"), self.queue_ranges or {})
        if name == "keys":
            return _with_key(values, column("uniq_key"), self.keys or frozenset())
        if name == "store_timestamp":
            return _between(_millis(values), self.since_ms, self.until_ms)
        if name in {"queue_offset", "physical_offset"}:
            return _between(values, *getattr(self, f"{name}s"))
        if name == "topic":
            return _among(values, set(filter(self.has_topic, pc.unique(values).drop_null().to_pylist())))
        wanted = {"broker": self.brokers, "queue_id": self.queue_ids, "tags": self.tags}[name]
        return _among(values, wanted or frozenset())


#: Selects all messages.
EVERYTHING: Final = Selection()
#: Selects no message, by the broker: every table can be selected by that.
NOTHING: Final = Selection(brokers=frozenset())


def _either(combine: Callable[[_T, _T], _T], one: _T | None, other: _T | None) -> _T | None:
    """Return both values combined, or the one that is set."""
    return one if other is None else other if one is None else combine(one, other)


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])


def _joined(combine: Callable[[_T, _T], _T], one: Mapping[_K, _T], other: Mapping[_K, _T]) -> Mapping[_K, _T]:
    """Return the values of both mappings, combined where both have one."""
    return {**one, **other, **{key: combine(one[key], other[key]) for key in one.keys() & other.keys()}}


def _narrower(one: Range, other: Range) -> Range:
    low, high = _either(max, one[0], other[0]), _either(min, one[1], other[1])
    return low, high if low is None or high is None else max(low, high)
