"""Export of messages into files that other programs read, with every column, by day and topic."""

import re
from pathlib import Path
from typing import Final

import pyspark
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from rocketbroker.analytics.jobs.scope import as_time, millis
from rocketbroker.analytics.spark.spark_progress import described
from rocketbroker.common.errors import ConfigError

#: Formats with Spark's name for each, and the library it needs if Spark does not include it.
FORMATS: Final[dict[str, tuple[str, str]]] = {
    "parquet": ("parquet", ""),
    "jsonl": ("json", ""),
    "delta": ("delta", "Delta Lake's jars: install delta-spark for this release of Spark and add its package"),
    "iceberg": ("iceberg", "Iceberg's jar: add the package iceberg-spark-runtime for this release of Spark"),
}
#: Columns of an export.
COLUMNS: Final = ("broker", *(name for name in MESSAGE_SCHEMA.names if name != "broker"))
#: Columns that name folders; not ``topic`` itself, since readers guess the types of folder values.
DAY, OF_TOPIC = "store_day", "of_topic"
# Error condition in the text of Spark's errors; one error arrives as a plain Java exception.
_CONDITION: Final = re.compile(r"\[([A-Z_]+)\]")
# Java's error for a library built for another release of Spark.
_MISFIT: Final = re.compile(
    r"java\.lang\.(?:NoSuchMethod|NoSuchField|NoClassDefFound|AbstractMethod|IncompatibleClassChange)Error: .*"
)
_DAY_MS: Final = 86_400_000
_COMPRESSION: Final = {"parquet": "zstd", "json": "gzip"}


def check_format(form: str) -> None:
    """Raise :class:`ConfigError` for an unknown format."""
    if form not in FORMATS:
        raise ConfigError(f"--format {form!r} is unknown; use one of {', '.join(FORMATS)}")


def exported_columns(messages: DataFrame) -> DataFrame:
    """Return ``messages`` as exported: times as stored, in ms since 1970, and the folder columns."""
    missing = [name for name in COLUMNS if name not in messages.columns]
    if missing:
        raise ConfigError(f"an export needs every column of messages; {', '.join(missing)} is missing")
    stored = millis(messages, "store_timestamp")
    # A time outside the calendar has no day: null becomes Hive's default folder.
    number = F.when(as_time(stored).isNotNull(), F.floor((stored - F.pmod(stored, F.lit(_DAY_MS))) / _DAY_MS))
    day = F.date_from_unix_date(number.cast("int")).cast("string")
    return messages.select(
        *[millis(messages, n).alias(n) if n.endswith("_timestamp") else n for n in COLUMNS],
        day.alias(DAY),
        F.col("topic").alias(OF_TOPIC),
    )


def export(messages: DataFrame, target: str | Path, form: str = "parquet") -> int:
    """Write ``messages`` below ``target``, in folders ``store_day=<UTC date>/of_topic=<topic>``; return their number.

    Bodies are as stored, compressed where ``sys_flag & 1``; in JSON lines they are base64. JSON lines are gzipped.

    Args:
        messages: all columns of ``message_schema.MESSAGE_SCHEMA``.
        target: a new folder or address; for ``iceberg`` a new table.
        form: a key of ``FORMATS``.

    Raises:
        ConfigError: the format is unknown, its library is missing or built for another release of Spark, or the target
            exists already.
    """
    check_format(form)
    name, library = FORMATS[form]
    observed = Observation()
    counted = exported_columns(messages).observe(observed, F.count(F.lit(1)).alias("messages"))
    writer = counted.write.format(name).mode("error").partitionBy(DAY, OF_TOPIC)
    if name in _COMPRESSION:
        writer = writer.option("compression", _COMPRESSION[name])
    try:
        with described(messages.sparkSession, f"Export messages as {form}"):
            writer.saveAsTable(str(target)) if form == "iceberg" else writer.save(str(target))
    except (PySparkException, Py4JJavaError) as error:
        refusal = _refusal(str(error), target, form, library)
        if refusal is None:
            raise
        raise refusal from error
    return int(observed.get["messages"])


def _refusal(said: str, target: str | Path, form: str, library: str) -> ConfigError | None:
    """Return the error for an invalid argument, from the first condition in Spark's text; ``None`` for other errors."""
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
            f"this Spark session cannot write {form}: its jars are not built for Spark {pyspark.__version__} "
            f"({misfit[0]}); it needs {library}, or export to parquet or jsonl"
        )
    if condition in {"PATH_ALREADY_EXISTS", "TABLE_OR_VIEW_ALREADY_EXISTS"}:
        return ConfigError(f"{target} exists already; export to a new target")
    return None
