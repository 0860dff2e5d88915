"""Starts and ends of queues as a selection, checked on the driver against what the stores have."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

import pyarrow as pa

from rocketbroker.analytics.columns.selection import Range, Selection
from rocketbroker.analytics.files.commit_log_files import commit_log_files
from rocketbroker.analytics.files.queue_files import known_topics, queue_begin, queue_end
from rocketbroker.analytics.files.store_files import open_folder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.message_reader import read_store
from rocketbroker.analytics.spark.offset_options import LATEST, Bound, Bounds, QueueOffset, queue_offsets
from rocketbroker.common.errors import ConfigError, StoreError

#: The end of a stream.
ENDLESS: Final = Bounds(Bound(LATEST), {}, {})
# An error names at most this many topics or brokers.
_NAMED: Final = 10
_QUEUE: Final = ["topic", "queue_id"]


def bounds_selection(starts: Bounds, ends: Bounds, broker: str) -> Selection:
    """Return the selection of a broker's messages between starts and ends."""
    ranges: dict[str, dict[int, Range]] = {}
    for each in (*queue_offsets(starts), *queue_offsets(ends)):
        if each.broker == broker:
            low, high = (_offset(bounds, each) for bounds in (starts, ends))
            ranges.setdefault(each.topic, {})[each.queue_id] = low, high
    topics = {*starts.times, *ends.times}
    return Selection(
        starts.default.time_ms,
        ends.default.time_ms,
        topic_times={topic: (starts.times.get(topic), ends.times.get(topic)) for topic in topics} or None,
        queue_ranges=ranges or None,
    )


def _offset(bounds: Bounds, queue: QueueOffset) -> int | None:
    offset = bounds.offsets.get(queue.broker, {}).get(queue.topic, {}).get(queue.queue_id, LATEST)
    return offset if offset >= 0 else None


def checked_bounds(which: str, bounds: Bounds, stores: Sequence[StoreRoot], *, fail_on_data_loss: bool) -> Bounds:
    """Return ``bounds`` with numbers for the latest offsets of queues that are named.

    Args:
        which: "starting" or "ending".
        bounds: the bounds as given.
        stores: the stores that are read.
        fail_on_data_loss: true to raise an error for an offset whose message was removed.

    Raises:
        ConfigError: a broker or topic does not exist, or an offset is after the end of its queue.
        StoreError: a message was removed.
    """
    named = {store.broker: store for store in stores}
    for broker in bounds.offsets:
        if broker not in named:
            raise _unknown(f"{which}Offsets", "broker", broker, named)
    if bounds.times:
        known = {topic for store in stores for topic in known_topics(open_folder(store))}
        for topic in bounds.times:
            _check_topic(f"{which}Timestamp", topic, known)
    offsets = {}
    for broker, topics in bounds.offsets.items():
        queues = _StoreQueues(f"{which}Offsets", named[broker], topics)
        offsets[broker] = queues.checked(fail_on_data_loss=fail_on_data_loss)
    return replace(bounds, offsets=offsets)


class _StoreQueues:
    """Queues of a store for which an option gives offsets."""

    def __init__(self, name: str, store: StoreRoot, topics: Mapping[str, Mapping[int, int]]) -> None:
        self._name = name
        self._store = store
        self._topics = topics
        self._folder = open_folder(store)
        known = known_topics(self._folder)
        for topic in topics:
            _check_topic(name, topic, known)

    def checked(self, *, fail_on_data_loss: bool) -> dict[str, dict[int, int]]:
        """Return the offsets, with numbers for the latest ones; raise an error for one that does not exist."""
        files, ends = commit_log_files(self._store), self._ends()
        begin, found = files[0].base if files else 0, dict[str, dict[int, int]]()
        for topic, queues in self._topics.items():
            found[topic] = {}
            for queue_id, offset in queues.items():
                end = ends[topic, queue_id]
                found[topic][queue_id] = end if offset == LATEST else offset
                if offset >= 0:
                    first = queue_begin(self._folder, topic, queue_id, begin) or 0
                    each = QueueOffset(self._store.broker, topic, queue_id, offset)
                    self._check(each, first, end, fail_on_data_loss=fail_on_data_loss)
        return found

    def _check(self, each: QueueOffset, first: int, end: int, *, fail_on_data_loss: bool) -> None:
        if each.offset > end:
            raise ConfigError(f"{self._name} has {each}, where offsets are {first} to {end}; lower it")
        if each.offset < first and fail_on_data_loss:
            raise StoreError(
                f"{self._name} has {each}, where offsets are {first} to {end}: messages were removed; raise it, or set "
                "the option failOnDataLoss=false to begin with what is left"
            )

    def _ends(self) -> dict[tuple[str, int], int]:
        """Return the offset after the last message of each queue.

        A broker dispatches messages to their queues after it has stored them, and a copy may have no queues at all. So
        what a queue does not have is looked for in the log, where the end of the queue itself is not enough.
        """
        ends, tails = dict[tuple[str, int], int](), dict[str, dict[int, Range]]()
        for topic, queues in self._topics.items():
            for queue_id, offset in queues.items():
                end = ends[topic, queue_id] = queue_end(self._folder, topic, queue_id) or 0
                if offset == LATEST or offset > end:
                    tails.setdefault(topic, {})[queue_id] = end, None
        if tails:
            queue_ids = {queue_id for queues in tails.values() for queue_id in queues}
            tail = Selection(topics=tails.keys(), queue_ids=queue_ids, queue_ranges=tails)
            for batch in read_store(self._store, [*_QUEUE, "queue_offset"], selection=tail):
                newest = pa.Table.from_batches([batch]).group_by(_QUEUE).aggregate([("queue_offset", "max")])
                for topic, queue_id, offset in zip(*newest.to_pydict().values(), strict=True):
                    ends[topic, queue_id] = max(ends.get((topic, queue_id), 0), offset + 1)
        return ends


def _check_topic(name: str, topic: str, known: Collection[str]) -> None:
    if known and topic not in known:  # a commit log alone has no list of topics
        raise _unknown(name, "topic", topic, known)


def _unknown(name: str, what: str, wrong: str, known: Collection[str]) -> ConfigError:
    nearest = get_close_matches(wrong, known, _NAMED, cutoff=0.0)
    return ConfigError(f"{name} has the {what} {wrong!r}, which the stores do not have; there are {', '.join(nearest)}")
