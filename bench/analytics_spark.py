"""Cases timed with Spark, in one session with the given number of cores.

    python -m bench.analytics_spark STORE CORES NAME...

prints a line of JSON for the start of the session and for each case: messages, wall and CPU seconds of all processes,
peak anonymous memory of a Python worker in MiB. Each case runs once untimed, since jobs usually follow each other.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from bench.analytics_cases import PRUNED, one_percent
from bench.measure import cpu_seconds, process_tree
from rocketbroker.analytics import register, spark_session

_WATCH_SECONDS: Final = 0.05
Run = Callable[[SparkSession, Path], int]


def _messages(
    spark: SparkSession, root: Path, columns: tuple[str, ...] | None, *, filter_pushdown: bool = False
) -> DataFrame:
    reader = spark.read.format("rocketmq_store")
    if columns is not None:
        full = reader.load(str(root)).schema
        reader = spark.read.format("rocketmq_store").schema(type(full)([full[name] for name in columns]))
    reader = reader.option("filterPushdown", str(filter_pushdown).lower())
    return reader.load(str(root))


def _drain(frame: DataFrame) -> int:
    """Compute all rows in Spark and discard them."""
    frame.write.format("noop").mode("overwrite").save()
    return 0


def _in_one_percent(spark: SparkSession, root: Path) -> int:
    since, until = one_percent(root)
    stored = F.col("store_timestamp")
    chosen = (stored >= F.timestamp_millis(F.lit(since))) & (stored < F.timestamp_millis(F.lit(until)))
    return _messages(spark, root, PRUNED, filter_pushdown=True).where(chosen).count()


def _traffic(spark: SparkSession, root: Path) -> int:
    minute = F.date_trunc("minute", "store_timestamp").alias("minute")
    messages = _messages(spark, root, ("topic", "store_timestamp", "size"))
    rows = messages.groupBy("topic", minute).agg(F.count("*").alias("messages"), F.sum("size")).collect()
    return sum(row["messages"] for row in rows)


CASES: Final[dict[str, Run]] = {
    "spark_pruned": lambda spark, root: _drain(_messages(spark, root, PRUNED)),
    "spark_full": lambda spark, root: _drain(_messages(spark, root, None)),
    "spark_time_1pct": _in_one_percent,
    "spark_traffic": _traffic,
}


class _Workers:
    """Samples the memory of the Python processes below this one while the block runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        #: Peak anonymous memory of one of them, MiB.
        self.peak = 0.0

    def __enter__(self) -> "_Workers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_WATCH_SECONDS):
            for pid in process_tree(self._pid):
                if pid != self._pid:
                    self.peak = max(self.peak, _python_mib(pid))


def _python_mib(pid: int) -> float:
    try:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    except OSError:
        return 0.0
    return int(status["RssAnon"].split()[0]) / 1024 if "python" in status["Name"] else 0.0


@contextmanager
def _session(cores: int, own: int) -> Iterator[tuple[SparkSession, dict[str, Any]]]:
    begun, before = time.perf_counter(), cpu_seconds(own)
    with spark_session("bench", {"spark.master": f"local[{cores}]"}) as spark:
        register(spark)
        spark.range(1).count()
        yield spark, {"wall": time.perf_counter() - begun, "cpu": cpu_seconds(own) - before}


def main() -> int:
    """Run the cases and return the exit status."""
    root, cores, names, own = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:], _own_pid()
    with _session(cores, own) as (spark, started):
        print(json.dumps({"name": "spark_start", "messages": 0, "peak": 0.0, **started}), flush=True)
        for name in names:
            CASES[name](spark, root)
            with _Workers(own) as workers:
                begun, before = time.perf_counter(), cpu_seconds(own)
                messages = CASES[name](spark, root)
                wall, cpu = time.perf_counter() - begun, cpu_seconds(own) - before
            line = {"name": name, "messages": messages, "wall": wall, "cpu": cpu, "peak": workers.peak}
            print(json.dumps(line), flush=True)
    return 0


def _own_pid() -> int:
    return int(Path("/proc/self").readlink().name)


if __name__ == "__main__":
    sys.exit(main())
