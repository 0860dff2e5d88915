"""Reads the messages of a store as Arrow batches, with or without Spark."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from rocketbroker.analytics.decode_report import DecodeReport
from rocketbroker.analytics.message_columns import message_batch
from rocketbroker.analytics.message_schema import select_fields
from rocketbroker.analytics.record_walk import walk_split
from rocketbroker.analytics.split import Split, plan_splits
from rocketbroker.common.file_window import FileWindow

_WHOLE_FILE = 1 << 62


def read_store(
    store_dir: str | Path, columns: Sequence[str] | None = None, *, report: DecodeReport | None = None
) -> Iterator[pa.RecordBatch]:
    """The messages of a store in commit-log order, as batches with the columns of ``message_schema.MESSAGE_SCHEMA``.

    ``store_dir`` is the store's root or its commit-log directory; a broker may be writing to it: what it has stored at
    the time of the call is delivered. ``report`` takes what could not be read. Raises :class:`ConfigError` for an
    unknown column and :class:`StoreError` for a directory that holds no store or a file that goes away.
    """
    schema, found = select_fields(columns), DecodeReport() if report is None else report
    # One split a file: a walk from a file's beginning never has to guess where a record begins.
    splits = plan_splits(store_dir, split_size=_WHOLE_FILE)
    return (batch for split in splits for batch in read_split(split, schema, found))


def read_split(split: Split, schema: pa.Schema, report: DecodeReport) -> Iterator[pa.RecordBatch]:
    """The messages that begin in ``split``, with the columns and types of ``schema``, a window's worth at a time."""
    with FileWindow(split.file) as window:
        for records in walk_split(split, window, report):
            yield message_batch(records, schema)
