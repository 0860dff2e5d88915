"""Streaming reader of stores for ``spark.readStream.format("rocketmq_store")``.

Progress is, for each broker, the physical offset at which a record begins, the name of its file for people who read the
checkpoint, and a checksum of the bytes before it. A micro-batch has the records that begin from one progress to before
the next. They are complete when the next progress is recorded, and records never change, so a batch that is planned
again after a restart has the same rows. After a power loss a broker may truncate the log and write other records there:
the checksum reveals it.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from rocketbroker.analytics.columns.decode_report import DecodeReport, SkippedRange
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.commit_log_files import LogFile, commit_log_files, log_window
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.message_reader import damage_at_begin, read_split, walk_split
from rocketbroker.analytics.log.split import Split, gaps, plan_splits
from rocketbroker.analytics.spark.source_options import LATEST, SourceOptions
from rocketbroker.analytics.tables.table import check_table_schema
from rocketbroker.analytics.tables.table_reader import DEFAULT_TABLE
from rocketbroker.common.errors import ConfigError, StoreError

# A record may end in this many zeros (an empty properties length), which look like unwritten bytes.
_ZEROS_OF_A_RECORD: Final = 2
# These last bytes of a record contain most of its properties, the unique id among them.
_MARKED: Final = 256


class LogProgress:
    """Current files of a store's CommitLog. Offsets are physical ones.

    Files that end before ``since`` are not read: a poll takes as long as what is new, however much is kept.
    """

    def __init__(self, root: StoreRoot, since: int = 0) -> None:
        self.root = root
        self.files = [file for file in commit_log_files(root, since) if file.data_end]

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


#: By broker: ``{"offset": physical offset, "file": name, "mark": checksum}``; old checkpoints have no mark.
Progress = dict[str, dict[str, Any]]

logger = logging.getLogger(__name__)


@dataclass
class StreamPartition(InputPartition):
    """Records of ``split`` that begin from ``start`` to before ``end``, which one task reads."""

    split: Split
    start: int
    end: int


class MessageStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
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

    def initialOffset(self) -> Progress:  # noqa: N802 - Spark's name
        """Return the start of a new query (option startingOffsets)."""
        latest, logs = self._options.starting_offsets == LATEST, map(LogProgress, self._options.stores)
        return {log.root.broker: _at(log, log.end() if latest else log.begin) for log in logs}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the size of a micro-batch (option maxBytesPerTrigger)."""
        most_bytes = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if most_bytes is None else ReadMaxBytes(most_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the current end of the stores, at which the query stops."""
        self._last = {log.root.broker: _at(log, log.end()) for log in map(LogProgress, self._options.stores)}

    def latestOffset(self, start: Progress, limit: ReadLimit) -> Progress:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch: complete records only, within ``limit``.

        Raises:
            StoreError: the next records were removed unread, or a log ends before the progress.
        """
        if not isinstance(limit, (ReadAllAvailable, ReadMaxBytes)):
            raise ConfigError(f"{type(limit).__name__} is not supported; use maxBytesPerTrigger")
        self._check_brokers(start)
        logs = {store.broker: LogProgress(store, _offset(start, store.broker)) for store in self._options.stores}
        for broker in start:
            self._check_loss(logs[broker], _offset(start, broker), _offset(start, broker))
            self._check_same(logs[broker], start[broker])
        # A broker without progress was added after the checkpoint: it is read from its log's start.
        begins = {broker: _offset(start, broker) if broker in start else log.begin for broker, log in logs.items()}
        ends = {broker: self._end(log, begins[broker]) for broker, log in logs.items()}
        self._newest = {broker: _at(log, ends[broker]) for broker, log in logs.items()}
        if self._last is not None:
            ends = {broker: max(min(end, _offset(self._last, broker)), begins[broker]) for broker, end in ends.items()}
        if isinstance(limit, ReadMaxBytes):
            shares = fair_shares({broker: end - begins[broker] for broker, end in ends.items()}, limit.max_bytes)
            for broker, log in logs.items():
                ends[broker] = log.within(max(begins[broker], log.begin), ends[broker], shares[broker])
        return {
            broker: start[broker] if broker in start and ends[broker] == begins[broker] else _at(log, ends[broker])
            for broker, log in logs.items()
        }

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
        self._check_brokers(start)
        return [part for store in self._options.stores for part in self._parts(store, start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part; the worker logs damage."""
        if not isinstance(partition, StreamPartition):
            return
        selection = self._options.selection.and_(Selection(physical_offsets=(partition.start, partition.end)))
        split, report = partition.split, DecodeReport()
        try:
            if 0 < split.low == partition.start - split.file.base:
                damage = damage_at_begin(split)
                if damage is not None:
                    report.add_broken(damage)
            yield from read_split(split, self._schema, report, selection=selection)
        except StoreError as error:
            if self._options.fail_on_data_loss or not isinstance(error.__cause__, FileNotFoundError):
                raise
            logger.warning("%s; its bytes %d to %d are skipped (failOnDataLoss=false)", error, split.low, split.high)

    def _check_brokers(self, start: Progress) -> None:
        known = {store.broker for store in self._options.stores}
        gone = ", ".join(broker for broker in start if broker not in known)
        if gone:
            raise StoreError(
                f"the query's checkpoint contains the brokers {gone}, but the query reads only "
                f"{', '.join(sorted(known))}; name all stores as before, or start with another checkpoint"
            )

    def _parts(self, store: StoreRoot, start: Progress, end: Progress) -> Iterator[StreamPartition]:
        low, high = _offset(start, store.broker), _offset(end, store.broker)
        if low >= high:
            return
        if store.broker in start:
            log = LogProgress(store, low)
            self._check_loss(log, low, high)
            self._check_same(log, start[store.broker])
            self._check_same(log, end[store.broker])
        selection = Selection(physical_offsets=(low, high))
        split_size = self._options.table_options.split_size
        for split in plan_splits([store], split_size, selection, report=UnloggedReport()):
            yield StreamPartition(split, low, high)

    def _check_loss(self, log: LogProgress, low: int, high: int) -> None:
        """Report offsets from ``low`` on that the log has lost; offsets up to ``high`` are known to have existed."""
        name = f"the log of broker {log.root.broker} ({log.root.shown})"
        if low > log.written_end:
            raise StoreError(
                f"{name} ends at {log.written_end}, before offset {low} that the query has reached: the log was "
                "truncated, or is that of another store; start with another checkpoint"
            )
        if low < log.begin:
            self._lost(f"{name} begins at {log.begin}: offsets {low} to {log.begin} were removed before they were read")
        for gap in gaps(log.files):
            at = int(gap.path[-20:]) + gap.position
            if low < at + gap.length and at < high:
                self._lost(f"{name} has no file for offsets {at} to {at + gap.length}")

    def _check_same(self, log: LogProgress, progress: dict[str, Any]) -> None:
        """Report if the records before a progress differ from those when it was recorded."""
        offset, then = int(progress["offset"]), progress.get("mark")
        now = log.mark(offset) if then else ""
        if now and now != then:
            self._lost(
                f"the log of broker {log.root.broker} ({log.root.shown}) has changed before offset {offset} since the "
                "query read it: it was truncated and written again, and its new records there were not read"
            )

    def _lost(self, text: str) -> None:
        if self._options.fail_on_data_loss:
            raise StoreError(f"{text}; set the option failOnDataLoss=false to continue after them")
        logger.warning("%s; the query continues after them (failOnDataLoss=false)", text)


def fair_shares(backlogs: Mapping[str, int], most_bytes: int) -> dict[str, int]:
    """Divide the bytes of a micro-batch among brokers: what one does not need goes to those with more to read."""
    shares, left = {}, most_bytes
    for number, broker in enumerate(sorted(backlogs, key=lambda name: backlogs[name])):
        shares[broker] = min(backlogs[broker], max(left // (len(backlogs) - number), 1))
        left -= shares[broker]
    return shares


def _offset(progress: Progress, broker: str) -> int:
    return int(progress[broker]["offset"]) if broker in progress else 0


def _at(log: LogProgress, offset: int) -> dict[str, Any]:
    return {"offset": offset, "file": log.name_at(offset), "mark": log.mark(offset)}
