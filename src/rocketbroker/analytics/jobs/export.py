"""Writes messages into files that other programs read, with every column, by day and topic."""

import re
from pathlib import Path
from typing import Final

import pyspark
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from rocketbroker.analytics.jobs.columns import as_time, millis
from rocketbroker.common.errors import ConfigError

#: Formats by what Spark calls them, and what brings those that it does not have itself.
FORMATS: Final[dict[str, tuple[str, str]]] = {
    "parquet": ("parquet", ""),
    "jsonl": ("json", ""),
    "delta": ("delta", "Delta Lake's jars: install delta-spark for this release of Spark and add its package"),
    "iceberg": ("iceberg", "Iceberg's jar: add the package iceberg-spark-runtime for this release of Spark"),
}
#: What an export has of a message.
COLUMNS: Final = ("broker", *(name for name in MESSAGE_SCHEMA.names if name != "broker"))
#: Columns that make folders, beside ``topic`` itself: its values are names of folders, and readers guess their types.
DAY, OF_TOPIC = "store_day", "of_topic"
# Spark's errors name their condition so; one of them comes as the Java exception that it is.
_CONDITION: Final = re.compile(r"\[([A-Z_]+)\]")
# What Java says of a library that was made for another release of Spark.
_MISFIT: Final = re.compile(
    r"java\.lang\.(?:NoSuchMethod|NoSuchField|NoClassDefFound|AbstractMethod|IncompatibleClassChange)Error: .*"
)
_DAY_MS: Final = 86_400_000
_COMPRESSION: Final = {"parquet": "zstd", "json": "gzip"}


def check_format(form: str) -> None:
    """Raise :class:`ConfigError` when there is no such format."""
    if form not in FORMATS:
        raise ConfigError(f"there is no format {form!r}; there are {', '.join(FORMATS)}")


def exported_columns(messages: DataFrame) -> DataFrame:
    """``messages`` as they are exported: times in ms since 1970 exactly as stored, and the columns of the folders."""
    missing = [name for name in COLUMNS if name not in messages.columns]
    if missing:
        raise ConfigError(f"an export has every column of messages; {', '.join(missing)} is missing")
    stored = millis(messages, "store_timestamp")
    # A time that no calendar has is of no day: null makes the folder that Hive calls so.
    number = F.when(as_time(stored).isNotNull(), F.floor((stored - F.pmod(stored, F.lit(_DAY_MS))) / _DAY_MS))
    day = F.date_from_unix_date(number.cast("int")).cast("string")
    return messages.select(
        *[millis(messages, n).alias(n) if n.endswith("_timestamp") else n for n in COLUMNS],
        day.alias(DAY),
        F.col("topic").alias(OF_TOPIC),
    )


def export(messages: DataFrame, target: str | Path, form: str = "parquet") -> int:
    """Write ``messages`` below ``target``, in folders ``store_day=<UTC date>/of_topic=<topic>``.

    Bodies are as stored, compressed where ``sys_flag & 1``; in JSON lines they are base64. JSON lines are gzipped.

    Args:
        messages: with all columns of ``message_schema.MESSAGE_SCHEMA``.
        target: a folder or address that does not exist yet; for ``iceberg`` a table that does not.
        form: a key of ``FORMATS``.

    Returns:
        How many messages were written.

    Raises:
        ConfigError: there is no such format, its library is not in the session or made for another release of Spark,
            or the target is there already.
    """
    check_format(form)
    name, library = FORMATS[form]
    observed = Observation()
    counted = exported_columns(messages).observe(observed, F.count(F.lit(1)).alias("messages"))
    writer = counted.write.format(name).mode("error").partitionBy(DAY, OF_TOPIC)
    if name in _COMPRESSION:
        writer = writer.option("compression", _COMPRESSION[name])
    try:
        writer.saveAsTable(str(target)) if form == "iceberg" else writer.save(str(target))
    except (PySparkException, Py4JJavaError) as error:
        refusal = _refusal(str(error), target, form, library)
        if refusal is None:
            raise
        raise refusal from error
    return int(observed.get["messages"])


def _refusal(said: str, target: str | Path, form: str, library: str) -> ConfigError | None:
    """Explain wrong arguments by the condition that Spark names first; ``None`` for any other failure."""
    found = _CONDITION.search(said)
    condition = found[1] if found else ""
    if condition == "DATA_SOURCE_NOT_FOUND":
        return ConfigError(
            f"this Spark session cannot write {form}: it lacks {library} to the session (spark.jars.packages), "
            "or export to parquet or jsonl"
        )
    misfit = _MISFIT.search(said)
    if library and misfit:
        return ConfigError(
            f"this Spark session cannot write {form}: the jars in it are not made for Spark {pyspark.__version__} "
            f"({misfit[0]}); it needs {library}, or export to parquet or jsonl"
        )
    if condition in {"PATH_ALREADY_EXISTS", "TABLE_OR_VIEW_ALREADY_EXISTS"}:
        return ConfigError(f"{target} is there already; an export needs a target that is not")
    return None
