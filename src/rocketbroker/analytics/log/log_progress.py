"""Progress of a CommitLog in whole records, and of a reader that reads it in parts."""

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from rocketbroker.analytics.columns.decode_report import DecodeReport, SkippedRange
from rocketbroker.analytics.files.commit_log_files import LogFile, commit_log_files, log_window
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.message_reader import walk_split
from rocketbroker.analytics.log.split import Split

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
