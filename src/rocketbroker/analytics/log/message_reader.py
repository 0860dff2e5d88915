"""Messages of stores as Arrow batches, with or without Spark."""

import logging
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.message_columns import message_batches
from rocketbroker.analytics.columns.message_schema import select_fields
from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.store_root import Stores
from rocketbroker.analytics.log.record_walk import walk_split
from rocketbroker.analytics.log.split import Split, plan_splits
from rocketbroker.analytics.queues.queue_entries import QueueNotWholeError
from rocketbroker.analytics.queues.queued_records import queued_records
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.record_columns import Records

_WHOLE_FILE: Final = 1 << 62

logger = logging.getLogger(__name__)


def read_store(
    stores: Stores,
    columns: Sequence[str] | None = None,
    *,
    selection: Selection = EVERYTHING,
    report: DecodeReport | None = None,
    check_crc: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Return the messages of stores, each in CommitLog order, with columns of ``message_schema.MESSAGE_SCHEMA``.

    A broker may be writing to the stores: messages stored by the time of the call are returned.

    Args:
        stores: roots or commit-log directories (:func:`store_root.store_roots`).
        columns: the columns to decode, all if None.
        selection: the messages to return.
        report: records damage.
        check_crc: true to record messages whose body does not match its checksum as well.

    Raises:
        ConfigError: a column is unknown.
        StoreError: a place is not a store, or a file was removed.
    """
    schema, found = select_fields(columns), DecodeReport() if report is None else report
    # One split per file: a walk from a file's start never has to search for the start of a record.
    splits = plan_splits(stores, _WHOLE_FILE, selection, report=found)
    return (
        batch
        for split in splits
        for batch in read_split(split, schema, found, selection=selection, check_crc=check_crc)
    )


def read_split(
    split: Split,
    schema: pa.Schema,
    report: DecodeReport,
    *,
    selection: Selection = EVERYTHING,
    check_crc: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of ``selection`` that begin in ``split``, with the columns and types of ``schema``.

    A batch has the messages of one window at most.
    """
    wanted = selection.of_broker(split.file.root.broker)
    if wanted.is_nothing:
        return
    for records in _records(split, report):
        chosen = wanted.of_records(records)
        if len(chosen):
            report.messages += len(chosen)
            yield from message_batches(chosen, split.file, schema, report, check_crc=check_crc)


def _records(split: Split, report: DecodeReport) -> Iterator[Records]:
    """Yield all records of ``split`` that can be selected."""
    if not split.entries:
        yield from walk_split(split, report)
        return
    given: list[Positions] = []
    try:
        for records in queued_records(split.file, split.entries):
            given.append(records.field("physical_offset").astype(np.int64))
            yield records
    except QueueNotWholeError as error:
        logger.warning("%s: %s; the log itself is read from offset %d on", split.file.path, error, split.low)
        known = np.concatenate(given) if given else np.empty(0, np.int64)
        for records in walk_split(split, report):
            new = ~np.isin(records.starts + records.base, known)
            yield Records(records.base, records.data, records.starts[new])
