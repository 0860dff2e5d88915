"""Messages and bytes by topic and time."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.jobs.columns import interval_start, millis
from rocketbroker.analytics.jobs.queue_traffic import check_interval

_MS = 1000


def traffic(messages: DataFrame, interval: int = 60) -> DataFrame:
    """Count the messages and bytes of each topic in intervals of ``interval`` seconds, aligned to 1970 (UTC).

    Args:
        messages: ``broker``, ``topic``, ``store_timestamp`` and ``size``.
        interval: seconds, 1 to a year.

    Returns:
        ``broker``, ``topic``, ``from_time`` (null for store times outside the years 1 to 9999), ``messages``, ``bytes``
        of whole records. An interval without messages has no row.
    """
    check_interval(interval)
    start = interval_start(millis(messages, "store_timestamp"), interval * _MS)
    grouped = messages.groupBy("broker", "topic", start.alias("from_time"))
    return grouped.agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
