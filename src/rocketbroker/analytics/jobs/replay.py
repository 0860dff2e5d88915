"""Sends what was exported to a broker again, at a set rate.

Messages go in the order in which they were stored; those of one queue are never overtaken by later ones. Each is sent
at least once: when an answer is lost it is sent again.
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
from rocketbroker.client.errors import InvalidMessageError
from rocketbroker.client.message import Message, check_message
from rocketbroker.client.queue_selection import QueueSelector
from rocketbroker.codec.message.compression import decompress
from rocketbroker.codec.message.message_const import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_WAIT_STORE_MSG_OK,
    STRING_HASH_SET,
)
from rocketbroker.codec.message.message_sys_flag import COMPRESSED_FLAG, INNER_BATCH_FLAG
from rocketbroker.codec.message.topic_validator import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    RMQ_SYS_SCHEDULE_TOPIC,
    is_system_topic,
)
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import CodecError, ConfigError, RocketBrokerError, StoreError

logger = logging.getLogger(__name__)

# So many messages of a lane may wait to be sent, and so often each is tried.
_WAITING: Final = 4
_TRIES: Final = 3
# What slow answers held up is made up for, as much as goes in so many seconds.
_MADE_UP_S: Final = 1.0
# So many rows are read at a time, on a thread.
_AT_ONCE: Final = 100
#: Columns of an export that a replay needs.
COLUMNS: Final = (
    "broker",
    "topic",
    "queue_id",
    "physical_offset",
    "store_timestamp",
    "flag",
    "sys_flag",
    "body",
    "properties",
)
#: Reason to leave out a row without what every message has: a line that is no JSON, or a file of something else.
NO_MESSAGE: Final = "no message of an export"
_NEVER_NULL: Final = ("topic", "queue_id", "store_timestamp", "flag", "sys_flag")
_SCHEMA: Final = (
    "broker string, topic string, queue_id int, physical_offset bigint, store_timestamp bigint, flag int, sys_flag int,"
    " body binary, properties map<string,string>"
)


def exported_messages(spark: SparkSession, source: str, form: str = "parquet") -> DataFrame:
    """Return the messages of an export, with ``COLUMNS``.

    Args:
        spark: the session.
        source: where it was exported to.
        form: ``parquet`` or ``jsonl``.

    Raises:
        ConfigError: there is no such format.
    """
    kinds = {"parquet": "parquet", "jsonl": "json"}
    if form not in kinds:
        raise ConfigError(f"an export of format {form!r} cannot be replayed; {' and '.join(kinds)} can")
    return spark.read.schema(_SCHEMA).format(kinds[form]).load(source)


def in_order(messages: DataFrame) -> Iterator[Mapping[str, Any]]:
    """Yield ``messages`` as they were stored, brokers merged by time; one partition's rows are held at a time.

    Raises:
        StoreError: while rows are taken, when they cannot be read.
    """
    try:
        ordered = messages.select(*COLUMNS).orderBy("store_timestamp", "broker", "physical_offset")
        yield from (row.asDict() for row in ordered.toLocalIterator(prefetchPartitions=True))
    except (PySparkException, Py4JError) as error:  # not all errors of Java are made those of Spark
        raise StoreError(f"the export cannot be read: {reason_of(error)}") from error


class Ready(NamedTuple):
    """A message to be sent, and the queue that it was in."""

    message: Message
    queue: tuple[str, int]
    stored_ms: int


def prepare(row: Mapping[str, Any], topics: Mapping[str, str]) -> Ready | str:
    """Return the message of a row of an export; or why it is not sent, in a few words.

    Keys, tags, flag, body and all properties of the application are kept. RocketMQ's own, with the unique id,
    are made again. A compressed body is unpacked, and compressed again when it is sent.

    Args:
        row: with ``COLUMNS``.
        topics: topics that are sent to another one.
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
            return "body cannot be unpacked"
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
        return "topic of the broker itself"
    if sys_flag & INNER_BATCH_FLAG:
        return "batch of a BatchCQ topic"
    return ""


class Sender(Protocol):
    """Sender of a replay; ``client.producer.Producer`` is one."""

    async def send(self, message: Message, queue: QueueSelector) -> Any:
        """Send a message to the queue that is chosen, and wait until the broker has it."""


@dataclass(slots=True)
class Replayed:
    """Outcome of a replay, by number of messages.

    Attributes:
        sent: how many a broker has, or would have been sent in a dry run, by topic that they went to.
        skipped: how many were left out, by reason.
        failure: why it ended early, empty if it did not.
        resume_ms: store time from which on to go on after a failure: all before it is sent. None if nothing is.
    """

    sent: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    failure: str = ""
    resume_ms: int | None = None


def rehearse(rows: Iterable[Mapping[str, Any]], topics: Mapping[str, str]) -> Replayed:
    """Count what a replay would do; nothing is sent."""
    done = Replayed()
    for row in rows:
        ready = prepare(row, topics)
        if isinstance(ready, str):
            done.skipped[ready] += 1
        else:
            done.sent[ready.message.topic] += 1
    return done


class Replay:
    """Sends the rows of an export.

    Args:
        sender: a started producer.
        clock: for the rate.
        rate: messages a second, 0 for as fast as it goes.
        topics: topics that are sent to another one.
        lanes: so many messages at most are under way at a time, each of another queue.
        progress: told how many were sent so far.
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
        """Send them; ends early at the first one that a broker does not take, or at rows that cannot be read, once
        those under way are settled."""
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
        """Return the next rows, none at the end or when they cannot be read."""
        try:
            return await asyncio.to_thread(list, islice(feed, _AT_ONCE))
        except Exception as error:  # noqa: BLE001 - told; whatever it is, so is what was sent until then
            self._unreadable = _told(error)
            return []

    async def _wait_for(self, due: float | None) -> float:
        """Wait until a message is due, the first one at once; gives when that was, and no more than is made up for ago.

        So the rate holds on the whole, and what waited for the first rows, or for rows on the way, comes in no burst.
        """
        now = self._clock.monotonic()
        if due is None:
            return now
        if self._interval and due > now:
            await asyncio.sleep(due - now)
        return max(due, now - _MADE_UP_S)

    def _lane_of(self, queue: tuple[str, int]) -> "asyncio.Queue[Ready | None]":
        """Return the lane that all messages of a queue take."""
        number = self._lane_numbers.setdefault(queue, len(self._lane_numbers) % len(self._lanes))
        return self._lanes[number]

    async def _send_all(self, lane: "asyncio.Queue[Ready | None]") -> None:
        """Takes all that is dealt, also after a failure: a lane that nobody empties would hold up the dealing."""
        while (ready := await lane.get()) is not None:
            if self._done.failure or not await self._is_sent(ready):
                self._failed_ms.append(ready.stored_ms)
                continue
            self._done.sent[ready.message.topic] += 1
            self._progress(self._done.sent.total())

    def _fail(self, reason: str) -> None:
        """Log only the first reason: the others follow from it, or are like it."""
        self._done.failure = self._done.failure or reason

    async def _is_sent(self, ready: Ready) -> bool:
        try:
            await self._send(ready)
        except Exception as error:  # noqa: BLE001 - told; whatever it is, so is what was sent until then
            self._fail(f"{ready.message.topic}: {_told(error)}")
            return False
        return True

    async def _send(self, ready: Ready) -> None:
        """Send a message to the queue with the number that it had.

        Raises:
            RocketBrokerError: that of the last try.
        """
        for tries in range(1, _TRIES + 1):
            try:
                await self._sender.send(ready.message, partial(_queue, ready.queue[1]))
            except RocketBrokerError:
                if tries == _TRIES:
                    raise
            else:
                return


def _told(error: Exception) -> str:
    """Return the text of an error; of one that nobody foresaw also its kind, and log its origin."""
    if isinstance(error, RocketBrokerError):
        return str(error)
    logger.error("a replay ends at an error that was not expected", exc_info=error)
    return f"{type(error).__name__}: {error}"


def _queue(queue_id: int, queues: Sequence[MessageQueue], _message: Message) -> MessageQueue:
    """Return the queue for all messages of queue ``queue_id``: one queue, so that their order stays."""
    return queues[queue_id % len(queues)]
