"""Cases timed with Spark, in one session with the given number of cores.

    python -m bench.analytics_spark STORE CORES NAME...
    python -m bench.analytics_spark NAMESRV CORES NAME...

prints a line of JSON for the start of the session and for each case: messages, wall and CPU seconds of all processes,
peak anonymous memory of a Python worker in MiB. Each case runs once untimed, since jobs usually follow each other. The
second form is for the cases of the format ``rocketmq``.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession

from bench.analytics_cases import PRUNED, one_percent
from bench.measure import cpu_seconds, own_anonymous_mib, process_tree, watched
from rocketbroker.analytics import Scope, Selection, register, spark_session, store_roots
from rocketbroker.analytics.columns.selection import EVERYTHING
from rocketbroker.analytics.jobs.export import export
from rocketbroker.analytics.jobs.message_jobs import traffic
from rocketbroker.analytics.spark.source_options import encode_selection

#: Topics of a broker that the format ``rocketmq`` reads, and sends to.
LIVE_TOPIC: Final = "BenchLive"
SINK: Final = "live_sink"
SINK_TOPIC: Final = "BenchSink"
SINK_ROWS: Final = 60_000
BODY_BYTES: Final = 200
#: Schemas that leave out columns, and so their decoding.
THREE: Final = "body binary, keys string, queue_offset bigint"
FIVE: Final = "topic string, queue_id int, queue_offset bigint, store_timestamp timestamp, body binary"
Run = Callable[[SparkSession, str], int]


def _messages(
    spark: SparkSession, root: str, columns: Sequence[str] | None, selection: Selection = EVERYTHING
) -> DataFrame:
    reader = spark.read.format("rocketmq_store")
    if columns is not None:
        full = reader.load(root).schema
        reader = spark.read.format("rocketmq_store").schema(type(full)([full[name] for name in columns]))
    return reader.option("selection", encode_selection(selection)).load(root)


def _pulled(spark: SparkSession, namesrv: str, schema: str = "") -> DataFrame:
    reader = spark.read.format("rocketmq").options(namesrvAddr=namesrv, subscribe=LIVE_TOPIC)
    return (reader.schema(schema) if schema else reader).load()


def _drain(frame: DataFrame) -> int:
    """Compute all rows in Spark and discard them."""
    frame.write.format("noop").mode("overwrite").save()
    return 0


def _to_parquet(frame: DataFrame) -> int:
    """Write all rows to Parquet and return the number in the files."""
    with tempfile.TemporaryDirectory(prefix="rocketbroker-bench-") as folder:
        frame.write.mode("overwrite").parquet(folder)
        return int(ds.dataset(folder, format="parquet").count_rows())


def _sink(spark: SparkSession, namesrv: str) -> int:
    """Send rows by one task."""
    body = f"cast(rpad(cast(id AS string), {BODY_BYTES}, 'x') AS binary) AS body"
    rows = spark.range(0, SINK_ROWS, 1, 1).selectExpr(body, "cast(id AS string) AS keys")
    rows.write.format("rocketmq").options(namesrvAddr=namesrv, topic=SINK_TOPIC).mode("append").save()
    return 0


def exported(root: str) -> Path:
    """Return the folder beside a store that has its messages as Parquet."""
    return Path(f"{root}-parquet")


def _export(spark: SparkSession, root: str) -> int:
    shutil.rmtree(exported(root), ignore_errors=True)
    return export(Scope(spark, tuple(store_roots(Path(root))), EVERYTHING).messages(), exported(root))


def _parquet_pruned(spark: SparkSession, root: str) -> int:
    if not exported(root).exists():
        _export(spark, root)
    return _drain(spark.read.parquet(str(exported(root))).select(*PRUNED))


def _in_one_percent(spark: SparkSession, root: str) -> int:
    since, until = one_percent(Path(root))
    return _messages(spark, root, PRUNED, Selection(since_ms=since, until_ms=until)).count()


def _traffic(spark: SparkSession, root: str) -> int:
    rows = traffic(Scope(spark, tuple(store_roots(Path(root))), EVERYTHING)).collect()
    return sum(row["messages"] for row in rows)


CASES: Final[dict[str, Run]] = {
    "spark_pruned": lambda spark, root: _drain(_messages(spark, root, PRUNED)),
    "spark_full": lambda spark, root: _drain(_messages(spark, root, None)),
    "spark_time_1pct": _in_one_percent,
    "spark_traffic": _traffic,
    "spark_export": _export,
    "spark_parquet_pruned": _parquet_pruned,
    "spark_to_parquet": lambda spark, root: _to_parquet(spark.read.format("rocketmq_store").schema(FIVE).load(root)),
}
#: Cases whose place is a name server.
LIVE: Final[dict[str, Run]] = {
    "live_full": lambda spark, namesrv: _drain(_pulled(spark, namesrv)),
    "live_three": lambda spark, namesrv: _drain(_pulled(spark, namesrv, THREE)),
    "live_to_parquet": lambda spark, namesrv: _to_parquet(_pulled(spark, namesrv, FIVE)),
    SINK: _sink,
}


def _largest_worker(pid: int) -> float:
    """Return the anonymous memory of the largest Python process below this one, in MiB."""
    return max((own_anonymous_mib(each, "python") for each in process_tree(pid) if each != pid), default=0.0)


def _told(name: str, own: int, work: Callable[[], int]) -> None:
    """Time some work and print its line."""
    with watched(partial(_largest_worker, own)) as peaks:
        begun, before = time.perf_counter(), cpu_seconds(own)
        messages = work()
        wall, cpu = time.perf_counter() - begun, cpu_seconds(own) - before
    line = {"name": name, "messages": messages, "wall": wall, "cpu": cpu, "peak": max(peaks)}
    print(json.dumps(line), flush=True)


def main() -> int:
    """Run the cases and return the exit status."""
    place, cores, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
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
            timed = partial((CASES | LIVE)[name], sessions[0], place)
            timed()
            _told(name, own, timed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
