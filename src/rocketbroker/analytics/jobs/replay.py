"""Replay of exported messages to a broker, at a set rate.

Messages are sent in the order in which they were stored; messages of one queue stay in order. Each is sent at least
once: a message is sent again if its acknowledgement was lost.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rocketbroker.analytics.spark.spark_progress import reason_of
from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.client.core.message import Message, check_message
from rocketbroker.client.producer.message_sender import QueueSelector
from rocketbroker.codec.message.compression import decompress
from rocketbroker.codec.message.message_const import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAG,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_WAIT_STORE_MSG_OK,
    STRING_HASH_SET,
)
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.topic_validator import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    RMQ_SYS_SCHEDULE_TOPIC,
    is_system_topic,
)
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import CodecError, ConfigError, RocketBrokerError, StoreError

logger = logging.getLogger(__name__)

# Messages of a lane that may wait, attempts per message, and rows read at a time on a thread.
_WAITING: Final = 4
_TRIES: Final = 3
_AT_ONCE: Final = 100
# After slow answers, messages of up to this many seconds are sent without a pause.
_MADE_UP_S: Final = 1.0
_SCHEMA: Final = (
    "broker string, topic string, queue_id int, physical_offset bigint, store_timestamp bigint, flag int, sys_flag int,"
    " body binary, properties map<string,string>"
)
#: Columns of an export that a replay needs.
COLUMNS: Final = tuple(column.split()[0] for column in _SCHEMA.split(", "))
#: Reason to leave out a row that lacks values of every message: a line of invalid JSON, or of another kind of file.
NO_MESSAGE: Final = "not a message of an export"
_NEVER_NULL: Final = ("topic", "queue_id", "store_timestamp", "flag", "sys_flag")


def exported_messages(spark: SparkSession, source: str, form: str = "parquet") -> DataFrame:
    """Return the messages of the export ``source``, in ``parquet`` or ``jsonl``, with ``COLUMNS``."""
    kinds = {"parquet": "parquet", "jsonl": "json"}
    if form not in kinds:
        raise ConfigError(f"--format {form!r}: this format cannot be replayed; use {' or '.join(kinds)}")
    return spark.read.schema(_SCHEMA).format(kinds[form]).load(source)


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


class Ready(NamedTuple):
    """A message to send, with its original queue and store time."""

    message: Message
    queue: tuple[str, int]
    stored_ms: int


def prepare(row: Mapping[str, Any], topics: Mapping[str, str]) -> Ready | str:
    """Return the message in a row with ``COLUMNS``, or the reason to leave it out; ``topics`` renames topics.

    Keys, tags, flag, body and all properties of the application are kept. RocketMQ's own properties, including the
    unique id, are set again. A compressed body is decompressed; the client compresses it again.
    """
    if any(row[name] is None for name in _NEVER_NULL):
        return NO_MESSAGE
    topic = row["topic"]
    reason = _why_not(topic, row["sys_flag"])
    if reason:
        return reason
    body = bytes(row["body"] or b"")
    if body and row["sys_flag"] & COMPRESSED_FLAG:
        try:
            body = decompress(body, row["sys_flag"])
        except CodecError:
            return "body cannot be decompressed"
    properties = dict(row["properties"] or {})
    message = Message(
        topics.get(topic, topic),
        body,
        tags=properties.get(PROPERTY_TAGS),
        keys=properties.get(PROPERTY_KEYS),
        properties={name: value for name, value in properties.items() if name not in STRING_HASH_SET},
        flag=row["flag"],
        wait_store_msg_ok=properties.get(PROPERTY_WAIT_STORE_MSG_OK) != "false",
    )
    try:
        check_message(message)
    except InvalidMessageError as error:
        return str(error)
    return Ready(message, (topic, row["queue_id"]), row["store_timestamp"])


def _why_not(topic: str, sys_flag: int) -> str:
    if topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)):
        return "retry or dead letter"
    if topic == RMQ_SYS_SCHEDULE_TOPIC or is_system_topic(topic):
        return "system topic"
    if sys_flag & INNER_BATCH_FLAG:
        return "batch of a BatchCQ topic"
    return ""


class Sender(Protocol):
    """Sender of a replay, such as ``client.producer.Producer``."""

    async def send(self, message: Message, queue: QueueSelector) -> Any:
        """Send a message to the selected queue; return after the broker has acknowledged it."""


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
        self._clock = clock
        self._interval = 1 / rate if rate else 0.0
        self._topics = topics or {}
        self._lanes: list[asyncio.Queue[Ready | None]] = [asyncio.Queue(_WAITING) for _ in range(lanes)]
        self._lane_numbers: dict[tuple[str, int], int] = {}
        self._progress = progress
        self._done = Replayed()
        self._failed_ms: list[int] = []
        self._dealt_ms: int | None = None
        self._unreadable = ""

    async def run(self, rows: Iterable[Mapping[str, Any]]) -> Replayed:
        """Send rows; on the first rejected message or unreadable row, wait for the messages in flight and return."""
        async with asyncio.TaskGroup() as lanes:
            for lane in self._lanes:
                lanes.create_task(self._send_all(lane))
            await self._deal(rows)
            for lane in self._lanes:
                await lane.put(None)
        self._fail(self._unreadable)
        if self._done.failure:
            self._done.resume_ms = min(self._failed_ms, default=self._dealt_ms)
        return self._done

    async def _deal(self, rows: Iterable[Mapping[str, Any]]) -> None:
        due: float | None = None
        feed = iter(rows)
        while chunk := await self._read(feed):
            for row in chunk:
                if self._done.failure:
                    return
                ready = prepare(row, self._topics)
                if isinstance(ready, str):
                    self._done.skipped[ready] += 1
                    continue
                due = await self._wait_for(due) + self._interval
                await self._lane_of(ready.queue).put(ready)
                self._dealt_ms = ready.stored_ms

    async def _read(self, feed: Iterator[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the next rows; an empty list at the end, or if they cannot be read."""
        try:
            return await asyncio.to_thread(list, islice(feed, _AT_ONCE))
        except Exception as error:  # noqa: BLE001 - reported, with the messages sent so far
            self._unreadable = _reason(error)
            return []

    async def _wait_for(self, due: float | None) -> float:
        """Wait until a message is due, and return that time; the first message is due at once.

        A delay is made up for, but by at most ``_MADE_UP_S``: a long wait for rows is not followed by a burst.
        """
        now = self._clock.monotonic()
        if due is None:
            return now
        if self._interval and due > now:
            await asyncio.sleep(due - now)
        return max(due, now - _MADE_UP_S)

    def _lane_of(self, queue: tuple[str, int]) -> "asyncio.Queue[Ready | None]":
        """Return the lane of all messages of a queue."""
        number = self._lane_numbers.setdefault(queue, len(self._lane_numbers) % len(self._lanes))
        return self._lanes[number]

    async def _send_all(self, lane: "asyncio.Queue[Ready | None]") -> None:
        """Empty the lane, also after a failure: a full lane would block ``_deal``."""
        while (ready := await lane.get()) is not None:
            if self._done.failure or not await self._is_sent(ready):
                self._failed_ms.append(ready.stored_ms)
                continue
            self._done.sent[ready.message.topic] += 1
            self._progress(self._done.sent.total())

    def _fail(self, reason: str) -> None:
        """Keep the first reason only: later ones follow from it."""
        self._done.failure = self._done.failure or reason

    async def _is_sent(self, ready: Ready) -> bool:
        try:
            await self._send(ready)
        except Exception as error:  # noqa: BLE001 - reported, with the messages sent so far
            self._fail(f"{ready.message.topic}: {_reason(error)}")
            return False
        return True

    async def _send(self, ready: Ready) -> None:
        """Send a message to the queue with its original number, and retry; raise the error of the last attempt."""
        for tries in range(1, _TRIES + 1):
            try:
                await self._sender.send(ready.message, partial(_queue, ready.queue[1]))
            except RocketBrokerError:
                if tries == _TRIES:
                    raise
            else:
                return


def _reason(error: Exception) -> str:
    """Return the text of an error; log the stack trace of an unexpected one."""
    if isinstance(error, RocketBrokerError):
        return str(error)
    logger.error("replay: it ends with an unexpected error", exc_info=error)
    return f"{type(error).__name__}: {error}"


def _queue(queue_id: int, queues: Sequence[MessageQueue], _message: Message) -> MessageQueue:
    """Return the same queue for all messages of the original queue ``queue_id``, to keep their order."""
    return queues[queue_id % len(queues)]
