"""Messages and bytes by topic and minute from the ConsumeQueues, without reading most of the log.

A queue has the offsets and sizes of its messages. Store times are in the log alone, but only the starts of minutes
are needed (``minute_turns.py``). The queues must cover the log without a gap; otherwise the log itself is read. Queues
are read twice, a block at a time, so that memory does not grow with them.
"""

import logging
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.commit_log_files import LogFile, commit_log_files
from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.store_root import StoreRoot, Stores, store_roots
from rocketbroker.analytics.log.message_reader import read_split
from rocketbroker.analytics.log.minute_turns import MINUTE_MS, MinuteTurns, minute_turns
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.analytics.queues.queue_entries import CheckedQueue, QueueEntries, QueueNotWholeError
from rocketbroker.analytics.queues.queue_folders import owning_topics, queue_numbers
from rocketbroker.analytics.queues.queue_proof import is_closed
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.queue_files import CONSUME_QUEUE
from rocketbroker.common.errors import CodecError

#: Columns of the result; ``minute_ms`` is the start of the minute, ms since 1970.
TRAFFIC_SCHEMA: Final = pa.schema(
    dict.fromkeys(("broker", "topic"), pa.string()) | dict.fromkeys(("minute_ms", "messages", "bytes"), pa.int64())
)
# Times as stored: a damaged one may be any number.
_DECODED: Final = pa.schema(
    [("broker", pa.string()), ("topic", pa.string()), ("store_timestamp", pa.int64()), ("size", pa.int32())]
)
_WHOLE_FILE: Final = 1 << 62
logger = logging.getLogger(__name__)


def traffic_by_minute(stores: Stores, report: DecodeReport | None = None) -> pa.Table:
    """Return messages and bytes of each topic in each minute that has any, sorted, as ``TRAFFIC_SCHEMA``.

    A damaged record with a queue entry counts unless it is read; :func:`decoded_traffic` reads all records. ``report``
    records damage where the log itself is read. Errors are those of ``read_store``.
    """
    found = DecodeReport() if report is None else report
    parts = [TRAFFIC_SCHEMA.empty_table(), *(_of_store(root, found) for root in store_roots(stores))]
    return pa.concat_tables(parts).sort_by([(name, "ascending") for name in _BY])


def decoded_traffic(stores: Stores, selection: Selection = EVERYTHING, report: DecodeReport | None = None) -> pa.Table:
    """Return the same as :func:`traffic_by_minute`, from the selected messages of the log."""
    parts, found = [TRAFFIC_SCHEMA.empty_table()], DecodeReport() if report is None else report
    for split in plan_splits(stores, _WHOLE_FILE, selection, report=found):
        for batch in read_split(split, _DECODED, found, selection=selection):
            minutes = pa.array(batch.column("store_timestamp").to_numpy() // MINUTE_MS * MINUTE_MS)
            rows = [batch.column("broker"), batch.column("topic"), minutes, batch.column("size").cast(pa.int64())]
            grouped = pa.table(rows, names=["broker", "topic", "minute_ms", "bytes"]).group_by(_BY)
            parts.append(_named(grouped.aggregate([("bytes", "count"), ("bytes", "sum")]), "bytes_count", "bytes_sum"))
    return _grouped(parts).sort_by([(name, "ascending") for name in _BY])


_BY: Final = ["broker", "topic", "minute_ms"]


def _named(grouped: pa.Table, messages: str, size: str) -> pa.Table:
    columns = [*(grouped.column(name) for name in _BY), grouped.column(messages), grouped.column(size)]
    return pa.table(columns, TRAFFIC_SCHEMA.names).cast(TRAFFIC_SCHEMA)


def _grouped(parts: Sequence[pa.Table]) -> pa.Table:
    grouped = pa.concat_tables(parts).group_by(_BY).aggregate([("messages", "sum"), ("bytes", "sum")])
    return _named(grouped, "messages_sum", "bytes_sum")


def _of_store(root: StoreRoot, report: DecodeReport) -> pa.Table:
    files = [file for file in commit_log_files(root) if file.data_end]
    if not files:
        return TRAFFIC_SCHEMA.empty_table()
    try:
        counted, covered = _of_queues(root, files)
    except (QueueNotWholeError, CodecError) as error:
        logger.warning("%s: %s; traffic is counted from the log instead", root.shown, error)
        return decoded_traffic([root], report=report)
    end = files[-1].base + files[-1].data_end
    if covered < end:  # a broker has stored more than it has dispatched
        rest = decoded_traffic([root], Selection(physical_offsets=(covered, end)), report)
        return _grouped([counted, rest]) if rest.num_rows else counted
    return counted


def _of_queues(root: StoreRoot, files: Sequence[LogFile]) -> tuple[pa.Table, int]:
    """Return the traffic of a store, and the offset up to which its queues cover it; raise if they do not match it."""
    folder, tables = open_folder(root), []
    queues = {
        topic: [CheckedQueue(folder, topic, number) for number in queue_numbers(folder, CONSUME_QUEUE, topic)]
        for topic in owning_topics(folder, CONSUME_QUEUE)
    }
    turns = minute_turns(files, [queue for each in queues.values() for queue in each])
    log = _Stretches(files, turns)
    for topic, each in queues.items():
        messages, size = log.count(each)
        seen = np.flatnonzero(messages)
        names = [pa.repeat(name, len(seen)) for name in (root.broker, topic)]
        numbers = [pa.array(values[seen]) for values in (turns.minutes, messages, size)]
        tables.append(pa.table([*names, *numbers], schema=TRAFFIC_SCHEMA))
    return pa.concat_tables([TRAFFIC_SCHEMA.empty_table(), *tables]), log.covered()


class _Stretches:
    """Stretches of the log between the starts of minutes and files, with the bytes that queues have of each."""

    def __init__(self, files: Sequence[LogFile], turns: MinuteTurns) -> None:
        self._files = files
        self._turns = turns
        self._begins = np.union1d(turns.begins, [file.base for file in files])
        self._size = np.zeros(len(self._begins), np.int64)
        self._ends = self._begins.copy()

    def count(self, queues: Sequence[CheckedQueue]) -> tuple[Positions, Positions]:
        """Return messages and bytes of queues in each minute, shape (minutes,)."""
        messages, size = np.zeros(len(self._begins), np.int64), np.zeros(len(self._begins), np.int64)
        for queue in queues:
            for entries in queue.blocks():
                inside = entries.between(self._begins[0], self._turns.end)
                if len(inside):
                    self._add(inside, messages, size)
        self._size += size
        at = np.searchsorted(self._begins, self._turns.begins)
        return np.add.reduceat(messages, at), np.add.reduceat(size, at)

    def _add(self, entries: QueueEntries, messages: Positions, size: Positions) -> None:
        numbers, at, counts = entries.stretches(self._begins)
        messages[numbers] += counts
        size[numbers] += np.add.reduceat(entries.sizes, at)
        last = at + counts - 1
        self._ends[numbers] = np.maximum(self._ends[numbers], entries.offsets[last] + entries.sizes[last])

    def covered(self) -> int:
        """Return the end of the part of the log that the counted queues cover; raise if they have gaps before it."""
        end = self._files[0].base
        for file in self._files:
            if file.base != end and file is not self._files[0]:
                raise QueueNotWholeError(f"no file begins at {end}")
            low, high = np.searchsorted(self._begins, (file.base, file.base + file.size))
            size, end = int(self._size[low:high].sum()), int(self._ends[low:high].max())
            if size != end - file.base:
                raise QueueNotWholeError(f"the queues have {size} bytes of {file.name}, which has {end - file.base}")
            if file is not self._files[-1]:
                if not is_closed(file, end - file.base):
                    raise QueueNotWholeError(
                        f"{file.name} continues at {end - file.base} with messages that are in no queue"
                    )
                end = file.base + file.size
        return end
