"""Causes of retries and dead letters, and their waiting times."""

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
# Ages by the name of their column: from and before which age in ms.
_AGES = {
    "under_1_h": (None, _HOUR_MS),
    "under_1_d": (_HOUR_MS, 24 * _HOUR_MS),
    "under_3_d": (24 * _HOUR_MS, 72 * _HOUR_MS),
    "older": (72 * _HOUR_MS, None),
}


def retries(messages: DataFrame, groups: DataFrame, offsets: DataFrame, now_ms: int) -> DataFrame:
    """Count retries and dead letters by group, topic and reason, and the age of those not consumed.

    RocketMQ stores no text of why a consumer failed. What the record tells is the ``reason``: ``retries-used-up`` when
    as many retries failed as the consumer (MAX_RECONSUME_TIMES) or else the group (retryMaxTimes) allows;
    ``sent-to-dead-letters`` when it became a dead letter before that, as a consumer may ask for and ordered ones do;
    ``dead-letter`` when nobody tells how many were allowed; ``retry`` for what is to be tried again.

    Args:
        messages: with ``broker``, ``topic``, ``queue_id``, ``queue_offset``, ``store_timestamp``, ``reconsume_times``
            and ``properties``; other topics than ``%RETRY%…`` and ``%DLQ%…`` are ignored.
        groups: with ``broker``, ``group_name`` and ``retry_max_times`` (the table ``subscription_groups``).
        offsets: with ``broker``, ``group_name``, ``topic``, ``queue_id`` and ``consumer_offset``
            (the table ``consumer_offsets``).
        now_ms: the time at which ages are measured.

    Returns:
        ``broker``, ``group_name``, ``origin_topic``, ``reason``, ``messages``, ``waiting`` (not consumed by the group;
        of dead letters nobody may ever read all), ``oldest_waiting``, and how many of the waiting are ``under_1_h``,
        ``under_1_d``, ``under_3_d`` and ``older``.
    """
    told = _told(messages)
    told = told.join(
        F.broadcast(groups.select("broker", "group_name", "retry_max_times")), ["broker", "group_name"], "left"
    )
    consumed = offsets.select("broker", "group_name", "topic", "queue_id", "consumer_offset")
    told = told.join(F.broadcast(consumed), ["broker", "group_name", "topic", "queue_id"], "left")
    waiting = F.col("queue_offset") >= F.coalesce("consumer_offset", F.lit(0))
    age = F.try_subtract(F.lit(now_ms), F.col("stored"))
    return (
        told.withColumn("reason", _reason())
        .groupBy("broker", "group_name", "origin_topic", "reason")
        .agg(
            F.count("*").alias("messages"),
            F.count_if(waiting).alias("waiting"),
            as_time(F.min(F.when(waiting, F.col("stored")))).alias("oldest_waiting"),
            *[F.count_if(waiting & _between(age, *bounds)).alias(name) for name, bounds in _AGES.items()],
        )
    )


def _told(messages: DataFrame) -> DataFrame:
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
