"""Messages of stores as Arrow batches, with or without Spark, and a report of the bytes without a record."""

import logging
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from rocketbroker.analytics.columns.decode_report import DecodeReport, SkippedRange
from rocketbroker.analytics.columns.message_columns import message_batches
from rocketbroker.analytics.columns.message_schema import known_names, rename_columns, select_fields
from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.commit_log_files import log_window
from rocketbroker.analytics.files.store_names import Stores
from rocketbroker.analytics.log.queue_entries import QueueNotWholeError, queued_records
from rocketbroker.analytics.log.split import Split, plan_splits
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.log_walk import FileWalk, Stretch
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.record_search import Found, find_record, inspect, is_complete, what_is_wrong
from rocketbroker.codec.storefile.store_file import LogWindow


def walk_split(split: Split, report: DecodeReport) -> Iterator[Records]:
    """Yield the records that begin in ``split``, window by window, and report the bytes without a record.

    The memory of records is reused: process them before the next ones are requested.
    """
    with log_window(split.file, split.high) as window:
        position = 0 if split.low == 0 else find_record(window, split.low, split.high)
        if position >= 0:
            yield from _walk(split, FileWalk(window, position, split.high), report)


def damage_at_begin(split: Split) -> SkippedRange | None:
    """Return the damage at the start of ``split``; ``None`` if a record or nothing begins there.

    :func:`walk_split` leaves this damage to the previous split, which may have been read before it existed.
    """
    with log_window(split.file) as window:
        if inspect(window, split.low)[0] is not Found.BROKEN:
            return None
        after = find_record(window, split.low + 1, split.high)
        return _skipped(split, window, split.low, after if after >= 0 else split.high)


def _walk(split: Split, walk: FileWalk, report: DecodeReport) -> Iterator[Records]:
    file, window = split.file, walk.window
    while True:
        after: int | None = None
        for stretch in walk:
            count = len(stretch)
            if walk.found is not None:
                after = _next_record(split, walk)
                count = _whole_records(stretch) if _ends_log(split, walk, after) else count
                if count < len(stretch):
                    walk.position -= stretch.end - stretch.starts[count]
            if count:
                yield stretch.first(count).records
        after = _next_record(split, walk) if after is None else after
        if after < 0:
            break
        report.add_broken(_skipped(split, window, walk.position, after))
        walk.position = after
    if _ends_log(split, walk, after):
        if walk.position < file.data_end:
            report.add_unfinished(_skipped(split, window, walk.position, file.data_end, AuditRule.LOG_TORN_TAIL))
    elif walk.found is Found.BROKEN or (walk.found is Found.END and walk.position < file.size):
        report.add_broken(_skipped(split, window, walk.position, file.size))


def _next_record(split: Split, walk: FileWalk) -> int:
    return walk.next_record(split.file.data_end) if walk.found is Found.BROKEN else -1


def _ends_log(split: Split, walk: FileWalk, after: int) -> bool:
    """Return true if the log ends where the walk stopped: a broker may still be writing the last records."""
    return split.last and after < 0 and walk.found in {Found.END, Found.BROKEN}


def _whole_records(stretch: Stretch) -> int:
    """Return the number of records before the first incompletely written one at the end."""
    count = len(stretch)
    while count and not is_complete(bytes(stretch[count - 1])):
        count -= 1
    return count


def _skipped(split: Split, window: LogWindow, begin: int, end: int, rule: AuditRule | None = None) -> SkippedRange:
    why = rule or what_is_wrong(window, begin)[0]
    return SkippedRange(split.file.root.broker, split.file.path, begin, end - begin, why.value)


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
    known = known_names(schema)
    # One split per file: a walk from a file's start never has to search for the start of a record.
    splits = plan_splits(stores, _WHOLE_FILE, selection, report=found)
    return (
        rename_columns(batch, schema)
        for split in splits
        for batch in read_split(split, known, found, selection=selection, check_crc=check_crc)
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
