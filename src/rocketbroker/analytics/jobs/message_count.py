"""Message counts by topic and queue, in this process or with Spark; both count ``facts.QUEUES``."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.selection import EVERYTHING
from rocketbroker.analytics.files.store_names import Stores, store_roots
from rocketbroker.analytics.log.message_reader import read_store
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.analytics.sql.facts import QUEUES, GroupedSums
from rocketbroker.common.errors import StoreError

if TYPE_CHECKING:  # its import takes longer than counting a small store
    from pyspark.sql import SparkSession

    from rocketbroker.analytics.spark.spark_progress import Progress

_COLUMNS: Final = ("topic", "queue_id")
_COUNTS: Final = pa.schema([("topic", pa.string()), ("queue_id", pa.int32()), ("messages", pa.int64())])


@dataclass(frozen=True, slots=True, order=True)
class TopicQueueCount:
    """Number of messages of a topic's queue in the commit log."""

    topic: str
    queue_id: int
    messages: int


def count_locally(
    stores: Stores, report: DecodeReport, progress: Callable[[int], object] | None = None
) -> list[TopicQueueCount]:
    """Count messages like ``count_messages``, without Spark; faster unless the stores are large.

    ``report`` records damage; ``progress`` is called with the number of messages read.
    """
    sums = GroupedSums(_COUNTS, {"messages": "sum"})
    for batch in read_store(stores, _COLUMNS, report=report):
        sums.add(QUEUES.rows_of(batch))
        if progress is not None:
            progress(report.messages)
    return sorted(TopicQueueCount(**row) for row in sums.result().to_pylist())


def count_messages(
    stores: Stores, spark: "SparkSession | None" = None, *, progress: "Progress | None" = None
) -> list[TopicQueueCount]:
    """Count the stored messages of all brokers by topic and queue, sorted; use ``spark`` or start a session."""
    roots = store_roots(stores)
    plan_splits(roots)  # reports errors before Spark takes seconds to start
    from pyspark.errors import PySparkException

    from rocketbroker.analytics.jobs.message_jobs import fact_rows, query
    from rocketbroker.analytics.jobs.scope import Scope
    from rocketbroker.analytics.spark.local_session import spark_session
    from rocketbroker.analytics.spark.rocketmq import register
    from rocketbroker.analytics.spark.spark_progress import SparkProgress, described, reason_of

    with nullcontext(spark) if spark is not None else spark_session("rocketbroker count") as session:
        register(session)
        try:
            rows = fact_rows(Scope(session, tuple(roots), EVERYTHING), QUEUES, *_COLUMNS)
            counted = query("count", {}, facts=rows)
            with SparkProgress(session, progress), described(session, "Count messages by topic and queue"):
                found = counted.collect()
        except PySparkException as error:
            raise StoreError(f"counting failed: {reason_of(error)}") from error
    # Sorted here: there are few rows, and Spark would read the store twice to find the ranges to sort by.
    return sorted(TopicQueueCount(*row) for row in found)
