"""Message counts by topic and queue, with Spark."""

from contextlib import nullcontext

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rocketbroker.analytics.files.store_root import Stores, store_roots
from rocketbroker.analytics.log.message_count import TopicQueueCount
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.analytics.spark.local_session import spark_session
from rocketbroker.analytics.spark.rocketmq_store import register
from rocketbroker.analytics.spark.spark_progress import Progress, SparkProgress, reason_of
from rocketbroker.analytics.spark.spark_tables import messages
from rocketbroker.common.errors import StoreError


def count_messages(
    stores: Stores, spark: SparkSession | None = None, *, progress: Progress | None = None
) -> list[TopicQueueCount]:
    """Count the stored messages of all brokers by topic and queue, sorted; use ``spark`` or start a session."""
    roots = store_roots(stores)
    plan_splits(roots)  # reports errors before Spark takes seconds to start
    with nullcontext(spark) if spark is not None else spark_session("rocketbroker count") as session:
        register(session)
        try:
            counted = messages(session, roots, ["topic", "queue_id"]).groupBy("topic", "queue_id").count()
            with SparkProgress(session, progress):
                rows = counted.collect()
        except PySparkException as error:
            raise StoreError(f"counting failed: {reason_of(error)}") from error
    # Sorted here: there are few rows, and Spark would read the store twice to find the ranges to sort by.
    return sorted(TopicQueueCount(row["topic"], row["queue_id"], row["count"]) for row in rows)
