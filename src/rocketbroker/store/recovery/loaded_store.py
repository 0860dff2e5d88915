"""A store whose files are mapped and repaired, before recovery (DefaultMessageStore.load)."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rocketbroker.common.open_files import limit_named
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.index.index_service import IndexService
from rocketbroker.store.logfile.damaged_files import mend_commit_log
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.queue.queue_ends import QueueEnds, read_queue_ends
from rocketbroker.store.recovery.rebuild_note import RebuildNote
from rocketbroker.store.recovery.recovery_report import RecoveryReport


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
    def folders(self) -> list[Path]:
        """The folders of log, queues and index."""
        index = [] if self.index_service is None else [self.index_service.directory]
        return [self.commit_log.queue.directory, *self.queues.directories, *index]

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
        commit_log: the log.
        queues: the queues.
        index_service: the index, if enabled.
        ends_path: the file with the ends of all parts when everything was last known to be on disk.
        note: records the part to rebuild.
        before_change: called before a file is repaired or set aside, not before unread files are removed.
        clean_stop: true if the last stop was clean.

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
