"""A streaming query into a table, as a function and as a program that runs until it is killed.

python -m tests.support.streaming_query BROKER=STORE OUT CHECKPOINT FORM SETTINGS
python -m tests.support.streaming_query HOST:PORT OUT CHECKPOINT FORM SETTINGS      (of a name server)

FORM is ``parquet`` or ``delta``, SETTINGS are those of the session as JSON.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rocketbroker.analytics import register, spark_session
from tests.support.delta_table import delta_rows
from tests.support.our_servers import ROOT

SCHEMA = (
    "broker string, topic string, queue_id int, queue_offset bigint, physical_offset bigint, keys string, body binary"
)
FOLLOWED = "Followed"
COLUMNS = tuple(part.split()[0] for part in SCHEMA.split(", "))
_LATE = "Python worker failed to connect back"


def start_query(
    spark: SparkSession,
    store: Path | str,
    out: Path,
    checkpoint: Path,
    form: str = "parquet",
    *,
    available_now: bool = False,
    **options: Any,
) -> StreamingQuery:
    """Start or resume the query of ``checkpoint``."""
    stream = spark.readStream.format("rocketmq_store").schema(SCHEMA).options(**options).load(str(store))
    return _into_table(stream, out, checkpoint, form, available_now=available_now)


def start_pulls(
    spark: SparkSession,
    namesrv: str,
    out: Path,
    checkpoint: Path,
    form: str = "parquet",
    *,
    available_now: bool = False,
    **options: Any,
) -> StreamingQuery:
    """Start or resume a query that pulls the topic ``FOLLOWED``."""
    options |= {"namesrvAddr": namesrv, "subscribe": FOLLOWED}
    stream = spark.readStream.format("rocketmq").schema(SCHEMA).options(**options).load()
    return _into_table(stream, out, checkpoint, form, available_now=available_now)


def _into_table(stream: DataFrame, out: Path, checkpoint: Path, form: str, *, available_now: bool) -> StreamingQuery:
    writer = stream.writeStream.format(form).option("path", str(out)).option("checkpointLocation", str(checkpoint))
    trigger = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="0 seconds")
    return trigger.start()


def run_to_end(start: Callable[[], StreamingQuery], limit: int) -> StreamingQuery:
    """Run a query until it ends by itself; restart it from its checkpoint if a Python worker was late.

    Spark waits ten seconds for a worker, whatever its settings, and a busy machine may need more.
    """
    deadline = time.monotonic() + limit
    while True:
        query = start()
        try:
            assert query.awaitTermination(limit), "the query did not end"
        except StreamingQueryException as error:
            if _LATE not in str(error) or time.monotonic() > deadline:
                raise
        else:
            return query


def written_batches(out: Path) -> int:
    """Return the number of written micro-batches. Spark merges ten of its own into one entry, ``9.compact``."""
    entries = [*(out / "_spark_metadata").glob("[0-9]*"), *(out / "_delta_log").glob("[0-9]*.json")]
    return max((int(entry.name.partition(".")[0]) + 1 for entry in entries), default=0)


def written_rows(spark: SparkSession, out: Path) -> list[tuple[Any, ...]]:
    """Return the rows that the query has written, sorted."""
    if (out / "_delta_log").exists():
        return sorted(delta_rows(out, COLUMNS))
    rows = spark.read.schema(SCHEMA).parquet(str(out)).collect() if written_batches(out) else []
    return sorted(tuple(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in rows)


def program(
    source: str, out: Path, checkpoint: Path, form: str, settings: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start the program as a process group of its own: Python, the JVM and its Python workers."""
    command = [sys.executable, "-m", "tests.support.streaming_query", source, str(out), str(checkpoint), form]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.Popen([*command, json.dumps(settings)], cwd=ROOT, env=environment, start_new_session=True)


@contextmanager
def stopped(query: StreamingQuery) -> Iterator[StreamingQuery]:
    """Stop a query at the end: the session is shared."""
    try:
        yield query
    finally:
        query.stop()


def is_further(out: Path, known: int, query: StreamingQuery) -> bool:
    """Return true if a query has written more than ``known`` batches, or failed."""
    return written_batches(out) > known or not query.isActive


def main() -> None:
    """Run until the process is killed."""
    source, out, checkpoint, form, settings = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:]
    with spark_session("streaming", json.loads(settings)) as spark:
        register(spark)
        start = start_query if "=" in source else start_pulls
        run_to_end(lambda: start(spark, source, out, checkpoint, form), limit=1_000_000)


if __name__ == "__main__":
    main()
