"""Times of data frames, which may be timestamps or ms since 1970."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's conventional name
from pyspark.sql.types import LongType

from rocketbroker.analytics.columns.message_schema import FIRST_MS, LAST_MS


def millis(frame: DataFrame, name: str) -> Column:
    """Return the column ``name``, a timestamp or a number, in ms since 1970."""
    is_number = isinstance(frame.schema[name].dataType, LongType)
    return F.col(name) if is_number else F.unix_millis(name)


def as_time(time_ms: Column) -> Column:
    """Return the milliseconds since 1970 as a timestamp, null outside the years 1 to 9999."""
    return F.when(time_ms.between(FIRST_MS, LAST_MS), F.timestamp_millis(time_ms))
