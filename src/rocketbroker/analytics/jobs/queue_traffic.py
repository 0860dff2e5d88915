"""Messages and bytes by topic and time from the ConsumeQueues, without Spark and without reading most of the log.

A queue has the offsets and sizes of its messages. Store times are in the log alone, but only the starts of minutes
are needed (``minute_turns.py``). The queues must cover the log without a gap; otherwise the log itself is read. Queues
are read twice, a block at a time, so that memory does not grow with them.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.message_schema import FIRST_MS, LAST_MS
from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.commit_log_files import LogFile, commit_log_files
from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.queue_files import owning_topics, queue_numbers
from rocketbroker.analytics.files.store_root import StoreRoot, Stores, store_roots
from rocketbroker.analytics.log.message_reader import read_split
from rocketbroker.analytics.log.minute_turns import MINUTE_MS, MinuteTurns, minute_turns
from rocketbroker.analytics.log.queue_entries import CheckedQueue, QueueEntries, QueueNotWholeError
from rocketbroker.analytics.log.queue_proof import is_closed
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.queue_files import CONSUME_QUEUE
from rocketbroker.common.errors import CodecError, ConfigError

# Messages and bytes by topic and minute from the ConsumeQueues, without reading most of the log.
#
# A queue has the offsets and sizes of its messages. Store times are in the log alone, but only the starts of minutes
# are needed (``minute_turns.py``). The queues must cover the log without a gap; otherwise the log itself is read.
# Queues are read twice, a block at a time, so that memory does not grow with them.

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
    return pa.concat_tables(parts).sort_by([(name, "ascending") for name in _BY_MINUTE])


def decoded_traffic(stores: Stores, selection: Selection = EVERYTHING, report: DecodeReport | None = None) -> pa.Table:
    """Return the same as :func:`traffic_by_minute`, from the selected messages of the log."""
    parts, found = [TRAFFIC_SCHEMA.empty_table()], DecodeReport() if report is None else report
    for split in plan_splits(stores, _WHOLE_FILE, selection, report=found):
        for batch in read_split(split, _DECODED, found, selection=selection):
            minutes = pa.array(batch.column("store_timestamp").to_numpy() // MINUTE_MS * MINUTE_MS)
            rows = [batch.column("broker"), batch.column("topic"), minutes, batch.column("size").cast(pa.int64())]
            grouped = pa.table(rows, names=["broker", "topic", "minute_ms", "bytes"]).group_by(_BY_MINUTE)
            parts.append(_named(grouped.aggregate([("bytes", "count"), ("bytes", "sum")]), "bytes_count", "bytes_sum"))
    return _grouped(parts).sort_by([(name, "ascending") for name in _BY_MINUTE])


_BY_MINUTE: Final = ["broker", "topic", "minute_ms"]


def _named(grouped: pa.Table, messages: str, size: str) -> pa.Table:
    columns = [*(grouped.column(name) for name in _BY_MINUTE), grouped.column(messages), grouped.column(size)]
    return pa.table(columns, TRAFFIC_SCHEMA.names).cast(TRAFFIC_SCHEMA)


def _grouped(parts: Sequence[pa.Table]) -> pa.Table:
    grouped = pa.concat_tables(parts).group_by(_BY_MINUTE).aggregate([("messages", "sum"), ("bytes", "sum")])
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


_MS: Final = 1000
_LONGEST: Final = 366 * 24 * 3600
_BY: Final = ["broker", "topic", "from_ms"]


def check_interval(seconds: int, unit: int = 1) -> None:
    """Raise :class:`ConfigError` unless an interval is 1 second to a year long, and a multiple of ``unit`` seconds."""
    if not 1 <= seconds <= _LONGEST:
        raise ConfigError(f"--interval {seconds:,} is out of range; give 1 to {_LONGEST:,} seconds")
    if seconds % unit:
        raise ConfigError(f"--interval {seconds:,}: traffic from queues is by whole minutes; give a multiple of {unit}")


def queue_traffic(
    stores: Stores,
    interval: int = 60,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    topics: Collection[str] | None = None,
    report: DecodeReport | None = None,
) -> pa.Table:
    """Count the messages and bytes of each topic by interval, as ``minute_traffic.traffic_by_minute`` does by minute.

    Args:
        stores: the stores.
        interval: seconds, a multiple of 60; intervals are aligned to 1970 (UTC).
        since_ms: start of the store times, ms since 1970, a whole minute.
        until_ms: end of the store times (exclusive), a whole minute.
        topics: the topics, all if None.
        report: records damage where the log itself is read.

    Returns:
        The columns of the job ``traffic``, sorted by ``from_time``, ``broker`` and ``topic``.
    """
    check_interval(interval, MINUTE_MS // _MS)
    for name, time_ms in (("--since", since_ms), ("--until", until_ms)):
        if time_ms is not None and time_ms % MINUTE_MS:
            raise ConfigError(f"{name} {time_ms} (ms since 1970) is not a whole minute; traffic from queues needs one")
    found = traffic_by_minute(stores, report)
    return _by_interval(found.filter(_chosen(found, since_ms, until_ms, topics)), interval * _MS)


def _chosen(
    found: pa.Table, since_ms: int | None, until_ms: int | None, topics: Collection[str] | None
) -> NDArray[np.bool_]:
    minutes = found.column("minute_ms").to_numpy()
    chosen = np.ones(len(minutes), np.bool_)
    if since_ms is not None:
        chosen &= minutes >= since_ms
    if until_ms is not None:
        chosen &= minutes < until_ms
    if topics is not None:
        chosen &= pc.is_in(found.column("topic"), pa.array(sorted(topics), pa.string())).to_numpy()
    return chosen


def _by_interval(found: pa.Table, interval_ms: int) -> pa.Table:
    minutes = found.column("minute_ms").to_numpy()
    is_shown = (minutes >= FIRST_MS + interval_ms) & (minutes <= LAST_MS)
    begins = pa.array(minutes // interval_ms * interval_ms, mask=~is_shown)
    rows = found.drop_columns("minute_ms").append_column("from_ms", begins)
    grouped = rows.group_by(_BY).aggregate([("messages", "sum"), ("bytes", "sum")])
    ordered = grouped.sort_by([(name, "ascending") for name in ("from_ms", "broker", "topic")])
    times = ordered.column("from_ms").cast(pa.timestamp("ms", "UTC"))
    columns = [ordered.column("broker"), ordered.column("topic"), times]
    columns += [ordered.column("messages_sum"), ordered.column("bytes_sum")]
    return pa.table(columns, ["broker", "topic", "from_time", "messages", "bytes"])
