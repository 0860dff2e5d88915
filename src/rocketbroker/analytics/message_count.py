"""Counts the messages of a store with Spark."""

from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rocketbroker.analytics.local_session import spark_session
from rocketbroker.analytics.rocketmq_store import FORMAT, register
from rocketbroker.analytics.spark_progress import Progress, SparkProgress, reason_of
from rocketbroker.analytics.split import plan_splits
from rocketbroker.common.errors import StoreError


@dataclass(frozen=True, slots=True, order=True)
class TopicQueueCount:
    """How many messages the commit log holds of a topic's queue."""

    topic: str
    queue_id: int
    messages: int


def count_messages(
    store_dir: str | Path, spark: SparkSession | None = None, *, progress: Progress | None = None
) -> list[TopicQueueCount]:
    """Messages by topic and queue, ascending, as stored at the time of the call.

    Runs in ``spark``, or in a session of its own. Raises :class:`StoreError` when ``store_dir`` holds no store.
    """
    plan_splits(store_dir)  # names what is wrong at once, where Spark would take seconds to start and say it at length
    if spark is not None:
        return _count(store_dir, spark, progress)
    with spark_session("rocketbroker count") as own:
        return _count(store_dir, own, progress)


def _count(store_dir: str | Path, spark: SparkSession, progress: Progress | None) -> list[TopicQueueCount]:
    register(spark)
    messages = spark.read.format(FORMAT).schema("topic string, queue_id int").load(str(store_dir))
    counted = messages.groupBy("topic", "queue_id").count()
    try:
        with SparkProgress(spark, progress):
            rows = counted.collect()
    except PySparkException as error:
        raise StoreError(f"counting failed: {reason_of(error)}") from error
    # Sorted here: there are few rows, and Spark would read the store a second time to find the ranges to sort by.
    return sorted(TopicQueueCount(row["topic"], row["queue_id"], row["count"]) for row in rows)
