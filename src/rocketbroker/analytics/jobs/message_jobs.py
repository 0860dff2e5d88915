"""Jobs over messages: traffic, sizes, delays, retries, hot keys, the distribution over queues, and lag.

Each is a query of ``analytics/sql``. What it counts is a fact of ``sql/facts.py``, which the report counts as well.
Those of messages take a data frame with the columns that they name, or a ``Scope``, which is faster.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from rocketbroker.analytics import sql
from rocketbroker.analytics.columns.message_schema import FIRST_MS, LAST_MS
from rocketbroker.analytics.jobs.job_list import PERCENTILES
from rocketbroker.analytics.jobs.queue_traffic import check_interval
from rocketbroker.analytics.jobs.scope import Scope, as_time, millis
from rocketbroker.analytics.sql import facts
from rocketbroker.analytics.sql.facts import Fact
from rocketbroker.common.errors import ConfigError

_MS: Final = 1000
_CALENDAR: Final = {"first_ms": FIRST_MS, "last_ms": LAST_MS}
#: Levels at which lag is aggregated, with the columns that identify a row.
LEVELS: Final = {
    "queue": ("broker", "group_name", "topic", "queue_id"),
    "topic": ("group_name", "topic"),
    "group": ("group_name",),
}


def query(name: str, given: Mapping[str, Any], **frames: DataFrame) -> DataFrame:
    """Return the result of ``analytics/sql/<name>.sql`` over ``frames``, the names in braces; ``given`` are values."""
    text = files(sql).joinpath(f"{name}.sql").read_text()
    spark = next(iter(frames.values())).sparkSession
    return spark.sql(text, dict(given), **frames)


#: Messages of any data frame, or of stores.
Messages = DataFrame | Scope


def fact_rows(messages: Messages, fact: Fact, *columns: str, **options: Any) -> DataFrame:
    """Return the rows of ``fact`` from ``columns`` of messages, all that it reads by default, grouped by batch."""
    if isinstance(messages, Scope):
        return messages.fact_rows(fact, columns or fact.reads, **options)
    narrow = messages.select(*(columns or fact.reads))
    return narrow.mapInArrow(partial(fact.each, **options), from_arrow_schema(fact.schema))


def traffic(messages: Messages, interval: int = 60) -> DataFrame:
    """Count the messages and bytes of each topic in intervals of ``interval`` seconds, aligned to 1970 (UTC).

    Args:
        messages: ``broker``, ``topic``, ``store_timestamp`` and ``size``.
        interval: seconds, 1 to a year.

    Returns:
        ``broker``, ``topic``, ``from_time`` (null for store times outside the years 1 to 9999), ``messages``, ``bytes``
        of whole records. An interval without messages has no row.
    """
    check_interval(interval)
    return query("traffic", _CALENDAR, facts=fact_rows(messages, facts.TRAFFIC, interval_ms=interval * _MS))


def sizes(messages: Messages, percentiles: Sequence[float] = PERCENTILES) -> DataFrame:
    """Measure the sizes of messages by topic, in bytes of whole records.

    Args:
        messages: ``broker``, ``topic`` and ``size``.
        percentiles: exact percentiles to compute, 0 to 100, with linear interpolation (type 7, as in numpy).

    Returns:
        ``broker``, ``topic``, ``messages``, ``bytes``, ``least``, ``mean``, ``p50`` and so on, ``greatest``.
    """
    return _with_percentiles("sizes", percentiles, fact_rows(messages, facts.SIZES))


def delays(messages: Messages, percentiles: Sequence[float] = PERCENTILES) -> DataFrame:
    """Measure store time minus born time by topic, in ms: the time until consumers could read a message.

    Retries, dead letters and topics that only brokers write are left out, such as half messages and waiting delayed
    messages. Delivered delayed messages and committed transactions count in their real topic, including their intended
    delay. The born time is from the producer's clock.

    Args:
        messages: ``broker``, ``topic``, ``store_timestamp`` and ``born_timestamp``.
        percentiles: as for ``sizes``.

    Returns:
        ``broker``, ``topic``, ``messages``, ``least_ms``, ``mean_ms``, ``p50_ms`` and so on, ``greatest_ms``, and
        ``born_later``: messages born after they were stored, because clocks differ.
    """
    return _with_percentiles("delays", percentiles, fact_rows(messages, facts.DELAYS))


def retry_delays(messages: Messages, percentiles: Sequence[float] = PERCENTILES) -> DataFrame:
    """Measure the age of messages at each retry, and the time since the retry before it, in ms.

    Args:
        messages: ``broker``, ``topic``, ``store_timestamp``, ``born_timestamp``, ``reconsume_times``, ``msg_id`` and
            ``properties``; other topics than ``%RETRY%…`` are ignored.
        percentiles: as for ``sizes``.

    Returns:
        ``group_name``, ``reconsume_times``, ``messages``, then ``least_ms`` … ``greatest_ms`` since the message was
        born. ``with_previous`` counts messages whose previous retry is in the store; ``least_previous_ms`` … are the
        times since that became readable.
    """
    columns = [name for name in facts.RETRIED.reads if name not in {"queue_id", "queue_offset"}]
    return _with_percentiles("retry_delays", percentiles, fact_rows(messages, facts.RETRIED, *columns))


def retries(messages: Messages, groups: DataFrame, offsets: DataFrame, now_ms: int) -> DataFrame:
    """Count retries and dead letters by group, topic and reason, and those not consumed by age.

    Args:
        messages: ``broker``, ``topic``, ``queue_id``, ``queue_offset``, ``store_timestamp``, ``reconsume_times`` and
            ``properties``; other topics than ``%RETRY%…`` and ``%DLQ%…`` are ignored.
        groups: the table ``subscription_groups``.
        offsets: the table ``consumer_offsets``.
        now_ms: time for the ages.

    Returns:
        ``broker``, ``group_name``, ``origin_topic``, ``reason``, ``messages``, ``waiting`` (not consumed by the group),
        ``oldest_waiting``, and the waiting by age: ``under_1h``, ``under_1d``, ``under_3d`` and ``older``.
    """
    columns = [name for name in facts.RETRIED.reads if name not in {"born_timestamp", "msg_id"}]
    found = query(
        "retries",
        {"now_ms": now_ms},
        facts=fact_rows(messages, facts.RETRIED, *columns),
        groups=groups.select("broker", "group_name", "retry_max_times"),
        offsets=offsets.select("broker", "group_name", "topic", "queue_id", "consumer_offset"),
    )
    return found.withColumn("oldest_waiting", as_time(F.col("oldest_waiting")))


def hot_keys(messages: Messages, top: int = 20) -> DataFrame:
    """Find the most frequent keys (property KEYS) of each topic.

    Args:
        messages: ``broker``, ``topic``, ``keys`` and ``size``.
        top: number of keys per topic; equally frequent keys are sorted by name.

    Returns:
        ``broker``, ``topic``, ``rank``, ``key``, ``messages``, ``bytes``, and ``share`` of the topic's messages with
        keys. A message with several keys counts for each.
    """
    return query("hot_keys", {"top": top}, facts=fact_rows(messages, facts.KEYS))


def skew(messages: Messages, topics: DataFrame | None = None) -> DataFrame:
    """Count the messages of each topic by queue.

    Args:
        messages: ``broker``, ``topic``, ``queue_id`` and ``size``.
        topics: the table ``topics``, to include queues without messages.

    Returns:
        ``broker``, ``topic``, ``queue_id``, ``messages``, ``bytes``, ``share`` of the topic's messages at that broker,
        and ``of_mean``, the messages as a multiple of the mean of its queues.
    """
    if topics is None:
        spark = messages.spark if isinstance(messages, Scope) else messages.sparkSession
        topics = spark.createDataFrame([], "broker string, topic string, write_queue_nums int")
    rows = fact_rows(messages, facts.QUEUES, "broker", "topic", "queue_id", "size")
    return query("skew", {}, facts=rows, topics=topics)


def lag(snapshots: DataFrame, messages: DataFrame, by: str = "queue") -> DataFrame:
    """Return the number of messages that groups had not consumed, and the age of the oldest.

    Args:
        snapshots: the columns of ``snapshots.SCHEMA``.
        messages: ``broker``, ``topic``, ``queue_id``, ``queue_offset`` and ``store_timestamp``.
        by: ``queue``, ``topic`` (over its queues and brokers) or ``group``.

    Returns:
        ``time``, the columns of ``LEVELS[by]``, for ``queue`` also ``consumer_offset`` and ``max_offset``; ``lag`` in
        messages, including expired ones, as in RocketMQ; and ``behind_ms``, the age at that time of the oldest message
        not consumed. It is 0 without a lag, and null if no record begins with that message, since it expired or is
        inside a batch of a BatchCQ topic. For several queues it is the longest known age. Queues that the store did
        not have are left out.
    """
    if by not in LEVELS:
        raise ConfigError(f"lag by {by!r} is unknown; use one of {', '.join(LEVELS)}")
    stored = millis(messages, "store_timestamp").alias("stored_ms")
    narrow = messages.select("broker", "topic", "queue_id", "queue_offset", stored)
    rows = query("lag", _CALENDAR, snapshots=snapshots, messages=narrow)
    if by == "queue":
        return rows
    return rows.groupBy("time", *LEVELS[by]).agg(F.sum("lag").alias("lag"), F.max("behind_ms").alias("behind_ms"))


def _with_percentiles(name: str, percentiles: Sequence[float], rows: DataFrame) -> DataFrame:
    """Return a query whose columns ``percentiles…`` become one column each, such as ``p50_ms`` and ``p99_9_ms``."""
    for percent in percentiles:
        if not 0 <= percent <= 100 or percentiles.count(percent) > 1:
            raise ConfigError(f"percentiles: {', '.join(map(str, percentiles))}; give different numbers from 0 to 100")
    parts = F.array(*[F.lit(percent / 100) for percent in percentiles])
    found = query(name, {"percentiles": parts}, facts=rows)
    columns = list[Any]()
    for column in found.columns:
        suffix = column.removeprefix("percentiles")
        if suffix == column:
            columns.append(column)
            continue
        for number, percent in enumerate(percentiles):
            columns.append(F.col(column)[number].alias(f"p{percent:g}".replace(".", "_") + suffix))
    return found.select(*columns)
