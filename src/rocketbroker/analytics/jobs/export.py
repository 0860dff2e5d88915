"""Export of messages into files or a table that other programs read, with every column, by day and topic."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from rocketbroker.analytics.files.store_root import place_of
from rocketbroker.analytics.jobs.exported_files import FOLDER, ExportedFiles, ExportState
from rocketbroker.analytics.jobs.scope import as_time, millis
from rocketbroker.analytics.spark.option_values import OptionValues
from rocketbroker.analytics.spark.spark_progress import described, reason_of
from rocketbroker.common.errors import ConfigError, StoreError

#: Formats, and for tables that Spark writes the library that it needs.
FORMATS: Final[dict[str, str]] = {
    "parquet": "",
    "jsonl": "",
    "delta": "Delta Lake's jars: add the package delta-spark for this release of Spark",
    "iceberg": "Iceberg's jar: add the package iceberg-spark-runtime for this release of Spark",
}
#: Columns of an export.
COLUMNS: Final = ("broker", *(name for name in MESSAGE_SCHEMA.names if name != "broker"))
#: Columns that name folders; not ``topic`` itself, since readers guess the types of folder values.
DAY, OF_TOPIC, OF_BROKER = "store_day", "of_topic", "of_broker"
FOLDERS: Final = {"day": DAY, "topic": OF_TOPIC, "broker": OF_BROKER}
BY_DAY_AND_TOPIC: Final = "day,topic"
# Error condition in the text of Spark's errors; one error arrives as a plain Java exception.
_CONDITION: Final = re.compile(r"\[([A-Z_]+)(?:\.[A-Z_]+)*\]")
# Java's error for a library built for another release of Spark.
_MISFIT: Final = re.compile(
    r"java\.lang\.(?:NoSuchMethod|NoSuchField|NoClassDefFound|AbstractMethod|IncompatibleClassChange)Error: .*"
)
_NO_FILE_SYSTEM: Final = re.compile(r'No FileSystem for scheme "?(\w+)')
_NO_TABLE: Final = {"PATH_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND"}
_DAY_MS: Final = 86_400_000
_SIZE: Final = {"--file-size": "bytes, such as 128m"}
# Bytes that are shuffled for a file: it is compressed better than they are. A task whose file is full begins another.
_SHUFFLED: Final = 4
# Spark has sizes in 64 bits.
_LARGEST: Final = 1 << 40
# Buckets of folders before Spark merges small ones and splits large ones: few folders share one.
_BUCKETS: Final = 1000


def folder_columns(form: str, partition_by: str = BY_DAY_AND_TOPIC) -> list[str]:
    """Return the columns of ``partition_by``, names of ``FOLDERS`` with commas, or ``none``.

    Raises:
        ConfigError: the format or a name is unknown, or a name is repeated.
    """
    if form not in FORMATS:
        raise ConfigError(f"--format {form!r} is unknown; use one of {', '.join(FORMATS)}")
    names = [name.strip() for name in partition_by.split(",")] if partition_by != "none" else []
    if len(set(names)) != len(names) or set(names) - set(FOLDERS):
        raise ConfigError(f"--partition-by {partition_by!r}: use day, topic or broker, each once, or none")
    return [FOLDERS[name] for name in names]


def shown_target(target: str | Path) -> str:
    """Return a target as given, an address without credentials and query."""
    return place_of(target).shown if "://" in str(target) else str(target)


def exported_columns(messages: DataFrame, folders: Sequence[str] = (DAY, OF_TOPIC)) -> DataFrame:
    """Return ``messages`` as exported: times as stored, in ms since 1970, and the folder columns."""
    missing = [name for name in COLUMNS if name not in messages.columns]
    if missing:
        raise ConfigError(f"an export needs every column of messages; {', '.join(missing)} is missing")
    stored = millis(messages, "store_timestamp")
    # A time outside the calendar has no day: null becomes Hive's default folder.
    number = F.when(as_time(stored).isNotNull(), F.floor((stored - F.pmod(stored, F.lit(_DAY_MS))) / _DAY_MS))
    day = F.date_from_unix_date(number.cast("int")).cast("string")
    values = {DAY: day, OF_TOPIC: F.col("topic"), OF_BROKER: F.col("broker")}
    return messages.select(
        *[millis(messages, n).alias(n) if n.endswith("_timestamp") else n for n in COLUMNS],
        *[values[name].alias(name) for name in folders],
    )


def exported_ends(spark: SparkSession, target: str | Path, form: str = "parquet") -> dict[str, int]:
    """Return by broker the highest physical offset in ``target``; empty if there is no such target."""
    if not FORMATS[form]:
        state = ExportedFiles(place_of(target)).state()
        return state.ends if state else {}
    with _naming_faults(target, form):
        table = _table(spark, target, form)
        return dict(table.groupBy("broker").agg(F.max("physical_offset")).collect()) if table is not None else {}


def export(
    messages: DataFrame,
    target: str | Path,
    form: str = "parquet",
    *,
    append: bool = False,
    partition_by: str = BY_DAY_AND_TOPIC,
    file_size: str = "128m",
) -> int:
    """Write ``messages`` to ``target``, in folders ``store_day=<UTC date>/of_topic=<topic>``; return their number.

    Bodies are as stored, compressed where ``sys_flag & 1``; in JSON lines they are base64. JSON lines are gzipped.

    Args:
        messages: all columns of ``message_schema.MESSAGE_SCHEMA``.
        target: a new or empty folder or address, or one where no export was completed; for ``iceberg`` a new table.
        form: a key of ``FORMATS``.
        append: add what is beyond the highest physical offset of each broker to ``target``, which may exist.
        partition_by: see :func:`folder_columns`.
        file_size: bytes that a file is to have, as Spark writes sizes; of a table before compression.

    Raises:
        ConfigError: an argument is invalid, a library is missing or built for another release of Spark, or the target
            exists already, or has other columns.
        StoreError: the target cannot be written, or another export writes to it; the text says what it has.
    """
    folders = folder_columns(form, partition_by)
    rows = exported_columns(messages, folders)
    most = size_of_files(file_size)
    spark, shuffled = messages.sparkSession, most if FORMATS[form] else most * _SHUFFLED
    with _naming_faults(target, form), _tasks_of(spark, shuffled), described(spark, f"Export messages as {form}"):
        if FORMATS[form]:
            return _write_table(rows, target, form, folders, append)
        return _write_files(rows, target, form, folders, append, most)


def size_of_files(text: str) -> int:
    """Return the bytes of ``--file-size``; raise :class:`ConfigError` for another text, or above 1 TiB."""
    found = OptionValues("export", _SIZE, {"--file-size": text}).bytes("--file-size", 0)
    if found > _LARGEST:
        raise ConfigError(f"--file-size is {text!r}; give at most 1024g ({_SIZE['--file-size']})")
    return found


@contextmanager
def _naming_faults(target: str | Path, form: str) -> Iterator[None]:
    """Raise the errors of :func:`export` for those of Spark in the block."""
    try:
        yield
    except (PySparkException, Py4JError) as error:  # PySpark does not convert all Java errors
        shown = shown_target(target)
        refusal = _refusal(str(error), shown, form)
        if refusal is not None:
            raise refusal from error
        raise StoreError(
            f"exporting failed: {reason_of(error)}; {shown} has nothing of this export, "
            "and --append goes on where it ends"
        ) from error


@contextmanager
def _tasks_of(spark: SparkSession, size: int) -> Iterator[None]:
    """Let Spark merge and split shuffled partitions to this size in the block."""
    settings = {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(size),
    }
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


def _write_files(
    rows: DataFrame, target: str | Path, form: str, folders: list[str], append: bool, file_size: int
) -> int:
    place = place_of(target)
    files = ExportedFiles(place)
    found = files.state()
    if found is not None and found.files and not append:
        raise ConfigError(f"{place.shown} exists already; export to a new target, or --append to it")
    state = found or ExportState(form, folders, list(COLUMNS), files=[], ends={})
    _check_same(place.shown, [state.form, *state.folders, *state.columns], [form, *folders, *COLUMNS])
    folder = F.to_json(F.array(*folders)) if folders else F.lit("[]")
    line = [F.to_json(F.struct(*COLUMNS)).alias("line")] if form == "jsonl" else []
    columns = ["broker", "physical_offset", *line] if line else COLUMNS
    sized = _beyond(rows, state.ends).select(*columns, folder.alias(FOLDER)).hint("rebalance", _BUCKETS, FOLDER)
    return files.add(sized.sortWithinPartitions(FOLDER, "broker", "physical_offset"), state, found, file_size)


def _write_table(rows: DataFrame, target: str | Path, form: str, folders: list[str], append: bool) -> int:
    table = _table(rows.sparkSession, target, form) if append else None
    if table is not None:
        _check_same(shown_target(target), table.columns, rows.columns)
        rows = _beyond(rows, exported_ends(rows.sparkSession, target, form))
    observed = Observation()
    counted = rows.observe(observed, F.count(F.lit(1)).alias("messages"))
    writer = (
        counted.hint("rebalance", _BUCKETS, *folders).write.format(form).mode("error" if table is None else "append")
    )
    writer = writer.partitionBy(*folders)
    writer.saveAsTable(str(target)) if form == "iceberg" else writer.save(str(target))
    return int(observed.get["messages"])


def _table(spark: SparkSession, target: str | Path, form: str) -> DataFrame | None:
    """Return the table that Spark has at ``target``, None if there is none."""
    try:
        table = spark.table(str(target)) if form == "iceberg" else spark.read.format(form).load(str(target))
    except AnalysisException as error:
        if _condition(str(error)) in _NO_TABLE:
            return None
        raise
    return table


def _check_same(target: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise :class:`ConfigError` if a target has another format, or other columns or folders."""
    if list(found) != list(wanted):
        differing = ", ".join(sorted({*found} ^ {*wanted})) or "the order of columns"
        raise ConfigError(
            f"{target} differs from this export in {differing}; append with the same --format and --partition-by, "
            "or export to a new target"
        )


def _beyond(rows: DataFrame, ends: Mapping[str, int]) -> DataFrame:
    for broker, end in ends.items():
        rows = rows.where((F.col("broker") != broker) | (F.col("physical_offset") > end))
    return rows


def _condition(said: str) -> str:
    """Return the first error condition in Spark's text."""
    found = _CONDITION.search(said)
    return found[1] if found else ""


def _refusal(said: str, target: str, form: str) -> ConfigError | None:
    """Return the error for an invalid argument; ``None`` for other errors."""
    library, condition = FORMATS[form], _condition(said)
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
    scheme = _NO_FILE_SYSTEM.search(said)
    if scheme:
        return ConfigError(
            f"Spark itself writes {form}, and has no file system for {scheme[1]}://; add Hadoop's for it "
            "(hadoop-aws, and an address with s3a://), or export to parquet or jsonl"
        )
    if condition in {"PATH_ALREADY_EXISTS", "TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_PATH_EXISTS"}:
        return ConfigError(f"{target} exists already; export to a new target, or --append to it")
    return None
