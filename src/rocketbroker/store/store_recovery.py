"""What happens when a store is opened: the end of the log is found, queues and index are made to agree with it.

Answers to DefaultMessageStore.recover and CommitLog.recoverNormally / recoverAbnormally.

1. All of the log is known to be on disk after a clean stop; else what was stored 3 s before the times of the checkpoint
   is. Damage in the known part is reported and passed over: it costs the messages it hit and no other.
2. In the unknown part the first damage ends the log. What follows the end is cut off, in the log, the queues and the
   index; queues and index are cut off where the unknown part begins, since a power loss may have left holes in them.
3. Messages that the queues or the index lack are dispatched again.

Before queues or index are changed where they are known to be on disk, ``RebuildNote`` says from where on they are: a
crash on the way leaves no start that takes what is half made for whole.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import sync_names
from rocketbroker.store.commit_log import CommitLog
from rocketbroker.store.commit_log_walker import LogWalk, is_begun, store_timestamp_at
from rocketbroker.store.consume_queue import ConsumeQueue
from rocketbroker.store.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.damaged_files import mend_commit_log
from rocketbroker.store.index_service import IndexService
from rocketbroker.store.mapped_file import MappedFile
from rocketbroker.store.mapped_file_queue import MappedFileQueue
from rocketbroker.store.queue_cuts import QueueCuts
from rocketbroker.store.queue_ends import (
    QueueEnds,
    find_lost_begins,
    find_lost_queues,
    lost_first_files,
    reach_ends,
    read_queue_ends,
    write_queue_ends,
)
from rocketbroker.store.rebuild_note import RebuildNote
from rocketbroker.store.recovery_report import RecoveryReport
from rocketbroker.store.reput_message_service import ReputMessageService
from rocketbroker.store.store_checkpoint import StoreCheckpoint

if TYPE_CHECKING:
    from rocketbroker.store.record_hints import RecordHints

log = logging.getLogger(__name__)

# How far behind the files that are there a queue may say that the log ended, in files.
_MOST_FILES_LOST = 1
# So many entries of queues are worth a look at what they say of the log; of more it would take too much memory.
_WORTH_HINTS = 10_000
_MOST_HINTS = 16 << 20
# So often it is told how far the recovery has come, in seconds.
_TELL_S = 3.0


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
    lacking: set[ConsumeQueue]
    index_lacks: int | None
    ends: QueueEnds | None
    ends_path: Path
    note: RebuildNote

    @property
    def folders(self) -> list[Path]:
        """Where log, queues and index lie."""
        index = [] if self.index_service is None else [self.index_service.directory]
        return [self.commit_log.queue.directory, self.queues.directory, *index]

    @property
    def known_to(self) -> int:
        """All of log and queues below this CommitLog offset is known to be on disk without a look at the checkpoint."""
        queue = self.commit_log.queue
        if self.ends is None or (queue.files and self.ends.end_of_log > _most_end(queue)):
            return 0
        return self.ends.end_of_log


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
    ends = read_queue_ends(ends_path, told)
    expected = ends.index_files if ends is not None and clean_stop else None
    index_lacks = None if index_service is None else index_service.load(told, expected, changing)
    mended_to = max(mended_to, note.found_mended_to)
    return LoadedStore(
        commit_log, queues, index_service, report, mended_to, lacking, index_lacks, ends, ends_path, note
    )


def recover(
    loaded: LoadedStore,
    checkpoint: StoreCheckpoint,
    reput: ReputMessageService,
    before_change: Callable[[], None],
    say: Callable[[str], None] = log.info,
) -> RecoveryReport:
    """Bring loaded files into agreement; gives what was found.

    Args:
        loaded: the store.
        checkpoint: up to when it is known to be on disk.
        reput: dispatches what queues and index lack.
        before_change: called before anything is changed.
        say: is told each few seconds how far it has come.

    Raises:
        StoreFullError: the disk has no room for entries that are missing.
    """
    report, queues, log_queue = loaded.report, loaded.queues, loaded.commit_log.queue
    progress = _Progress(say, log_queue.max_file_end)
    if report.clean_stop:
        end = report.end_of_log = _end_after_clean_stop(loaded)
        unknown = _Unknown(end, end, queues.max_physical_offset, None)
        without_begin = _find_lost_queues(loaded)
    else:
        unknown = _unknown_parts(loaded, checkpoint)
        report.checked_from = unknown.log_from
        begin, told = log_queue.min_offset, report.queues_rebuilt
        without_begin = find_lost_begins(loaded.ends, queues, begin, reput.leaves_out, told)
    index_lacks, queues_lack = _lacking_from(loaded, unknown)
    cuts = QueueCuts(queues, queues_lack, without_begin, report.queues_rebuilt)
    start = min(unknown.led_to, cuts.lacks_from, index_lacks, *map(_end_of, loaded.lacking))
    made_anew = start < unknown.log_from or loaded.note.stands
    if made_anew:
        loaded.note.write(start)
    before_change()
    _reach(log_queue, unknown.log_from)
    if loaded.index_service is not None:
        report.index_entries_cut = loaded.index_service.cut(index_lacks)
    # What was not on disk for certain may have holes: those entries are made anew from the log.
    cuts.cut()
    queues.correct_min_offsets(log_queue.min_offset)
    reput.catch_up(max(start, log_queue.min_offset), unknown.log_from, progress.tell)
    if not report.clean_stop:
        report.end_of_log = _take_unknown_part(loaded, unknown, reput, progress)
    reput.finish()
    report.dispatched = reput.dispatched
    log_queue.truncate(report.end_of_log)
    if report.clean_stop or made_anew:
        _reach_ends(loaded, reput)
    cuts.reach_known_ends()
    if not report.clean_stop:
        # They are in the page cache, where a killed broker left them, and may be no further.
        log_queue.unsynced_from(report.checked_from)
        for folder in loaded.folders:
            sync_names(folder, log_queue.file_system)
    if made_anew:
        _settle(loaded)
    report.duration_s = progress.seconds
    return report


class _Progress:
    """Tells how far the recovery has come, not too often."""

    def __init__(self, say: Callable[[str], None], end: int) -> None:
        self._say = say
        self._end = end
        self._began = self._told = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the begin."""
        return time.monotonic() - self._began

    def tell(self, offset: int) -> None:
        """The log is read and dispatched up to an offset."""
        now = time.monotonic()
        if now - self._told >= _TELL_S:
            self._told = now
            self._say(f"recovery: the CommitLog is read up to {offset} of {self._end} at the most")


def _end_of(queue: ConsumeQueue) -> int:
    """CommitLog offset behind the last message of a queue."""
    return queue.message_end(queue.max_offset - 1)


# -- the end of the log


def _end_after_clean_stop(loaded: LoadedStore) -> int:
    """Where the log ends, all of which is on disk: at the end of the last queued message or behind it.

    What the queues know is not walked through; half messages, which no queue has, may follow it.
    """
    queue, report = loaded.commit_log.queue, loaded.report
    start, least = _last_queued(queue, loaded.queues)
    least = max(least, loaded.known_to)
    report.checked_from = start
    walk = LogWalk(queue, start, check_crc=True)
    last_stored = 0
    while True:
        for stretch in walk:
            last_stored = store_timestamp_at(queue, stretch.offsets[-1]) or 0
        begin = walk.offset
        if begin >= least and not walk.damage:
            return begin
        found = walk.next_sound()
        if found is not None and found >= least and (store_timestamp_at(queue, found) or last_stored) < last_stored:
            # Java leaves older records behind the end of a log that it has cut.
            found = None
        if found is None:
            break
        report.add_range(queue, begin, found, walk.why)
        walk.offset = found
    report.add_range(queue, begin, least, walk.why)
    if begin >= least:
        report.set_cut_off(queue, begin, walk.damage)
    return max(begin, least)


def _last_queued(queue: MappedFileQueue, queues: ConsumeQueueStore) -> tuple[int, int]:
    """Offset of the record from which on the end of the log is looked for, and the least that the end may be.

    Without messages in the queues it is looked for from the begin of the last file.
    """
    last = queues.last_message
    if last is not None and queue.find(last[0]) is not None:
        sound = store_timestamp_at(queue, last[0]) is not None
        return last[0], last[0] if sound else sum(last)
    if not queue.files:
        return (last[0] - last[0] % queue.file_size, sum(last)) if last is not None else (0, 0)
    written = [file.file_from_offset for file in queue.files if is_begun(file)]
    start = written[-1] if written else queue.min_offset
    return start, sum(last) if last is not None and sum(last) <= _most_end(queue) else 0


def _most_end(queue: MappedFileQueue) -> int:
    """Behind this CommitLog offset the log cannot have ended: a wrong number must not make it as long as it says."""
    return queue.max_file_end + _MOST_FILES_LOST * queue.file_size


class _Unknown(NamedTuple):
    """Offsets from which on it is not known what of the index is on disk, and what of the log and the queues is.

    ``led_to`` is the end of the last message that a queue names.
    """

    index_from: int
    log_from: int
    led_to: int
    hints: RecordHints | None


def _unknown_parts(loaded: LoadedStore, checkpoint: StoreCheckpoint) -> _Unknown:
    """What is not known to be on disk, by the times of the checkpoint."""
    known = checkpoint.min_timestamp(with_index=False)
    least = index_least = loaded.known_to
    with_index = known
    if loaded.index_service is not None:
        with_index = checkpoint.min_timestamp(with_index=True)
        index_least = least if loaded.ends is not None and loaded.ends.index_files is not None else 0
    queue = loaded.commit_log.queue
    start = _last_file_known(queue, with_index)
    start = max(start, index_least if index_least < queue.max_file_end else 0)
    hints = _hints(loaded.queues, start)
    walk = LogWalk(queue, start, check_crc=False, hints=hints)
    index_unknown = walk.offset = _known_part(walk, with_index, index_least, loaded)
    led_to = loaded.queues.max_physical_offset
    if (with_index, index_least) == (known, least):
        return _Unknown(index_unknown, index_unknown, led_to, hints)
    return _Unknown(index_unknown, _known_part(walk, known, least, loaded), led_to, hints)


def _hints(queues: ConsumeQueueStore, offset: int) -> RecordHints | None:
    """What the queues say of the log from an offset on, where that is much and not too much."""
    firsts = {queue: queue.first_offset_from(offset) for queue in queues}
    count = sum(queue.max_offset - first for queue, first in firsts.items())
    if not _WORTH_HINTS <= count <= _MOST_HINTS:
        return None
    from rocketbroker.store.record_hints import hints_of

    return hints_of(firsts)


def _known_part(walk: LogWalk, known_ms: int, least: int, loaded: LoadedStore) -> int:
    """Offset of the first record from ``least`` on that was stored after the time up to which all is on disk.

    The end of the log if there is none. Damage before it is passed over.
    """
    queue = loaded.commit_log.queue
    while True:
        for stretch in walk:
            first = stretch.first_after(known_ms, least)
            if first is not None:
                return first
        begin, found = walk.offset, walk.next_sound()
        stored = None if found is None else store_timestamp_at(queue, found)
        if found is not None and stored is not None and (found <= least or stored <= known_ms):
            walk.offset = found
        elif begin < least:
            walk.offset = least
        else:
            return begin
        loaded.report.add_range(queue, begin, walk.offset, walk.why)


def _last_file_known(queue: MappedFileQueue, known_ms: int) -> int:
    """Offset of the last file that was begun before a time."""
    for file in reversed(queue.files[1:]):
        stored = store_timestamp_at(queue, file.file_from_offset)
        if stored is not None and stored <= known_ms:
            return file.file_from_offset
    return queue.min_offset


def _take_unknown_part(loaded: LoadedStore, unknown: _Unknown, reput: ReputMessageService, progress: _Progress) -> int:
    """Check and dispatch the unknown part; gives where the first damage is, or nothing is written.

    Files that were lost are passed over: no crash takes one whole file out of the middle.
    """
    queue, report = loaded.commit_log.queue, loaded.report
    walk, last = LogWalk(queue, unknown.log_from, check_crc=True, hints=unknown.hints), -1
    while True:
        for stretch in walk:
            reput.dispatch(stretch)
            progress.tell(stretch.end_offset)
            last = stretch.offset + stretch.starts[-1]
        found = walk.next_sound() if walk.offset < loaded.mended_to else None
        if found is None:
            break
        reput.pass_over(walk.offset, found, walk.why)
        walk.offset = found
    if walk.damage or walk.next_sound() is not None:
        report.set_cut_off(queue, walk.offset, walk.damage or "nothing is written there, though records follow")
    elif walk.offset < unknown.led_to <= _most_end(queue):
        report.set_cut_off(queue, walk.offset, f"nothing is written there, though queues lead up to {unknown.led_to}")
    report.last_stored_ms = store_timestamp_at(queue, last) or 0
    return walk.offset


def _reach(queue: MappedFileQueue, end: int) -> None:
    """Make the files anew that are missing before the end of the log: no offset is used a second time."""
    while queue.max_file_end < end:
        file = queue.create_next(end - 1 - (end - 1) % queue.file_size)
        file.wrote = file.flushed = file.file_size


# -- queues and index


def _ends_that_hold(loaded: LoadedStore) -> QueueEnds | None:
    """What was there when all was last known to be on disk, if it has to be there still.

    After a clean stop it has, unless Java's broker wrote since. After another one topics may have been deleted since,
    which is known as long as the log has what came before.
    """
    ends, report = loaded.ends, loaded.report
    if ends is None:
        return None
    if report.clean_stop:
        return ends if ends.end_of_log == report.end_of_log else None
    return ends if loaded.commit_log.min_offset < ends.end_of_log <= report.end_of_log else None


def _find_lost_queues(loaded: LoadedStore) -> list[ConsumeQueue]:
    """Take the queues that have less than they had at the clean stop as lacking; gives those that lack their begin.

    Also tells of the first files of the log, which look like expired ones when they are gone.
    """
    ends = _ends_that_hold(loaded)
    if ends is None:
        return []
    loaded.report.damaged_files += lost_first_files(ends, loaded.commit_log.queue)
    read, told = loaded.commit_log.bytes_at, loaded.report.queues_rebuilt
    lost, without_begin = find_lost_queues(ends, loaded.queues, read, told)
    loaded.lacking.update(lost)
    return without_begin


def _reach_ends(loaded: LoadedStore, reput: ReputMessageService) -> None:
    """Have no queue end before it did when all was last known to be on disk, although the log lost the messages.

    Also after a kill amid a start that made queues anew: which ones those were is not known any more.
    """
    ends = _ends_that_hold(loaded)
    if ends is not None:
        told = reach_ends(ends, loaded.queues, reput.leaves_out)
        if not loaded.report.clean_stop:
            loaded.report.queues_rebuilt.extend(told)


def _lacking_from(loaded: LoadedStore, unknown: _Unknown) -> tuple[int, int]:
    """CommitLog offsets from which on index and queues are made anew.

    What lies before the log's begin is kept: the offsets of a queue go on behind its last entry also when none of its
    messages is left.
    """
    log_begin = loaded.commit_log.queue.min_offset
    found, index_from, queues_from = loaded.note.found_from, unknown.index_from, unknown.log_from
    if found is not None:
        index_from, queues_from = (max(min(each, found), log_begin) for each in (index_from, queues_from))
    if loaded.index_service is None:
        return unknown.log_from, queues_from
    if loaded.index_lacks is not None:
        index_from = min(index_from, loaded.index_lacks)
    if not loaded.index_service.has_before(index_from):
        index_from = max(min(_without_keys_to(loaded), index_from), log_begin)
    return index_from, queues_from


def _without_keys_to(loaded: LoadedStore) -> int:
    """CommitLog offset before which there were no keys, so that an index without any lacks none."""
    ends = _ends_that_hold(loaded)
    return ends.end_of_log if ends is not None and ends.index_files == [] else 0


def _flush_log(file: MappedFile) -> None:
    try:
        file.flush()
    except OSError as error:
        raise StoreError(f"{file.path} cannot be synced: {error.strerror}; what it holds may not be on disk") from error


def _settle(loaded: LoadedStore) -> None:
    """Bring to disk what was made anew of the known part, and note that all is there (blocks).

    Raises:
        StoreError: the log could not be synced.
    """
    log_queue, index = loaded.commit_log.queue, loaded.index_service
    for file in log_queue.files:
        if file.to_flush:
            _flush_log(file)
    try:
        with closing(loaded.queues.changed_files()) as files:
            for file in files:
                file.flush()
        if index is not None:
            index.sync()
            if index.waiting:
                log.error("the keys of %s messages could not be indexed; a start makes them anew", index.waiting)
                return
        write_queue_ends(
            loaded.ends_path,
            (log_queue.min_offset, loaded.report.end_of_log),
            loaded.queues,
            None if index is None else index.file_names,
            log_queue.file_system,
        )
        loaded.note.remove()
    except OSError:
        log.exception("what was made anew could not be written to disk; a start after a crash makes it anew once more")
