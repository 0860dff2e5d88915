"""Reasons of retries and dead letters, and their ages."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.jobs.columns import as_time, millis, retry_group
from rocketbroker.codec.message.message_const import (
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_RETRY_TOPIC,
)
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX

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
