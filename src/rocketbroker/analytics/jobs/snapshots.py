"""Snapshots of the offsets of consumer groups, since a store has only the current ones.

A snapshot is one Parquet file, written atomically.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from rocketbroker.analytics.files.queue_files import queue_end
from rocketbroker.analytics.files.store_files import open_folder
from rocketbroker.analytics.files.store_names import Stores, store_roots
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.tables.table_reader import read_table
from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.errors import ConfigError, StoreError

if TYPE_CHECKING:  # its import takes longer than a snapshot
    from pyspark.sql import DataFrame, SparkSession

#: Columns of a snapshot. ``max_offset`` is the queue offset after the last message of the queue at ``time_ms``.
SCHEMA: Final = pa.schema(
    {"time_ms": pa.int64(), **dict.fromkeys(("broker", "group_name", "topic"), pa.string())}
    | {"queue_id": pa.int32(), "consumer_offset": pa.int64(), "max_offset": pa.int64()}
)
_PATTERN: Final = "consumerOffset-*.parquet"


def take_snapshot(stores: Stores, now_ms: int) -> pa.Table:
    """Return the current offsets of groups and the ends of their queues, with the columns of ``SCHEMA``.

    The ends are read after the offsets, so that no end is before an offset.
    """
    rows = [row for root in store_roots(stores) for row in _rows(root, now_ms)]
    return pa.Table.from_pylist(rows, SCHEMA)


def _rows(root: StoreRoot, now_ms: int) -> Iterator[dict[str, object]]:
    columns = ["broker", "group_name", "topic", "queue_id", "consumer_offset"]
    offsets = [row for batch in read_table([root], "consumer_offsets", columns) for row in batch.to_pylist()]
    folder = open_folder(root)
    ends = {queue: queue_end(folder, *queue) for queue in {(row["topic"], row["queue_id"]) for row in offsets}}
    for row in offsets:
        if row["consumer_offset"] is not None:
            yield {"time_ms": now_ms, **row, "max_offset": ends[row["topic"], row["queue_id"]]}


def write_snapshot(snapshot: pa.Table, directory: Path, now_ms: int) -> Path:
    """Write a snapshot into ``directory``, which is created if missing; return its file."""
    moment = datetime.fromtimestamp(now_ms / 1000, tz=UTC)
    path = directory / f"consumerOffset-{moment:%Y%m%dT%H%M%S}{now_ms % 1000:03d}Z.parquet"
    buffer = pa.BufferOutputStream()
    pq.write_table(snapshot, buffer)
    try:
        replace_contents(path, buffer.getvalue().to_pybytes())
    except OSError as error:
        raise StoreError(f"snapshot {path} cannot be written: {error.strerror}") from error
    return path


def snapshot_frame(spark: "SparkSession", directory: Path) -> "DataFrame":
    """Return the snapshots in ``directory``; raise :class:`ConfigError` if it has none, or other files of that name."""
    if not any(directory.glob(_PATTERN)):
        raise ConfigError(
            f"{directory} contains no snapshots ({_PATTERN}); take one by `mqanalytics snapshot STORE --to {directory}`"
        )
    frame = spark.read.option("pathGlobFilter", _PATTERN).parquet(str(directory))
    missing = [name for name in SCHEMA.names if name not in frame.columns]
    if missing:
        raise ConfigError(f"the files {_PATTERN} in {directory} are not snapshots: they lack {', '.join(missing)}")
    return frame
