"""The tables ``messages`` and ``corrupt_ranges``: the records of commit logs, and ranges that should be records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from rocketbroker.analytics.columns.decode_report import DecodeReport, SkippedRange
from rocketbroker.analytics.columns.message_schema import ALL_FIELDS, MESSAGE_SCHEMA, field
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.message_reader import read_split
from rocketbroker.analytics.log.split import Split, plan_splits
from rocketbroker.analytics.tables.table import BROKER, Rows, Table, TableOptions, chosen, select_by


class MessagesTable(Table):
    """One row per record."""

    name = "messages"
    comment = "a record of the commit log, as it is stored"
    schema = MESSAGE_SCHEMA
    selects = select_by(
        "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "keys", "uniq_key", "tags"
    )

    @property
    def fields(self) -> Mapping[str, pa.Field]:
        return ALL_FIELDS

    def plan(self, stores: Sequence[StoreRoot], selection: Selection, options: TableOptions) -> list[Split]:
        return plan_splits(stores, options.split_size, selection) if stores else []

    def read(self, part: Split, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a split; unreadable ranges are logged, and listed in ``corrupt_ranges``."""
        yield from read_split(part, schema, DecodeReport(), selection=selection)


# The cheapest column: only the report is needed.
_NOTHING_BUT_A_WALK: Final = pa.schema([pa.field("size", pa.int32())])
_NAME_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class RangesPart:
    """A split to walk, or ``missing`` files that planning found."""

    split: Split | None
    check_crc: bool = False
    missing: tuple[SkippedRange, ...] = ()


class CorruptRangesTable(Table):
    """One row per range."""

    name = "corrupt_ranges"
    comment = "a range of bytes in a commit log that is damaged, unfinished or missing"
    schema = pa.schema(
        [
            BROKER,
            field("file", pa.string(), "path of the commit-log file"),
            field("position", pa.int64(), "start of the range in the file, in bytes"),
            field("physical_offset", pa.int64(), "start of the range in the commit log"),
            field("length", pa.int64(), "bytes of the range"),
            field("kind", pa.string(), "broken, unfinished (end of the log), missing (in no file) or wrong_body"),
            field("reason", pa.string(), "broken rule, named as in `mqstore check`, or body-unreadable"),
        ]
    )
    selects = select_by("physical_offset", "store_timestamp")

    def plan(self, stores: Sequence[StoreRoot], selection: Selection, options: TableOptions) -> list[RangesPart]:
        """Return all splits with messages of the selected times, since damage may be in any of them."""
        report = DecodeReport()
        splits = plan_splits(stores, options.split_size, selection.times, report=report) if stores else []
        parts = [RangesPart(split, options.check_crc) for split in splits]
        return [*parts, RangesPart(None, missing=tuple(report.missing))] if report.missing else parts

    def read(self, part: RangesPart, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the ranges of a part by position; each range is in one part only."""
        report = DecodeReport(missing=list(part.missing))
        if part.split is not None:
            for _ in read_split(part.split, _NOTHING_BUT_A_WALK, report, check_crc=part.check_crc):
                pass
        if report.ranges:
            # Damage has no time; planning has applied the time range.
            timeless = replace(selection, since_ms=None, until_ms=None)
            yield chosen(_rows(report), self.selects, timeless, schema)


def _rows(report: DecodeReport) -> Rows:
    kinds = {
        "broken": report.broken,
        "unfinished": report.unfinished,
        "missing": report.missing,
        "wrong_body": report.wrong_bodies,
    }
    found = sorted((skipped, kind) for kind, ranges in kinds.items() for skipped in ranges)
    rows = [
        (each.broker, each.path, each.position, _base(each) + each.position, each.length, kind, each.reason)
        for each, kind in found
    ]
    columns = map(list, zip(*rows, strict=True))
    return Rows(len(rows), dict(zip(CorruptRangesTable.schema.names, columns, strict=True)))


def _base(skipped: SkippedRange) -> int:
    """Return the physical offset of the file's first byte, from its name."""
    return int(skipped.path[-_NAME_DIGITS:])
