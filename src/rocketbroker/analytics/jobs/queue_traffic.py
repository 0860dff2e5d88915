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

from rocketbroker.analytics.columns.arrow_columns import number_array
from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.message_schema import FIRST_MS, LAST_MS
from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.commit_log_files import LogFile, commit_log_files
from rocketbroker.analytics.files.queue_files import owning_topics, queue_numbers
from rocketbroker.analytics.files.store_files import open_folder
from rocketbroker.analytics.files.store_names import Stores, store_roots
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.message_reader import read_split
from rocketbroker.analytics.log.minute_turns import MINUTE_MS, MinuteTurns, minute_turns
from rocketbroker.analytics.log.queue_entries import CheckedQueue, QueueEntries, QueueNotWholeError
from rocketbroker.analytics.log.queue_proof import is_closed
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.analytics.sql.facts import TRAFFIC, GroupedSums, grouped
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.storefile.queue_files import CONSUME_QUEUE
from rocketbroker.common.errors import CodecError, ConfigError

_MS: Final = 1000
_LONGEST: Final = 366 * 24 * 3600
# Times as stored: a damaged one may be any number.
_DECODED: Final = pa.schema(
    [("broker", pa.string()), ("topic", pa.string()), ("store_timestamp", pa.int64()), ("size", pa.int32())]
)
_WHOLE_FILE: Final = 1 << 62
logger = logging.getLogger(__name__)


def traffic_by_minute(stores: Stores, report: DecodeReport | None = None) -> pa.Table:
    """Return messages and bytes of each topic in each minute that has any, sorted, as ``facts.TRAFFIC``.

    A damaged record with a queue entry counts unless it is read; :func:`decoded_traffic` reads all records. ``report``
    records damage where the log itself is read. Errors are those of ``read_store``.
    """
    found, sums = DecodeReport() if report is None else report, GroupedSums(TRAFFIC.schema, TRAFFIC.how)
    for root in store_roots(stores):
        _add_store(root, found, sums)
    return sums.result()


def decoded_traffic(stores: Stores, selection: Selection = EVERYTHING, report: DecodeReport | None = None) -> pa.Table:
    """Return the same as :func:`traffic_by_minute`, from the selected messages of the log."""
    found, sums = DecodeReport() if report is None else report, GroupedSums(TRAFFIC.schema, TRAFFIC.how)
    _add_decoded(stores, selection, found, sums)
    return sums.result()


def _add_decoded(stores: Stores, selection: Selection, report: DecodeReport, sums: GroupedSums) -> None:
    for split in plan_splits(stores, _WHOLE_FILE, selection, report=report):
        for batch in read_split(split, _DECODED, report, selection=selection):
            sums.add(TRAFFIC.rows_of(batch))


def _add_store(root: StoreRoot, report: DecodeReport, sums: GroupedSums) -> None:
    files = [file for file in commit_log_files(root) if file.data_end]
    if not files:
        return
    try:
        counted, covered = _of_queues(root, files)
    except (QueueNotWholeError, CodecError) as error:
        logger.warning("%s: %s; traffic is counted from the log instead", root.shown, error)
        _add_decoded([root], EVERYTHING, report, sums)
        return
    sums.add(counted)
    end = files[-1].base + files[-1].data_end
    if covered < end:  # a broker has stored more than it has dispatched
        _add_decoded([root], Selection(physical_offsets=(covered, end)), report, sums)


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
        tables.append(pa.table([*names, *numbers], schema=TRAFFIC.schema))
    return pa.concat_tables([TRAFFIC.schema.empty_table(), *tables]), log.covered()


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
    """Count the messages and bytes of each topic by interval, as ``traffic_by_minute`` does by minute.

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
    starts = found.column("from_ms").to_numpy()
    chosen = np.ones(len(starts), np.bool_)
    if since_ms is not None:
        chosen &= starts >= since_ms
    if until_ms is not None:
        chosen &= starts < until_ms
    if topics is not None:
        chosen &= pc.is_in(found.column("topic"), pa.array(sorted(topics), pa.string())).to_numpy()
    return _by_interval(found.filter(chosen), interval * _MS)


def _by_interval(found: pa.Table, interval_ms: int) -> pa.Table:
    """Return the traffic of longer intervals; ``from_time`` is null outside the years 1 to 9999, as for ``traffic``."""
    starts = found.column("from_ms").to_numpy() // interval_ms * interval_ms
    shown = number_array(starts, missing=(starts < FIRST_MS) | (starts > LAST_MS))
    rows = found.set_column(found.schema.get_field_index("from_ms"), "from_ms", shown)
    wanted = grouped(rows, TRAFFIC.schema, TRAFFIC.how)
    ordered = wanted.sort_by([(name, "ascending") for name in ("from_ms", "broker", "topic")])
    times = ordered.column("from_ms").cast(pa.timestamp("ms", "UTC"))
    return ordered.set_column(2, "from_time", times)
