"""The table ``corrupt_ranges``: ranges of commit logs that should be messages, but are not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from rocketbroker.analytics.columns.decode_report import DecodeReport, SkippedRange
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.message_reader import read_split
from rocketbroker.analytics.log.split import Split, plan_splits
from rocketbroker.analytics.tables.matching import chosen
from rocketbroker.analytics.tables.table import BROKER, Rows, Table, TableOptions, field, select_by

# The cheapest column: only the report is needed.
_NOTHING_BUT_A_WALK: Final = pa.schema([pa.field("size", pa.int32())])
_NAME_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class WalkPart:
    """A split to walk."""

    split: Split
    check_crc: bool


@dataclass(frozen=True, slots=True)
class KnownPart:
    """Ranges that planning found."""

    ranges: tuple[SkippedRange, ...]


class CorruptRangesTable(Table):
    """One row per range."""

    name = "corrupt_ranges"
    comment = "a range of bytes in a commit log that is damaged, unfinished or missing"
    schema = pa.schema(
        [
            BROKER,
            field("file", pa.string(), "path of the commit-log file"),
            field("position", pa.int64(), "where in the file the range begins, in bytes"),
            field("physical_offset", pa.int64(), "where in the commit log it begins"),
            field("length", pa.int64(), "bytes of the range"),
            field("kind", pa.string(), "broken, unfinished (the log's end), missing (no file has it) or wrong_body"),
            field("reason", pa.string(), "rule that is broken, as `mqstore check` names it, or body-unreadable"),
        ]
    )
    selects = select_by("physical_offset", "store_timestamp")

    def plan(
        self, stores: Sequence[StoreRoot], selection: Selection, options: TableOptions
    ) -> list[WalkPart | KnownPart]:
        """Return all splits with messages of the selected times, since damage may be in any of them."""
        report = DecodeReport()
        times = Selection(since_ms=selection.since_ms, until_ms=selection.until_ms, exact=selection.exact)
        splits = plan_splits(stores, options.split_size, times, report=report) if stores else []
        walks = [WalkPart(split, options.check_crc) for split in splits]
        return [*walks, *([KnownPart(tuple(report.missing))] if report.missing else [])]

    def read(self, part: WalkPart | KnownPart, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the ranges of a part by position; each range is in one part only."""
        report = DecodeReport()
        if isinstance(part, KnownPart):
            report.missing.extend(part.ranges)
        else:
            for _ in read_split(part.split, _NOTHING_BUT_A_WALK, report, check_crc=part.check_crc):
                pass
        if report.ranges:
            # Damage has no time; planning has applied the time range.
            timeless = replace(selection, since_ms=None, until_ms=None)
            yield chosen(_rows(report), self.selects, timeless, schema)


def _rows(report: DecodeReport) -> Rows:
    kinds = (
        ("broken", report.broken),
        ("unfinished", report.unfinished),
        ("missing", report.missing),
        ("wrong_body", report.wrong_bodies),
    )
    found = sorted((skipped, kind) for kind, ranges in kinds for skipped in ranges)
    return Rows(
        len(found),
        {
            "broker": lambda: pa.array([each.broker for each, _ in found], pa.string()),
            "file": lambda: pa.array([each.path for each, _ in found], pa.string()),
            "position": lambda: pa.array([each.position for each, _ in found], pa.int64()),
            "physical_offset": lambda: pa.array([_base(each) + each.position for each, _ in found], pa.int64()),
            "length": lambda: pa.array([each.length for each, _ in found], pa.int64()),
            "kind": lambda: pa.array([kind for _, kind in found], pa.string()),
            "reason": lambda: pa.array([each.reason for each, _ in found], pa.string()),
        },
    )


def _base(skipped: SkippedRange) -> int:
    """Return the physical offset of the file's first byte, taken from its name."""
    return int(skipped.path[-_NAME_DIGITS:])
