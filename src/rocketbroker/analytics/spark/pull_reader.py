"""Readers of the Spark format ``rocketmq``, which pull messages from brokers: a batch, and a stream.

Exactly once rests on the offsets alone. A partition is a range of offsets of one queue, which the driver takes from the
options or the checkpoint, and the messages of an offset never change. A task yields one row for each offset of its
range, or the loss is an error (``failOnDataLoss``): a range that is read again, after a failure, gives the same rows.
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

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

from rocketbroker.analytics.columns.message_schema import known_names, rename_columns
from rocketbroker.analytics.spark import broker_queues
from rocketbroker.analytics.spark.broker_queues import (
    BrokerQueues,
    Pulled,
    QueueEnd,
    QueuePuller,
    may_pass,
    pull_range,
    queue_name,
    truncation_error,
)
from rocketbroker.analytics.spark.offset_options import EARLIEST, LATEST, Bounds
from rocketbroker.analytics.spark.pull_options import PullOptions
from rocketbroker.analytics.spark.pulled_columns import PULLED_SCHEMA, pulled_batches, pulled_records
from rocketbroker.analytics.spark.queue_ranges import (
    Offsets,
    Progress,
    QueuePartition,
    limit_ends,
    offsets_of,
    partitions_of,
    progress_of,
)
from rocketbroker.analytics.spark.read_options import TriggerDelay, report_loss
from rocketbroker.analytics.spark.worker import Sent, ShortErrors, StreamErrors, freeze_modules
from rocketbroker.analytics.tables.table import check_columns
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.sync_client import SyncClient
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.common.errors import ConfigError, RocketBrokerError, StoreError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_UNKNOWN: Final = float("inf")
# Age up to which topics and routes are used again, as by other clients (pollNameServerInterval).
_ROUTES_AGE_S: Final = 30.0


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
            f"subscribe: the name servers {options.access.namesrv_addr} have no queue to read of topic "
            f"{', '.join(sorted(missing))}; create it, or correct its name or perm"
        )
    return queues


def _skip_removed(queue: MessageQueue, offset: int, low: int, *, fail: bool) -> int:
    """Return an offset, or that of the queue's first message if those before it were removed unread."""
    if offset < low:
        name = queue_name(queue)
        report_loss(
            f"{name} begins at {low}: offsets {offset} to {low - 1} were removed before they were read", fail=fail
        )
    return max(offset, low)


class Span(NamedTuple):
    """Offset of the first message of a queue, and the one after the last."""

    low: int
    high: int


async def spans_of(brokers: BrokerQueues, queues: Sequence[MessageQueue]) -> dict[MessageQueue, Span]:
    """Return the offsets that queues have."""
    highs = await brokers.max_offsets(queues)
    # A queue that never had a message begins at 0: of thousands of topics many are so.
    lows = await brokers.min_offsets([queue for queue in queues if highs[queue].offset])
    return {queue: Span(lows.get(queue, 0), highs[queue].offset) for queue in queues}


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
            found[queue] = _skip_removed(queue, bound.offset, low, fail=fail_on_data_loss)
    return found


def _check_known(spans: Mapping[MessageQueue, Span], bounds: Bounds, which: str) -> None:
    """Raise :class:`ConfigError` for a bound of a queue or topic that is not read."""
    for queue in offsets_of(bounds.offsets):
        if queue not in spans:
            raise ConfigError(f"{which}Offsets names {queue_name(queue)}, which is not read; correct or remove it")
    for topic in bounds.times.keys() - {queue.topic for queue in spans}:
        raise ConfigError(f"{which}Timestamp names topic {topic}, which is not read; correct or remove it")


class _RangeReader(Sent):
    """Reader of ranges of queues, as tasks use it; the driver plans the ranges.

    Args:
        options: options of the query.
        schema: columns and types wanted.
        connect: opens the connections to a cluster.
    """

    _errors: ClassVar[type[ShortErrors]] = ShortErrors

    def __init__(
        self, options: PullOptions, schema: pa.Schema, connect: Callable[[ClientConfig], BrokerQueues] = BrokerQueues
    ) -> None:
        check_columns("messages", {column.name: column for column in PULLED_SCHEMA}, schema)
        self._options = options
        self._schema = schema
        self._connect = connect

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one range."""
        if not isinstance(partition, QueuePartition):  # Spark asks with None when there are no partitions
            return
        options, queue, at = self._options, partition.queue, partition.low
        with self._errors(), SyncClient() as sync:
            brokers = sync.open(self._connect(options.access.client_config()))
            puller = QueuePuller(brokers, queue, options.consumer_group)
            pulls = pull_range(puller.pull, at, partition.high)
            try:
                while (pulled := sync.call(_next(pulls))) is not None:
                    records = _records_between(queue, pulled, at, partition.high, fail=options.fail_on_data_loss)
                    for batch in pulled_batches(queue, records, known_names(self._schema), options.properties):
                        yield rename_columns(batch, self._schema)
                    at = pulled.next_offset
            finally:
                sync.call(pulls.aclose())
        freeze_modules()


class PullReader(_RangeReader, DataSourceReader):
    """Reads the messages that queues have when the query is planned."""

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of the queues, up to their current ends."""
        with ShortErrors(), SyncClient() as sync:
            ranges = sync.call(self._ranges(sync.open(self._connect(self._options.access.client_config()))))
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


class PullStreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows queues; new ones are found within 30 s, and read from their first message.

    A new queue first gets its start in the progress, and its messages come with the next micro-batch. So the start of
    each range is in the checkpoint.
    """

    _errors: ClassVar[type[ShortErrors]] = StreamErrors

    def __init__(
        self, options: PullOptions, schema: pa.Schema, connect: Callable[[ClientConfig], BrokerQueues] = BrokerQueues
    ) -> None:
        super().__init__(options, schema, connect)
        # Opened on first use: Spark copies this object to its tasks, which do not need it.
        self._opened: tuple[SyncClient, BrokerQueues] | None = None
        # Ends of the queues at the start of a query with the trigger availableNow.
        self._last: Offsets | None = None
        # Ends of the queues when they were looked up last.
        self._newest: Offsets | None = None
        self._delay = TriggerDelay(options.limits)
        # The queues that routes have, and when that was asked; ``None`` after a failure.
        self._queues: tuple[list[MessageQueue], float] | None = None
        # Queues that left and were logged.
        self._logged: set[MessageQueue] = set()

    def _call(self, work: Callable[[BrokerQueues], Coroutine[Any, Any, T]]) -> T:
        if self._opened is None:
            sync = SyncClient()
            try:
                brokers = sync.open(self._connect(self._options.access.client_config()))
            except BaseException:
                sync.close()
                raise
            self._opened = sync, brokers
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
        most, least = self._options.limits.max_messages, self._options.limits.min_messages
        return ReadMaxRows(most) if most else ReadMinRows(least) if least else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the current ends of the queues, at which the query stops."""
        with StreamErrors():
            self._last = self._retry(lambda brokers: self._ends(brokers, {}))

    def latestOffset(self, start: Progress, limit: ReadLimit) -> Progress:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch.

        Raises:
            StoreError: messages were removed unread, or a queue ends before the progress.
        """
        if not isinstance(limit, (ReadAllAvailable, ReadMaxRows, ReadMinRows)):
            raise ConfigError(f"{type(limit).__name__} is not supported; use maxOffsetsPerTrigger")
        bounded = not isinstance(limit, ReadAllAvailable)
        with StreamErrors():
            return self._delay.poll(start, lambda: self._next(start, bounded=bounded))

    def _next(self, start: Progress, *, bounded: bool) -> Progress:
        reached = offsets_of(start)
        spans = self._retry(lambda brokers: self._unread(brokers, reached))
        loss = self._options.fail_on_data_loss
        begins = {
            queue: _skip_removed(queue, reached.get(queue, low), low, fail=loss) for queue, (low, _) in spans.items()
        }
        ends = {queue: max(high, begins[queue]) for queue, (_, high) in spans.items()}
        if bounded and self._last is None and sum(ends.values()) - sum(begins.values()) < self._delay.least:
            return start
        unread = {queue: end for queue, end in ends.items() if queue in reached}
        if bounded and self._options.limits.max_messages is not None:
            unread = limit_ends(begins, unread, self._options.limits.max_messages)
        return progress_of({**begins, **reached, **unread})

    def _retry(self, look_up: Callable[[BrokerQueues], Coroutine[Any, Any, T]]) -> T:
        """Look up offsets; retry for ``PATIENCE_S`` while servers or queues are away.

        A broker that died or moved is looked for by new routes, so known ones are dropped after a failure.
        """
        deadline = time.monotonic() + broker_queues.PATIENCE_S
        while True:
            routes_are_old = self._queues is not None
            try:
                return self._call(look_up)
            except RocketBrokerError as error:
                if not (isinstance(error, StoreError) or may_pass(error)):
                    raise
                if not routes_are_old and time.monotonic() >= deadline:
                    raise
            self._queues = None
            if not routes_are_old:
                time.sleep(broker_queues.RETRY_S)

    async def _unread(self, brokers: BrokerQueues, reached: Offsets) -> dict[MessageQueue, Span]:
        """Return the offsets of the queues that are new or have unread messages."""
        ends = await self._ends(brokers, reached)
        # A queue that leaves keeps its end here: it shows if the queue was read to the end.
        self._newest = {**(self._newest or {}), **ends}
        if self._last is not None:
            ends = {queue: min(end, self._last[queue]) for queue, end in ends.items() if queue in self._last}
        found = [queue for queue, end in ends.items() if queue not in reached or end > reached[queue]]
        lows = await brokers.min_offsets(found)
        return {queue: Span(lows[queue], ends[queue]) for queue in found}

    async def _ends(self, brokers: BrokerQueues, reached: Offsets) -> Offsets:
        """Return the ends of all queues.

        Raises:
            StoreError: a queue left, or ends before the progress. Another lookup may find it.
            ConfigError: a topic in the progress is not subscribed to.
        """
        if self._queues is None or time.monotonic() - self._queues[1] >= _ROUTES_AGE_S:
            queues = await brokers.queues(await brokers.topics(self._options.subscription))
            self._queues = queues, time.monotonic()
        ends = await brokers.max_offsets(self._queues[0])
        self._report_left(reached, ends)
        for queue, end in ends.items():
            if end.by_master and end.offset < reached.get(queue, 0):
                raise truncation_error(queue, end.offset, reached[queue])
        # A slave may be behind the master of which messages were read.
        return {queue: max(end.offset, reached.get(queue, 0)) for queue, end in ends.items()}

    def _report_left(self, reached: Offsets, ends: Mapping[MessageQueue, QueueEnd]) -> None:
        """Report queues that left with unread messages, as far as is known.

        Their progress stays: a broker that returns is read from there on.
        """
        newest = self._newest or {}
        left = {queue for queue in reached.keys() - ends.keys() if reached[queue] < newest.get(queue, _UNKNOWN)}
        topics = {queue.topic for queue in left}
        unsubscribed = topics - self._options.subscription.chosen(topics)
        if unsubscribed:
            names = ", ".join(sorted(unsubscribed))
            self._report(
                {queue for queue in left if queue.topic in unsubscribed},
                ConfigError(
                    f"the query's checkpoint has topic {names}, which is no longer subscribed to; add it again"
                ),
            )
        gone = {queue for queue in left if queue.topic not in unsubscribed}
        if gone:
            first, others = min(gone), f" and {len(gone) - 1} more" if len(gone) > 1 else ""
            self._report(
                gone,
                StoreError(
                    f"{queue_name(first)}{others}: no route leads there any more, and messages from offset "
                    f"{reached[first]} on may be unread; bring the broker or topic back"
                ),
            )

    def _report(self, left: set[MessageQueue], error: RocketBrokerError) -> None:
        if self._options.fail_on_data_loss:
            raise type(error)(f"{error}, or set failOnDataLoss=false to continue without")
        if not self._logged >= left:
            self._logged |= left
            logger.warning("%s; until then the query continues without (failOnDataLoss=false)", error)

    def reportLatestOffset(self) -> Progress | None:  # noqa: N802 - Spark's name
        """Return the ends of the queues at the last call of ``latestOffset``."""
        return None if self._newest is None else progress_of(self._newest)

    def partitions(self, start: Progress, end: Progress) -> list[InputPartition]:
        """Return the ranges between two places of the progress."""
        starts, ends = offsets_of(start), offsets_of(end)
        ranges = [(queue, starts[queue], ends[queue]) for queue in sorted(ends) if queue in starts]
        return [*partitions_of(ranges, self._options.min_partitions)]


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
        report_loss(
            f"{queue_name(queue)} has no messages at offsets {begin} to {begin + int(steps[number]) - 2}"
            f"{f', and {others} more are missing' if others else ''}: they were removed unread, or are damaged",
            fail=fail,
        )
    return records
