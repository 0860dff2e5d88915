"""Parts of CommitLogs that can be read independently."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from rocketbroker.analytics.columns.decode_report import DecodeReport, SkippedRange
from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.commit_log_files import LogFile, commit_log_files
from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.store_root import StoreRoot, Stores, store_roots
from rocketbroker.analytics.log.time_bounds import offsets_of_time
from rocketbroker.analytics.queues.queue_entries import EntryRange
from rocketbroker.analytics.queues.queue_plan import QueuePlan, plan_queues
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.common.errors import ConfigError

#: Default size of a split in bytes.
SPLIT_SIZE: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Split:
    """Records that begin from position ``low`` to before ``high`` of ``file``; ``last`` if no file with data follows.

    The split with a record also reports the bytes between it and the next one, so every division of a file has the same
    messages and the same report. If there are ``entries``, they point to all selected records of the split. Splits are
    picklable: another machine may read them.
    """

    file: LogFile
    low: int
    high: int
    last: bool
    entries: tuple[EntryRange, ...] = ()


def plan_splits(
    stores: Stores,
    split_size: int = SPLIT_SIZE,
    selection: Selection = EVERYTHING,
    *,
    report: DecodeReport | None = None,
) -> list[Split]:
    """Return the splits of stores that may contain messages of ``selection``, by store and offset, up to the log's end.

    ``report`` records files missing between others, and ranges read without the queues.
    """
    if split_size <= 0:
        raise ConfigError(f"splitSize: {split_size} bytes; give a number above 0")
    found = DecodeReport() if report is None else report
    return [split for root in store_roots(stores) for split in _of_store(root, split_size, selection, found)]


def _of_store(root: StoreRoot, split_size: int, selection: Selection, report: DecodeReport) -> Iterator[Split]:
    files = [file for file in commit_log_files(root) if file.data_end]
    for gap in gaps(files):
        report.add_missing(gap)
    wanted = selection.of_broker(root.broker)
    if not files or wanted.is_nothing:
        return
    low, high = wanted.physical_offsets or (0, files[-1].base + files[-1].data_end)
    if not wanted.exact:
        since, until = offsets_of_time(files, wanted.since_ms, wanted.until_ms)
        low, high = max(low, since), min(high, until)
    wholes = [Split(file, 0, file.data_end, file is files[-1]) for file in files]
    bounds, part_size = (max(low, files[0].base), high), min(split_size, SPLIT_SIZE)
    plan = plan_queues(open_folder(root), files, wanted, bounds, part_size, report)
    if plan is None:
        yield from _walked(wholes, low, high, split_size)
        return
    yield from _walked(wholes, low, plan.front, split_size)
    yield from _queued(wholes, plan)
    yield from _walked(wholes, plan.tail, high, split_size)


def _walked(wholes: list[Split], low: int, high: int, split_size: int) -> Iterator[Split]:
    """Yield the splits of files whose records have physical offsets from ``low`` to before ``high``."""
    for whole in wholes:
        start, stop = max(low - whole.file.base, 0), min(high - whole.file.base, whole.high)
        for position in range(start, stop, split_size):
            yield replace(whole, low=position, high=min(position + split_size, stop))


def _queued(wholes: list[Split], plan: QueuePlan) -> Iterator[Split]:
    for part in plan.parts:
        for whole in wholes:
            base = whole.file.base
            if base <= part.low < base + whole.high:
                yield replace(whole, low=part.low - base, high=part.high - base, entries=part.entries)


def gaps(files: list[LogFile]) -> list[SkippedRange]:
    """Return the gaps between the files of a store, as ranges that begin at a file's end."""
    reason, found = AuditRule.LOG_FILE_MISSING.value, []
    for before, after in pairwise(files):
        length = after.base - before.base - before.size
        if length > 0:
            found.append(SkippedRange(before.root.broker, before.path, before.size, length, reason))
    return found
