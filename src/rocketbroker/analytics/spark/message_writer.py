"""Writers of the Spark format ``rocketmq``: each task sends its rows by a producer of its own, at least once.

Spark runs a failed task or micro-batch again, and with it the sends that had succeeded. So that a reader can drop these
repeats, each message has an id that depends on the place of its row alone: the write, the partition, and the row's
number in it. The write is the query's id and the batch's number for a stream, both of which the checkpoint keeps, and a
random id for a batch, made on the driver before its tasks are.
"""

import asyncio
import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from rocketbroker.analytics.spark.message_rows import MessageRow, message_rows, row_error
from rocketbroker.analytics.spark.send_lanes import Sender, SendLanes, send_until_ok
from rocketbroker.analytics.spark.sink_options import SinkOptions
from rocketbroker.analytics.spark.worker import Sent, ShortErrors, StreamErrors, freeze_modules
from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.client.producer.producer import Producer
from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.errors import RocketBrokerError

logger = logging.getLogger(__name__)

# Messages in flight per task.
_LANES: Final = 64
# A queue of a broker that restarts is in no route meanwhile.
_ROUTE_REFRESH_S: Final = 5.0
# Local properties that Spark sets for the tasks of a micro-batch.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass
class SentMessages(WriterCommitMessage):
    """Number of messages that a task has sent."""

    count: int


class MessageWriter(Sent, DataSourceArrowWriter):
    """Writer of a batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._job_id = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        """Send the rows of one partition."""
        return _write(self._options, self._job_id, iterator, ShortErrors())

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log what was sent nevertheless."""
        _warn_of_abort(f"the write {self._job_id}", messages)


class MessageStreamWriter(Sent, DataSourceStreamArrowWriter):
    """Writer of a stream."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        """Send the rows of one partition of a micro-batch."""
        properties = _task().getLocalProperty
        return _write(self._options, f"{properties(_QUERY_ID)}:{properties(_BATCH_ID)}", iterator, SinkErrors())

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log what was sent nevertheless."""
        _warn_of_abort(f"batch {batchId}", messages)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "writers run in tasks"
    return task


def _write(options: SinkOptions, write_id: str, batches: Iterator[pa.RecordBatch], errors: ShortErrors) -> SentMessages:
    task = _task()
    partition, attempt = task.partitionId(), task.attemptNumber()
    prefix = f"{write_id}:{partition}"
    if attempt:
        logger.warning(
            "rocketmq sink: attempt %d of %s sends again, with the same ids, what the attempts before have sent",
            attempt,
            prefix,
        )
    with errors:
        sent = asyncio.run(_send(options, prefix, batches))
    freeze_modules()
    return SentMessages(sent)


async def _send(options: SinkOptions, prefix: str, batches: Iterator[pa.RecordBatch]) -> int:
    async with Producer(
        options.producer_group,
        options.access.client_config(poll_name_server_interval_s=_ROUTE_REFRESH_S),
        send_timeout_s=options.send_timeout_s,
        # A failed send pauses before it is tried again, and other rows avoid its broker.
        retry_times_when_send_failed=0,
        send_latency_enable=True,
    ) as producer:
        return await RowSender(producer, SystemClock(), options, prefix).send(batches)


class SinkErrors(StreamErrors):
    """``StreamErrors`` of a sink: a row that is no message fails again, however often the query is started."""

    def _note(self, error: RocketBrokerError) -> None:
        if not isinstance(error.__cause__, InvalidMessageError):
            super()._note(error)


class RowSender:
    """Sends the rows of one task; ``prefix`` begins the ids of its messages."""

    def __init__(self, sender: Sender, clock: Clock, options: SinkOptions, prefix: str) -> None:
        self._sender = sender
        self._options = options
        self._prefix = prefix
        self._lanes = SendLanes(
            self._send_row, clock, lanes=_LANES, rate=options.rate, most_bytes=options.max_in_flight_bytes
        )
        self._sent = 0

    async def send(self, batches: Iterator[pa.RecordBatch]) -> int:
        """Send all rows and return their number.

        Raises:
            RowError: a row cannot be sent, or no broker takes it. A note says how many others were sent; an error of
                ``batches`` gets it as well.
        """
        await self._lanes.run(self._deal(batches))
        error = self._lanes.failure
        if error is not None:
            note = (
                f"{self._prefix} has sent {self._sent:,} messages before it failed; if Spark runs it again, they are "
                "sent again with the same ids"
            )
            logger.warning("rocketmq sink: %s", note)
            error.add_note(note)
            raise error
        return self._sent

    async def _deal(self, batches: Iterator[pa.RecordBatch]) -> None:
        first = 0
        # Spark computes a batch while it is waited for: sends go on meanwhile.
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            for row in message_rows(batch, self._options.topic, self._prefix, first):
                if self._lanes.failure is not None:
                    return
                lane = row.number if row.order_key is None else hash(row.order_key)
                await self._lanes.put(row, lane, len(row.message.body))
            first += batch.num_rows

    async def _send_row(self, row: MessageRow) -> None:
        try:
            await send_until_ok(self._sender, row.message, row.queue, self._options.retry_times)
        except RocketBrokerError as error:
            raise row_error(row.number, row.message.topic, error) from error
        self._sent += 1


def _warn_of_abort(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    done = [message.count for message in messages if isinstance(message, SentMessages)]
    logger.warning(
        "rocketmq sink: %s was aborted: %d finished tasks of %d had sent %d messages, the others some more; they "
        "stay at the brokers",
        what,
        len(done),
        len(messages),
        sum(done),
    )
