"""Rows of a plain loop over a store, to compare jobs with, and frames of made rows."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.slow_store_reader import slow_rows

#: Settings of sessions for few rows: what Spark does to be fast with many takes most of the time then.
SMALL_SESSION = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
_START = 1_795_255_162_876
_BASE: dict[str, Any] = {
    "broker": "a",
    "topic": "T",
    "queue_id": 0,
    "queue_offset": 0,
    "physical_offset": 0,
    "store_timestamp": 1_795_255_162_876,
    "born_timestamp": 1_795_255_162_829,
    "born_host": "127.0.0.1:1",
    "store_host": "127.0.0.1:10911",
    "msg_id": "M",
    "uniq_key": None,
    "keys": None,
    "tags": None,
    "flag": 0,
    "sys_flag": 0,
    "reconsume_times": 0,
    "prepared_transaction_offset": 0,
    "body": b"body",
    "body_crc": 0,
    "properties": {},
    "size": 100,
}
_TYPES = {field.name: field.type for field in MESSAGE_SCHEMA} | {"broker": pa.string()}
SCHEMA_IN_MS = pa.schema(
    [pa.field(name, pa.int64() if name.endswith("_timestamp") else _TYPES[name]) for name in _BASE]
)


def rows_of(store: Path, broker: str = "a") -> list[dict[str, Any]]:
    """Return all messages of a sound store, with the name of its broker; times in ms since 1970."""
    return [{**row, "broker": broker} for row in slow_rows(store / "commitlog")]


def row(number: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a made message; ``number`` makes its offsets."""
    return {**_BASE, "queue_offset": number, "physical_offset": number * 100, "msg_id": f"M{number}", **fields}


def frame(spark: SparkSession, rows: Iterable[dict[str, Any]]) -> DataFrame:
    """Return the rows as a data frame of messages, times in ms since 1970."""
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), SCHEMA_IN_MS))


def found(result: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a job's data frame."""
    rows: list[dict[str, Any]] = result.toArrow().to_pylist()
    return rows


def made_store(root: Path) -> Path:
    """Return a store of three topics over two files and 40 minutes."""
    writer = CommitLogWriter(root)
    for number in range(400):
        writer.append(
            b"body %d " % number * (number % 40),
            b"T%d" % (number % 3),
            b"KEYS\x01k%d all\x02TAGS\x01t\x02" % (number % 5) if number % 4 else b"",
            queue_id=number % 2,
            queue_offset=number // 6,
            store_timestamp=_START + number * 6000,
            born_timestamp=_START + number * 6000 - number % 7 + 1,
        )
    return root
