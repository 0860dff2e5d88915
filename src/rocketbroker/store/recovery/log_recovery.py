"""End of the log at a start (CommitLog.recoverNormally, recoverAbnormally)."""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rocketbroker.codec.message.message_decoder import BODY_POSITION, peek
from rocketbroker.store.commitlog.commit_log_walker import LogWalk, is_begun, store_timestamp_at
from rocketbroker.store.dispatch.reput_message_service import ReputMessageService
from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.recovery.loaded_store import LoadedStore
from rocketbroker.store.recovery.queue_recovery import QueueTails, most_end

log = logging.getLogger(__name__)

# A clock that is set back by less may not show in the checkpoint: the log is synced every 10 s by default.
_UNNOTICED_MS = 10_000


# -- after a clean stop


# All of the log is on disk, and a file has its full size from the start: the end is where the last record ends. Two
# things can hide it. Damage at the end stops a walk too early, and then offsets would be used twice. Old bytes after
# the end look like records: RocketMQ leaves them when it truncates its log.
#
# So the end must not be before what is known otherwise. In the order of trust:
#
# 1. The end noted at the clean stop (``known_to``). A note that contradicts the files was ignored when it was read.
# 2. The last queue entry that leads to its message. The walk starts there: the messages before it are in the queues,
#    and half messages, which no queue has, may follow.
# 3. Without such a note, an entry whose message the log has lost. It counts up to the end of the file of the last sound
#    record: a damaged number must not lengthen the log. It counts only if its message is nowhere else in the log.
#
# Before the end by 1 and 2 (``least``) damage is skipped, as sound records follow. After it damage is skipped if a
# sound record follows that is not older than the last one; older ones are those that RocketMQ left.
def end_after_clean_stop(loaded: LoadedStore, tails: QueueTails) -> int:
    """Return the end of the log, all of which is on disk: the end of the last queued message, or later."""
    queue, report = loaded.commit_log.queue, loaded.report
    # Queue offsets after the last entries that lead to their messages.
    ends = {each: tails.sound_end(each, each.max_offset) for each in loaded.queues}
    start, least = _last_queued(loaded, ends)
    report.checked_from = start
    walk = LogWalk(queue, start, check_crc=True)
    last_stored = 0
    while True:
        for stretch in walk:
            last_stored = store_timestamp_at(queue, stretch.last_offset) or 0
        begin = walk.offset
        if begin >= least and not walk.damage:
            break
        found = walk.next_sound()
        if found is None:
            break
        if found >= least and (store_timestamp_at(queue, found) or last_stored) < last_stored:
            break
        report.add_range(queue, begin, found, walk.why)
        walk.offset = found
    if begin >= least and walk.damage:
        report.set_cut_off(queue, begin, walk.damage)
    end = max(begin, least, 0 if begin <= loaded.known_to else _claimed_end(loaded, ends, begin))
    report.add_range(queue, begin, end, walk.why)
    return end


def _last_queued(loaded: LoadedStore, ends: Mapping[ConsumeQueueInterface, int]) -> tuple[int, int]:
    """Return the record from which the search for the end starts, and the lowest possible end.

    Without messages in the queues the search starts at the last file. Without a log only the entries tell its end.
    """
    log_queue, known_to = loaded.commit_log.queue, loaded.known_to
    entries = [entry for queue, end in ends.items() if (entry := queue.message_entry(end - 1))]
    last = max(entries, default=None)
    if last is not None and log_queue.find(last.physical_offset) is not None:
        return last.physical_offset, max(last.end, known_to)
    if not log_queue.files:
        offset, size, _ = last or (0, 0, 0)
        base = offset - offset % log_queue.file_size
        return base, known_to or min(offset + size, base + log_queue.file_size)
    written = [file.file_from_offset for file in log_queue.files if is_begun(file)]
    return written[-1] if written else log_queue.min_offset, known_to


def _claimed_end(loaded: LoadedStore, ends: Mapping[ConsumeQueueInterface, int], begin: int) -> int:
    """Return the end of the last message that a queue names but the log lacks, in the file of the last record."""
    log_queue = loaded.commit_log.queue
    size = log_queue.file_size
    limit = -(-begin // size) * size
    found = 0
    for queue, end in ends.items():
        record = queue.expected_record(queue.max_offset - 1)
        if end == queue.max_offset or record is None or record.size < queue.record_check.least_size:
            continue
        claimed = record.physical_offset + record.size
        if not limit - size <= record.physical_offset or not begin < claimed <= limit:
            continue
        # A damaged entry: its message is between the last sound entry and the end of the log.
        walk = LogWalk(log_queue, max(queue.message_end(end - 1), log_queue.min_offset), check_crc=False, end=begin)
        heads = (
            (offset, bytes(stretch[number][:BODY_POSITION]))
            for stretch in walk
            for number, offset in enumerate(stretch.offsets)
        )
        is_head, number = queue.record_check.is_head, record.queue_offset
        if not any(is_head(head, (number, offset, peek(head)[0], 0)) for offset, head in heads):
            found = max(found, claimed)
    return found


# -- after an unclean stop


class UnknownPart(NamedTuple):
    """CommitLog offsets at which the unknown part of the index and that of log and queues begin.

    ``led_to`` is the end of the last message that a queue names.
    """

    index_from: int
    log_from: int
    led_to: int


# The checkpoint says up to which store time all is on disk. Its times are taken before each sync, and stepped back by
# 3 s, as messages of one millisecond may be on both sides of a sync. So the unknown part begins with the first record
# that was stored after them. A record is found by its time, and times may go back with the clock:
#
# - The checkpoint goes back with the clock, before any message stored since is acknowledged (``StoreCheckpoint``). A
#   record before the first one that is too new is known, whatever comes after it.
# - So the search must not begin after a record that is too new. ``_last_known_begin`` chooses where it may begin.
#
# The index has a part of its own: it is synced every 10 s only, and cutting the queues as far back would cost more.
def unknown_part(loaded: LoadedStore, checkpoint: StoreCheckpoint) -> UnknownPart:
    """Return the part that is not known to be on disk, by the times of the checkpoint."""
    known = checkpoint.min_timestamp(with_index=False)
    least = index_least = loaded.known_to
    with_index = known
    if loaded.index_service is not None:
        with_index = checkpoint.min_timestamp(with_index=True)
        index_least = least if loaded.ends is not None and loaded.ends.index_files is not None else 0
    queue = loaded.commit_log.queue
    start = index_least if index_least < queue.max_file_end else 0
    start = _last_known_begin(queue, max(start, queue.min_offset), with_index, max(checkpoint.layout[:3]))
    walk = LogWalk(queue, start, check_crc=False)
    index_unknown = walk.offset = _known_part(walk, with_index, index_least, loaded)
    led_to = loaded.queues.max_physical_offset
    if (with_index, index_least) == (known, least):
        return UnknownPart(index_unknown, index_unknown, led_to)
    return UnknownPart(index_unknown, _known_part(walk, known, least, loaded), led_to)


def _known_part(walk: LogWalk, known_ms: int, least: int, loaded: LoadedStore) -> int:
    """Return the end of the part of the log that is certainly on disk.

    It is the first record at or after ``least`` whose store time exceeds ``known_ms``, else the end of the log. Damage
    before it is skipped.
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


# To read the whole log at each start would take minutes, so the search begins with the last file whose first record is
# old enough. Is everything before that file old enough as well? While times ascend it is. After the clock was set back
# it may not be: a message with a late time, in no checkpoint yet, and behind it the older one that begins the file.
# Such a file follows the message of the checkpoint's latest time, as later checkpoints would have gone back. So a file
# qualifies only if a message of that time or a later one is in it or after it. If neither the last file nor the whole
# one before it has such a message, the checkpoint is taken to be later than all records, and the search begins at
# ``least``: that costs time and loses nothing.
def _last_known_begin(queue: MappedFileQueue, least: int, known_ms: int, latest_ms: int) -> int:
    """Return ``least``, or a later begin of a file with nothing before it that was stored after ``known_ms``.

    ``latest_ms`` is the latest time of the checkpoint.
    """
    has_latest, lacking = False, 0
    for file in reversed(queue.files):
        begin = file.file_from_offset
        if begin <= least:
            break
        if not has_latest:
            found = _has_since(queue, file, latest_ms)
            has_latest, lacking = bool(found), lacking + (found is False)
        if lacking > 1 and not has_latest:
            text = "recovery: the checkpoint is later (%s ms) than the last records; the CommitLog is read from %s on"
            log.warning(text, latest_ms, least)
            break
        stored = store_timestamp_at(queue, begin) if has_latest else None
        if stored is not None and stored <= known_ms - _UNNOTICED_MS:
            return begin
    return least


def _has_since(queue: MappedFileQueue, file: MappedFile, time_ms: int) -> bool | None:
    """Return true if a sound record of a file was stored at or after a time, ``None`` if it has no sound record."""
    walk = LogWalk(queue, file.file_from_offset, check_crc=False, end=file.file_from_offset + file.size)
    found: int | None = walk.offset
    has_any = None
    while found is not None:
        walk.offset = found
        for stretch in walk:
            has_any = False
            if stretch.first_after(time_ms - 1, 0) is not None:
                return True
        found = walk.next_sound()
    return has_any


def take_unknown_part(
    loaded: LoadedStore, unknown: UnknownPart, reput: ReputMessageService, tell: Callable[[int], None]
) -> int:
    """Check and dispatch the unknown part; return the offset of its first damage, or of its end.

    Damage before ``mended_to`` is a lost file and is skipped: no crash removes a whole file from the middle.
    """
    queue, report = loaded.commit_log.queue, loaded.report
    walk, last = LogWalk(queue, unknown.log_from, check_crc=True), -1
    while True:
        for stretch in walk:
            reput.dispatch(stretch)
            tell(stretch.end_offset)
            last = stretch.last_offset
        found = walk.next_sound() if walk.offset < loaded.mended_to else None
        if found is None:
            break
        reput.pass_over(walk.offset, found, walk.why)
        walk.offset = found
    if walk.damage or walk.next_sound() is not None:
        report.set_cut_off(queue, walk.offset, walk.damage or "nothing is written there, though records follow")
    elif walk.offset < unknown.led_to <= most_end(queue):
        report.set_cut_off(queue, walk.offset, f"nothing is written there, though queues lead up to {unknown.led_to}")
    report.last_stored_ms = store_timestamp_at(queue, last) or 0
    return walk.offset
