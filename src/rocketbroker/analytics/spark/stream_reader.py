"""Streaming reader of stores for ``spark.readStream.format("rocketmq_store")``.

Progress is, for each broker, the physical offset at which a record begins, the name of its file for people who read the
checkpoint, and a checksum of the bytes before it. A micro-batch has the records that begin from one progress to before
the next. They are complete when the next progress is recorded, and records never change, so a batch that is planned
again after a restart has the same rows. After a power loss a broker may truncate the log and write other records there:
the checksum reveals it.

A query that starts in its queues at given offsets or times has that selection in each progress, so that it still holds
after a restart.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from rocketbroker.analytics.columns.arrow_columns import with_properties
from rocketbroker.analytics.columns.decode_report import DecodeReport, SkippedRange
from rocketbroker.analytics.columns.message_schema import known_names, rename_columns
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.commit_log_files import LogFile, commit_log_files, log_window
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.message_reader import damage_at_begin, read_split, walk_split
from rocketbroker.analytics.log.split import Split, gaps, offsets_of_time, plan_at_least, plan_splits
from rocketbroker.analytics.spark.offset_options import LATEST, Bounds
from rocketbroker.analytics.spark.queue_bounds import ENDLESS, bounds_selection, checked_bounds
from rocketbroker.analytics.spark.read_options import TriggerDelay, report_loss
from rocketbroker.analytics.spark.source_options import SourceOptions, decode_selection, encode_selection
from rocketbroker.analytics.spark.worker import Sent, StreamErrors, missing_store
from rocketbroker.analytics.tables.table import check_table_schema
from rocketbroker.analytics.tables.table_reader import DEFAULT_TABLE
from rocketbroker.codec.message.columns import Positions
from rocketbroker.common.errors import CheckpointError, ConfigError, StoreError

# A record may end in this many zeros (an empty properties length), which look like unwritten bytes.
_ZEROS_OF_A_RECORD: Final = 2
# These last bytes of a record contain most of its properties, the unique id among them.
_MARKED: Final = 256


class LogProgress:
    """Current files of a store's CommitLog. Offsets are physical ones."""

    def __init__(self, root: StoreRoot) -> None:
        self.root = root
        self.files = [file for file in commit_log_files(root) if file.data_end]

    @property
    def begin(self) -> int:
        """Start offset of the log, 0 if it is empty."""
        return self.files[0].base if self.files else 0

    @property
    def written_end(self) -> int:
        """Highest offset at which a record can end."""
        return self.files[-1].base + self.files[-1].data_end + _ZEROS_OF_A_RECORD if self.files else 0

    def end(self, start: int = 0) -> int:
        """Return the offset after the last complete record, or ``start`` if no record follows.

        ``start`` must be where a record begins, or would begin: the last file is walked from there on. Files before
        the last one are full.
        """
        if not self.files:
            return start
        last = self.files[-1]
        return max(start, last.base, _look(last, start, last.data_end).end)

    def within(self, start: int, end: int, most_bytes: int) -> int:
        """Return the start of a record less than ``most_bytes`` after ``start``, or after one longer record.

        It is at most ``end``, the result of ``end()``.
        """
        target = start + most_bytes
        for file in self.files:
            if start < end and target < min(file.base + file.size, end):
                return _boundary(file, start, target, end)
        return end

    def starts(self, start: int, end: int, most: int) -> Positions:
        """Return where the records from ``start`` to before ``end`` begin, the first ``most`` of them."""
        found, count = [np.empty(0, np.int64)], 0
        for file in self.files:
            low, high = max(start - file.base, 0), min(end - file.base, file.data_end)
            if low < high and count < most:
                for records in walk_split(Split(file, low, high, last=file is self.files[-1]), UnloggedReport()):
                    found.append(records.base + records.starts)
                    count += len(records)
                    if count >= most:
                        break
        return np.concatenate(found)[:most]

    def name_at(self, offset: int) -> str:
        """Return the name of the file that contains an offset, or of the last one before it; "" for an empty log."""
        names = [file.name for file in self.files if file.base <= offset] or [file.name for file in self.files[:1]]
        return names[-1].rpartition("/")[2] if names else ""

    def mark(self, offset: int) -> str:
        """Return a checksum of the bytes right before an offset, which reveals that a log was truncated and rewritten.

        It is empty if the file no longer exists.
        """
        for file in self.files:
            position = offset - file.base
            if 0 < position <= file.size:
                length = min(position, _MARKED)
                with log_window(file) as window:
                    return f"{crc32(window.at(position - length, length)):08x}"
        return ""


@dataclass(frozen=True, slots=True)
class _Look:
    """Last record of a part of a file: its start and end, -1 without one, and the damage before it."""

    last: int
    end: int
    broken: list[SkippedRange]


def _boundary(file: LogFile, start: int, target: int, end: int) -> int:
    seen = _look(file, start, target - file.base)
    if seen.last > start:
        return seen.last
    if seen.last == start:
        return seen.end  # one record is longer than the limit
    if file.base > start:
        return file.base
    return min(file.base + file.size, end)  # nothing but damage, or the end of the file


def _look(file: LogFile, start: int, high: int) -> _Look:
    """Find the last record of a file from an offset to before the position ``high``.

    Damage is read again: it may have been a record that a broker was just writing.
    """
    seen = _look_once(file, start, high)
    while seen.broken:
        again = _look_once(file, start, high)
        if again.broken == seen.broken:
            break
        seen = again
    return seen


def _look_once(file: LogFile, start: int, high: int) -> _Look:
    report, last, end = UnloggedReport(), -1, -1
    low = max(start - file.base, 0)
    for records in walk_split(Split(file, low, high, last=True), report) if low < high else ():
        last = records.base + int(records.starts[-1])
        end = last + int(records.total_size[-1])
    return _Look(last, end, report.broken)


class UnloggedReport(DecodeReport):
    """Report that logs nothing: the reader that returns the records around damage logs it."""

    def warn(self, text: str, *values: object) -> None:
        """Log nothing."""


class _Count(NamedTuple):
    """Records of a log from one offset to before another."""

    begin: int
    end: int
    records: int


#: Offset by broker.
Ends = Mapping[str, int]
#: By broker: ``{"offset": physical offset, "file": name, "mark": checksum, "selection": fields}``, where the selection
#: is there if it is not all; old checkpoints have no mark.
Progress = dict[str, dict[str, Any]]

logger = logging.getLogger(__name__)


@dataclass
class StreamPartition(InputPartition):
    """Records of ``selection`` that begin in ``split``, from ``start`` to before ``end``, which one task reads."""

    split: Split
    start: int
    end: int
    selection: Selection


class MessageStreamReader(Sent, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streaming reader of messages."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        if options.table.name != DEFAULT_TABLE:
            raise ConfigError(
                f"table {options.table.name} cannot be streamed, only {DEFAULT_TABLE}; read it with spark.read"
            )
        if options.fact is not None:
            raise ConfigError("fact cannot be streamed; read it with spark.read")
        check_table_schema(options.table, schema)
        self._options = options
        self._schema = schema
        # End of the stores at the start of a query with the trigger availableNow.
        self._last: Progress | None = None
        # End of the stores at the last call of latestOffset, from which the next call looks for more.
        self._newest: Progress | None = None
        self._counts: dict[str, _Count] = {}
        self._delay = TriggerDelay(options.limits)

    def initialOffset(self) -> Progress:  # noqa: N802 - Spark's name
        """Return the start of a new query (options startingOffsets and startingTimestamp)."""
        options = self._options
        starts = checked_bounds("starting", options.starts, options.stores, fail_on_data_loss=options.fail_on_data_loss)
        return {store.broker: self._start(LogProgress(store), starts) for store in options.stores}

    def _start(self, log: LogProgress, starts: Bounds) -> dict[str, Any]:
        selection = bounds_selection(starts, ENDLESS, log.root.broker)
        if starts.default.offset == LATEST:
            return _at(log, log.end())
        since, _ = replace(selection, topics=self._options.selection.topics).time_span
        low = offsets_of_time(log.files, since, None)[0] if log.files and not self._options.selection.exact else 0
        kept = {} if selection.is_all else {"selection": json.loads(encode_selection(selection))}
        return _at(log, max(low, log.begin)) | kept

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return one of the limits of a micro-batch; ``latestOffset`` then applies all that the options set."""
        limits = self._options.limits
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.max_messages is not None:
            return ReadMaxRows(limits.max_messages)
        if limits.min_messages is not None:
            return ReadMinRows(limits.min_messages)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the current end of the stores, at which the query stops."""
        with StreamErrors():
            self._last = {log.root.broker: _at(log, log.end()) for log in map(LogProgress, self._options.stores)}

    def latestOffset(self, start: Progress, limit: ReadLimit) -> Progress:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch: complete records only, within the limits; ``start`` to wait.

        Raises:
            StoreError: the next records were removed unread, or a log ends before the progress.
        """
        if not isinstance(limit, ReadAllAvailable) and limit != self.getDefaultReadLimit():
            raise ConfigError(f"{limit} is not supported; use maxOffsetsPerTrigger or maxBytesPerTrigger")
        bounded = not isinstance(limit, ReadAllAvailable)
        with StreamErrors():
            return self._delay.poll(start, lambda: self._next(start, bounded=bounded))

    def _next(self, start: Progress, *, bounded: bool) -> Progress:
        self._check_brokers(start)
        logs = {store.broker: LogProgress(store) for store in self._options.stores}
        for broker in start:
            self._check_loss(logs[broker], _offset(start, broker), _offset(start, broker))
            self._check_same(logs[broker], start[broker])
        # A broker without progress was added after the checkpoint: it is read from its log's start.
        begins = {broker: _offset(start, broker) if broker in start else log.begin for broker, log in logs.items()}
        ends = {broker: self._end(log, begins[broker]) for broker, log in logs.items()}
        self._newest = {broker: _at(log, ends[broker]) for broker, log in logs.items()}
        if self._last is not None:
            ends = {broker: max(min(end, _offset(self._last, broker)), begins[broker]) for broker, end in ends.items()}
        if bounded:
            if self._is_too_early(logs, begins, ends):
                return start
            ends = self._limited(logs, begins, ends)
        return {
            broker: start[broker]
            if broker in start and ends[broker] == begins[broker]
            else start.get(broker, {}) | _at(log, ends[broker])
            for broker, log in logs.items()
        }

    def _is_too_early(self, logs: Mapping[str, LogProgress], begins: Ends, ends: Ends) -> bool:
        """Return true if less is new than minOffsetsPerTrigger and maxTriggerDelay has not passed.

        Only what came since the last poll is counted, and no more than the minimum.
        """
        least = self._delay.least
        if not least or self._last is not None:
            return False
        total = 0
        for broker, log in logs.items():
            known = self._counts.get(broker)
            if known is None or known.begin != begins[broker] or known.end > ends[broker]:
                known = _Count(begins[broker], begins[broker], 0)
            more = log.starts(known.end, ends[broker], least)
            # Beyond the minimum the count does not matter.
            self._counts[broker] = _Count(known.begin, ends[broker], known.records + len(more))
            total += known.records + len(more)
        return total < least

    def _limited(self, logs: Mapping[str, LogProgress], begins: Ends, ends: Ends) -> dict[str, int]:
        """Return the ends of a micro-batch within both maxima, which brokers share."""
        limits, ends = self._options.limits, dict(ends)
        if limits.max_messages is not None:
            most = limits.max_messages
            starts = {broker: log.starts(begins[broker], ends[broker], most + 1) for broker, log in logs.items()}
            shares = fair_shares({broker: len(found) for broker, found in starts.items()}, most)
            for broker, found in starts.items():
                if shares[broker] < len(found):
                    ends[broker] = int(found[shares[broker]])
        if limits.max_bytes is not None:
            shares = fair_shares({broker: end - begins[broker] for broker, end in ends.items()}, limits.max_bytes)
            for broker, log in logs.items():
                ends[broker] = log.within(max(begins[broker], log.begin), ends[broker], shares[broker])
        return ends

    def _end(self, log: LogProgress, begin: int) -> int:
        """Return the end of a log; walk only what follows the end found before, if the log still has it."""
        known = (self._newest or {}).get(log.root.broker)
        if known is not None:
            offset, mark = int(known["offset"]), known["mark"]
            if begin < offset <= log.written_end and mark and log.mark(offset) == mark:
                return log.end(offset)
        return log.end(begin)

    def reportLatestOffset(self) -> Progress | None:  # noqa: N802 - Spark's name
        """Return the end of the stores at the last call of ``latestOffset``."""
        return self._newest

    def partitions(self, start: Progress, end: Progress) -> list[InputPartition]:
        """Return the splits of the records that begin from ``start`` to before ``end``."""
        stores = [store for store in self._options.stores if _offset(start, store.broker) < _offset(end, store.broker)]

        def plan(split_size: int) -> list[StreamPartition]:
            return [part for store in stores for part in _parts(store, start, end, split_size)]

        least, split_size = self._options.min_partitions, self._options.table_options.split_size
        with StreamErrors():
            self._check_brokers(start)
            for store in stores:
                self._check_part(store, start, end)
            found = plan_at_least(least, plan, split_size, lambda each: each.split.high - each.split.low)
        return list(found)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part; the worker logs damage."""
        if isinstance(partition, StreamPartition):
            with StreamErrors(self._options.stores):
                yield from self._rows(partition)

    def _rows(self, partition: StreamPartition) -> Iterator[pa.RecordBatch]:
        selection = self._options.selection.and_(partition.selection)
        split, report = partition.split, DecodeReport()
        try:
            if 0 < split.low == partition.start - split.file.base:
                damage = damage_at_begin(split)
                if damage is not None:
                    report.add_broken(damage)
            for batch in read_split(split, known_names(self._schema), report, selection=selection):
                yield rename_columns(with_properties(batch, self._options.properties), self._schema)
        except StoreError as error:
            is_gone = isinstance(error.__cause__, FileNotFoundError) and not missing_store(error, self._options.stores)
            if self._options.fail_on_data_loss or not is_gone:
                raise
            logger.warning("%s; its bytes %d to %d are skipped (failOnDataLoss=false)", error, split.low, split.high)

    def _check_brokers(self, start: Progress) -> None:
        known = {store.broker for store in self._options.stores}
        gone = ", ".join(broker for broker in start if broker not in known)
        if gone:
            raise CheckpointError(
                f"the query's checkpoint contains the brokers {gone}, but the query reads only "
                f"{', '.join(sorted(known))}; name all stores as before, or start with another checkpoint"
            )

    def _check_part(self, store: StoreRoot, start: Progress, end: Progress) -> None:
        """Report loss between two progresses of a store."""
        if store.broker in start:
            low, high = _offset(start, store.broker), _offset(end, store.broker)
            log = LogProgress(store)
            self._check_loss(log, low, high)
            self._check_same(log, start[store.broker])
            self._check_same(log, end[store.broker])

    def _check_loss(self, log: LogProgress, low: int, high: int) -> None:
        """Report offsets from ``low`` on that the log has lost; offsets up to ``high`` are known to have existed."""
        name = f"the log of broker {log.root.broker} ({log.root.shown})"
        if low > log.written_end:
            raise CheckpointError(
                f"{name} ends at {log.written_end}, before offset {low} that the query has reached: the log was "
                "truncated, or is that of another store; start with another checkpoint"
            )
        if low < log.begin:
            self._report_loss(
                f"{name} begins at {log.begin}: offsets {low} to {log.begin} were removed before they were read"
            )
        for gap in gaps(log.files):
            at = int(gap.path[-20:]) + gap.position
            if low < at + gap.length and at < high:
                self._report_loss(f"{name} has no file for offsets {at} to {at + gap.length}")

    def _check_same(self, log: LogProgress, progress: dict[str, Any]) -> None:
        """Report if the records before a progress differ from those when it was recorded."""
        offset, then = int(progress["offset"]), progress.get("mark")
        now = log.mark(offset) if then else ""
        if now and now != then:
            self._report_loss(
                f"the log of broker {log.root.broker} ({log.root.shown}) has changed before offset {offset} since the "
                "query read it: it was truncated and written again, or is that of another store; records there were "
                "not read"
            )

    def _report_loss(self, text: str) -> None:
        report_loss(text, fail=self._options.fail_on_data_loss)


def fair_shares(backlogs: Mapping[str, int], most: int) -> dict[str, int]:
    """Divide a micro-batch among brokers: what one does not need goes to those with more to read."""
    shares, left = {}, most
    for number, broker in enumerate(sorted(backlogs, key=lambda name: backlogs[name])):
        shares[broker] = min(backlogs[broker], max(left // (len(backlogs) - number), 1))
        left -= shares[broker]
    return shares


def _parts(store: StoreRoot, start: Progress, end: Progress, split_size: int) -> Iterator[StreamPartition]:
    low, high = _offset(start, store.broker), _offset(end, store.broker)
    between = Selection(physical_offsets=(low, high))
    kept = start.get(store.broker, {}).get("selection")
    wanted = between if kept is None else between.and_(decode_selection(json.dumps(kept)))
    for split in plan_splits([store], split_size, between, report=UnloggedReport()):
        yield StreamPartition(split, low, high, wanted)


def _offset(progress: Progress, broker: str) -> int:
    return int(progress[broker]["offset"]) if broker in progress else 0


def _at(log: LogProgress, offset: int) -> dict[str, Any]:
    return {"offset": offset, "file": log.name_at(offset), "mark": log.mark(offset)}
