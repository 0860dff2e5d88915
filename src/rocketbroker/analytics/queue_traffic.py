"""Messages and bytes by topic and minute from the ConsumeQueues: the log itself is hardly read.

A queue says where its messages lie and how large they are. When they were stored is in the log alone, but store times
rise with the offset: for each minute it is enough to find its first message. One message in each 128 KiB of the log is
looked at, those that halve what lies around the turn of a minute, and all of the last 32 KiB around it: these must be
where their queue says, and their times must not go back.
The queues must have all of the log without a gap. Where that does not hold, the log itself is read.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketbroker.analytics.commit_log_files import LogFile, commit_log_files
from rocketbroker.analytics.decode_report import DecodeReport
from rocketbroker.analytics.message_reader import read_split
from rocketbroker.analytics.open_store import open_folder
from rocketbroker.analytics.queue_entries import QueueFiles, QueueNotWholeError
from rocketbroker.analytics.queue_folders import CONSUME_QUEUE, queue_numbers, queue_topics
from rocketbroker.analytics.selection import EVERYTHING, Selection
from rocketbroker.analytics.split import plan_splits
from rocketbroker.analytics.store_root import StoreRoot, Stores, store_roots
from rocketbroker.analytics.stored_times import stored_times
from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.message.message_encoder import BLANK_MAGIC_CODE
from rocketbroker.common.errors import CodecError

MINUTE_MS: Final = 60_000
#: Columns of the result; ``minute_ms`` is the minute's beginning, ms since 1970.
TRAFFIC_SCHEMA: Final = pa.schema(
    [
        ("broker", pa.string()),
        ("topic", pa.string()),
        ("minute_ms", pa.int64()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
# Times as they are stored: a damaged one may be any number.
_DECODED: Final = pa.schema(
    [("broker", pa.string()), ("topic", pa.string()), ("store_timestamp", pa.int64()), ("size", pa.int32())]
)
_WHOLE_FILE: Final = 1 << 62
_SAMPLED: Final = 128 << 10
# Around the turn of a minute all messages are looked at that lie between two so near to each other.
_NEAR: Final = 32 << 10
#: With more entries than these (16 bytes each in memory) the log is read.
MOST_ENTRIES: Final = 32 << 20

logger = logging.getLogger(__name__)


class _Queue(NamedTuple):
    """The messages of a queue: where they begin, and how many bytes all before each have, with one number more."""

    topic: str
    offsets: Positions
    bytes_before: Positions


def traffic_by_minute(stores: Stores) -> pa.Table:
    """Messages and bytes of each topic in each minute that has any, sorted, as ``TRAFFIC_SCHEMA``.

    What is damaged in the log, but stands in a queue, is counted, unless it is met; :func:`decoded_traffic` reads all.

    Raises:
        ConfigError, StoreError: as from ``read_store``.
    """
    return _sorted([_of_store(root) for root in store_roots(stores)])


def decoded_traffic(stores: Stores, selection: Selection = EVERYTHING) -> pa.Table:
    """The same from the messages of the log that are selected.

    Raises:
        ConfigError, StoreError: as from ``read_store``.
    """
    parts, report = [], DecodeReport()
    for split in plan_splits(stores, _WHOLE_FILE, selection, report=report):
        for batch in read_split(split, _DECODED, report, selection=selection):
            minutes = pa.array(batch.column("store_timestamp").to_numpy() // MINUTE_MS * MINUTE_MS)
            rows = [batch.column("broker"), batch.column("topic"), minutes, batch.column("size").cast(pa.int64())]
            grouped = pa.table(rows, names=["broker", "topic", "minute_ms", "bytes"]).group_by(_BY)
            parts.append(_named(grouped.aggregate([("bytes", "count"), ("bytes", "sum")]), "bytes_count", "bytes_sum"))
    return _sorted(parts)


_BY: Final = ["broker", "topic", "minute_ms"]


def _named(grouped: pa.Table, messages: str, size: str) -> pa.Table:
    columns = [*(grouped.column(name) for name in _BY), grouped.column(messages), grouped.column(size)]
    return pa.table(columns, TRAFFIC_SCHEMA.names).cast(TRAFFIC_SCHEMA)


def _sorted(parts: Sequence[pa.Table]) -> pa.Table:
    whole = pa.concat_tables([TRAFFIC_SCHEMA.empty_table(), *parts])
    grouped = whole.group_by(_BY).aggregate([("messages", "sum"), ("bytes", "sum")])
    return _named(grouped, "messages_sum", "bytes_sum").sort_by([(name, "ascending") for name in _BY])


def _of_store(root: StoreRoot) -> pa.Table:
    files = [file for file in commit_log_files(root) if file.data_end]
    if not files:
        return TRAFFIC_SCHEMA.empty_table()
    try:
        queues = list(_queues(root, files))
        covered = _covered(files, queues)
        minutes = _minutes(files, queues)
    except (QueueNotWholeError, CodecError) as error:
        logger.warning("%s: %s; traffic is counted from the log itself", root.shown, error)
        return decoded_traffic([root])
    counted = [_of_topic(root.broker, topic, queues, *minutes) for topic in sorted({queue.topic for queue in queues})]
    end = files[-1].base + files[-1].data_end
    if covered < end:  # a broker has stored more than it has entered into its queues
        counted.append(decoded_traffic([root], Selection(physical_offsets=(covered, end))))
    return pa.concat_tables([TRAFFIC_SCHEMA.empty_table(), *counted])


def _queues(root: StoreRoot, files: Sequence[LogFile]) -> Iterator[_Queue]:
    """All queues, as far as the log was written when its files were measured, and from where it begins."""
    folder, end, found = open_folder(root), files[-1].base + files[-1].data_end, 0
    for topic in queue_topics(folder, CONSUME_QUEUE):
        for queue_id in queue_numbers(folder, CONSUME_QUEUE, topic):
            queue = QueueFiles(folder, topic, queue_id)
            if queue.capacity > MOST_ENTRIES:
                raise QueueNotWholeError(f"the files of {queue.name} have room for more than {MOST_ENTRIES} entries")
            entries = queue.whole()
            low, high = map(int, np.searchsorted(entries.offsets, (files[0].base, end)))
            found += high - low
            if found > MOST_ENTRIES:
                raise QueueNotWholeError(f"its queues have more than {MOST_ENTRIES} entries")
            sizes = np.concatenate(([0], np.cumsum(entries.sizes[low:high])))
            yield _Queue(topic, entries.offsets[low:high], sizes)


def _covered(files: Sequence[LogFile], queues: Sequence[_Queue]) -> int:
    """The offset up to which the queues have all of the log.

    Raises:
        QueueNotWholeError: something before it is in no queue.
    """
    end = files[0].base
    for file in files:
        if file.base != end and file is not files[0]:
            raise QueueNotWholeError(f"no file begins at {end}")
        size, end = 0, file.base
        for queue in queues:
            low, high = np.searchsorted(queue.offsets, (file.base, file.base + file.size))
            if high > low:
                size += int(queue.bytes_before[high] - queue.bytes_before[low])
                end = max(end, int(queue.offsets[high - 1] + queue.bytes_before[high] - queue.bytes_before[high - 1]))
        if size != end - file.base:
            raise QueueNotWholeError(f"the queues have {size} bytes of {file.name}, which has {end - file.base}")
        if file is not files[-1]:
            _check_end(file, end - file.base)
            end = file.base + file.size
    return end


def _check_end(file: LogFile, position: int) -> None:
    """Hold against a file what closes it behind its last message."""
    if position == file.size:
        return
    head = open_folder(file.root).read(file.name, position, 8)
    if int.from_bytes(head[:4], "big") != file.size - position or int.from_bytes(head[4:], "big") != BLANK_MAGIC_CODE:
        raise QueueNotWholeError(f"{file.name} goes on at {position} with what is in no queue")


def _minutes(files: Sequence[LogFile], queues: Sequence[_Queue]) -> tuple[Positions, Positions]:
    """The minutes that have messages, ms since 1970, and the offset at which the first message of each begins.

    Raises:
        CodecError: a message is not where its queue says, or times go back.
        QueueNotWholeError: there is no entry at all.
    """
    spine = max((queue.offsets for queue in queues), key=len, default=np.empty(0, np.int64))
    if not len(spine):
        raise QueueNotWholeError("no queue leads into the log")
    step = max(len(spine) * _SAMPLED // max(sum(file.data_end for file in files), 1), 1)
    ends = [offsets for queue in queues if len(offsets := queue.offsets)]
    first, last = min(int(each[0]) for each in ends), max(int(each[-1]) for each in ends)
    sampled = np.unique(np.concatenate(([first], spine[::step], [last])))
    sampled, times = _halved(files, spine, sampled)
    turns = np.flatnonzero(np.diff(times // MINUTE_MS))
    near = _between(queues, sampled[turns], sampled[turns + 1])
    # All differ: of each stretch the end belongs to it, and the beginning to the one before.
    known = np.sort(np.concatenate((sampled[:1], near)), kind="stable")
    minutes = _risen(stored_times(files, known)) // MINUTE_MS
    new = np.flatnonzero(np.concatenate(([True], minutes[1:] != minutes[:-1])))
    return minutes[new] * MINUTE_MS, known[new]


def _halved(files: Sequence[LogFile], spine: Positions, offsets: Positions) -> tuple[Positions, Positions]:
    """``offsets`` and the store times there, with offsets of ``spine`` put in until the turns of minutes are near.

    Raises:
        CodecError: a message is not where it should be, or times go back.
    """
    times = stored_times(files, offsets)
    while True:
        turns = np.flatnonzero((np.diff(times // MINUTE_MS) != 0) & (np.diff(offsets) > _NEAR))
        begins, ends = np.searchsorted(spine, offsets[turns], "right"), np.searchsorted(spine, offsets[turns + 1])
        parted = begins < ends
        if not parted.any():
            return offsets, _risen(times)
        places, middles = turns[parted] + 1, spine[(begins + ends)[parted] // 2]
        times = np.insert(times, places, stored_times(files, middles))
        offsets = np.insert(offsets, places, middles)


def _risen(times: Positions) -> Positions:
    if (times[1:] < times[:-1]).any():
        raise CodecError("store times go back")
    return times


def _between(queues: Sequence[_Queue], low: Positions, high: Positions) -> Positions:
    """The offsets of all messages behind each of ``low`` up to and with each of ``high``."""
    found = [np.empty(0, np.int64)]
    for queue in queues:
        begins, ends = np.searchsorted(queue.offsets, low, "right"), np.searchsorted(queue.offsets, high, "right")
        found.append(queue.offsets[_ranges(begins, ends)])
    return np.concatenate(found)


def _ranges(begins: NDArray[Any], ends: NDArray[Any]) -> NDArray[Any]:
    """The numbers of all ranges, one after the other."""
    lengths = ends - begins
    starts = np.cumsum(lengths) - lengths
    numbers: NDArray[Any] = np.arange(int(lengths.sum())) + np.repeat(begins - starts, lengths)
    return numbers


def _of_topic(broker: str, topic: str, queues: Sequence[_Queue], minutes: Positions, begins: Positions) -> pa.Table:
    messages, size = np.zeros(len(minutes), np.int64), np.zeros(len(minutes), np.int64)
    for queue in queues:
        if queue.topic == topic:
            places = np.append(np.searchsorted(queue.offsets, begins), len(queue.offsets))
            messages += np.diff(places)
            size += np.diff(queue.bytes_before[places])
    names = [pa.repeat(broker, len(minutes)), pa.repeat(topic, len(minutes))]
    counted = pa.table([*names, pa.array(minutes), pa.array(messages), pa.array(size)], schema=TRAFFIC_SCHEMA)
    return counted.filter(pc.greater(counted.column("messages"), 0))
