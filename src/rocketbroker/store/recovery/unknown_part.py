"""The part of a store that may not be on disk after an unclean stop (CommitLog.recoverAbnormally).

Messages stored 3 s before the times of the checkpoint are known to be on disk. Damage in the known part is skipped;
after it the first damage ends the log.
"""

from collections.abc import Callable
from typing import NamedTuple

from rocketbroker.store.commitlog.commit_log_walker import LogWalk, store_timestamp_at
from rocketbroker.store.dispatch.reput_message_service import ReputMessageService
from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.queue.queue_ends import most_end
from rocketbroker.store.recovery.loaded_store import LoadedStore


class UnknownPart(NamedTuple):
    """CommitLog offsets at which the unknown part of the index and that of log and queues begin.

    ``led_to`` is the end of the last message that a queue names.
    """

    index_from: int
    log_from: int
    led_to: int


def unknown_part(loaded: LoadedStore, checkpoint: StoreCheckpoint) -> UnknownPart:
    """Return the part that is not known to be on disk, by the times of the checkpoint."""
    known = checkpoint.min_timestamp(with_index=False)
    least = index_least = loaded.known_to
    with_index = known
    if loaded.index_service is not None:
        with_index = checkpoint.min_timestamp(with_index=True)
        index_least = least if loaded.ends is not None and loaded.ends.index_files is not None else 0
    queue = loaded.commit_log.queue
    start = _last_file_known(queue, with_index)
    start = max(start, index_least if index_least < queue.max_file_end else 0)
    walk = LogWalk(queue, start, check_crc=False)
    index_unknown = walk.offset = _known_part(walk, with_index, index_least, loaded)
    led_to = loaded.queues.max_physical_offset
    if (with_index, index_least) == (known, least):
        return UnknownPart(index_unknown, index_unknown, led_to)
    return UnknownPart(index_unknown, _known_part(walk, known, least, loaded), led_to)


def _known_part(walk: LogWalk, known_ms: int, least: int, loaded: LoadedStore) -> int:
    """Return the first record from ``least`` on that was stored after the time up to which everything is on disk.

    Without one, return the end of the log. Damage before it is skipped.
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
    """Return the offset of the last file whose first record was stored at or before a time."""
    for file in reversed(queue.files[1:]):
        stored = store_timestamp_at(queue, file.file_from_offset)
        if stored is not None and stored <= known_ms:
            return file.file_from_offset
    return queue.min_offset


def take_unknown_part(
    loaded: LoadedStore, unknown: UnknownPart, reput: ReputMessageService, tell: Callable[[int], None]
) -> int:
    """Check and dispatch the unknown part; return the offset of its first damage, or of its end.

    Lost files are skipped: no crash removes a whole file from the middle.
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
