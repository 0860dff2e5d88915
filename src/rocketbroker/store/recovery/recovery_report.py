"""Report on the recovery of a store."""

from dataclasses import dataclass, field

from rocketbroker.store.commitlog.commit_log_walker import CorruptRange
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue


@dataclass
class RecoveryReport:
    """Findings and actions of recovery.

    Attributes:
        checked_from: CommitLog offset from which everything was checked.
        end_of_log: CommitLog offset of the next message.
        last_stored_ms: store time of the last checked message, 0 without one.
        cut_off: where and why the log was truncated, empty if it was not.
        damaged_files: a text for each file.
        queues_rebuilt: a text for each queue.
    """

    clean_stop: bool
    checked_from: int = 0
    end_of_log: int = 0
    last_stored_ms: int = 0
    cut_off: str = ""
    duration_s: float = 0.0
    corrupt_ranges: list[CorruptRange] = field(default_factory=list)
    damaged_files: list[str] = field(default_factory=list)
    queues_rebuilt: list[str] = field(default_factory=list)
    dispatched: int = 0
    index_entries_cut: int = 0

    @property
    def damage(self) -> list[str]:
        """One text for each damage."""
        return [
            *([self.cut_off] if self.cut_off else []),
            *map(str, self.corrupt_ranges),
            *self.damaged_files,
            *self.queues_rebuilt,
        ]

    def __str__(self) -> str:
        how = "a clean stop" if self.clean_stop else "an unclean stop"
        text = (
            f"store opened after {how}: CommitLog checked from offset {self.checked_from}, "
            f"it ends at {self.end_of_log}, {self.dispatched} messages dispatched again, "
            f"{self.index_entries_cut} index entries cut, in {self.duration_s:.1f} s"
        )
        return text + "".join(f"; {damage}" for damage in self.damage)

    def add_range(self, queue: MappedFileQueue, begin: int, end: int, why: str) -> None:
        """Note that the log has no sound record between two offsets; known ranges are skipped."""
        while begin < end:
            file = queue.find(begin)
            base = file.file_from_offset if file else begin - begin % queue.file_size
            stop = min(end, base + queue.file_size)
            found = CorruptRange(queue.path_of(base), begin - base, stop - begin, why)
            if not any(_covers(known, found) for known in self.corrupt_ranges):
                self.corrupt_ranges.append(found)
            begin = stop

    def set_cut_off(self, queue: MappedFileQueue, offset: int, why: str) -> None:
        """Note that the log is truncated at an offset, and why."""
        begin = offset - offset % queue.file_size
        self.cut_off = f"{queue.path_of(begin)}: cut off at {offset - begin}: {why}"


def _covers(known: CorruptRange, found: CorruptRange) -> bool:
    begin, end = known.position, known.position + known.length
    return known.path == found.path and begin <= found.position and found.position + found.length <= end
