"""Messages and bytes by topic and time."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.jobs.columns import interval_start, millis
from rocketbroker.analytics.jobs.intervals import check_interval

_MS = 1000


def traffic(messages: DataFrame, interval: int = 60) -> DataFrame:
    """Count what was stored of each topic in each interval of ``interval`` seconds.

    Args:
        messages: with ``broker``, ``topic``, ``store_timestamp`` and ``size``.
        interval: seconds; intervals begin at multiples of it since 1970 (UTC).

    Returns:
        ``broker``, ``topic``, ``from_time`` (null for store times outside the years 1 to 9999), ``messages``, ``bytes``
        of whole records. There is no row for an interval without messages.

    Raises:
        ConfigError: the interval is shorter than a second, or longer than a year.
    """
    check_interval(interval)
    start = interval_start(millis(messages, "store_timestamp"), interval * _MS)
    grouped = messages.groupBy("broker", "topic", start.alias("from_time"))
    return grouped.agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
