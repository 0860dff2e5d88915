"""A store before its recovery: its mapped files, the note of a rebuild, and the report (DefaultMessageStore.load)."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rocketbroker.codec.storefile.config_tables import dumps_config, loads_config
from rocketbroker.common.atomic_file import backup_of, replace_contents
from rocketbroker.common.errors import CodecError
from rocketbroker.common.file_system import FileSystem
from rocketbroker.common.open_files import limit_named
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.commit_log_walker import CorruptRange
from rocketbroker.store.index.index_service import IndexService
from rocketbroker.store.logfile.damaged_files import mend_commit_log
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.recovery.queue_recovery import QueueEnds, read_queue_ends

log = logging.getLogger(__name__)

REBUILD_NOTE_FILE = "rebuild.json"


class RebuildNote:
    """``config/rebuild.json``: the part of the store that is being rebuilt from the CommitLog, until that is done.

    It has the CommitLog offset from which on queues and index may be incomplete, and the one up to which the log was
    repaired. A crash meanwhile leaves queues and index incomplete where they would otherwise count as complete.

    Attributes:
        found_from: the first offset of a start that did not finish, ``None`` without one.
        found_mended_to: the second offset of such a start, 0 without one.
        stands: true while a note is on disk.
    """

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        self._path = path
        self._file_system = file_system
        self.found_from: int | None = None
        self.found_mended_to = 0
        self._mended_to = 0
        self.stands = False

    def load(self, findings: list[str]) -> None:
        """Read the file (blocks); report a damaged one in ``findings``, and have everything rebuilt."""
        for path in (self._path, backup_of(self._path)):
            try:
                self.found_from, self.found_mended_to = _parse_note(loads_config(path.read_bytes()))
            except FileNotFoundError:
                continue
            except (OSError, CodecError, ValueError, TypeError, KeyError) as error:
                findings.append(f"{path}: unreadable, so that queues and index are rebuilt: {error}")
                self.found_from = 0
            self._mended_to, self.stands = self.found_mended_to, True
            return

    def write(self, from_offset: int, mended_to: int = 0) -> None:
        """Write the note to disk, before anything is changed (blocks).

        A failed write does not keep the store from opening: the note is for a crash before the store is open.
        """
        self._mended_to = max(self._mended_to, mended_to)
        try:
            content = dumps_config({"from": from_offset, "mendedTo": self._mended_to})
            replace_contents(self._path, content, self._file_system)
        except OSError:
            log.exception(
                "%s could not be written; if the broker is killed before the store is open, delete the folders "
                "consumequeue and index",
                self._path,
            )
        else:
            self.stands = True

    def remove(self) -> None:
        """Remove the note once everything is rebuilt and on disk (blocks).

        Raises:
            OSError: The note could not be removed; the next start rebuilds that part again.
        """
        for path in (backup_of(self._path), self._path):
            if path.exists():
                self._file_system.unlink(path)
        self._file_system.sync_folder(self._path.parent)
        self.stands = False


def _parse_note(content: dict[str, object]) -> tuple[int, int]:
    from_offset, mended_to = content["from"], content["mendedTo"]
    if not isinstance(from_offset, int) or not isinstance(mended_to, int) or min(from_offset, mended_to) < 0:
        raise TypeError("from or mendedTo is not an offset")
    return from_offset, mended_to


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


class LoadedStore(NamedTuple):
    """The parts of a store whose files are mapped, and the damage found in the files.

    Attributes:
        mended_to: CommitLog offset after the last file that was lost in the middle.
        lacking: queues that lack entries because of a damaged file.
        index_lacks: CommitLog offset from which on the index lacks keys.
        ends: the ends of all parts when everything was last known to be on disk; ``None`` if unknown.
        ends_path: the file that holds ``ends``.
        note: the part that an earlier start left incomplete, or that this one may.
    """

    commit_log: CommitLog
    queues: ConsumeQueueStore
    index_service: IndexService | None
    report: RecoveryReport
    mended_to: int
    lacking: set[ConsumeQueueInterface]
    index_lacks: int | None
    ends: QueueEnds | None
    ends_path: Path
    note: RebuildNote

    @property
    def known_to(self) -> int:
        """CommitLog offset below which log and queues are on disk, whatever the checkpoint says."""
        return 0 if self.ends is None else self.ends.end_of_log


@limit_named()
def load(
    commit_log: CommitLog,
    queues: ConsumeQueueStore,
    index_service: IndexService | None,
    ends_path: Path,
    note: RebuildNote,
    before_change: Callable[[], None],
    *,
    clean_stop: bool,
) -> LoadedStore:
    """Map the files of a store; repair missing and damaged ones, or set them aside.

    Args:
        ends_path: the file with the ends of all parts when everything was last known to be on disk.
        note: records the part to rebuild.
        before_change: called before a file is repaired or set aside, not before unread files are removed.

    Raises:
        StoreError: The CommitLog was created with other settings, or a file cannot be opened.
    """
    report = RecoveryReport(clean_stop)
    findings, files = report.damaged_files, commit_log.queue
    note.load(findings)

    def changing(mended_to: int = 0) -> None:
        # The missing part is known once everything is loaded; until then it may be anything.
        note.write(0, mended_to)
        before_change()

    lost, mended_to = mend_commit_log(files.directory, files.file_size, files.file_system, findings, changing)
    files.load()
    for each in lost:
        report.add_range(files, *each)
    lacking = queues.load(findings, changing, clean_stop=clean_stop)
    ends = read_queue_ends(ends_path, files, queues, findings)
    expected = ends.index_files if ends is not None and clean_stop else None
    index_lacks = None if index_service is None else index_service.load(findings, expected, changing)
    mended_to = max(mended_to, note.found_mended_to)
    return LoadedStore(
        commit_log, queues, index_service, report, mended_to, lacking, index_lacks, ends, ends_path, note
    )
