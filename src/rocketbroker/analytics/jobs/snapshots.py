"""Keeps what consumer groups had consumed at a time, since a store knows only what they have consumed by now.

One Parquet file a snapshot, which is there as a whole or not at all.
"""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from rocketbroker.analytics.open_store import open_folder
from rocketbroker.analytics.store_files import StoreFolder, opened
from rocketbroker.analytics.store_root import StoreRoot, Stores, store_roots
from rocketbroker.analytics.tables.queue_files import ENTRIES
from rocketbroker.analytics.tables.table_reader import read_table
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_ENTRY, CQ_STORE_UNIT_SIZE
from rocketbroker.codec.storefile.mapped_file_name import file_name_to_offset
from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.errors import CodecError, ConfigError, StoreError

#: Columns of a snapshot. ``max_offset`` is the queue offset behind the last message that the queue had at ``time_ms``.
SCHEMA: Final = pa.schema(
    [
        ("time_ms", pa.int64()),
        ("broker", pa.string()),
        ("group_name", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("consumer_offset", pa.int64()),
        ("max_offset", pa.int64()),
    ]
)
_PATTERN: Final = "consumerOffset-*.parquet"
_SIZE_AT: Final = 8
_UNITS: Final = {kind: entry.itemsize for kind, entry in ENTRIES.items()}


def take_snapshot(stores: Stores, now_ms: int) -> pa.Table:
    """What the groups of ``stores`` have consumed, and where the queues end, with the columns of ``SCHEMA``.

    The ends are looked up after the offsets, so that none lies before what was consumed.

    Raises:
        StoreError: one of them is no store, or its offsets cannot be read.
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


def queue_end(folder: StoreFolder, topic: str, queue_id: int) -> int | None:
    """The queue offset behind a queue's last message, found by some twenty reads; ``None`` if there is no such queue.

    A file is searched as one in which nothing follows a place that was not written.
    """
    ends = [_end(folder, f"{kind}/{topic}/{queue_id}", unit) for kind, unit in _UNITS.items()]
    return max((end for end in ends if end is not None), default=None)


def _end(folder: StoreFolder, where: str, unit: int) -> int | None:
    for base, path, count in sorted(_files(folder, where, unit), reverse=True):
        with opened(folder, path) as file:
            written = bisect_left(range(count), True, key=lambda n: not any(file.read_at(n * unit + _SIZE_AT, 4)))
            if written and unit == CQ_STORE_UNIT_SIZE:
                return base // unit + written
            if written:
                *_, first, messages, _, _ = BATCH_ENTRY.unpack(file.read_at((written - 1) * unit, unit))
                return int(first + messages)
    return 0 if folder.is_folder(where) else None


def _files(folder: StoreFolder, where: str, unit: int) -> Iterator[tuple[int, str, int]]:
    for name, size in folder.files(where).items():
        try:
            yield file_name_to_offset(name), f"{where}/{name}", size // unit
        except CodecError:
            continue  # a draft, or a damaged file that a broker set aside


def write_snapshot(snapshot: pa.Table, directory: Path, now_ms: int) -> Path:
    """Write a snapshot into ``directory``, which is made if it is not there; gives its file.

    Raises:
        StoreError: the disk refuses.
    """
    moment = datetime.fromtimestamp(now_ms / 1000, tz=UTC)
    path = directory / f"consumerOffset-{moment:%Y%m%dT%H%M%S}{now_ms % 1000:03d}Z.parquet"
    buffer = pa.BufferOutputStream()
    pq.write_table(snapshot, buffer)
    try:
        replace_contents(path, buffer.getvalue().to_pybytes())
    except OSError as error:
        raise StoreError(f"the snapshot {path} cannot be written: {error.strerror}") from error
    return path


def snapshot_frame(spark: SparkSession, directory: Path) -> DataFrame:
    """The snapshots in ``directory``.

    Raises:
        ConfigError: there is none, or other files are called as they are.
    """
    if not any(directory.glob(_PATTERN)):
        raise ConfigError(
            f"{directory} has no snapshots ({_PATTERN}); `mqanalytics snapshot STORE --to {directory}` takes them"
        )
    frame = spark.read.option("pathGlobFilter", _PATTERN).parquet(str(directory))
    missing = [name for name in SCHEMA.names if name not in frame.columns]
    if missing:
        raise ConfigError(f"what {directory} has are no snapshots ({_PATTERN}): they lack {', '.join(missing)}")
    return frame
