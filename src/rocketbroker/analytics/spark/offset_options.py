"""Options of both formats that say which topics are read, and from where to where. Named as in Spark's Kafka source."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketbroker.analytics.spark.option_values import OptionValues
from rocketbroker.common.errors import ConfigError

#: Offsets of a JSON object that stand for an end of the queue, as in Kafka's source.
EARLIEST: Final = -2
LATEST: Final = -1
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}

#: Offset by broker, topic and queue.
QueueOffsets = Mapping[str, Mapping[str, Mapping[int, int]]]

#: Meaning of each option.
OFFSET_OPTIONS: Final = {
    "subscribe": "topics to read, separated by commas",
    "subscribePattern": "topics to read, as a regular expression of the whole name",
    "startingOffsets": (
        'earliest, latest, or JSON by broker, topic and queue, such as {"broker-a": {"Orders": {"0": 7}}}, where -2 is '
        "earliest and -1 latest: first offset of a new query (earliest)"
    ),
    "startingTimestamp": "ms since 1970, or JSON by topic: store time of the first message of a new query",
    "endingOffsets": "latest, or JSON as for startingOffsets: offset after the last message of a batch (latest)",
    "endingTimestamp": "ms since 1970, or JSON by topic: store time after the last message of a batch",
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics to read; all if neither is set."""

    topics: frozenset[str] | None = None
    pattern: str | None = None

    def chosen(self, known: Iterable[str]) -> frozenset[str]:
        """Return the topics of ``known`` that are read."""
        if self.pattern is not None:
            return frozenset(filter(re.compile(self.pattern).fullmatch, known))
        return frozenset(known) if self.topics is None else self.topics & frozenset(known)


class Bound(NamedTuple):
    """Start or end in one queue: an offset, ``EARLIEST``, ``LATEST``, or a store time in ms if that is set."""

    offset: int
    time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Start or end in each queue: what is said of the queue, else of its topic, else of all."""

    default: Bound
    offsets: QueueOffsets
    times: Mapping[str, int]

    def of(self, broker: str, topic: str, queue_id: int) -> Bound:
        """Return the bound of a queue."""
        offset = self.offsets.get(broker, {}).get(topic, {}).get(queue_id)
        if offset is not None:
            return Bound(offset)
        return Bound(self.default.offset, self.times[topic]) if topic in self.times else self.default


class QueueOffset(NamedTuple):
    """Offset that an option gives for a queue."""

    broker: str
    topic: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return f"{self.offset} for queue {self.queue_id} of {self.topic} at {self.broker}"


def queue_offsets(bounds: Bounds) -> Iterator[QueueOffset]:
    """Yield the offset of each queue that is named."""
    for broker, topics in bounds.offsets.items():
        for topic, queues in topics.items():
            for queue_id, offset in queues.items():
                yield QueueOffset(broker, topic, queue_id, offset)


def subscription(values: OptionValues) -> Subscription:
    """Return the topics that the options name."""
    if "subscribe" in values and "subscribePattern" in values:
        raise ConfigError("subscribe and subscribePattern are both given; give one of them")
    topics = values.names("subscribe")
    if "subscribe" in values and not topics:
        raise ConfigError(f"subscribe names no topic; give {OFFSET_OPTIONS['subscribe']}")
    pattern = values.given.get("subscribePattern")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise ConfigError(f"subscribePattern is {pattern!r}, which is no regular expression: {error}") from error
    return Subscription(topics or None, pattern)


def starting_bounds(values: OptionValues) -> Bounds:
    """Return where a new query starts in each queue: at its first message by default."""
    return _bounds(values, "starting", EARLIEST, words=("earliest", "latest"))


def ending_bounds(values: OptionValues) -> Bounds:
    """Return where a batch ends in each queue: after its last message by default."""
    return _bounds(values, "ending", LATEST, words=("latest",))


def _bounds(values: OptionValues, which: str, default: int, words: tuple[str, ...]) -> Bounds:
    by_offset, by_time = f"{which}Offsets", f"{which}Timestamp"
    if by_offset in values and by_time in values:
        raise ConfigError(f"{by_offset} and {by_time} are both given; give one of them")
    offsets: QueueOffsets = {}
    if values.text(by_offset).lstrip().startswith("{"):
        offsets = values.json(by_offset, dict[str, dict[str, dict[int, int]]])
    elif by_offset in values:
        default = _WORDS[values.one_of(by_offset, words, "")]
    times: dict[str, int] = {}
    time_ms = None
    if values.text(by_time).lstrip().startswith("{"):
        times = values.json(by_time, dict[str, int])
    elif by_time in values:
        time_ms = values.json(by_time, int)
    bounds = Bounds(Bound(default, time_ms), offsets, times)
    lowest = EARLIEST if "earliest" in words else LATEST
    for each in queue_offsets(bounds):
        if each.offset < lowest:
            raise ConfigError(
                f"{by_offset} has {each}; give an offset from 0, "
                f"{'-2 for earliest, ' if lowest == EARLIEST else ''}or -1 for latest"
            )
    return bounds


def check_order(starts: Bounds, ends: Bounds) -> None:
    """Raise :class:`ConfigError` if a start is after the end."""
    for start in queue_offsets(starts):
        end = ends.of(*start[:3])
        if end.time_ms is None and 0 <= end.offset < start.offset:
            raise ConfigError(f"startingOffsets has {start}, after {end.offset} in endingOffsets; exchange them")
    for topic in ("", *starts.times, *ends.times):
        since, until = (bounds.of("", topic, 0).time_ms for bounds in (starts, ends))
        if since is not None and until is not None and since >= until:
            of_topic = f" of topic {topic}" if topic else ""
            raise ConfigError(f"startingTimestamp{of_topic} is {since}, not before endingTimestamp, {until}")
