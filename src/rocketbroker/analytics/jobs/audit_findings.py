"""Findings of an audit: places where a rule of ``codec/storefile/audit_rules.py`` is broken."""

from collections.abc import Mapping
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.codec.storefile.audit_rules import AuditRule, Severity

#: Columns of a finding; null where they do not apply to a rule.
COLUMNS: Final = ("broker", "rule", "severity", "topic", "queue_id", "queue_offset", "physical_offset", "detail")
# Up to this many rows are collected on the driver instead of computed again where they are used.
_FEW: Final = 10_000
# Rules about entries of one message: they do not apply once the message's file was removed.
_OF_ONE_PLACE: Final = (
    AuditRule.QUEUE_ENTRY_MISMATCH,
    AuditRule.QUEUE_ENTRY_UNREADABLE,
    AuditRule.MESSAGE_NOT_QUEUED,
    AuditRule.INDEX_ENTRY_MISMATCH,
    AuditRule.INDEX_ENTRY_UNREADABLE,
    AuditRule.INDEX_MISSING_KEY,
)
_TYPES: Final = {"queue_id": "int", "queue_offset": "bigint", "physical_offset": "bigint"}


def local_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return ``rows`` as a data frame that Spark knows at planning, so that it drops joins without rows."""
    # Spark 4.3 reads a batch without rows as the end of the data, and a table of several chunks may contain one.
    return spark.createDataFrame(rows.combine_chunks())


class Kept:
    """Frames that several queries use: each is computed once, and Spark plans the queries over it separately.

    Without it, the plan of an audit is so large that planning takes far longer than running. Use it as a context
    manager, or call ``release`` after the last query over the frames.
    """

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def keep(self, frame: DataFrame) -> DataFrame:
        """Return ``frame`` cached, so that it is computed once."""
        self._frames.append(frame.persist())
        return self._frames[-1]

    def keep_few(self, frame: DataFrame) -> DataFrame:
        """Compute ``frame`` now if it has few rows, so that Spark drops joins without rows; else ``keep`` it."""
        rows = frame.limit(_FEW + 1).toArrow()
        if rows.num_rows > _FEW:
            return self.keep(frame)
        return local_frame(frame.sparkSession, rows)

    def release(self) -> None:
        """Release all frames."""
        while self._frames:
            self._frames.pop().unpersist()

    def __enter__(self) -> "Kept":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def findings(rows: DataFrame, rule: AuditRule, detail: Column, mended: Column | None = None) -> DataFrame:
    """Return a finding for each of ``rows``; a warning where ``mended`` is true, since the next start repairs it."""
    severity: Column = F.lit(rule.severity.value)
    if mended is not None:
        severity = F.when(F.coalesce(mended, F.lit(False)), Severity.WARNING.value).otherwise(severity)
    return as_findings(rows, rule=F.lit(rule.value), severity=severity, detail=detail)


def as_findings(rows: DataFrame, **columns: Column) -> DataFrame:
    """Return ``rows`` with ``COLUMNS``: those given, else their own, else null."""

    def column(name: str) -> Column:
        found: Column = columns.get(name, F.col(name) if name in rows.columns else F.lit(None))
        return found.cast(_TYPES.get(name, "string")).alias(name)

    return rows.select(*map(column, COLUMNS))


def together(parts: list[DataFrame]) -> DataFrame:
    """Return the findings of all ``parts``."""
    return reduce(DataFrame.unionByName, parts)


def but_for_removed(found: DataFrame, begins: Mapping[str, int]) -> DataFrame:
    """Drop the findings that a broker caused by removing files of the log during the audit.

    ``begins`` are the start offsets of the logs, by broker, after all tables were read.
    """
    is_of_place = F.col("rule").isin(*[rule.value for rule in _OF_ONE_PLACE]) & (F.col("physical_offset") >= 0)
    for broker, begin in begins.items():
        is_removed = is_of_place & (F.col("broker") == broker) & (F.col("physical_offset") < begin)
        found = found.where(~F.coalesce(is_removed, F.lit(False)))
    return found


def most_of_each_rule(found: DataFrame, limit: int) -> DataFrame:
    """Return the first ``limit`` findings of each broker, rule and severity, by place, with their ``count``."""
    kind = Window.partitionBy("broker", "rule", "severity")
    place = kind.orderBy("physical_offset", "topic", "queue_id", "queue_offset", "detail")
    numbered = found.select("*", F.count("*").over(kind).alias("count"), F.row_number().over(place).alias("number"))
    return numbered.where(F.col("number") <= limit).drop("number")
