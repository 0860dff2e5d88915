"""Counts the messages of a store with Spark."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rocketbroker.analytics.local_session import spark_session
from rocketbroker.analytics.rocketmq_store import FORMAT, register
from rocketbroker.analytics.split import plan_splits
from rocketbroker.common.errors import StoreError

#: Called with the number of finished and of all tasks.
Progress = Callable[[int, int], None]

_POLL_SECONDS = 0.2


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
        with _Reporting(spark, progress):
            rows = counted.collect()
    except PySparkException as error:
        raise StoreError(f"counting failed: {_reason(error)}") from error
    # Sorted here: there are few rows, and Spark would read the store a second time to find the ranges to sort by.
    return sorted(TopicQueueCount(row["topic"], row["queue_id"], row["count"]) for row in rows)


def _reason(error: PySparkException) -> str:
    """Our own error where a worker raised one, without the stack around it; else all that Spark says."""
    text = str(error)
    ours = [line for line in text.splitlines() if line.startswith("rocketbroker.common.errors.")]
    return ours[-1].partition(": ")[2] if ours else text


class _Reporting:
    """Tells ``progress`` how far Spark's jobs are while the block runs."""

    def __init__(self, spark: SparkSession, progress: Progress | None) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._progress = progress
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="spark-progress", daemon=True)

    def __enter__(self) -> None:
        if self._progress is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _poll(self) -> None:
        assert self._progress is not None
        while not self._done.wait(_POLL_SECONDS):
            stages = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
            running = [stage for stage in stages if stage is not None]
            if running:
                self._progress(sum(s.numCompletedTasks for s in running), sum(s.numTasks for s in running))
