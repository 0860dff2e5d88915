"""Traffic from the ConsumeQueues, in the form of the job ``traffic``, without Spark."""

from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.message_schema import FIRST_MS, LAST_MS
from rocketbroker.analytics.files.store_root import Stores
from rocketbroker.analytics.log.minute_traffic import traffic_by_minute
from rocketbroker.analytics.log.minute_turns import MINUTE_MS
from rocketbroker.common.errors import ConfigError

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
