"""A store whose files are mapped and mended, before it is recovered (DefaultMessageStore.load)."""

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
    """The parts of a store whose files are mapped, and what was wrong with those.

    ``mended_to`` is the CommitLog offset behind the last file that was lost in the middle, ``lacking`` has the queues
    that lack entries since a file of theirs was damaged, ``index_lacks`` is the offset from which on the index does.
    ``ends`` is what was there when all was last known to be on disk, ``None`` when that is not known, and ``ends_path``
    where that is kept. ``note`` says what an earlier start left half made, and this one may.
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
        """Where log, queues and index lie."""
        index = [] if self.index_service is None else [self.index_service.directory]
        return [self.commit_log.queue.directory, *self.queues.directories, *index]

    @property
    def known_to(self) -> int:
        """All of log and queues below this CommitLog offset is known to be on disk without a look at the checkpoint."""
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
    """Map the files of a store; missing and damaged ones are mended or set aside.

    Args:
        commit_log: the log.
        queues: the queues.
        index_service: the index, if there is to be one.
        ends_path: where it is kept what was there when all was last known to be on disk.
        note: where it is noted that there is something to make anew.
        before_change: called before a file is mended or set aside; what nobody reads any more goes without it.
        clean_stop: whether the last stop was one.

    Raises:
        StoreError: the CommitLog was made with other settings, or a file cannot be opened.
    """
    report = RecoveryReport(clean_stop)
    told, files = report.damaged_files, commit_log.queue
    note.load(told)

    def changing(mended_to: int = 0) -> None:
        # What is lacking is known once all is loaded; until then it may be anything.
        note.write(0, mended_to)
        before_change()

    lost, mended_to = mend_commit_log(files.directory, files.file_size, files.file_system, told, changing)
    files.load()
    for each in lost:
        report.add_range(files, *each)
    lacking = queues.load(told, changing, clean_stop=clean_stop)
    ends = read_queue_ends(ends_path, files, queues, told)
    expected = ends.index_files if ends is not None and clean_stop else None
    index_lacks = None if index_service is None else index_service.load(told, expected, changing)
    mended_to = max(mended_to, note.found_mended_to)
    return LoadedStore(
        commit_log, queues, index_service, report, mended_to, lacking, index_lacks, ends, ends_path, note
    )
