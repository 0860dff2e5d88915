"""Parts of CommitLogs that can be read independently, without stretches that lie outside of a time range."""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, TypeVar

from rocketbroker.analytics.columns.decode_report import DecodeReport, SkippedRange
from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.commit_log_files import LogFile, commit_log_files, log_window
from rocketbroker.analytics.files.store_files import open_folder
from rocketbroker.analytics.files.store_names import Stores, store_roots
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.queue_entries import EntryRange
from rocketbroker.analytics.log.queue_plan import QueuePlan, plan_queues
from rocketbroker.codec.message.message_decoder import RECORD_HEADS
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.record_search import find_record, store_timestamp
from rocketbroker.codec.storefile.store_file import LogWindow
from rocketbroker.common.errors import ConfigError

# Bounds of the CommitLog stretch that can contain messages of a time range.
#
# The search assumes that store times rise with the offset, as a broker writes them. It reads about twenty records for
# each bound, the first of each file, and in a local store one every 16 MiB. Times may go back by up to
# ``CLOCK_MARGIN_MS``; if they go back by more, the whole log is read.

#: A broker's clock may have been set back by this much while it stored messages.
CLOCK_MARGIN_MS: Final = 1000

# A bound is not narrowed below this many bytes: reading them takes no longer.
_NEAR: Final = 64 << 10
# One record of each such stretch is sampled. In a remote store that takes a request, so only some files are sampled.
_SAMPLED: Final = 16 << 20
_REMOTE_FILES: Final = 256
_T = TypeVar("_T")
_END: Final = (1 << 63) - 1

logger = logging.getLogger(__name__)


def offsets_of_time(files: Sequence[LogFile], since_ms: int | None, until_ms: int | None) -> tuple[int, int]:
    """Return physical offsets between which every message stored in the time range begins.

    They span the whole log if its store times are not in order.
    """
    if since_ms is None and until_ms is None:
        return 0, _END
    seen: dict[int, int | None] = {}
    low = 0 if since_ms is None else _Bound(files, since_ms - CLOCK_MARGIN_MS, seen).low
    high = _END if until_ms is None else _Bound(files, until_ms + CLOCK_MARGIN_MS, seen).high
    _sample(files, seen)
    if _is_in_order(seen):
        return low, high
    logger.warning(
        "%s: store times go back by more than %d ms, or a file has none; the whole log is read to find a time range",
        files[0].path.rpartition("/")[0],
        CLOCK_MARGIN_MS,
    )
    return 0, _END


def _sample(files: Sequence[LogFile], seen: dict[int, int | None]) -> None:
    """Add sampled store times of all files to ``seen``."""
    is_local = files[0].root.is_local
    for file in files if is_local else files[:: -(-len(files) // _REMOTE_FILES)]:
        with log_window(file) as window:
            for low in range(0, file.data_end if is_local else 1, _SAMPLED):
                _next_time(window, low, min(low + _SAMPLED, file.data_end), seen)


def _next_time(window: LogWindow, low: int, high: int, seen: dict[int, int | None]) -> tuple[int, int] | None:
    """Return position and store time of the first record from ``low`` to below ``high``."""
    position = find_record(window, low, high)
    if position < 0:
        return None
    time_ms = store_timestamp(window.at(position, RECORD_HEADS[3].size))
    seen[window.file.base + position] = time_ms
    return position, time_ms


def _is_in_order(seen: dict[int, int | None]) -> bool:
    newest = 0
    for _, time_ms in sorted(seen.items()):
        if time_ms is None or time_ms < newest - CLOCK_MARGIN_MS:
            return False
        newest = max(newest, time_ms)
    return True


class _Bound:
    """Bounds of the first message stored at ``time_ms`` or later: not before ``low`` and not after ``high``.

    ``seen`` receives the store times read, by physical offset; ``None`` for a file without any.
    """

    def __init__(self, files: Sequence[LogFile], time_ms: int, seen: dict[int, int | None]) -> None:
        self._time_ms = time_ms
        self._seen = seen
        self.low, self.high = files[0].base, _END
        # The first file that begins at the time or later: the message is in the file before, or begins this one.
        number = bisect_left(files, time_ms, key=self._first_time)
        if number < len(files):
            self.high = files[number].base
        if number:
            self._narrow(files[number - 1])

    def _first_time(self, file: LogFile) -> int:
        """Return the store time of a file's first valid record."""
        with log_window(file) as window:
            found = _next_time(window, 0, file.data_end, self._seen)
        if found is None:
            self._seen[file.base] = None
            return _END
        return found[1]

    def _narrow(self, file: LogFile) -> None:
        low, high = 0, file.data_end
        with log_window(file) as window:
            while high - low > _NEAR:
                middle = (low + high) // 2
                found = _next_time(window, middle, high, self._seen)
                if found is not None and found[1] < self._time_ms:
                    low = found[0]
                    continue
                high = middle
                if found is not None:
                    self.high = file.base + found[0]
        self.low = file.base + low


#: Default size of a split in bytes.
SPLIT_SIZE: Final = 64 << 20
_HALVINGS: Final = 4


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


def plan_at_least(
    count: int, plan: Callable[[int], list[_T]], split_size: int, size_of: Callable[[_T], int]
) -> list[_T]:
    """Return ``count`` parts or more, as far as there is so much to read: ``plan`` for a smaller size if necessary.

    Dividing the bytes by ``count`` gives as many parts of a log that is walked. In a plan by queues only the bytes of
    selected messages count, so it is made again for half the size, a few times.
    """
    parts = plan(split_size)
    size = sum(map(size_of, parts)) // count if len(parts) < count else 0
    for halvings in range(_HALVINGS):
        if len(parts) < count and size >> halvings:
            parts = plan(size >> halvings)
    return parts


def _of_store(root: StoreRoot, split_size: int, selection: Selection, report: DecodeReport) -> Iterator[Split]:
    wanted = selection.of_broker(root.broker)
    files = [file for file in commit_log_files(root) if file.data_end]
    for gap in gaps(files):
        report.add_missing(gap)
    if not files or wanted.is_nothing:
        return
    low, high = wanted.physical_offsets or (0, files[-1].base + files[-1].data_end)
    if not wanted.exact:
        since, until = offsets_of_time(files, *wanted.time_span)
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
        whole = wholes[bisect_right(wholes, part.low, key=_base) - 1]
        base = _base(whole)
        yield replace(whole, low=part.low - base, high=part.high - base, entries=part.entries)


def _base(whole: Split) -> int:
    return whole.file.base


def gaps(files: list[LogFile]) -> list[SkippedRange]:
    """Return the gaps between the files of a store, as ranges that begin at a file's end."""
    reason, found = AuditRule.LOG_FILE_MISSING.value, []
    for before, after in pairwise(files):
        length = after.base - before.base - before.size
        if length > 0:
            found.append(SkippedRange(before.root.broker, before.path, before.size, length, reason))
    return found
