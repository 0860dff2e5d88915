"""Jobs over messages: traffic, sizes, delays, retries, hot keys and the distribution over queues."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.columns.topics import NOT_SENT_PREFIXES, NOT_SENT_TOPICS
from rocketbroker.analytics.jobs.columns import as_time, interval_start, millis, percentile_columns, retry_group, share
from rocketbroker.analytics.jobs.job_list import PERCENTILES
from rocketbroker.analytics.jobs.queue_traffic import check_interval
from rocketbroker.codec.message.message_const import (
    KEY_SEPARATOR,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
)
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX

_MS = 1000


def traffic(messages: DataFrame, interval: int = 60) -> DataFrame:
    """Count the messages and bytes of each topic in intervals of ``interval`` seconds, aligned to 1970 (UTC).

    Args:
        messages: ``broker``, ``topic``, ``store_timestamp`` and ``size``.
        interval: seconds, 1 to a year.

    Returns:
        ``broker``, ``topic``, ``from_time`` (null for store times outside the years 1 to 9999), ``messages``, ``bytes``
        of whole records. An interval without messages has no row.
    """
    check_interval(interval)
    start = interval_start(millis(messages, "store_timestamp"), interval * _MS)
    grouped = messages.groupBy("broker", "topic", start.alias("from_time"))
    return grouped.agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))


def sizes(messages: DataFrame, percentiles: Sequence[float] = PERCENTILES) -> DataFrame:
    """Measure the sizes of messages by topic, in bytes of whole records.

    Args:
        messages: ``broker``, ``topic`` and ``size``.
        percentiles: exact percentiles to compute, 0 to 100.

    Returns:
        ``broker``, ``topic``, ``messages``, ``bytes``, ``least``, ``mean``, ``p50`` and so on, ``greatest``.
    """
    counts = F.count("*").alias("messages"), F.sum("size").alias("bytes")
    return messages.groupBy("broker", "topic").agg(*counts, *_distribution(F.col("size"), percentiles, ""))


def delays(messages: DataFrame, percentiles: Sequence[float] = PERCENTILES) -> DataFrame:
    """Measure store time minus born time by topic, in ms: the time until consumers could read a message.

    Retries, dead letters and topics that only brokers write (``sent_topics``) are left out, such as half messages and
    waiting delayed messages. Delivered delayed messages and committed transactions count in their real topic, including
    their intended delay. The born time is from the producer's clock.

    Args:
        messages: ``broker``, ``topic``, ``store_timestamp`` and ``born_timestamp``.
        percentiles: exact percentiles to compute, 0 to 100.

    Returns:
        ``broker``, ``topic``, ``messages``, ``least_ms``, ``mean_ms``, ``p50_ms`` and so on, ``greatest_ms``, and
        ``born_later``: messages born after they were stored, because clocks differ.
    """
    topic = F.col("topic")
    not_sent = topic.isin(*sorted(NOT_SENT_TOPICS))
    for prefix in NOT_SENT_PREFIXES:
        not_sent = not_sent | topic.startswith(prefix)
    took = F.try_subtract(millis(messages, "store_timestamp"), millis(messages, "born_timestamp"))
    sent = messages.where(~not_sent).withColumn("took", took)
    return sent.groupBy("broker", "topic").agg(
        F.count("*").alias("messages"),
        *_distribution(F.col("took"), percentiles, "_ms"),
        F.count_if(F.col("took") < 0).alias("born_later"),
    )


def retry_delays(messages: DataFrame, percentiles: Sequence[float] = PERCENTILES) -> DataFrame:
    """Measure the age of messages at each retry, and the time since the retry before it, in ms.

    Args:
        messages: ``broker``, ``topic``, ``store_timestamp``, ``born_timestamp``, ``reconsume_times``, ``msg_id`` and
            ``properties``; other topics than ``%RETRY%…`` are ignored.
        percentiles: exact percentiles to compute, 0 to 100.

    Returns:
        ``group_name``, ``reconsume_times``, ``messages``, then ``least_ms`` … ``greatest_ms`` since the message was
        born. ``with_previous`` counts messages whose previous retry is in the store; ``least_previous_ms`` … are the
        times since that became readable. Brokers are combined: another broker may have stored the previous retry.
    """
    retried = messages.where(F.col("topic").startswith(RETRY_GROUP_TOPIC_PREFIX))
    stored, born = millis(messages, "store_timestamp"), millis(messages, "born_timestamp")
    origin = F.coalesce(F.element_at("properties", PROPERTY_ORIGIN_MESSAGE_ID), F.col("msg_id"))
    tries = retried.select(
        retry_group(F.col("topic"), F.col("properties")).alias("group_name"),
        "reconsume_times",
        F.try_subtract(stored, born).alias("age"),
        origin.alias("origin"),
        stored.alias("stored"),
    )
    of_message = Window.partitionBy("group_name", "origin").orderBy("reconsume_times", "stored")
    since = F.try_subtract(F.col("stored"), F.lag("stored").over(of_message))
    return (
        tries.withColumn("since_previous", since)
        .groupBy("group_name", "reconsume_times")
        .agg(
            F.count("*").alias("messages"),
            *_distribution(F.col("age"), percentiles, "_ms"),
            F.count("since_previous").alias("with_previous"),
            *_distribution(F.col("since_previous"), percentiles, "_previous_ms"),
        )
    )


def _distribution(value: Column, percentiles: Sequence[float], suffix: str) -> list[Column]:
    return [
        F.min(value).alias(f"least{suffix}"),
        F.avg(value).alias(f"mean{suffix}"),
        *percentile_columns(value, percentiles, suffix),
        F.max(value).alias(f"greatest{suffix}"),
    ]


def hot_keys(messages: DataFrame, top: int = 20) -> DataFrame:
    """Find the most frequent keys (property KEYS) of each topic.

    Args:
        messages: ``broker``, ``topic``, ``keys`` and ``size``.
        top: number of keys per topic; equally frequent keys are sorted by name.

    Returns:
        ``broker``, ``topic``, ``rank``, ``key``, ``messages``, ``bytes``, and ``share`` of the topic's messages with
        keys. A message with several keys counts for each.
    """
    keyed = messages.where(F.col("keys").isNotNull())
    parts = F.array_distinct(F.filter(F.split("keys", KEY_SEPARATOR), lambda part: part != ""))
    with_keys = keyed.select("broker", "topic", "size", parts.alias("parts")).where(F.size("parts") > 0)
    # Each message counts once more without a key: the total is from the same pass, also while a broker writes.
    keys_and_null = F.concat("parts", F.array(F.lit(None).cast("string")))
    each = with_keys.select("broker", "topic", "size", F.explode(keys_and_null).alias("key"))
    counted = each.groupBy("broker", "topic", "key").agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
    topic = Window.partitionBy("broker", "topic")
    of_all = F.max(F.when(F.col("key").isNull(), F.col("messages"))).over(topic)
    by_key = counted.withColumn("keyed", of_all).where(F.col("key").isNotNull())
    rank = F.row_number().over(topic.orderBy(F.desc("messages"), "key"))
    ranked = by_key.withColumn("rank", rank).where(F.col("rank") <= top)
    rate = share(F.col("messages"), F.col("keyed")).alias("share")
    return ranked.select("broker", "topic", "rank", "key", "messages", "bytes", rate)


def skew(messages: DataFrame, topics: DataFrame | None = None) -> DataFrame:
    """Count the messages of each topic by queue.

    Args:
        messages: ``broker``, ``topic``, ``queue_id`` and ``size``.
        topics: the table ``topics``, to include queues without messages.

    Returns:
        ``broker``, ``topic``, ``queue_id``, ``messages``, ``bytes``, ``share`` of the topic's messages at that broker,
        and ``of_mean``, the messages as a multiple of the mean of its queues.
    """
    counted = messages.groupBy("broker", "topic", "queue_id").agg(
        F.count("*").alias("messages"), F.sum("size").alias("bytes")
    )
    if topics is not None:
        counted = _with_empty_queues(counted, topics)
    topic = Window.partitionBy("broker", "topic")
    all_messages, queues = F.sum("messages").over(topic), F.count("*").over(topic)
    return counted.select(
        "*",
        share(F.col("messages"), all_messages).alias("share"),
        share(F.col("messages") * queues, all_messages).alias("of_mean"),
    )


def _with_empty_queues(counted: DataFrame, topics: DataFrame) -> DataFrame:
    """Return ``counted`` with rows of zeros for empty queues of topics with messages.

    The topics are appended to the rows instead of joined: a join would read the messages twice.
    """
    nothing = [F.lit(0).cast("long").alias(name) for name in ("messages", "bytes")]
    known = topics.where(F.col("write_queue_nums") > 0).select("broker", "topic", "write_queue_nums", *nothing)
    both = counted.unionByName(known, allowMissingColumns=True)
    used = F.max("messages").over(Window.partitionBy("broker", "topic"))
    all_queues = F.sequence(F.lit(0), F.col("write_queue_nums") - 1)
    queues = F.when(F.col("queue_id").isNull(), all_queues).otherwise(F.array("queue_id"))
    each = both.withColumn("used", used).where(F.col("used") > 0).withColumn("queue_id", F.explode(queues))
    sums = (F.sum(name).alias(name) for name in ("messages", "bytes"))
    return each.groupBy("broker", "topic", "queue_id").agg(*sums)


_HOUR_MS = 3_600_000
# Bounds of ages in ms, by column.
_AGES = {
    "under_1_h": (None, _HOUR_MS),
    "under_1_d": (_HOUR_MS, 24 * _HOUR_MS),
    "under_3_d": (24 * _HOUR_MS, 72 * _HOUR_MS),
    "older": (72 * _HOUR_MS, None),
}


def retries(messages: DataFrame, groups: DataFrame, offsets: DataFrame, now_ms: int) -> DataFrame:
    """Count retries and dead letters by group, topic and reason, and those not consumed by age.

    RocketMQ does not store why a consumer failed. The record has only this ``reason``:

    - ``retries-used-up``: all retries failed that the consumer (MAX_RECONSUME_TIMES), else the group (retryMaxTimes),
      allows.
    - ``sent-to-dead-letters``: it became a dead letter earlier, as consumers may request.
    - ``dead-letter``: the number of allowed retries is unknown.
    - ``retry``: it will be consumed again.

    Args:
        messages: ``broker``, ``topic``, ``queue_id``, ``queue_offset``, ``store_timestamp``, ``reconsume_times`` and
            ``properties``; other topics than ``%RETRY%…`` and ``%DLQ%…`` are ignored.
        groups: the table ``subscription_groups``.
        offsets: the table ``consumer_offsets``.
        now_ms: time for the ages.

    Returns:
        ``broker``, ``group_name``, ``origin_topic``, ``reason``, ``messages``, ``waiting`` (not consumed by the group),
        ``oldest_waiting``, and the waiting by age: ``under_1_h``, ``under_1_d``, ``under_3_d`` and ``older``.
    """
    group, queue = ["broker", "group_name"], ["broker", "group_name", "topic", "queue_id"]
    found = _retried(messages).join(F.broadcast(groups.select(*group, "retry_max_times")), group, "left")
    found = found.join(F.broadcast(offsets.select(*queue, "consumer_offset")), queue, "left")
    waiting = F.col("queue_offset") >= F.coalesce("consumer_offset", F.lit(0))
    age = F.try_subtract(F.lit(now_ms), F.col("stored"))
    return (
        found.withColumn("reason", _reason())
        .groupBy("broker", "group_name", "origin_topic", "reason")
        .agg(
            F.count("*").alias("messages"),
            F.count_if(waiting).alias("waiting"),
            as_time(F.min(F.when(waiting, F.col("stored")))).alias("oldest_waiting"),
            *[F.count_if(waiting & _between(age, *bounds)).alias(name) for name, bounds in _AGES.items()],
        )
    )


def _retried(messages: DataFrame) -> DataFrame:
    topic, properties = F.col("topic"), F.col("properties")
    is_dead = topic.startswith(DLQ_GROUP_TOPIC_PREFIX)
    of_dead = F.substr(topic, F.lit(len(DLQ_GROUP_TOPIC_PREFIX) + 1))
    group = retry_group(topic, properties)
    of_pop = F.substr(topic, F.length(group) + len(RETRY_GROUP_TOPIC_PREFIX) + 2)
    origin = F.coalesce(
        F.element_at(properties, PROPERTY_RETRY_TOPIC),
        F.element_at(properties, PROPERTY_DLQ_ORIGIN_TOPIC),
        F.when(~is_dead & (of_pop != ""), of_pop),
    )
    return messages.where(is_dead | topic.startswith(RETRY_GROUP_TOPIC_PREFIX)).select(
        "broker",
        "topic",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        is_dead.alias("is_dead"),
        F.when(is_dead, of_dead).otherwise(group).alias("group_name"),
        origin.alias("origin_topic"),
        F.element_at(properties, PROPERTY_MAX_RECONSUME_TIMES).try_cast("int").alias("allowed"),
        millis(messages, "store_timestamp").alias("stored"),
    )


def _reason() -> Column:
    allowed = F.coalesce("allowed", "retry_max_times")
    return (
        F.when(~F.col("is_dead"), "retry")
        .when(allowed.isNull(), "dead-letter")
        .when(F.col("reconsume_times") >= allowed, "retries-used-up")
        .otherwise("sent-to-dead-letters")
    )


def _between(value: Column, least: int | None, below: int | None) -> Column:
    found = F.lit(True) if least is None else value >= least
    return found if below is None else found & (value < below)
