"""Readers of the Spark format ``rocketmq``, which pull messages from brokers: a batch, and a stream.

Exactly once rests on the offsets alone. A partition is a range of offsets of one queue, which the driver takes from the
options or the checkpoint, and the messages of an offset never change. A task yields one row for each offset of its
range, or the loss is an error (``failOnDataLoss``): a range that is read again, after a failure, gives the same rows.
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from rocketbroker.analytics.spark import broker_queues
from rocketbroker.analytics.spark.broker_queues import (
    BrokerQueues,
    Pulled,
    QueueEnd,
    QueuePuller,
    may_pass,
    pull_range,
    queue_name,
    shorter,
)
from rocketbroker.analytics.spark.executors import Sent
from rocketbroker.analytics.spark.offset_options import EARLIEST, LATEST, Bounds
from rocketbroker.analytics.spark.pull_options import PullOptions
from rocketbroker.analytics.spark.pulled_columns import PULLED_SCHEMA, pulled_batches, pulled_records
from rocketbroker.analytics.spark.queue_ranges import (
    Offsets,
    Progress,
    QueuePartition,
    limited,
    offsets_of,
    partitions_of,
    progress_of,
)
from rocketbroker.analytics.spark.worker import ShortErrors, freeze_modules
from rocketbroker.analytics.tables.table import check_columns
from rocketbroker.client.sync_client import SyncClient
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.common.errors import ConfigError, RocketBrokerError, StoreError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_UNKNOWN: Final = float("inf")


def _check_columns(schema: pa.Schema) -> None:
    check_columns("messages", {column.name: column for column in PULLED_SCHEMA}, schema)


def _report_loss(text: str, *, fail: bool) -> None:
    if fail:
        raise StoreError(f"{text}; set the option failOnDataLoss=false to continue after them")
    logger.warning("%s; the query continues after them (failOnDataLoss=false)", text)


async def subscribed_queues(brokers: BrokerQueues, options: PullOptions) -> list[MessageQueue]:
    """Return the queues that a query begins with.

    Raises:
        ConfigError: a subscribed topic cannot be read.
    """
    topics = await brokers.topics(options.subscription)
    queues = await brokers.queues(topics)
    missing = set(options.subscription.topics or ()) - {queue.topic for queue in queues}
    if missing:
        raise ConfigError(
            f"subscribe: the name servers {options.namesrv_addr} have no queue to read of topic "
            f"{', '.join(sorted(missing))}; create it, or correct its name or perm"
        )
    return queues


def _present(queue: MessageQueue, offset: int, low: int, *, fail: bool) -> int:
    """Return an offset, or that of the queue's first message if those before it were removed unread."""
    if offset < low:
        name = queue_name(queue)
        _report_loss(
            f"{name} begins at {low}: offsets {offset} to {low - 1} were removed before they were read", fail=fail
        )
    return max(offset, low)


class Span(NamedTuple):
    """Offset of the first message of a queue, and the one after the last."""

    low: int
    high: int


async def spans_of(brokers: BrokerQueues, queues: Sequence[MessageQueue]) -> dict[MessageQueue, Span]:
    """Return the offsets that queues have."""
    lows, highs = await brokers.min_offsets(queues), await brokers.max_offsets(queues)
    return {queue: Span(lows[queue], highs[queue].offset) for queue in queues}


async def bound_offsets(
    brokers: BrokerQueues, spans: Mapping[MessageQueue, Span], bounds: Bounds, which: str, *, fail_on_data_loss: bool
) -> dict[MessageQueue, int]:
    """Return the offsets at which a query starts or ends; ``which`` begins the names of their options.

    Raises:
        ConfigError: an offset is after the end of its queue, or a queue or topic is not read.
        StoreError: the message of an offset was removed.
    """
    wanted = {queue: bounds.of(queue.broker_name, queue.topic, queue.queue_id) for queue in spans}
    _check_known(spans, bounds, which)
    times = [(queue, bound.time_ms) for queue, bound in wanted.items() if bound.time_ms is not None]
    found = {queue: offset for (queue, _), offset in (await brokers.offsets_at(times)).items()}
    for queue, bound in wanted.items():
        low, high = spans[queue]
        if queue in found:
            found[queue] = min(max(found[queue], low), high)  # brokers answer 0 for a queue without messages
        elif bound.offset in {EARLIEST, LATEST}:
            found[queue] = low if bound.offset == EARLIEST else high
        elif bound.offset > high:
            raise ConfigError(
                f"{which}Offsets has {bound.offset} for {queue_name(queue)}, which ends at {high}; give an offset up "
                "to that, or -1 for latest"
            )
        else:
            found[queue] = _present(queue, bound.offset, low, fail=fail_on_data_loss)
    return found


def _check_known(spans: Mapping[MessageQueue, Span], bounds: Bounds, which: str) -> None:
    """Raise :class:`ConfigError` for a bound of a queue or topic that is not read."""
    for queue in offsets_of(bounds.offsets):
        if queue not in spans:
            raise ConfigError(f"{which}Offsets names {queue_name(queue)}, which is not read; correct or remove it")
    for topic in bounds.times.keys() - {queue.topic for queue in spans}:
        raise ConfigError(f"{which}Timestamp names topic {topic}, which is not read; correct or remove it")


class PullReader(Sent, DataSourceReader):
    """Reads the messages that queues have when the query is planned.

    Args:
        options: options of the query.
        schema: columns and types wanted.
        connect: opens the connections to a cluster.
    """

    def __init__(
        self, options: PullOptions, schema: pa.Schema, connect: Callable[[str], BrokerQueues] = BrokerQueues
    ) -> None:
        _check_columns(schema)
        self._options = options
        self._schema = schema
        self._connect = connect

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of the queues, up to their current ends."""
        with ShortErrors(), SyncClient() as sync:
            ranges = sync.call(self._ranges(sync.open(self._connect(self._options.namesrv_addr))))
        freeze_modules()
        return [*partitions_of(ranges, self._options.min_partitions)]

    async def _ranges(self, brokers: BrokerQueues) -> list[tuple[MessageQueue, int, int]]:
        options = self._options
        spans = await spans_of(brokers, await subscribed_queues(brokers, options))
        starts, ends = [
            await bound_offsets(brokers, spans, bounds, which, fail_on_data_loss=options.fail_on_data_loss)
            for bounds, which in ((options.starts, "starting"), (options.ends, "ending"))
        ]
        return [(queue, starts[queue], ends[queue]) for queue in sorted(spans)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one range."""
        yield from read_range(partition, self._options, self._schema, self._connect)


class PullStreamReader(Sent, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows queues; new ones are found at each micro-batch, and read from their first message.

    A new queue first gets its start in the progress, and its messages come with the next micro-batch. So the start of
    each range is in the checkpoint.

    Args:
        options: options of the query.
        schema: columns and types wanted.
        connect: opens the connections to a cluster.
    """

    def __init__(
        self, options: PullOptions, schema: pa.Schema, connect: Callable[[str], BrokerQueues] = BrokerQueues
    ) -> None:
        _check_columns(schema)
        self._options = options
        self._schema = schema
        self._connect = connect
        # Opened on first use: Spark copies this object to its tasks, which do not need it.
        self._opened: tuple[SyncClient, BrokerQueues] | None = None
        # Ends of the queues at the start of a query with the trigger availableNow.
        self._last: Offsets | None = None
        # Ends of the queues when they were looked up last.
        self._newest: Offsets | None = None
        self._triggered_at = float("-inf")
        # Queues that are gone and were logged.
        self._logged: set[MessageQueue] = set()

    def _call(self, work: Callable[[BrokerQueues], Coroutine[Any, Any, T]]) -> T:
        if self._opened is None:
            sync = SyncClient()
            self._opened = sync, sync.open(self._connect(self._options.namesrv_addr))
        sync, brokers = self._opened
        return sync.call(work(brokers))

    def stop(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened[0].close()

    def initialOffset(self) -> Progress:  # noqa: N802 - Spark's name
        """Return the start of a new query (options startingOffsets and startingTimestamp)."""
        with ShortErrors():
            return progress_of(self._call(self._starts))

    async def _starts(self, brokers: BrokerQueues) -> Offsets:
        options = self._options
        spans = await spans_of(brokers, await subscribed_queues(brokers, options))
        loss = options.fail_on_data_loss
        return await bound_offsets(brokers, spans, options.starts, "starting", fail_on_data_loss=loss)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the size of a micro-batch (options maxOffsetsPerTrigger and minOffsetsPerTrigger)."""
        most, least = self._options.most_offsets, self._options.least_offsets
        return ReadMaxRows(most) if most else ReadMinRows(least) if least else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the current ends of the queues, at which the query stops."""
        with ShortErrors():
            self._last = self._patiently(lambda: self._ends({}))

    def latestOffset(self, start: Progress, limit: ReadLimit) -> Progress:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch.

        Raises:
            StoreError: messages were removed unread, or a queue ends before the progress.
        """
        if not isinstance(limit, (ReadAllAvailable, ReadMaxRows, ReadMinRows)):
            raise ConfigError(f"{type(limit).__name__} is not supported; use maxOffsetsPerTrigger")
        with ShortErrors():
            return self._next(start, bounded=not isinstance(limit, ReadAllAvailable))

    def _next(self, start: Progress, *, bounded: bool) -> Progress:
        reached = offsets_of(start)
        ends = self._newest = self._patiently(lambda: self._ends(reached))
        if self._last is not None:
            ends = {queue: min(end, self._last[queue]) for queue, end in ends.items() if queue in self._last}
        found = {queue: end for queue, end in ends.items() if queue not in reached or end > reached[queue]}
        lows = self._patiently(lambda: self._call(lambda brokers: brokers.min_offsets(found)))
        loss = self._options.fail_on_data_loss
        begins = {queue: _present(queue, reached.get(queue, low), low, fail=loss) for queue, low in lows.items()}
        if bounded and self._last is None and self._waits(sum(found.values()) - sum(begins.values())):
            return start
        unread = {queue: max(end, begins[queue]) for queue, end in found.items() if queue in reached}
        if bounded and self._options.most_offsets is not None:
            unread = limited(begins, unread, self._options.most_offsets)
        return progress_of({**begins, **reached, **unread})

    def _waits(self, count: int) -> bool:
        """Return true if a micro-batch of so many messages has to wait for more (minOffsetsPerTrigger)."""
        now = time.monotonic()
        is_late = now - self._triggered_at >= self._options.trigger_delay_s
        if count < (self._options.least_offsets or 0) and not is_late:
            return True
        self._triggered_at = now
        return False

    def _patiently(self, look: Callable[[], Offsets | StoreError]) -> Offsets:
        """Look up offsets; servers and queues that are away are looked for again for ``PATIENCE_S``."""
        deadline = time.monotonic() + broker_queues.PATIENCE_S
        while True:
            failure: RocketBrokerError
            try:
                found = look()
                if not isinstance(found, StoreError):
                    return found
                failure = found
            except RocketBrokerError as error:
                if not may_pass(error):
                    raise
                failure = error
            if time.monotonic() >= deadline:
                raise failure
            time.sleep(broker_queues.RETRY_S)

    def _ends(self, reached: Offsets) -> Offsets | StoreError:
        """Return the ends of all queues, or the error if that cannot be the last word."""
        ends = self._call(self._look_up)
        failure = self._gone(reached, ends) or _shorter(reached, ends)
        # A slave may be behind the master of which messages were read.
        return failure or {queue: max(end.offset, reached.get(queue, 0)) for queue, end in ends.items()}

    async def _look_up(self, brokers: BrokerQueues) -> dict[MessageQueue, QueueEnd]:
        queues = await brokers.queues(await brokers.topics(self._options.subscription))
        return await brokers.max_offsets(queues)

    def _gone(self, reached: Offsets, ends: Mapping[MessageQueue, QueueEnd]) -> StoreError | None:
        """Return the error for queues that no route has and that have unread messages, as far as is known.

        Their progress stays: a broker that returns is read from there on.
        """
        newest = self._newest or {}
        gone = [queue for queue in reached.keys() - ends.keys() if reached[queue] < newest.get(queue, _UNKNOWN)]
        if not gone:
            return None
        first, others = min(gone), f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        text = (
            f"{queue_name(first)}{others}: no route leads there any more, and messages from offset {reached[first]} on "
            "may be unread"
        )
        if self._options.fail_on_data_loss:
            return StoreError(
                f"{text}; bring the broker or topic back, or set failOnDataLoss=false to continue without"
            )
        if not self._logged.issuperset(gone):
            self._logged.update(gone)
            logger.warning("%s; the query continues without them until they return (failOnDataLoss=false)", text)
        return None

    def reportLatestOffset(self) -> Progress | None:  # noqa: N802 - Spark's name
        """Return the ends of the queues at the last call of ``latestOffset``."""
        return None if self._newest is None else progress_of(self._newest)

    def partitions(self, start: Progress, end: Progress) -> list[InputPartition]:
        """Return the ranges between two places of the progress."""
        starts, ends = offsets_of(start), offsets_of(end)
        ranges = [(queue, starts[queue], ends[queue]) for queue in sorted(ends) if queue in starts]
        return [*partitions_of(ranges, self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one range."""
        yield from read_range(partition, self._options, self._schema, self._connect)


def _shorter(reached: Offsets, ends: Mapping[MessageQueue, QueueEnd]) -> StoreError | None:
    """Return the error for a queue that ends before the progress, as its master says."""
    for queue, offset in reached.items():
        end = ends.get(queue)
        if end is not None and end.by_master and end.offset < offset:
            return shorter(queue, end.offset, offset)
    return None


def read_range(
    partition: InputPartition, options: PullOptions, schema: pa.Schema, connect: Callable[[str], BrokerQueues]
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range with the columns and types of ``schema``."""
    if not isinstance(partition, QueuePartition):  # Spark asks with None when there are no partitions
        return
    queue, at = partition.queue, partition.low
    with ShortErrors(), SyncClient() as sync:
        puller = QueuePuller(sync.open(connect(options.namesrv_addr)), queue, options.consumer_group)
        pulls = pull_range(puller.pull, at, partition.high)
        try:
            while (pulled := sync.call(_next(pulls))) is not None:
                records = _records_between(queue, pulled, at, partition.high, fail=options.fail_on_data_loss)
                yield from pulled_batches(queue, records, schema, options.properties)
                at = pulled.next_offset
        finally:
            sync.call(pulls.aclose())
    freeze_modules()


async def _next(pulls: AsyncGenerator[Pulled, None]) -> Pulled | None:
    return await anext(pulls, None)


def _records_between(queue: MessageQueue, pulled: Pulled, low: int, high: int, *, fail: bool) -> Records:
    """Return the records of offsets from ``low`` to before ``high``; report those that are missing.

    Raises:
        StoreError: messages are missing, or out of order.
    """
    records, high = pulled_records(queue, pulled.body), min(pulled.next_offset, high)
    offsets = records.field("queue_offset")
    if (offsets >= high).any():  # a broker that skips messages may go on after the range
        records = Records(0, records.data, records.starts[offsets < high])
        offsets = records.field("queue_offset")
    steps = np.diff(offsets, prepend=low - 1, append=high)
    if steps.min() < 1:
        raise StoreError(f"{queue_name(queue)}: the broker answered a pull of {low} to {high} with other messages")
    missing = high - low - len(offsets)
    if missing:
        number = int(np.argmax(steps > 1))
        begin = int(offsets[number - 1]) + 1 if number else low
        others = missing - int(steps[number]) + 1
        _report_loss(
            f"{queue_name(queue)} has no messages at offsets {begin} to {begin + int(steps[number]) - 2}"
            f"{f', and {others} more are missing' if others else ''}: they were removed unread, or are damaged",
            fail=fail,
        )
    return records
