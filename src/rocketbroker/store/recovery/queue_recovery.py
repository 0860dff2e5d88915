"""Recovery of the queues: ends that they must reach, entries that can be trusted, and offsets at which they are cut.

``config/consumeQueueEnds.json`` has the ends of log, queues and index when all was last known to be on disk. Nothing
else shows that a queue is missing, or that its last file was lost: it would be taken for a new one, and its offsets
would be used again. Everything before the noted end of the log was on disk at that time.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from rocketbroker.codec.message.message_decoder import BODY_POSITION
from rocketbroker.codec.message.raw_records import QueuedRecord
from rocketbroker.codec.message.topic_validator import LMQ_PREFIX
from rocketbroker.codec.storefile.config_tables import dumps_config, loads_config
from rocketbroker.codec.storefile.consume_queue_layout import MOST_IN_INNER_BATCH, is_filler
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.errors import CodecError
from rocketbroker.common.file_system import FileSystem
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore, is_folder_name

QUEUE_ENDS_FILE = "consumeQueueEnds.json"
_CHECKSUM = "crc32"
# Largest distance, in files, between the end of the existing files and the noted end of the log.
_MOST_FILES_LOST = 1


class QueueEnds(NamedTuple):
    """Known ends of a store.

    Attributes:
        begin_of_log: CommitLog offset of the first record.
        end_of_log: CommitLog offset after the last record.
        queues: first queue offset and the one after the last, by topic and queue number.
        index_files: names of the index files, ``None`` without an index.
    """

    begin_of_log: int
    end_of_log: int
    queues: dict[tuple[str, int], tuple[int, int]]
    index_files: list[str] | None


def write_queue_ends(
    path: Path,
    begin_and_end_of_log: tuple[int, int],
    queues: ConsumeQueueStore,
    index_files: list[str] | None,
    file_system: FileSystem,
) -> None:
    """Write the file (blocks). Everything below the end of the log is on disk, in queues and index as well.

    Raises:
        OSError: The disk failed.
    """
    begin, end = begin_and_end_of_log
    # Files of the log may have been removed since the begins of the queues were last corrected.
    queues.correct_min_offsets(begin)
    table: dict[str, dict[str, list[int]]] = {}
    for queue in queues:
        table.setdefault(queue.topic, {})[str(queue.queue_id)] = [queue.min_offset, queue.max_offset]
    content: dict[str, object] = {"beginOfLog": begin, "endOfLog": end, "indexFiles": index_files, "queues": table}
    replace_contents(path, dumps_config({**content, _CHECKSUM: crc32(dumps_config(content))}), file_system)


def read_queue_ends(path: Path, log: MappedFileQueue, queues: ConsumeQueueStore, report: list[str]) -> QueueEnds | None:
    """Return the file's content; ``None`` without a file, or if it is damaged or contradicts the store (reported)."""
    try:
        ends = _parse_ends(loads_config(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, CodecError, ValueError, TypeError, KeyError, AttributeError) as error:
        report.append(f"{path}: cannot be read and is ignored: {error}")
        return None
    if why := _why_untrue(ends, log, queues):
        report.append(f"{path}: contradicts the store and is ignored: {why}")
        return None
    return ends


def _parse_ends(content: dict[str, object]) -> QueueEnds:
    # A file of an earlier version has no checksum.
    if (checksum := content.pop(_CHECKSUM, None)) is not None and checksum != crc32(dumps_config(content)):
        raise ValueError("its checksum is wrong")
    table, index_files = content["queues"], content.get("indexFiles")
    if not isinstance(table, dict) or not isinstance(index_files, list | None):
        raise TypeError("queues or indexFiles have a wrong type")
    queues = {
        (str(topic), int(queue_id)): (int(begin), int(end))
        for topic, each in table.items()
        for queue_id, (begin, end) in each.items()
    }
    begin_of_log, end_of_log = content.get("beginOfLog", 0), content["endOfLog"]
    if not isinstance(begin_of_log, int) or not isinstance(end_of_log, int):
        raise TypeError("beginOfLog or endOfLog has a wrong type")
    if any(not 0 <= begin <= end for begin, end in queues.values()):
        raise ValueError("the first offset of a queue is negative or beyond its end")
    return QueueEnds(
        begin_of_log, end_of_log, queues, None if index_files is None else [str(name) for name in index_files]
    )


def _why_untrue(ends: QueueEnds, log: MappedFileQueue, queues: ConsumeQueueStore) -> str:
    """Return the value in the file that exceeds the log and the queues, empty if none does.

    Each message missing from a queue now took bytes of the log then.
    """
    if not ends.begin_of_log <= ends.end_of_log:
        return f"the log would begin at {ends.begin_of_log} and end at {ends.end_of_log}"
    if log.files and ends.end_of_log > (most := most_end(log)):
        return f"the CommitLog would end at {ends.end_of_log}, but its files allow at most {most}"
    most = (ends.end_of_log - ends.begin_of_log) // MIN_RECORD_SIZE
    for (topic, queue_id), (begin, end) in ends.queues.items():
        if queue_id < 0 or not is_folder_name(topic):
            return f"queue {queue_id} of {topic!r} is impossible"
        queue = queues.find(topic, queue_id)
        lacks = end - begin if queue is None else end - max(queue.max_offset, begin)
        in_batches = queues.holds_batches(topic)
        if lacks > (most * MOST_IN_INNER_BATCH if in_batches else most):
            return f"queue {queue_id} of {topic} would lack {lacks} messages, but the CommitLog had at most {most}"
        most -= 0 if in_batches else max(lacks, 0)
    return ""


def most_end(log: MappedFileQueue) -> int:
    """Return the greatest possible end of the log: a wrong number must not lengthen it."""
    return log.max_file_end + _MOST_FILES_LOST * log.file_size


def find_lost_queues(
    ends: QueueEnds, queues: ConsumeQueueStore, read_log: Callable[[int, int], bytes | None], report: list[str]
) -> tuple[list[ConsumeQueueInterface], list[ConsumeQueueInterface]]:
    """Find the queues that lost messages, and those of them that must be rebuilt from their begin.

    Nothing is changed, except that missing queues are added to ``queues``, without entries.

    Args:
        read_log: reader of bytes by CommitLog offset and size, ``None`` where there are fewer.
    """
    lost, without_begin = list[ConsumeQueueInterface](), list[ConsumeQueueInterface]()
    for (topic, queue_id), (begin, end) in ends.queues.items():
        queue = queues.find(topic, queue_id)
        if begin == end == 0 or (queue is not None and queue.min_offset <= begin and queue.max_offset >= end):
            continue
        queue = queues.find_or_create(topic, queue_id)
        report.append(_text_of(queue, begin, end))
        lost.append(queue)
        # If the last entry leads to no message, others may be damaged too.
        record = queue.expected_record(queue.max_offset - 1)
        head = read_log(record.physical_offset, BODY_POSITION) if record else None
        is_sound = record is None or (head is not None and queue.record_check.is_head(head, record))
        if queue.min_offset > begin or not is_sound:
            without_begin.append(queue)
    return lost, without_begin


def find_lost_begins(
    ends: QueueEnds | None,
    queues: ConsumeQueueStore,
    begin_of_log: int,
    is_deleted: Callable[[str, int], bool],
    report: list[str],
) -> list[ConsumeQueueInterface]:
    """Find and report the queues that lost their first files after an unclean stop, as far as that is known.

    A queue may begin anywhere if the log lost its begin as well, unless its begin is known.
    """
    begins = dict.fromkeys(((queue.topic, queue.queue_id) for queue in queues), 0) if begin_of_log == 0 else {}
    if ends is not None and ends.end_of_log > begin_of_log:
        for (topic, queue_id), (begin, end) in ends.queues.items():
            if queues.find(topic, queue_id) is None and end and not is_deleted(topic, ends.end_of_log):
                queues.find_or_create(topic, queue_id)
            elif ends.begin_of_log == begin_of_log:
                begins[topic, queue_id] = begin
    found = []
    for queue in queues:
        known, first = begins.get((queue.topic, queue.queue_id)), queue.begin_of_files
        if first is None or (known is not None and first > known):
            report.append(f"queue {queue.queue_id} of {queue.topic} has lost its first files")
            found.append(queue)
    return found


def reach_ends(ends: QueueEnds, queues: ConsumeQueueStore, is_deleted: Callable[[str, int], bool]) -> list[str]:
    """Move queues that end too early to their noted end; return a text for each.

    Args:
        is_deleted: returns true if a topic was deleted after a CommitLog offset.

    Raises:
        StoreFullError: The disk has no room.
    """
    report = []
    for (topic, queue_id), (begin, end) in ends.queues.items():
        queue = queues.find(topic, queue_id)
        if end <= (0 if queue is None else queue.max_offset) or is_deleted(topic, ends.end_of_log):
            continue
        queue = queues.find_or_create(topic, queue_id)
        report.append(_text_of(queue, begin, end))
        queue.go_on_at(end)
    return report


def _text_of(queue: ConsumeQueueInterface, begin: int, end: int) -> str:
    return (
        f"queue {queue.queue_id} of {queue.topic} had the offsets {begin} to {end}, "
        f"and {queue.min_offset} to {queue.max_offset} when the store was opened"
    )


class QueueTails:
    """Finds the last entries that lead to their messages (blocks)."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._commit_log = commit_log

    def sound_end(self, queue: ConsumeQueueInterface, end: int) -> int:
        """Return the queue offset after the last entry before ``end`` that leads to its message.

        It searches backwards in growing steps: rebuilding some sound entries with the others does no harm.
        """
        if not self._can_be_checked(queue):
            return end
        at, step = end - 1, 1
        while at >= queue.min_offset:
            record = queue.expected_record(at)
            if record is not None and _says_nothing(record):
                at = min(at - 1, queue.position_of(record.physical_offset))
                continue
            if record is not None and self._leads(queue, record):
                return end if step == 1 else queue.end_of_record(at)
            at, step = at - step, 2 * step
        return end if step == 1 else queue.min_offset

    def leads(self, queue: ConsumeQueueInterface, queue_offset: int) -> bool:
        """Return true if an entry leads to its message, is missing, or is not meant to lead to one."""
        record = queue.expected_record(queue_offset)
        sound = record is None or _says_nothing(record) or self._leads(queue, record)
        return sound or not self._can_be_checked(queue)

    def may_be_lost(self, queue: ConsumeQueueInterface, queue_offset: int, physical_offset: int) -> bool:
        """Return true if an entry names a message after a CommitLog offset, perhaps lost with the log's tail."""
        record = queue.expected_record(queue_offset)
        if record is None:
            return False
        offset, end = record.physical_offset, record.physical_offset + record.size
        in_the_log = physical_offset <= offset <= end <= self._commit_log.queue.max_file_end
        return in_the_log and record.size >= queue.record_check.least_size

    def _can_be_checked(self, queue: ConsumeQueueInterface) -> bool:
        """Return true if there is a log and the queue is no light one, whose entries lead to other topics."""
        return bool(self._commit_log.queue.files) and not queue.topic.startswith(LMQ_PREFIX)

    def _leads(self, queue: ConsumeQueueInterface, record: QueuedRecord) -> bool:
        offset = record.physical_offset
        if 0 <= offset < self._commit_log.min_offset:
            # Its file has expired. Entries before it must have lower offsets.
            before = queue.entry(record.queue_offset - 1)
            return before is None or before.physical_offset <= offset
        head = self._commit_log.bytes_at(offset, BODY_POSITION)
        return head is not None and queue.record_check.is_head(head, record)


def _says_nothing(record: QueuedRecord) -> bool:
    """Return true if an entry only says that its queue offset was used."""
    return record.size == MIN_RECORD_SIZE or is_filler(record.physical_offset, record.size)


# A queue is cut where the unknown part of the log begins, and its entries from there on come from the log again. The
# place is found by bisection, which relies on entries that may be wrong. So the entries around it are checked:
#
# - Entries before it that lead to no message are damage. The cut moves before them, in growing steps.
# - A sound entry of a known message after it means that the bisection went wrong: by a damaged entry, at ``position``.
# - After an unclean stop the entry at it may lead to nothing: a power loss took the message and left the entry. That is
#   the common case and no finding. After a clean stop it is damage too.
#
# The log may have lost the messages of entries that are cut. Their offsets were used, so the queue must end no earlier
# than before (``_keep_end``), unless it is known to have ended earlier: noise looks like entries too.
class QueueCuts:
    """Offsets at which queues are truncated; nothing is changed before ``cut``.

    Args:
        physical_offset: a CommitLog offset before which all messages are known to be in the queues.
        without_begin: queues to rebuild from their beginning.
        findings: takes a text for each damaged range of entries.
        ended: begin and end of queues at the clean stop before; ``None`` after an unclean one.
    """

    def __init__(
        self,
        queues: ConsumeQueueStore,
        physical_offset: int,
        without_begin: Collection[ConsumeQueueInterface],
        tails: QueueTails,
        findings: list[str],
        ended: Mapping[tuple[str, int], tuple[int, int]] | None,
    ) -> None:
        self._ended = ended
        self._positions = queues.positions_of(physical_offset)
        # Ends of the rebuilt queues.
        self._known = {queue: self._positions[queue] for queue in without_begin}
        #: Earliest CommitLog offset to dispatch again after the queues were truncated.
        self.lacks_from = 0 if self._known else physical_offset
        for queue, position in list(self._positions.items()):
            name = f"queue {queue.queue_id} of {queue.topic}"
            sound = self._positions[queue] = tails.sound_end(queue, position)
            is_behind = queue.has_before(physical_offset, position)
            if sound < position:
                findings.append(f"entries {sound} to {position} of {name} lead to no message, and are rebuilt")
                self._keep_end(queue, position)
            elif is_behind or (ended is not None and not tails.leads(queue, position)):
                findings.append(f"entry {position} of {name} is damaged, and rebuilt")
                self._keep_end(queue, position + 1)
            elif tails.leads(queue, position) or tails.may_be_lost(queue, position, physical_offset):
                continue
            self.lacks_from = min(self.lacks_from, queue.message_end(sound - 1))
        self._positions.update(dict.fromkeys(without_begin, 0))

    def _keep_end(self, queue: ConsumeQueueInterface, end: int) -> None:
        _, known = (self._ended or {}).get((queue.topic, queue.queue_id), (0, end))
        self._known.setdefault(queue, min(end, known))

    def cut(self) -> None:
        """Truncate the queues."""
        for queue, position in self._positions.items():
            queue.cut(position)

    def reach_known_ends(self) -> None:
        """Make the rebuilt queues end no earlier than before.

        Raises:
            StoreFullError: The disk is full.
        """
        for queue, end in self._known.items():
            if queue.max_offset < end:
                queue.go_on_at(end)
