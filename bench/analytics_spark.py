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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from bench.analytics_cases import PRUNED, one_percent
from bench.measure import cpu_seconds, own_anonymous_mib, process_tree
from rocketbroker.analytics import Scope, Selection, register, spark_session, store_roots
from rocketbroker.analytics.columns.selection import EVERYTHING
from rocketbroker.analytics.jobs.message_jobs import traffic
from rocketbroker.analytics.spark.source_options import encode_selection

_WATCH_SECONDS: Final = 0.05
Run = Callable[[SparkSession, Path], int]


def _messages(
    spark: SparkSession, root: Path, columns: tuple[str, ...] | None, selection: Selection = EVERYTHING
) -> DataFrame:
    reader = spark.read.format("rocketmq_store")
    if columns is not None:
        full = reader.load(str(root)).schema
        reader = spark.read.format("rocketmq_store").schema(type(full)([full[name] for name in columns]))
    return reader.option("selection", encode_selection(selection)).load(str(root))


def _drain(frame: DataFrame) -> int:
    """Compute all rows in Spark and discard them."""
    frame.write.format("noop").mode("overwrite").save()
    return 0


def _in_one_percent(spark: SparkSession, root: Path) -> int:
    since, until = one_percent(root)
    return _messages(spark, root, PRUNED, Selection(since_ms=since, until_ms=until)).count()


def _traffic(spark: SparkSession, root: Path) -> int:
    rows = traffic(Scope(spark, tuple(store_roots(root)), EVERYTHING)).collect()
    return sum(row["messages"] for row in rows)


CASES: Final[dict[str, Run]] = {
    "spark_pruned": lambda spark, root: _drain(_messages(spark, root, PRUNED)),
    "spark_full": lambda spark, root: _drain(_messages(spark, root, None)),
    "spark_time_1pct": _in_one_percent,
    "spark_traffic": _traffic,
}


@contextmanager
def _watched(pid: int) -> Iterator[list[float]]:
    """Sample the anonymous memory of the Python processes below this one, in MiB, while the block runs."""
    done, found = threading.Event(), [0.0]

    def watch() -> None:
        while not done.wait(_WATCH_SECONDS):
            found.extend(own_anonymous_mib(each, "python") for each in process_tree(pid) if each != pid)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def _told(name: str, own: int, work: Callable[[], int]) -> None:
    """Time some work and print its line."""
    with _watched(own) as peaks:
        begun, before = time.perf_counter(), cpu_seconds(own)
        messages = work()
        wall, cpu = time.perf_counter() - begun, cpu_seconds(own) - before
    line = {"name": name, "messages": messages, "wall": wall, "cpu": cpu, "peak": max(peaks)}
    print(json.dumps(line), flush=True)


def main() -> int:
    """Run the cases and return the exit status."""
    root, cores, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    own = int(Path("/proc/self").readlink().name)
    with ExitStack() as stack:
        session = spark_session("bench", {"spark.master": f"local[{cores}]"})
        sessions: list[SparkSession] = []

        def start() -> int:
            sessions.append(stack.enter_context(session))
            register(sessions[0])
            sessions[0].range(1).count()
            return 0

        _told("spark_start", own, start)
        for name in names:
            CASES[name](sessions[0], root)
            _told(name, own, lambda name=name: CASES[name](sessions[0], root))  # type: ignore[misc]
    return 0


if __name__ == "__main__":
    sys.exit(main())
