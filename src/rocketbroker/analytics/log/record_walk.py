"""Records of a split, and a report of its bytes without a record."""

from collections.abc import Iterator

from rocketbroker.analytics.columns.decode_report import DecodeReport, SkippedRange
from rocketbroker.analytics.files.log_window import log_window
from rocketbroker.analytics.log.split import Split
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
