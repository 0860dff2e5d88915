"""Distributions of message sizes, and of delays until messages are stored or retried."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.columns.sent_topics import NOT_SENT_PREFIXES, NOT_SENT_TOPICS
from rocketbroker.analytics.jobs.columns import millis, percentile_columns, retry_group
from rocketbroker.analytics.jobs.job_list import PERCENTILES
from rocketbroker.codec.message.message_const import PROPERTY_ORIGIN_MESSAGE_ID
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX


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
