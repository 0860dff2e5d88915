"""Shared columns of jobs: times, percentiles, shares. Times of data frames may be timestamps or ms."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's conventional name
from pyspark.sql.types import LongType

from rocketbroker.analytics.columns.message_schema import FIRST_MS, LAST_MS
from rocketbroker.analytics.columns.topics import POP_RETRY_SEPARATOR_V1, POP_RETRY_SEPARATOR_V2
from rocketbroker.codec.message.message_const import PROPERTY_ORIGIN_GROUP
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.common.errors import ConfigError


def millis(frame: DataFrame, name: str) -> Column:
    """Return the column ``name``, a timestamp or a number, in ms since 1970."""
    is_number = isinstance(frame.schema[name].dataType, LongType)
    return F.col(name) if is_number else F.unix_millis(name)


def as_time(time_ms: Column) -> Column:
    """Return the milliseconds since 1970 as a timestamp, null outside the years 1 to 9999."""
    return F.when(time_ms.between(FIRST_MS, LAST_MS), F.timestamp_millis(time_ms))


def interval_start(time_ms: Column, interval_ms: int) -> Column:
    """Return the start of the interval that contains a time, counted from 1970; null as in ``as_time``."""
    step = F.lit(interval_ms)
    shown = time_ms.between(FIRST_MS + interval_ms, LAST_MS)
    return F.when(shown, F.timestamp_millis(time_ms - F.pmod(time_ms, step)))


def retry_group(topic: Column, properties: Column) -> Column:
    """Return the group of a retry topic; same as ``retry_topics.retry_group``."""
    name = F.substr(topic, F.lit(len(RETRY_GROUP_TOPIC_PREFIX) + 1))
    group = F.element_at(properties, PROPERTY_ORIGIN_GROUP)
    return (
        F.when(F.contains(name, F.lit(POP_RETRY_SEPARATOR_V2)), F.substring_index(name, POP_RETRY_SEPARATOR_V2, 1))
        .when(F.startswith(name, F.concat(group, F.lit(POP_RETRY_SEPARATOR_V1))), group)
        .otherwise(name)
    )


def percentile_columns(value: Column, percentiles: Sequence[float], suffix: str) -> list[Column]:
    """Return columns ``p50``, ``p99_9``, …: exact, with linear interpolation (type 7, as in numpy)."""
    for percent in percentiles:
        if not 0 <= percent <= 100 or percentiles.count(percent) > 1:
            raise ConfigError(f"percentiles: {', '.join(map(str, percentiles))}; give different numbers from 0 to 100")
    return [
        F.percentile(value, F.lit(percent / 100)).alias(f"p{percent:g}".replace(".", "_") + suffix)
        for percent in percentiles
    ]


def share(value: Column, of: Column) -> Column:
    """Return ``value`` as a fraction of ``of``, 0 to 1; null if ``of`` is 0."""
    return F.try_divide(value, of)
