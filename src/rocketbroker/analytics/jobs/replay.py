"""Replay of exported messages to a broker, at a set rate.

Messages are sent in the order in which they were stored; messages of one queue stay in order. Each is sent at least
once: a message is sent again if its acknowledgement was lost, or does not say that it is safe.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rocketbroker.analytics.jobs.exported_rows import (
    COLUMNS,
    REPLAY_SCHEMA,
    Origin,
    Ready,
    TargetQueues,
    prepare,
    queue_of_number,
)
from rocketbroker.analytics.spark.send_lanes import RETRY_TIMES, Sender, SendLanes, send_until_ok
from rocketbroker.analytics.spark.spark_progress import reason_of
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import ConfigError, RocketBrokerError, StoreError

logger = logging.getLogger(__name__)

# Bytes of bodies in flight or waiting, and rows read at a time on a thread.
_MOST_BYTES: Final = 64 << 20
_AT_ONCE: Final = 100


def exported_messages(spark: SparkSession, source: str, form: str = "parquet") -> DataFrame:
    """Return the messages of the export ``source``, in ``parquet`` or ``jsonl``, with ``COLUMNS``."""
    kinds = {"parquet": "parquet", "jsonl": "json"}
    if form not in kinds:
        raise ConfigError(f"--format {form!r}: this format cannot be replayed; use {' or '.join(kinds)}")
    return spark.read.schema(REPLAY_SCHEMA).format(kinds[form]).load(source)


def in_order(messages: DataFrame) -> Iterator[Mapping[str, Any]]:
    """Yield ``messages`` in the order of storage, brokers merged by time, with one partition in memory at a time.

    Raises:
        StoreError: the export cannot be read; raised during iteration.
    """
    try:
        ordered = messages.select(*COLUMNS).orderBy("store_timestamp", "broker", "physical_offset")
        yield from (row.asDict() for row in ordered.toLocalIterator(prefetchPartitions=True))
    except (PySparkException, Py4JError) as error:  # PySpark does not convert all Java errors
        raise StoreError(f"the export cannot be read: {reason_of(error)}") from error


@dataclass(slots=True)
class Replayed:
    """Outcome of a replay."""

    sent: Counter[str] = field(default_factory=Counter)  # messages acknowledged, or to be sent, by target topic
    skipped: Counter[str] = field(default_factory=Counter)  # messages left out, by reason
    failure: str = ""  # reason of an early end
    resume_ms: int | None = None  # after a failure, all messages stored before are sent; ``None`` if none is


def rehearse(rows: Iterable[Mapping[str, Any]], topics: Mapping[str, str]) -> Replayed:
    """Count what a replay would send and leave out, without sending."""
    done = Replayed()
    for row in rows:
        ready = prepare(row, topics)
        if isinstance(ready, str):
            done.skipped[ready] += 1
        else:
            done.sent[ready.message.topic] += 1
    return done


class Replay:
    """Sender of the rows of an export.

    ``rate`` is in messages per second, 0 for no limit; ``topics`` renames topics. At most ``lanes`` messages are in
    flight, each of another queue. ``progress`` is called with the number of messages sent.
    """

    def __init__(
        self,
        sender: Sender,
        clock: Clock,
        *,
        rate: float = 0,
        topics: Mapping[str, str] | None = None,
        lanes: int = 16,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._sender = sender
        self._topics = topics or {}
        self._lanes = SendLanes(self._send, clock, lanes=lanes, rate=rate, most_bytes=_MOST_BYTES)
        self._lane_numbers: dict[Origin, int] = {}
        self._targets = TargetQueues()
        self._progress = progress
        self._done = Replayed()
        self._dealt_ms: int | None = None

    async def run(self, rows: Iterable[Mapping[str, Any]]) -> Replayed:
        """Send rows; on the first rejected message or unreadable row, wait for the messages in flight and return."""
        await self._lanes.run(self._deal(rows))
        failure, unsent = self._lanes.failure, self._lanes.unsent
        if failure is not None:
            where = f"{unsent[0].message.topic}: " if unsent else ""
            self._done.failure = where + _reason(failure)
            self._done.resume_ms = min((ready.stored_ms for ready in unsent), default=self._dealt_ms)
        return self._done

    async def _deal(self, rows: Iterable[Mapping[str, Any]]) -> None:
        feed = iter(rows)
        while chunk := await asyncio.to_thread(list, islice(feed, _AT_ONCE)):
            for row in chunk:
                if self._lanes.failure is not None:
                    return
                ready = prepare(row, self._topics)
                if isinstance(ready, str):
                    self._done.skipped[ready] += 1
                    continue
                self._targets.number(ready.queue)  # in the order of the rows
                lane = self._lane_numbers.setdefault(ready.queue, len(self._lane_numbers))
                await self._lanes.put(ready, lane, len(ready.message.body))
                self._dealt_ms = ready.stored_ms

    async def _send(self, ready: Ready) -> None:
        """Send a message to the one queue for those of its original queue."""
        queue = partial(queue_of_number, self._targets.number(ready.queue))
        await send_until_ok(self._sender, ready.message, queue, RETRY_TIMES)
        self._done.sent[ready.message.topic] += 1
        self._progress(self._done.sent.total())


def _reason(error: Exception) -> str:
    """Return the text of an error; log the stack trace of an unexpected one."""
    if isinstance(error, RocketBrokerError):
        return str(error)
    logger.error("replay: it ends with an unexpected error", exc_info=error)
    return f"{type(error).__name__}: {error}"
